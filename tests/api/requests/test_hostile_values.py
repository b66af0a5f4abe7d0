"""Values made to break a reader of JSON, sent to topics with declared columns: kept whole, or refused."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from log_tables.cluster.cluster import Cluster
from log_tables.layout import VALUE, VALUE_ERROR
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway, two_gateways
from tests.kit.produce import ARROW, BINARY, JSON, ends, post, records, stream
from tests.kit.support import wait_until

COLUMNS = "n bigint, s string, l array<bigint>, o struct<a: double>"
DEEP = b"[" * 100_000 + b"]" * 100_000
HOSTILE = {
    "deep": DEEP,
    "deep in an unknown field": b'{"x":' + DEEP + b"}",
    "deep in a column": b'{"l":' + DEEP + b"}",
    "many fields": json.dumps({f"f{number}": number for number in range(10_000)}).encode(),
    "one name often": b"{" + b",".join(b'"n":%d' % number for number in range(10_000)) + b"}",
    "a lone surrogate": b'{"s":"\\ud800"}',
    "no UTF-8": b'{"s":"\xff\xfe"}',
    "a large number": b'{"n":' + b"9" * 5_000 + b"}",
    "a large exponent": b'{"o":{"a":1e999999}}',
    "NaN": b'{"o":{"a":NaN}}',
    "a zero byte": b'{"s":"\\u0000"}',
    "a long string": b'{"s":"' + b"x" * 10_000_000 + b'"}',
    "torn": b'{"n":1',
    "two values": b'{"n":1}{"n":2}',
    "blank": b" ",
    "empty": b"",
}
FITS = {"many fields", "one name often", "a zero byte", "a long string"}
"""Those that are objects whose declared fields fit."""


def stored(partition: Partition) -> list[tuple[bytes, str | None]]:
    """The values of a partition, and why each does not fit."""
    partition.refresh()
    plan = partition.plan_read(0, 1 << 30)
    batches = [*partition.read(plan, [VALUE, VALUE_ERROR])]
    return [(row[VALUE], row[VALUE_ERROR]) for batch in batches for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_gateway(tmp_path_factory.mktemp("hostile"), linger_ms=0) as gateway:
        yield gateway


def binary(value: bytes) -> bytes:
    return records({"value": base64.b64encode(value).decode()})


def test_a_topic_that_keeps_has_every_byte_of_every_value(world: RunningGateway) -> None:
    name = world.create_topic("keeps", value_columns=COLUMNS, max_message_bytes="20000000")
    for value in HOSTILE.values():
        assert post(world, f"/topics/{name}", binary(value), BINARY).status_code == 200
        table = pa.table({"value": [value]})
        assert post(world, f"/topics/{name}", stream(table), ARROW).status_code == 200
    topic = Cluster.open(open_store(world.data), create=False).topic(name)
    found = stored(topic.partition(0))
    assert [value for value, _ in found] == [each for value in HOSTILE.values() for each in (value, value)]
    for (label, value), (_, error) in zip(
        [(label, value) for label, value in HOSTILE.items() for _ in range(2)], found, strict=True
    ):
        assert (error is None) == (label in FITS), (label, error)
        assert error is None or len(error.encode()) <= 200, (label, value[:20])


def test_a_topic_that_refuses_has_none_of_those_that_do_not_fit(world: RunningGateway) -> None:
    name = world.create_topic(
        "refuses", value_columns=COLUMNS, value_columns_mode="refuse", max_message_bytes="20000000"
    )
    taken = []
    for label, value in HOSTILE.items():
        answer = post(world, f"/topics/{name}", binary(value), BINARY)
        if answer.status_code == 200:
            taken.append(label)
        else:
            assert (answer.status_code, answer.json()["error_code"]) == (422, 42210), label
            assert len(answer.content) < 2_000, "the answer does not repeat the value"
    assert {*taken} == FITS
    topic = Cluster.open(open_store(world.data), create=False).topic(name)
    assert stored(topic.partition(0)) == [(HOSTILE[label], None) for label in taken]
    assert world.client.get("/health").status_code == 200
    assert check(open_store(world.data), deep=True).problems == []


def test_a_column_has_as_long_a_string_as_a_record_may_have(world: RunningGateway) -> None:
    name = world.create_topic("bounded", value_columns="s string", max_message_bytes="1000")
    fits, too_long = ({"s": "x" * length} for length in (991, 992))
    assert post(world, f"/topics/{name}", records({"value": fits}), JSON).status_code == 200
    told = post(world, f"/topics/{name}", records({"value": fits}, {"value": too_long}), JSON)
    assert (told.status_code, told.json()["error_code"]) == (413, 413), told.text
    partition = Cluster.open(open_store(world.data), create=False).topic(name).partition(0)
    assert rows_of(partition, ["s"]) == [fits]


def test_a_topic_has_256_columns_and_no_more(world: RunningGateway) -> None:
    names = [f"c{number}" for number in range(256)]
    declared = ", ".join(f"{column} bigint" for column in names)
    name = world.create_topic("wide", value_columns=declared, value_columns_mode="refuse")
    value = {column: number for number, column in enumerate(names)}
    assert post(world, f"/topics/{name}", records({"value": value}), JSON).status_code == 200
    told = post(world, f"/topics/{name}", records({"value": {**value, "c255": "x"}}), JSON)
    assert (told.status_code, told.json()["path"]) == (422, "/c255")
    partition = Cluster.open(open_store(world.data), create=False).topic(name).partition(0)
    assert rows_of(partition, names) == [value]
    one_more = {"data": [{"name": "value.columns", "value": f"{declared}, c256 bigint"}]}
    told = world.client.post(f"{world.cluster}/topics/{name}/configs:alter", json=one_more)
    assert (told.status_code, "256" in told.json()["message"]) == (400, True), told.text


def rows_of(partition: Partition, columns: list[str]) -> list[dict[str, object]]:
    plan = partition.plan_read(0, 1 << 30)
    return [row for batch in partition.read(plan, columns) for row in batch.to_pylist()]


def two_of_which_the_second_is_bad(
    cluster: str, topic: str, partition: int
) -> Iterator[tuple[str, bytes, str]]:
    """Path, body and media type of each kind of request that appends to a partition."""
    good, bad = {"n": 1}, {"n": "x"}
    path = f"/topics/{topic}/partitions/{partition}"
    values = [json.dumps(each).encode() for each in (good, bad)]
    yield path, records({"value": good}, {"value": bad}), JSON
    yield path, stream(pa.table({"value": values})), ARROW
    typed = [{"partition_id": partition, "value": {"type": "JSON", "data": each}} for each in (good, bad)]
    yield f"{cluster}/topics/{topic}/records", "\n".join(map(json.dumps, typed)).encode(), "application/json"
    rows = [{"topic": topic, "partition": partition, "value": each} for each in (good, bad)]
    yield "/consumers/typed/transactions", records(*rows), JSON


def test_a_gateway_refuses_what_another_one_would_append(tmp_path: Path) -> None:
    with two_gateways(tmp_path, linger_ms=0) as gateways:
        name = gateways[0].create_topic("t", 4, value_columns="n bigint", value_columns_mode="refuse")
        good = records(*({"value": {"n": 1}, "partition": number} for number in range(4)))
        wait_until(
            lambda: all(post(each, f"/topics/{name}", good, JSON).status_code == 200 for each in gateways),
            "both reach every leader",
        )
        topic = Cluster.open(open_store(tmp_path), create=False).topic(name)
        led = {partition.snapshot.leader_broker for partition in topic.partitions()}
        before = ends(gateways[0], name)
        for number in range(4):
            for path, body, kind in two_of_which_the_second_is_bad(gateways[0].cluster, name, number):
                told = [post(each, path, body, kind) for each in gateways]
                assert [each.status_code for each in told] == [422, 422], path
                assert told[0].json() == told[1].json()
                assert told[0].json()["index"] == 1
        assert ends(gateways[0], name) == before
        assert len(led) == 2, "each leads some"
