"""The records of `__maintenance`, in JSON: what each run of the maintenance jobs did to each partition.

It is an internal topic, so every process that can read the root can read it. Its records are kept for 30
days.
"""

from collections.abc import Iterator, Sequence
from itertools import chain

import msgspec
import pyarrow as pa

from log_tables.cluster.admin.internal_log import append_records, records_of
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog
from log_tables.layout import MAINTENANCE
from log_tables.limits import BATCH_MAX_BYTES
from log_tables.record import Record, to_records

RUNS_RETENTION_MS = 30 * 24 * 60 * 60 * 1000

RUNS_SCHEMA = pa.schema(
    [
        pa.field("run", pa.string(), nullable=False),
        pa.field("started_at", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("job", pa.string(), nullable=False),
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("files_before", pa.int64(), nullable=False),
        pa.field("files_after", pa.int64(), nullable=False),
        pa.field("bytes_before", pa.int64(), nullable=False),
        pa.field("bytes_after", pa.int64(), nullable=False),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("error", pa.string()),
    ]
)
"""The table `maintenance_runs`: one row for each partition that a job changed, or failed to change."""


class JobRun(msgspec.Struct, frozen=True, kw_only=True):
    """One row of RUNS_SCHEMA; `started_ms` is milliseconds since 1970."""

    run: str
    started_ms: int
    job: str
    topic: str
    partition: int
    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    records: int = 0
    seconds: float = 0.0
    error: str | None = None


def record_runs(cluster: Cluster, runs: Sequence[JobRun]) -> None:
    """Append `runs` in one commit. Raises NotLeader when too many processes append, StoreUnavailable, …"""
    if not runs:
        return
    records = [Record(msgspec.json.encode(run)) for run in runs]
    configs = {"retention.ms": str(RUNS_RETENTION_MS)}
    append_records(cluster, MAINTENANCE, records, configs, "runs of maintenance")


def runs_table(cluster: Cluster) -> pa.Table:
    """The rows of `maintenance_runs`, oldest first, as RUNS_SCHEMA; empty where no job has run.

    Raises CorruptLog, CorruptSegment, StoreUnavailable.
    """
    return pa.Table.from_batches(_batches(cluster), RUNS_SCHEMA)


def _batches(cluster: Cluster) -> Iterator[pa.RecordBatch]:
    """The rows, batch by batch: a large root has millions in a month."""
    for records in records_of(cluster, MAINTENANCE):
        yield pa.RecordBatch.from_pylist([_row(_decoded(record)) for record in records], RUNS_SCHEMA)


def recent_runs(cluster: Cluster, before: int | None, count: int) -> tuple[list[tuple[int, JobRun]], int]:
    """The last `count` rows below the offset `before`, of all without one, with their offsets; newest last.
    And the log start: the offset of the first row that there is.

    Raises as `runs_table`.
    """
    topic = cluster.cached_topic(MAINTENANCE)
    if topic is None:
        return [], 0
    partition = topic.partition(0)
    partition.refresh()
    end = partition.high_watermark if before is None else min(before, partition.high_watermark)
    at, found = max(partition.log_start, end - count), list[tuple[int, JobRun]]()
    while at < end:
        plan = partition.plan_read(at, BATCH_MAX_BYTES)
        for record in chain.from_iterable(map(to_records, partition.read(plan))):
            if record.offset is not None and record.offset < end:
                found.append((record.offset, _decoded(record)))
        at = plan.end
    return found, partition.log_start


def _decoded(record: Record) -> JobRun:
    try:
        return msgspec.json.decode(record.value or b"", type=JobRun)
    except msgspec.MsgspecError as error:
        raise CorruptLog(
            f"the record at offset {record.offset} of {MAINTENANCE} is not a maintenance run ({error}); "
            "delete the records up to it"
        ) from None


def _row(run: JobRun) -> dict[str, object]:
    row = msgspec.structs.asdict(run)
    return {**row, "started_at": row.pop("started_ms") * 1000}
