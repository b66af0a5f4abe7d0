"""The maintenance jobs: each function is one cell. `bench/steady.py` and `bench/beside.py` have two more."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from bench.cells import Figures, scratch
from bench.contest import OURS, Results, Scale
from bench.maintenance_load import Events, append, files, fill
from bench.peers import Peers
from bench.spark_job import Job, Worker
from bench.spark_load import TOPIC
from jobs import retention
from jobs.local_engine import LocalEngine
from jobs.state import look
from log_tables.clock import SystemClock, timer
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_admin import create_topic
from log_tables.layout import segment_base_offset
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore

SEGMENTS = 2_000
MANY_PARTITIONS, FEW_SEGMENTS = 64, 100
KEYS, SEGMENT_ROWS = 100_000, 50_000
EXPIRED, KEPT = 9_990, 10
ENGINES = ("local", "spark")
SMALL_PARTITIONS, SMALL_ROWS = 4, 10
_AT_ONCE = {"merge.min.age.ms": "0"}


def merge(_peers: Peers | None, scale: Scale) -> Results:
    """One partition of 2,000 segments with 2 of every 5 of `--records`; OPTIMIZE of a copy of its table."""
    return _measured("merge", 1, SEGMENTS, _merged_records(scale) // SEGMENTS, _AT_ONCE)


def merge_many(_peers: Peers | None, scale: Scale) -> Results:
    """As many records in 64 partitions of 100 segments, in one job; OPTIMIZE of each table in turn."""
    rows = _merged_records(scale) // (MANY_PARTITIONS * FEW_SEGMENTS)
    return _measured("merge", MANY_PARTITIONS, FEW_SEGMENTS, rows, _AT_ONCE)


def read(_peers: Peers | None, scale: Scale) -> Results:
    """A count and two sums by `spark.read.format("lakelog")`: those 2,000 segments, and what they become."""
    return _measured("read", 1, SEGMENTS, _merged_records(scale) // SEGMENTS, _AT_ONCE)


def clean(_peers: Peers | None, scale: Scale) -> Results:
    """One partition of `--records` records with 100,000 keys, in segments of 50,000."""
    return _measured("clean", 1, scale.records // SEGMENT_ROWS, SEGMENT_ROWS, {"cleanup.policy": "compact"})


def _merged_records(scale: Scale) -> int:
    return scale.records * 2 // 5


def _measured(verb: str, partitions: int, segments: int, rows: int, configs: Mapping[str, str]) -> Results:
    with scratch() as directory:
        root = directory / "data"
        fill(root, partitions, segments, rows, configs, Events(KEYS))
        records = partitions * segments * rows
        job = Job(verb, OURS, str(root), str(directory / "spark"), records, partitions, segments)
        with Worker(job, "bench.maintenance_worker") as worker:
            return worker.figures()


def first_run(_peers: Peers | None, _scale: Scale) -> Results:
    """`lakelog maintain --once` on a root of four small partitions, as a process; then the same in Spark."""
    with scratch() as directory:
        for engine in ENGINES:
            root = directory / engine
            fill(root, SMALL_PARTITIONS, FEW_SEGMENTS, SMALL_ROWS, _AT_ONCE, Events(KEYS))
        seconds = {engine: _once(directory / engine, engine) for engine in ENGINES}
        left = {engine: files(directory / engine, SMALL_PARTITIONS) for engine in ENGINES}
        if set(left.values()) != {SMALL_PARTITIONS}:
            raise RuntimeError(f"there are {left} files after a first run of {SMALL_PARTITIONS} partitions")
        return {OURS: {"s": seconds["local"]}, "the Spark engine": {"s": seconds["spark"]}}


def _once(root: Path, engine: str) -> float:
    begin = timer()
    words = ["maintain", "--once", "--data", str(root), "--engine", engine]
    subprocess.run([sys.executable, "-m", "lakelog", *words], check=True, stdout=subprocess.DEVNULL)
    return timer() - begin


def expire(_seconds: int) -> Figures:
    """Retention of 10,000 segments, of which all but ten are too old, from opening the root."""
    with scratch() as directory:
        _fill_expired(directory)
        store = FaultyStore(open_store(str(directory)))
        begin = timer()
        cluster = Cluster.open(store)
        states, _ = look(cluster)
        steps = retention.plan(states, cluster.clock.now_ms())
        done = [*retention.run(LocalEngine(), cluster, steps)]
        elapsed = timer() - begin
        segments = (call for call in store.calls if segment_base_offset(call.path) is not None)
        touched = [call for call in segments if f"/{TOPIC}/" in call.path]
        if touched:
            raise RuntimeError(f"retention touched {len(touched)} data files, as {touched[0]}")
        left = Cluster.open(open_store(str(directory))).topic(TOPIC).partition(0).snapshot
        if [o.files_before for o in done] != [EXPIRED] or len(left.segments) != KEPT:
            raise RuntimeError(f"{len(left.segments)} segments are left after {done}")
        return {"s": elapsed, "store calls": len(store.calls)}


def _fill_expired(root: Path) -> None:
    clock, events, hour_us = SystemClock(), Events(KEYS), 3_600_000_000
    cluster = Cluster.open(open_store(str(root)), clock)
    partition = cluster.claim(create_topic(cluster, TOPIC, 1, {"retention.ms": f"{hour_us // 1_000}"}), 0)
    append(partition, EXPIRED, 10, events, clock.now_us() - 2 * hour_us)
    append(partition, KEPT, 10, events, clock.now_us())
