"""Producers of lakelog's own: no client uses one, guesses one, or writes so that a group's records vanish."""

import httpx
import pytest

from log_tables.cluster import Cluster
from log_tables.group_log import TransactionsKey, TransactionsValue, replay
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.limits import KEPT_PRODUCER_ID_MIN, PRODUCER_EPOCH_MAX, PRODUCER_ID_MAX
from log_tables.store import open_store
from tests.gateway import RunningGateway

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


@pytest.mark.parametrize("producer", [PRODUCER_ID_MAX + 1, 2**63 - 1])
def test_the_ids_that_lakelog_keeps_are_refused_before_anybody_has_one(
    gateway: RunningGateway, topic: str, producer: int
) -> None:
    assert stamped(gateway, topic, producer, 0).json()["error_code"] == 40002
    assert stamped(gateway, topic, PRODUCER_ID_MAX, 0).status_code == 200
