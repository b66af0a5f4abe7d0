"""A consumer in its group: sharing, callbacks, heartbeats, instances and partitions that are taken away."""

from itertools import islice

import pytest

from lakelog import Client
from log_tables import errors
from log_tables.topic_partition import TopicPartition
from tests.kit.consuming import Losing, Make, Told, committed, polled, telling
from tests.kit.gateway import RunningGateway
from tests.kit.support import wait_until


def test_two_share_and_hear_of_it(gateway: RunningGateway, client: Client, make: Make, topic: str) -> None:
    for partition in range(2):
        gateway.produce(topic, *range(3), partition=partition)
    told: Told = []
    noted: list[dict[int, int]] = []
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]

    def revoked(partitions: list[TopicPartition]) -> None:
        told.append(("revoked", partitions))
        first.commit()
        noted.append(committed(client, topic))

    first = make(auto_commit=False, **(telling(told) | {"on_revoked": revoked}))
    assert polled(first, 6) == {0: [0, 1, 2], 1: [0, 1, 2]}
    assert told == [("assigned", both)]
    second = make(auto_commit=False)
    second.poll(0)
    assert second.assignment == set()
    wait_until(lambda: first.poll(0) is not None and len(first.assignment) == 1, "one is given up")
    (kept,) = first.assignment
    (given,) = {*both} - {kept}
    assert told[1:] == [("revoked", [given])]
    assert noted == [{0: 3, 1: 3}]
    wait_until(lambda: second.poll(0) is not None and second.assignment == {given}, "it is taken over")
    for partition in range(2):
        gateway.produce(topic, 3, partition=partition)
    assert polled(first, 1) == {kept.partition: [3]}
    assert polled(second, 1) == {given.partition: [3]}
    second.close()
    assert polled(first, 1) == {given.partition: [3]}  # which the other has not committed
    assert told[2:] == [("assigned", [given])]
    first.close()
    assert told[3:] == [("revoked", both)]


def test_partitions_of_its_own_are_not_shared(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    gateway.produce(topic, *range(3), partition=1)
    told: Told = []
    with make(partitions=[(topic, 1)], **telling(told)) as consumer:
        assert polled(consumer, 3) == {1: [0, 1, 2]}
        assert consumer.poll(0).num_rows == 0
    assert committed(client, topic) == {1: 3}
    assert told == []
    late = make(partitions=[(topic, 0)], auto_offset_reset="latest")
    assert late.positions() == {(topic, 0): 3}
    gateway.produce(topic, 3, partition=0)
    assert polled(late, 1) == {0: [3]}


def test_a_lost_instance_begins_again(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    told: Told = []
    both = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    consumer = make(name="me", auto_commit=False, **telling(told))
    list(islice(consumer, 2))
    consumer.commit()
    gateway.client.delete(f"/consumers/{topic}/instances/me")
    with pytest.raises(errors.UnknownMember):
        consumer.commit()
    assert polled(consumer, 1) == {0: [2]}
    assert told == [("assigned", both), ("lost", both), ("assigned", both)]
    assert [each["member"] for each in client.group(topic)["members"]] == ["me"]


def test_partitions_taken_away_are_lost_and_not_revoked(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    told: Told = []
    consumer = make(max_poll_interval_ms=200, auto_commit=False, **telling(told))
    assert polled(consumer, 3) == {0: [0, 1, 2]}
    wait_until(lambda: not client.group(topic)["members"][0]["partitions"], "it is too slow")
    with pytest.raises(errors.Conflict):
        consumer.commit()
    assert polled(consumer, 3) == {0: [0, 1, 2]}
    assert [what for what, _ in told] == ["assigned", "lost", "assigned"]


def test_closing_after_partitions_were_taken_away_leaves_the_group(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(3), partition=0)
    told: Told = []
    consumer = make(max_poll_interval_ms=200, **telling(told))
    assert polled(consumer, 3) == {0: [0, 1, 2]}
    wait_until(lambda: not client.group(topic)["members"][0]["partitions"], "it is too slow")
    consumer.close()
    assert client.group(topic)["members"] == []
    assert [what for what, _ in told] == ["assigned", "lost"]


def test_its_heart_beats_while_the_program_works_and_not_after(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    beats = Losing()
    beats.kind = "/heartbeat"
    with make(session_timeout_ms=1_000, transport=beats, name="me") as consumer:
        consumer.poll(0)
        wait_until(lambda: beats.count > 9, "three sessions pass")
        assert [each["member"] for each in client.group(topic)["members"]] == ["me"]
        assert consumer.poll(0).num_rows == 0
        assert consumer.assignment
    assert client.group(topic)["members"] == []
    before = beats.count
    other = make(session_timeout_ms=300, name="other")
    other.poll(500)
    assert beats.count == before
