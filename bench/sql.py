"""SQL over the flights of the demo: one record, a field of JSON, a declared column, next to one plain typed
Parquet file; which files a predicate opens; and what produce pays for columns.
"""

import json
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from datafusion import SessionContext

from bench import load
from bench.cells import Figures, body_file, scratch
from bench.contest import OURS, Results, Scale
from bench.gateway import Gateway
from bench.peers import Peers
from lakelog.cli.flights import COLUMNS, flight_rows, load_flights
from log_tables.clock import timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold
from log_tables.columns.declaration import parse
from log_tables.partition.partition import Partition
from log_tables.partition.sequencer import AppendRequest
from log_tables.record import binary_array, input_batch_from_columns
from log_tables.segments import rewrite
from log_tables.sql.query import query
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore

TEN = ", ".join(column.text for column in parse(COLUMNS).columns[5:15])
"""Ten of the demo's columns: numbers and texts."""

_TIMES = 7
_SEGMENT_ROWS = 5_000
_SEGMENTS = 1_000
_BODY_RECORDS, _CONNECTIONS, _KEYS, _PARTITIONS = 500, 16, 97, 4
GROUPED = "SELECT carrier, count(*) AS flights, avg(dep_delay) AS delay FROM {} GROUP BY carrier"


def grouped(_peers: Peers | None, _scale: Scale) -> Results:
    """`GROUP BY` over one field of the demo's flights, in one merged file: as a declared column, in the
    `_json` view, and in one Parquet file of the same rows, which DataFusion and Polars read.
    """
    with scratch() as directory:
        root, plain = directory / "data", directory / "flights.parquet"
        _write_plain(merged(root, "flights", {"value.columns": COLUMNS}), plain)
        table = str(root / "topics" / "flights")
        return {
            OURS: {
                "SQL ms": _median_ms(lambda: ask(root, GROUPED.format("flights"))),
                "Polars ms": _median_ms(lambda: _polars(pl.scan_delta(table))),
                "one record by its offset, ms": _median_ms(
                    lambda: ask(root, 'SELECT value_text FROM flights WHERE "offset" = 123456')
                ),
            },
            "the _json view": {"SQL ms": _median_ms(lambda: ask(root, GROUPED.format("flights_json")))},
            "one plain Parquet file": {
                "SQL ms": _median_ms(lambda: _datafusion(plain)),
                "Polars ms": _median_ms(lambda: _polars(pl.scan_parquet(plain))),
            },
        }


def sizes(_peers: Peers | None, _scale: Scale) -> Results:
    """The flights in one merged file: with all 19 columns declared, with none, and typed without the JSON."""
    with scratch() as directory:
        root, plain = directory / "data", directory / "flights.parquet"
        typed = merged(root, "typed", {"value.columns": COLUMNS})
        bare = merged(root, "bare", {})
        _write_plain(typed, plain)
        return {
            OURS: {"MB": size_of(typed) / 1e6},
            "without columns": {"MB": size_of(bare) / 1e6},
            "one plain Parquet file": {"MB": plain.stat().st_size / 1e6},
        }


def selective(_peers: Peers | None, _scale: Scale) -> Results:
    """The files that a predicate on a declared column opens of 1,000, and those that hold a match."""
    with scratch() as directory:
        partition = _topic(directory, "many", {"value.columns": "n bigint, s string"})
        for number in range(_SEGMENTS):
            values = [b'{"n":%d,"s":"%06d"}' % (number * 10 + row, number) for row in range(10)]
            _append(partition, values)
        store = FaultyStore(open_store(directory))
        found = query(Cluster.open(store), "SELECT s FROM many WHERE n BETWEEN 5005 AND 5034 AND s > '0'")
        read = {call.path for call in store.calls if call.operation in ("get", "get_range")}
        opened = sum(path.startswith("topics/many/") and path.endswith(".parquet") for path in read)
        held = len(set(found["s"].to_pylist()))
        return {OURS: {"files": float(opened)}, "files that hold a match": {"files": float(held)}}


def produce(_peers: Peers | None, scale: Scale) -> Results:
    """500 flights a request, 16 connections, 4 partitions: with ten columns, refusing, and without."""
    ten = {"value_columns": TEN}
    cases: Mapping[str, Mapping[str, str]] = {
        OURS: ten,
        "refusing what does not fit": {**ten, "value_columns_mode": "refuse"},
        "without columns": {},
    }
    return {name: _produced(configs, scale.seconds) for name, configs in cases.items()}


def _produced(configs: Mapping[str, str], seconds: int) -> Figures:
    figures = {}
    for name, keyed in (("records/s", False), ("keyed records/s", True)):
        with scratch() as directory, Gateway(directory / "data") as gateway:
            gateway.create_topic("flights", _PARTITIONS, **configs)
            url, body = f"{gateway.url}/topics/flights", body_file(directory, _body(keyed))
            load.post(url, body, load.JSON, _CONNECTIONS, 1)
            measured = load.post(url, body, load.JSON, _CONNECTIONS, seconds)
            figures[name] = measured.requests * _BODY_RECORDS / measured.seconds
    return figures


def _body(keyed: bool) -> bytes:
    rows = load_flights().slice(0, _BODY_RECORDS)
    records = [
        {"value": json.loads(value)} | ({"key": f"user{number % _KEYS}"} if keyed else {})
        for number, (_, value, _) in enumerate(flight_rows(rows))
    ]
    return json.dumps({"records": records}).encode()


def merged(
    root: Path, name: str, configs: Mapping[str, str], values: Iterable[bytes] | None = None
) -> Partition:
    """The flights as `values`, as JSON unless given, in a topic of one partition, merged into one file and
    folded.
    """
    partition = _topic(root, name, configs)
    left = iter(_json() if values is None else values)
    while part := [*islice(left, _SEGMENT_ROWS)]:
        _append(partition, part)
    store, directory, clock = partition.table.store, partition.directory, partition.clock
    inputs = partition.snapshot.segments
    rewrite.commit_merge(partition.table, inputs, rewrite.merge(store, directory, inputs, "zstd", clock))
    fold(Cluster.open(open_store(root)).topic(name))
    return partition


def _topic(root: Path, name: str, configs: Mapping[str, str]) -> Partition:
    partition = create_topic(Cluster.open(open_store(root)), name, 1, configs).partition(0)
    partition.claim("")
    return partition


def _json() -> Iterator[bytes]:
    return (value for _, value, _ in flight_rows(load_flights()))


def _append(partition: Partition, values: list[bytes]) -> None:
    batch = input_batch_from_columns(binary_array(values), now_us=0)
    partition.append([AppendRequest(batch)])


def _write_plain(partition: Partition, path: Path) -> None:
    names = parse(COLUMNS).names
    rows = pa.Table.from_batches(partition.read(partition.plan_read(0, 2**62), names))
    pq.write_table(rows, path, compression="zstd")


def size_of(partition: Partition) -> int:
    return sum(segment.size for segment in partition.refresh().segments)


def ask(root: Path, sql: str) -> pa.Table:
    return query(Cluster.open(open_store(root)), sql)


def _datafusion(path: Path) -> None:
    context = SessionContext()
    context.register_parquet("flights", path)
    context.sql(GROUPED.format("flights")).collect()


def _polars(frame: pl.LazyFrame) -> None:
    frame.group_by("carrier").agg(pl.len(), pl.col("dep_delay").mean()).collect()


def _median_ms(act: Callable[[], object]) -> float:
    """The median of a few times, after a first one."""
    act()
    times = []
    for _ in range(_TIMES):
        begin = timer()
        act()
        times.append((timer() - begin) * 1e3)
    return statistics.median(times)
