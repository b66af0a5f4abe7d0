"""The maintenance jobs: each function is one cell. `bench/steady.py` and `bench/beside.py` have two more."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pyarrow.compute as pc
from deltalake import DeltaTable

from bench.cells import Figures, scratch
from bench.contest import OURS, Results, Scale
from bench.maintenance_load import Events, append, content, files, fill, table
from bench.peers import Peers
from bench.spark_job import Job, Worker
from bench.spark_load import TOPIC
from jobs import retention, retype, segment_compaction
from jobs.local_engine import LocalEngine
from jobs.state import look
from log_tables.clock import SystemClock, timer
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import VALUE_ERROR, segment_base_offset
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore

SEGMENTS = 2_000
MANY_PARTITIONS, FEW_SEGMENTS = 64, 100
KEYS, SEGMENT_ROWS = 100_000, 50_000
EXPIRED, KEPT = 9_990, 10
ENGINES = ("local", "spark")
SMALL_PARTITIONS, SMALL_ROWS = 4, 10
_AT_ONCE = {"merge.min.age.ms": "0"}
_COLUMNS = "user bigint, action string, ms bigint, text string"


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


def retyped(_peers: Peers | None, scale: Scale) -> Results:
    """The four fields of 2 of every 5 of `--records` as columns; merges of these rows before and after."""
    with scratch() as directory:
        root, bare, records = directory / "data", directory / "bare", _merged_records(scale)
        fill(root, 1, records // SEGMENT_ROWS, SEGMENT_ROWS, _AT_ONCE, Events(KEYS))
        shutil.copytree(root, bare)
        held = content(root, 1)
        _seconds(Path(shutil.copytree(root, directory / "warm")), segment_compaction)
        bare_s = _seconds(bare, segment_compaction)
        alter_topic(Cluster.open(open_store(str(root))), TOPIC, {"value.columns": _COLUMNS})
        retype_s = _seconds(root, retype)
        if content(root, 1) != held or _typed(root) != records:
            raise RuntimeError(f"{_typed(root)} of {records} records have columns, or others changed")
        return {
            OURS: {"records/s": records / retype_s},
            "a merge of these rows": {"records/s": records / _seconds(root, segment_compaction)},
            "a merge without the columns": {"records/s": records / bare_s},
        }


def _seconds(root: Path, job: ModuleType) -> float:
    """The time of a job from opening the root, by one worker that has been started."""
    os.sync()
    engine = LocalEngine(1)
    engine.spread(abs, [1])
    begin = timer()
    cluster = Cluster.open(open_store(str(root)))
    states, _ = look(cluster)
    done = [*job.run(engine, cluster, job.plan(states, cluster.clock.now_ms()))]
    elapsed = timer() - begin
    engine.end_run()
    if not done or any(outcome.error for outcome in done):
        raise RuntimeError(f"the job failed: {done}")
    return elapsed


def _typed(root: Path) -> int:
    """How many records have columns, as delta-rs sees it."""
    rows = DeltaTable(table(root)).to_pyarrow_table(columns=["user", "text", VALUE_ERROR])
    whole = pc.and_(rows["user"].is_valid(), rows["text"].is_valid())
    return int(pc.sum(pc.and_(whole, rows[VALUE_ERROR].is_null())).as_py())


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
    """Retention of 10,000 segments, all but ten too old; the time includes opening the root."""
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
