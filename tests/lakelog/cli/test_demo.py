"""The demo's own check, on a few flights: it must find what is lost, doubled, changed or out of order."""

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from lakelog import Client, Producer
from lakelog.cli.flights import (
    COLUMNS,
    PARTITIONS,
    TOPIC,
    Flight,
    _compare,
    _read_back,
    carrier_counts,
    flight_rows,
    load_flights,
    run,
)
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.columns.declaration import NOTHING
from log_tables.columns.inference import inferred
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.partitions import append

FLIGHTS: list[Flight] = [
    (None if number % 10 == 0 else b"N%d" % (number % 7), b'{"flight": %d}' % number, 1_000 * number)
    for number in range(100)
]


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Client]:
    """A client of a gateway that has the demo's topic, empty."""
    with Client(gateway.url) as client:
        client.create_topic(TOPIC, PARTITIONS)
        yield client
        client.delete_topic(TOPIC)


def produce(client: Client, flights: list[Flight]) -> None:
    with Producer(client.url) as producer:
        for key, value, stamp in flights:
            producer.send(TOPIC, value, key, timestamp_ms=stamp)


def test_what_came_back_whole_and_in_order_is_right(client: Client) -> None:
    produce(client, FLIGHTS)
    assert _read_back(client, FLIGHTS) == []


@pytest.mark.parametrize(
    "wrong",
    [
        FLIGHTS[:-1],
        FLIGHTS[1:],
        [*FLIGHTS, FLIGHTS[51]],
        [*FLIGHTS, FLIGHTS[50]],
        [FLIGHTS[8], *FLIGHTS[:8], *FLIGHTS[9:]],
        [*FLIGHTS[:-1], (FLIGHTS[-1][0], b"{}", FLIGHTS[-1][2])],
        [*FLIGHTS[:-1], (FLIGHTS[-1][0], FLIGHTS[-1][1], 0)],
        [*FLIGHTS[:-1], (b"other", FLIGHTS[-1][1], FLIGHTS[-1][2])],
        [],
    ],
    ids=[
        "last lost",
        "first lost",
        "keyed twice",
        "unkeyed twice",
        "order",
        "value",
        "time",
        "key",
        "all lost",
    ],
)
def test_what_differs_is_found(client: Client, wrong: list[Flight]) -> None:
    produce(client, wrong)
    assert _read_back(client, FLIGHTS) != []


def test_the_demo_runs_again_where_it_ran_and_touches_nothing_else(tmp_path: Path) -> None:
    told = StringIO()
    console = Console(file=told, width=200)
    flights = load_flights().slice(0, 3_000)
    with running_gateway(tmp_path) as gateway:  # as left running by somebody who looked around
        gateway.create_topic("mine")
        for directory in ("topics/flights", "topics/flights~2"):
            report = run(flights, tmp_path, console)
            assert (report.problems, report.records) == ([], 3_000)
            assert report.tables == str(tmp_path / directory)
            assert report.counts.keys() == report.delays.keys()
            assert sum(report.counts.values()) == 3_000
            assert f"the topic is one Delta table, {report.tables};" in told.getvalue()
            assert f"UA  {report.counts['UA']:7,} flights" in told.getvalue()
        assert sorted(gateway.client.get("/topics").json()) == ["flights", "mine"]
    assert "none lost, doubled or out of order" in told.getvalue()


def test_an_answer_of_sql_that_differs_from_the_source_is_found() -> None:
    source = pa.table({"carrier": ["AA", "AA", "UA"], "dep_delay": [1, 2, None]})
    assert _compare({"AA": 1.5}, source.slice(0, 2)) == []
    assert _compare({"AA": 1.6}, source.slice(0, 2)) == ["carrier AA: SQL says 1.6, the source 1.5"]
    assert _compare({"AA": 1.5}, source) == ["SQL knows the carriers ['AA'], the source ['AA', 'UA']"]


def test_the_flights_are_declared_as_their_values_suggest() -> None:
    values = (value for _, value, _ in flight_rows(load_flights().slice(0, 1_000)))
    assert inferred(values, NOTHING).text == COLUMNS


def test_polars_counts_in_the_table_what_sql_counts_in_the_partitions(store_root: Path) -> None:
    cluster = Cluster.open(open_store(store_root))
    for name, records in (("one", 1), ("two", 2)):
        topic = create_topic(cluster, name, 1, {"value.columns": "carrier string"})
        topic.partition(0).claim("")
        append(topic.partition(0), *[b'{"carrier":"UA"}'] * records)
    assert carrier_counts(cluster, "one", f"{store_root}/topics/one") == ({"UA": 1}, [])
    fold(cluster.topic("two"))
    counts, problems = carrier_counts(cluster, "one", f"{store_root}/topics/two")
    assert (counts, len(problems)) == ({"UA": 1}, 1)


def test_a_record_in_another_partition_than_its_keys_is_found(client: Client) -> None:
    with Producer(client.url) as producer:
        for partition in range(PARTITIONS):
            producer.send(TOPIC, b"1", b"N1", timestamp_ms=0, partition=partition)
    assert any(
        "is in partition" in problem for problem in _read_back(client, [(b"N1", b"1", 0)] * PARTITIONS)
    )
