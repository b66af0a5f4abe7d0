"""kafka-bridge-client, a published client of the REST Proxy and the Strimzi bridge: only its URL is ours."""

import asyncio
import importlib
import sys
from base64 import b64decode
from collections import Counter
from contextlib import aclosing
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.run_credential import is_secured

pytestmark = pytest.mark.filterwarnings("ignore:mypy_extensions.TypedDict is deprecated")

VALUES = [f"value {n}".encode() for n in range(40)]
MAX_BYTES = 1_000
"""Of one answer: 13 records, so that every flow polls several times."""


@pytest.fixture(scope="module")
def bridge() -> ModuleType:
    """The client. It imports a name that it never uses from a sample module that not every Python has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "xxlimited", SimpleNamespace(Str=str))
        return importlib.import_module("kafka_bridge_client")


@pytest.fixture
def filled(gateway: RunningGateway, topic: str, bridge: ModuleType) -> str:
    """The test's topic with `VALUES`, which the client's own producer sent."""
    if is_secured():
        pytest.skip("its producer sends no credential")
    records = [bridge.Message(key=str(n), value=value) for n, value in enumerate(VALUES)]
    assert bridge.KafkaBridgeProducer(gateway.url, timeout=30).sends(topic, records, binary=True)
    return topic


def consumer(
    bridge: ModuleType,
    gateway: RunningGateway,
    topic: str,
    name: str,
    *,
    proxy: str = "confluent",
    auto_commit: bool = False,
) -> Any:
    """A consumer in the group that is called like the topic."""
    return bridge.KafkaBridgeConsumer(
        topic,
        bootstrap_server=gateway.url,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=auto_commit,
        consumer_name=name,
        proxy=proxy,
        sleep_interval_seconds=0,
        client_timeout_seconds=30,
    )


async def consume(reading: Any, count: int, *, commit: bool) -> list[dict[str, Any]]:
    """`count` records by the client's endless loop, each committed before the next when `commit`."""
    found: list[dict[str, Any]] = []
    async with reading, aclosing(reading.get_records(max_bytes=MAX_BYTES, timeout=1_000)) as records:
        async for record in records:
            found.append(record)
            if commit:
                await reading.commit()
            if len(found) == count:
                break
    return found


def values(records: list[dict[str, Any]]) -> list[bytes]:
    return [b64decode(record["value"]) for record in records]


def after(records: list[dict[str, Any]]) -> dict[int, int]:
    """The next offset of each partition after `records`, which must have all offsets from 0 on."""
    offsets: dict[int, list[int]] = {}
    for record in records:
        offsets.setdefault(record["partition"], []).append(record["offset"])
    assert all(found == list(range(len(found))) for found in offsets.values()), offsets
    return {partition: len(found) for partition, found in offsets.items()}


def committed(gateway: RunningGateway, group: str) -> dict[int, int]:
    """The committed offsets of the group by partition, asked over HTTP without the client."""
    answer = gateway.client.get(f"/consumers/{group}/offsets").json()
    return {found["partition"]: found["offset"] for found in answer["offsets"]}


def ends(gateway: RunningGateway, topic: str) -> dict[int, int]:
    paths = {partition: f"/topics/{topic}/partitions/{partition}/offsets" for partition in (0, 1)}
    return {partition: gateway.client.get(path).json()["end_offset"] for partition, path in paths.items()}


def test_a_second_goes_on_where_the_first_stopped(
    bridge: ModuleType, gateway: RunningGateway, filled: str
) -> None:
    """The first stops in the midst of an answer: what it was given and did not commit is the second's."""
    first = asyncio.run(consume(consumer(bridge, gateway, filled, "first"), 20, commit=True))
    assert committed(gateway, filled) == after(first)
    second = asyncio.run(consume(consumer(bridge, gateway, filled, "second"), 20, commit=True))
    assert Counter(values(first + second)) == Counter(VALUES)
    assert committed(gateway, filled) == after(first + second) == ends(gateway, filled)


def test_two_at_once_share_the_partitions(bridge: ModuleType, gateway: RunningGateway, filled: str) -> None:
    names = ("one", "other")
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}

    async def drain(name: str, reading: Any) -> None:
        while sum(map(len, found.values())) < len(VALUES):
            records = await reading.poll_records(max_bytes=MAX_BYTES, timeout=100)
            found[name] += records
            if records:
                await reading.commit()

    async def run() -> None:
        one, other = (consumer(bridge, gateway, filled, name) for name in names)
        async with one, other:
            await asyncio.gather(drain("one", one), drain("other", other))

    asyncio.run(run())
    assert Counter(values(found["one"] + found["other"])) == Counter(VALUES)
    shares = {name: {record["partition"] for record in records} for name, records in found.items()}
    assert sorted(shares.values(), key=min) == [{0}, {1}]
    assert committed(gateway, filled) == ends(gateway, filled)


def test_the_bridge_dialect_commits_by_itself(
    bridge: ModuleType, gateway: RunningGateway, filled: str
) -> None:
    """The consumer has the configuration of the Strimzi bridge; its deletion commits the records that it was
    given.
    """
    reading = consumer(bridge, gateway, filled, "reader", proxy="strimzi", auto_commit=True)
    records = asyncio.run(consume(reading, len(VALUES), commit=False))
    assert Counter(values(records)) == Counter(VALUES)
    assert committed(gateway, filled) == after(records) == ends(gateway, filled)
