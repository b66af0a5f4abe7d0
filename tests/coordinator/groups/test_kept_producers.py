"""Producers of lakelog's own: no client uses one, guesses one, or writes so that a group's records vanish."""

from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import TransactionsKey, TransactionsValue, replay
from log_tables.errors import ProducerTaken, SequenceGap, StaleProducerEpoch
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import BRIEF_PRODUCER_ID_MIN, KEPT_PRODUCER_ID_MIN, PRODUCER_EPOCH_MAX, PRODUCER_ID_MAX
from log_tables.partition.partition import ProducerStamp
from log_tables.partition.sequencer import client_producer_id, kept_producer_id
from log_tables.store.store import open_store
from log_tables.table.txns import ProducerState
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.groups import say
from tests.kit.partitions import entry
from tests.log_tables.partition.test_sequencer import sequencer

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


def producer_of(gateway: RunningGateway, group: str) -> int:
    """The group's own, as who can read the root finds it."""
    topic = Cluster.open(open_store(gateway.data)).topic(CONSUMER_OFFSETS)
    said = dict(pair for partition in topic.partitions() for pair in replay(partition))
    count = said[TransactionsKey(group)]
    assert isinstance(count, TransactionsValue)
    return count.producer_id


def transact(gateway: RunningGateway, group: str, topic: str, value: str) -> httpx.Response:
    body = {"records": [{"topic": topic, "partition": 0, "value": value}]}
    return gateway.client.post(f"/consumers/{group}/transactions", json=body, headers=JSON)


def values(gateway: RunningGateway, topic: str) -> list[str]:
    answer = gateway.client.get(
        f"/topics/{topic}/partitions/0/records", headers={"Accept": JSON["Content-Type"]}
    )
    return [record["value"] for record in answer.json()]


def stamped(
    gateway: RunningGateway, topic: str, producer: int, epoch: int, sequence: int = 0
) -> httpx.Response:
    names = {"Producer-Id": producer, "Producer-Epoch": epoch, "Producer-Seq": sequence}
    return gateway.client.post(
        f"/topics/{topic}/partitions/0",
        json={"records": [{"value": "forged"}]},
        headers={**JSON, **{name: str(number) for name, number in names.items()}},
    )


@pytest.mark.parametrize("epoch", [0, 3, PRODUCER_EPOCH_MAX])
def test_nobody_outbids_the_producer_of_a_group(gateway: RunningGateway, topic: str, epoch: int) -> None:
    for number in (1, 2):
        assert transact(gateway, topic, topic, f"paid-{number}").status_code == 200
    own = producer_of(gateway, topic)
    assert own >= KEPT_PRODUCER_ID_MIN
    forged = stamped(gateway, topic, own, epoch)
    assert (forged.status_code, forged.json()["error_code"]) == (400, 40002)
    for number in (3, 4, 5):
        answer = transact(gateway, topic, topic, f"paid-{number}")
        assert answer.json()["offsets"][0]["base_offset"] == number - 1
    assert values(gateway, topic) == [f"paid-{number}" for number in range(1, 6)]


@pytest.mark.parametrize("producer", [BRIEF_PRODUCER_ID_MIN, PRODUCER_ID_MAX, PRODUCER_ID_MAX + 1, 2**63 - 1])
def test_the_ids_that_lakelog_keeps_are_refused_before_anybody_has_one(
    gateway: RunningGateway, topic: str, producer: int
) -> None:
    assert stamped(gateway, topic, producer, 0).json()["error_code"] == 40002
    assert stamped(gateway, topic, BRIEF_PRODUCER_ID_MIN - 1, 0).status_code == 200


OLD = BRIEF_PRODUCER_ID_MIN - 7
"""A group's producer in a root of an older version: a client could name it."""


def test_in_an_older_root_the_leader_knows_whose_a_producer_is(tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path / "root"))
    out = cluster.claim(create_topic(cluster, "out"), 0)
    out.append([entry(b'"paid-1"', producer=ProducerStamp(OLD, 1, 0, kept=True))])
    index = partition_for_key(b"pay", 2, MURMUR3)
    say(cluster, (TransactionsKey("pay"), TransactionsValue(OLD, 1)), index=index)
    with running_gateway(tmp_path / "root", linger_ms=0) as gateway:
        for epoch in (0, 1, PRODUCER_EPOCH_MAX):
            forged = stamped(gateway, "out", OLD, epoch)
            assert (forged.status_code, forged.json()["error_code"]) == (403, 40311)
        for number in (2, 3):
            answer = transact(gateway, "pay", "out", f"paid-{number}").json()
            assert (answer["transaction"], answer["offsets"][0]["base_offset"]) == (number, number - 1)
        assert producer_of(gateway, "pay") >= KEPT_PRODUCER_ID_MIN
        assert values(gateway, "out") == ["paid-1", "paid-2", "paid-3"]


@given(st.integers(0, 2**32))
def test_ids_that_are_drawn_are_on_their_side(seed: int) -> None:
    clock = ManualClock(seed=seed)
    assert 0 <= client_producer_id(clock) <= PRODUCER_ID_MAX
    assert KEPT_PRODUCER_ID_MIN <= kept_producer_id(clock) < 2**63


IDS = (1, OLD, PRODUCER_ID_MAX, KEPT_PRODUCER_ID_MIN, 2**63 - 1)
stamps = st.builds(
    ProducerStamp, st.sampled_from(IDS), st.sampled_from([0, 1, 2, 3, PRODUCER_EPOCH_MAX]), st.integers(0, 3)
)


@given(
    st.sampled_from([OLD, KEPT_PRODUCER_ID_MIN]),
    st.lists(st.one_of(stamps, st.sampled_from(["transaction", "again"])), max_size=30),
)
def test_whatever_clients_send_a_groups_transactions_are_there_once_and_in_order(
    own: int, happens: list[ProducerStamp | str]
) -> None:
    """Clients send any stamp, the group its transactions, now and then an older one again."""
    leader, number, there = sequencer(1, **{f"p{own}": ProducerState(0, 1, 1, kept=True)}), 0, []
    for what in happens:
        if isinstance(what, ProducerStamp):
            if what.id == own or what.id > PRODUCER_ID_MAX:
                with pytest.raises(ProducerTaken):
                    leader.sequence(entry(b"forged", producer=what))
            else:
                with suppress(StaleProducerEpoch, SequenceGap):
                    leader.sequence(entry(b"forged", producer=what))
        else:
            number += what == "transaction"
            stamp = ProducerStamp(own, number, 0, kept=True)
            if number:
                found = leader.sequence(entry(b"paid", producer=stamp))
                assert found.duplicate == (number in there)
                there += [] if found.duplicate else [number]
    assert there == [*range(1, number + 1)]
