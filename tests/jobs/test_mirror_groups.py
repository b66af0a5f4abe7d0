"""Offsets of groups are here as at the source once their records are, and nobody's here are set back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from jobs.mirror.groups import GroupSync
from jobs.mirror.groups_moved import GroupsBehind, await_groups
from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_broker import Broker
from tests.kit.kafka_member import CONSUMER
from tests.kit.mirror_groups import commit, committed, group_sync, member, produce, states
from tests.kit.mirrors import cluster, level, name, note, running, sound
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]


@pytest.fixture
def gateway(store_root: Path, cluster: Cluster) -> Iterator[KafkaGateway]:
    """A gateway on the root of `cluster`."""
    with kafka_gateway(store_root) as running_:
        yield running_


@pytest.fixture
def copied(kafka: Broker, cluster: Cluster, name: str) -> str:
    """A topic of two partitions with ten records each, which is copied, as no process copies any more."""
    kafka.create_topic(name, 2)
    produce(kafka, name, 10, 2)
    note(cluster, kafka, name, groups=[f"^{name}-.*"])
    with running(cluster):
        level(cluster, kafka, name)
    return name


@pytest.fixture
def sync(kafka: Broker, cluster: Cluster, gateway: KafkaGateway) -> Iterator[GroupSync]:
    """It brings the groups over."""
    with group_sync(cluster, kafka) as made:
        yield made


def test_offsets_of_groups_of_each_type_are_the_same(
    kafka: Broker, cluster: Cluster, gateway: KafkaGateway, copied: str, sync: GroupSync
) -> None:
    commit(kafka, copied, {0: 7, 1: 0}, f"{copied}-simple", metadata="a note")
    for group, terms in {f"{copied}-classic": {}, f"{copied}-consumer": CONSUMER}.items():
        with member(kafka.bootstrap, group, copied, **{"auto.offset.reset": "earliest", **terms}) as consumer:
            seen = [consumer.poll(10) for _ in range(3)]
            assert all(each is not None for each in seen)
            consumer.commit(asynchronous=False)
    there = sync.groups()
    assert set(there) == {f"{copied}-{kind}" for kind in ("simple", "classic", "consumer")}
    assert {each.state for each in sync.look(there)} == {"equal"}
    for group in there:
        assert committed(gateway.bootstrap, group) == committed(kafka.bootstrap, group) != {}
    assert committed(gateway.bootstrap, f"{copied}-simple")[copied, 0] == (7, "a note")
    sound(cluster)


def test_an_offset_waits_for_its_records(
    kafka: Broker, cluster: Cluster, gateway: KafkaGateway, copied: str, sync: GroupSync
) -> None:
    group = f"{copied}-ahead"
    produce(kafka, copied, 5, 2)
    commit(kafka, copied, {0: 10, 1: 15}, group)
    assert states(sync, group) == {0: (10, 10, "equal"), 1: (15, None, "waits for records")}
    assert committed(gateway.bootstrap, group) == {(copied, 0): (10, "")}
    with running(cluster):
        level(cluster, kafka, copied)
    assert states(sync, group)[1] == (15, 15, "equal")
    commit(kafka, copied, {0: 3}, group)  # the source was set back, and nobody was here
    assert states(sync, group)[0] == (3, 3, "equal")


@pytest.mark.parametrize("terms", [{}, CONSUMER], ids=["classic", "consumer"])
def test_a_group_with_members_here_or_that_was_used_here_is_left_alone(
    terms: dict[str, str], kafka: Broker, gateway: KafkaGateway, copied: str, sync: GroupSync
) -> None:
    group = f"{copied}-moved"
    commit(kafka, copied, {0: 4, 1: 2}, group)
    assert states(sync, group) == {0: (4, 4, "equal"), 1: (2, 2, "equal")}
    with member(gateway.bootstrap, group, copied, **terms) as consumer:
        commit(kafka, copied, {0: 5}, group)
        assert states(sync, group)[0] == (5, 4, "has members here")
        first = consumer.poll(10)
        assert first is not None
        consumer.commit(message=first, asynchronous=False)
    commit(kafka, copied, {0: 9, 1: 9}, group)
    assert {state for _, _, state in states(sync, group).values()} == {"used here"}
    here = committed(gateway.bootstrap, group)
    answer = gateway.running.client.delete(f"/consumers/{group}")
    assert answer.status_code == 204
    assert here != committed(gateway.bootstrap, group) == {}
    sync.look([group])  # it may not have seen that yet
    wait_until(lambda: states(sync, group) == {0: (9, 9, "equal"), 1: (9, 9, "equal")}, "it is as there")


def test_a_transaction_that_is_open_is_waited_for(
    kafka: Broker, gateway: KafkaGateway, copied: str, sync: GroupSync
) -> None:
    group = f"{copied}-exact"
    commit(kafka, copied, {0: 1, 1: 1}, group)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": group})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    with member(kafka.bootstrap, group, copied) as consumer:
        places = [TopicPartition(copied, 0, 6)]
        producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), WAIT_S)
    sync.round()
    assert committed(gateway.bootstrap, group) == {(copied, 0): (1, ""), (copied, 1): (1, "")}
    (waits,) = sync.look([group])
    assert (waits.topic, waits.state) == ("", "not set yet")
    with pytest.raises(GroupsBehind, match="it is asked again"):
        await_groups(sync, [group], 0, SystemClock())
    producer.commit_transaction(WAIT_S)
    await_groups(sync, [group], WAIT_S, SystemClock())
    assert committed(gateway.bootstrap, group) == {(copied, 0): (6, ""), (copied, 1): (1, "")}
