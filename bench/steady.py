"""A partition that is written to all the time, and the jobs that keep it small, in simulated time.

The clock, and the times of the files, are made up. What opening and appending take is real, but for fsync:
the files are in memory, so that 108,000 commits need not wait for a disk. Where the jobs use Spark the driver
does the same here: executors would stamp their files with real time.
"""

import os
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from bench import load
from bench.cells import Figures, scratch
from bench.spark_load import TOPIC
from jobs import housekeeping, retention, segment_compaction
from jobs.engine import Engine
from jobs.local_engine import LocalEngine
from jobs.maintenance import Job, Maintenance
from jobs.outcome import JobOutcome
from jobs.segment_compaction import MergeStep
from jobs.state import table_of
from log_tables.clock import ManualClock, timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import log_directory
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import binary_array, input_batch_from_columns
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore

HOURS = 3
STEP_MS, ROUND_MS, TIDY_MS = 100, 5 * 60_000, 10 * 60_000
"""Between two commits, between two runs of the jobs, and between two cleanings of the log by the gateway."""
_RECORDS = 10


class Round(NamedTuple):
    """How things stand after one run of the jobs."""

    minute: int
    live: int
    files: int
    log_files: int
    open_ms: float
    produce_p50_ms: float
    jobs_s: float


def steady(_seconds: int) -> Figures:
    """10 commits/s of 10 small records for 3 simulated hours, all jobs every 5 minutes; the curve: stderr."""
    with scratch(in_memory=True) as directory:
        rounds = [*_told(life(directory))]
    first, last = rounds[: len(rounds) // HOURS], rounds[-len(rounds) // HOURS :]
    figures: Figures = {}
    for name, part in (("first hour", first), ("last hour", last)):
        figures[f"live segments, most in the {name}"] = max(one.live for one in part)
        figures[f"log files, most in the {name}"] = max(one.log_files for one in part)
        figures[f"open ms, median in the {name}"] = statistics.median(one.open_ms for one in part)
        figures[f"produce p50 ms, median in the {name}"] = statistics.median(
            one.produce_p50_ms for one in part
        )
    return figures


def _told(rounds: Iterator[Round]) -> Iterator[Round]:
    """The rounds as they come, each a line of a table on the terminal."""
    print(
        "\n| minute | live segments | data files | log files | open ms | produce p50 ms | jobs s |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
        file=sys.stderr,
    )
    for one in rounds:
        counts, times = " | ".join(f"{n:,}" for n in one[:4]), " | ".join(f"{n:.2f}" for n in one[4:])
        print(f"| {counts} | {times} |", file=sys.stderr, flush=True)
        yield one


def life(directory: Path, step_ms: int = STEP_MS, hours: int = HOURS) -> Iterator[Round]:
    """The rounds of so many simulated hours with a commit every `step_ms`, the jobs after each."""
    clock = ManualClock()
    store = ClockedStore(open_store(str(directory)), clock)
    cluster = Cluster.open(store, clock)
    partition = cluster.claim(create_topic(cluster, TOPIC), 0)
    maintenance = Maintenance(Cluster.open(store, clock), lambda _size, _debt: LocalEngine(), _JOBS)
    values, appended = binary_array(load.values(ROUND_MS // step_ms * _RECORDS)), 0
    for minute in range(ROUND_MS // 60_000, hours * 60 + 1, ROUND_MS // 60_000):
        took = _produce(partition, values, clock, step_ms)
        appended += len(took) * _RECORDS
        begin = timer()
        failed = [outcome for outcome in maintenance.run() if outcome.error]
        jobs_s = timer() - begin
        if failed:
            raise RuntimeError(f"the jobs failed: {failed[0]}")
        yield _round(store, partition, clock, appended)._replace(
            minute=minute, produce_p50_ms=statistics.median(took), jobs_s=jobs_s
        )


def _produce(partition: Partition, values: pa.Array, clock: ManualClock, step_ms: int) -> list[float]:
    """One round of commits, all of different values, with a gateway's duties; what each took, in ms."""
    took = []
    for start in range(0, len(values), _RECORDS):
        clock.advance(step_ms)
        batch = input_batch_from_columns(values.slice(start, _RECORDS), now_us=clock.now_us())
        begin = timer()
        partition.append([AppendRequest(batch)])
        took.append((timer() - begin) * 1e3)
        if partition.table.checkpoint_due():
            partition.checkpoint()
        if clock.now_ms() % TIDY_MS == 0:
            partition.table.delete_expired_log()
    return took


def _round(store: Store, partition: Partition, clock: ManualClock, appended: int) -> Round:
    """Measure the tables as they look to a process that opens them now. Raises RuntimeError if records are
    missing.
    """
    begin = timer()
    opened = Partition(store, partition.directory, clock)
    open_ms = (timer() - begin) * 1e3
    segments = opened.snapshot.segments
    if (opened.high_watermark, sum(s.records for s in segments)) != (appended, appended):
        raise RuntimeError(f"{appended} records were appended, the table ends at {opened.high_watermark}")
    root = Path(store.url.removeprefix("file://"))
    files = sum(name.endswith(".parquet") for name in os.listdir(root / partition.directory))
    return Round(
        0, len(segments), files, len(os.listdir(root / log_directory(partition.directory))), open_ms, 0, 0
    )


def _merge(_: Engine, cluster: Cluster, steps: Sequence[MergeStep]) -> Iterator[JobOutcome]:
    """Do the work of `segment_compaction.run`, step by step in this process."""
    for step in steps:
        begun = cluster.clock.boottime()
        made = rewrite.merge(cluster.store, step.directory, step.inputs, step.compression, cluster.clock)
        table = table_of(cluster, step.topic, step.partition, step.directory, step.remote)
        done = rewrite.commit_merge(table, step.inputs, made, begun)
        error = None if done else "overtaken, though nobody else is there"
        yield JobOutcome(
            job=segment_compaction.NAME,
            topic=step.topic,
            partition=step.partition,
            files_before=len(step.inputs),
            files_after=1,
            error=error,
        )


_JOBS = (
    Job(retention.NAME, retention.plan, retention.run),
    Job(segment_compaction.NAME, segment_compaction.plan, _merge),
    Job(housekeeping.NAME, housekeeping.plan, housekeeping.run),
)
"""Without compaction by key and tiering: the topic asks for neither."""
