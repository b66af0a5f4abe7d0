"""The examples, run on a topic of flights as the demo's is."""

import csv
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from examples import delays_by_day, latest_by_plane, topic_to_topic, with_names
from lakelog.client.client import Client
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.kit.gateway import running_gateway
from tests.kit.queries import patiently
from tests.kit.spark import spark_submit
from tests.kit.support import ROOT

pytestmark = pytest.mark.spark

DAY_US = 86_400_000_000
FIRST_DAY_US = 15_706 * DAY_US  # 2013-01-01
CARRIERS = ("AA", "DL", "UA", "YV")
PLANES = 7


def flight(number: int) -> Record:
    """The flight of this number, of ten a day."""
    row = {"carrier": CARRIERS[number % 4], "dep_delay": number % 30, "flight": number}
    key = None if number % 10 == 9 else f"N{number % PLANES}".encode()
    return Record(json.dumps(row).encode(), key, timestamp_us=FIRST_DAY_US + number * DAY_US // 10)


class Flights:
    """The topic `flights` with two partitions, to which more flights can be appended."""

    def __init__(self, root: Path) -> None:
        self.root, self.count = root, 0
        cluster = Cluster.open(open_store(root))
        topic = create_topic(cluster, "flights", 2)
        self._partitions = [cluster.claim(topic, index) for index in range(2)]

    def append(self, count: int) -> None:
        records = [flight(number) for number in range(self.count, self.count + count)]
        self.count += count
        for index, partition in enumerate(self._partitions):
            mine = [record for record in records if partition_for_key(record.key or b"", 2, MURMUR3) == index]
            partition.append([AppendRequest(input_batch(mine, 0))])


@pytest.fixture
def flights(store_root: Path) -> Flights:
    made = Flights(store_root)
    made.append(100)
    return made


def test_an_aggregation_with_a_watermark_writes_each_day_once(
    spark: SparkSession, flights: Flights, tmp_path: Path
) -> None:
    target = str(tmp_path / "delays")
    patiently(lambda: delays_by_day.main(spark, str(flights.root), target))
    flights.append(50)
    patiently(lambda: delays_by_day.main(spark, str(flights.root), target))
    rows = spark.read.format("delta").load(target).orderBy("day", "carrier").collect()
    days = [str(row.day) for row in rows]
    assert days[0] == "2013-01-01"
    assert len({(row.day, row.carrier) for row in rows}) == len(rows)
    for row in rows:
        day = (row.day.toordinal() - 734_869) * 10
        mine = [n for n in range(day, day + 10) if CARRIERS[n % 4] == row.carrier]
        assert (row.flights, row.delay) == (len(mine), sum(n % 30 for n in mine) / len(mine))
    # 15 days came; the last two and the one that has just begun may still get flights.
    assert len(set(days)) >= 11


def test_merging_in_batches_keeps_the_latest_flight_of_each_plane(
    spark: SparkSession, flights: Flights, tmp_path: Path
) -> None:
    target = str(tmp_path / "planes")
    for _ in range(2):
        patiently(lambda: latest_by_plane.main(spark, str(flights.root), target))
        found = spark.read.format("delta").load(target).collect()
        latest = {f"N{number % PLANES}": number for number in range(flights.count) if number % 10 != 9}
        assert {row.plane: json.loads(row.flight)["flight"] for row in found} == latest
        flights.append(30)


def test_a_join_with_a_table_names_the_carriers(
    spark: SparkSession, flights: Flights, tmp_path: Path
) -> None:
    target = str(tmp_path / "named")
    for _ in range(2):
        patiently(lambda: with_names.main(spark, str(flights.root), target))
        rows = spark.read.format("delta").load(target).collect()
        assert sorted(row.flight for row in rows) == list(range(flights.count))
        names = dict(with_names.NAMES)
        assert all(row.name == names.get(row.carrier) for row in rows)
        flights.append(20)


def test_late_flights_go_from_topic_to_topic_once(
    spark: SparkSession, flights: Flights, tmp_path: Path
) -> None:
    with running_gateway(flights.root) as gateway, Client(gateway.url) as client:
        client.create_topic("late", 2)
        for _ in range(2):
            words = (str(flights.root), "flights", "late", str(tmp_path / "checkpoint"), gateway.url)
            patiently(lambda: topic_to_topic.main(spark, *words))  # noqa: B023
            rows = [record for index in range(2) for record in client.read("late", index)]
            numbers = sorted(json.loads(row.value or b"{}")["flight"] for row in rows)
            assert numbers == [number for number in range(flights.count) if number % 30 > 15]
            first = {json.loads(row.value or b"{}")["flight"]: row.timestamp_us for row in rows}[16]
            assert first == flight(16).timestamp_us
            for number in range(flights.count, flights.count + 30):
                assert gateway.produce("flights", {"flight": number, "dep_delay": number % 30}).is_success
            flights.count += 30


def test_a_job_is_submitted_with_the_package_as_an_archive(
    flights: Flights, wheel: Path, tmp_path: Path
) -> None:
    target = tmp_path / "counts"
    job = (ROOT / "examples" / "submitted.py", flights.root, "flights", target)
    done = spark_submit(tmp_path, "local[1]", "--py-files", wheel, *job, PYTHONPATH="")
    assert done.returncode == 0, done.stderr[-4000:]
    (file,) = target.glob("*.csv")
    counts = {int(row["partition"]): int(row["count"]) for row in csv.DictReader(file.open())}
    assert sum(counts.values()) == 100
    assert sorted(counts) == [0, 1]
