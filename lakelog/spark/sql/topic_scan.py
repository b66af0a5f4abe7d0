"""The rows of a topic by one native scan of the table over it; what that lacks, from the partitions' logs.

A view is planned by Spark, which knows nothing of our logs. The tasks that read the tail run after that, in
every query again, so whatever was acknowledged before the query is in the table that was planned, or it is
found here.

A topic without that table has one native scan for each table of a partition, here and in the remote root.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone calls it)

from lakelog.spark.options import RootLocation, storage_options
from lakelog.spark.rows import NO_COLUMNS, PARTITION, TOPIC, spark_schema
from lakelog.spark.source.offsets import OffsetRange
from lakelog.spark.source.options import Options, parse
from lakelog.spark.source.plan import plan
from lakelog.spark.source.slices import read
from lakelog.spark.source.subscription import Subscription
from lakelog.spark.worker import short_errors
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic, is_internal
from log_tables.columns.column_type import ddl
from log_tables.columns.declaration import NOTHING, Declaration
from log_tables.errors import Damaged, InvalidArgument, LakelogError
from log_tables.layout import OFFSET
from log_tables.limits import MIB
from log_tables.partition.reader import PartitionReader
from log_tables.record import RECORD_SCHEMA
from log_tables.store.store import Store
from log_tables.topic_table.topic_snapshot import TopicSnapshot, below

_SCANS_MAX = 1_000  # a union of more takes Spark minutes to plan, or does not parse
Partitions = Sequence[PartitionReader]


def union_of_scans(
    spark: SparkSession, cluster: Cluster, name: str, partitions: Partitions, declared: pa.Schema
) -> DataFrame:
    """The rows of a topic, with its `declared` columns. Delta looks for new commits of its tables at every
    query. Raises InvalidArgument for more tables than one query can join.
    """
    selects = [
        select
        for number, log in enumerate(partitions)
        for select in _selects(cluster, name, number, log, declared)
    ]
    if len(selects) > _SCANS_MAX:
        raise InvalidArgument(
            f"topic {name} has {len(partitions)} partitions in {len(selects)} tables, and a view joins the "
            f'scans of at most {_SCANS_MAX}; read it with format("lakelog"), and choose the other topics by '
            "names"
        )
    return spark.sql(" union all ".join(selects))


def has_moved(cluster: Cluster, name: str, partition: PartitionReader) -> bool:
    """Whether records of the partition are in the remote root, or may be at any time."""
    topic = cluster.cached_topic(name)
    moves = topic is not None and topic.config.remote_storage
    return cluster.remote is not None and (moves or partition.snapshot.tiered > partition.log_start)


def table_at(store: Store, directory: str) -> str:
    """The table at `directory`, as Spark's SQL names it: Hadoop's client of S3 calls itself s3a."""
    return f"delta.`{location_of(store, directory).replace('`', '``')}`"


def location_of(store: Store, path: str) -> str:
    """Where Spark finds `path`."""
    url, _ = store.delta_location(path)
    return url.replace("s3://", "s3a://", 1) if url.startswith("s3://") else url


def columns_in(table: Declaration, declared: pa.Schema) -> list[str]:
    """The columns of records and the `declared` ones, of a `table` that may lack some, in Spark's SQL."""
    held = {*table.schema.names}
    return [
        *(f"`{column}`" for column in RECORD_SCHEMA.names),
        *(quoted(each.name) if each.name in held else _null(each) for each in declared),
    ]


def _null(column: pa.Field) -> str:
    return f"cast(null as {ddl(column.type)}) as {quoted(column.name)}"


def quoted(name: str) -> str:
    """A name as Spark's SQL takes it without a change."""
    return "`" + name.replace("`", "``") + "`"


def _selects(
    cluster: Cluster, name: str, number: int, partition: PartitionReader, declared: pa.Schema
) -> Iterator[str]:
    """The SELECTs of a partition's rows: of its table, and of its table in the remote root if it has one.

    Moves go on, so every query finds out for itself where the one ends and the other begins: Delta reads one
    version of a table in all of a query. It looks for that of the local table first, because that comes first
    here; what this one no longer holds is then in the remote table.
    """
    head = f"select '{name}' as `{TOPIC}`, {number} as `{PARTITION}`, "
    here = ", ".join(columns_in(partition.snapshot.declared, declared))
    local = table_at(cluster.store, partition.directory)
    start = f"`{OFFSET}` >= {partition.log_start}" if partition.log_start else ""
    yield f"{head}{here} from {local}" + (f" where {start}" if start else "")
    if cluster.remote is not None and has_moved(cluster, name, partition):
        border = f"`{OFFSET}` < coalesce((select min(`{OFFSET}`) from {local}), {2**63 - 1})"  # noqa: S608
        between = f"{start} and {border}" if start else border
        remote = cluster.remote.find(partition.directory)
        there = ", ".join(columns_in(NOTHING if remote is None else remote.snapshot.declared, declared))
        yield f"{head}{there} from {table_at(cluster.remote.store, partition.directory)} where {between}"


PARTITIONS_MIN = 4
"""Fewer partitions than this are planned as fast by a scan for each, and their queries need no Python."""

TAIL_MAX_BYTES = 64 * MIB
"""How far a table may be behind its partitions when a view is registered: Python reads that in a second."""

_END = "end"


def usable_table(
    cluster: Cluster,
    name: str,
    partitions: Partitions,
    declared: pa.Schema = NO_COLUMNS,
    tail_max_bytes: int = TAIL_MAX_BYTES,
) -> TopicSnapshot | None:
    """The table over the topic if it is worth a scan: there is one, of many partitions, with nearly all.

    It is also used while the table of a partition lacks a `declared` column, as it does in the middle of an
    alteration: a scan has the columns for ever that its table had first, and the tail has all of them.
    """
    altered = any(not {*declared.names} <= {*each.snapshot.declared.schema.names} for each in partitions)
    if is_internal(name) or (len(partitions) < PARTITIONS_MIN and not altered):
        return None
    if any(has_moved(cluster, name, partition) for partition in partitions):
        return None  # the table has only what is in this root
    try:
        folded = cluster.topic(name).table().snapshot
    except Damaged:
        return None  # the partitions have all there is
    behind = sum(
        segment.size
        for number, partition in enumerate(partitions)
        for segment in partition.snapshot.segments[below(partition.snapshot.segments, folded.end(number)) :]
    )
    return None if folded.deleted or (behind > tail_max_bytes and not altered) else folded


def topic_scan(
    spark: SparkSession,
    cluster: Cluster,
    location: RootLocation,
    topic: Topic,
    folded: TopicSnapshot,
    declared: pa.Schema,
) -> DataFrame:
    """The rows of `topic`, whose table was at `folded`, or before, when this is called; with its `declared`
    columns.

    A query scans the newest version of the table. Delta reads one version in all of a query, so the same
    query finds out, from the files beyond those of `folded`, where that version ends in each partition; the
    tail begins there. Below the log starts, which are read last, nothing is shown.

    A column that the table lacks is null in the scan for as long as the view lives. So the tail then has all
    that was not in `folded`, also what came into the table since.
    """
    ends = tuple(folded.end(number) for number in range(topic.partition_count))
    names = tuple(declared.names)
    tail = TopicTail(location, topic.name, topic.topic_id, folded.metadata.id, ends, names)
    table = spark.table(table_at(cluster.store, topic.directory))
    starts = spark.range(0, 1, 1, 1).mapInArrow(tail.log_starts, "log_starts array<bigint>").scalar()
    start = F.coalesce(F.get(starts, F.col(PARTITION)), F.lit(0))
    columns = [F.expr(column) for column in columns_in(folded.declared, declared)]
    beyond, whole = F.expr(_beyond(ends)), {*names} <= {*folded.declared.schema.names}
    known = table if whole else table.where(~beyond)
    scanned = known.where(F.col(OFFSET) >= start).select(F.lit(topic.name).alias(TOPIC), PARTITION, *columns)
    # A row that says nothing: without any, Spark would run no task.
    found = spark.sql(f"select -1 as `{PARTITION}`, 0L as `{_END}`")
    if whole:
        found = found.unionAll(table.where(beyond).select(PARTITION, (F.col(OFFSET) + 1).alias(_END)))
    found = found.groupBy(PARTITION).agg(F.max(_END).alias(_END)).coalesce(1)
    return scanned.unionAll(found.mapInArrow(tail.records, spark_schema((*COLUMNS, *names), declared)))


def _beyond(ends: tuple[int, ...]) -> str:
    """Records that came into the table since, so that Delta skips all other files."""
    known = [f"(`{PARTITION}` = {number} and `{OFFSET}` >= {end})" for number, end in enumerate(ends)]
    return " or ".join([*known, f"`{PARTITION}` >= {len(ends)}"])


COLUMNS = (TOPIC, PARTITION, *RECORD_SCHEMA.names)
"""The columns of a view, but for those that repeat others as text."""


@short_errors
@dataclass(frozen=True)
class TopicTail:
    """The tail of one topic, of the incarnation `topic_id`, behind the table over it with the id `table_id`.

    `ends` are the offsets up to which that table had each partition when the view was registered. It has no
    less since. `declared` are columns of the view, after COLUMNS.
    """

    location: RootLocation
    topic: str
    topic_id: str
    table_id: str
    ends: tuple[int, ...]
    declared: tuple[str, ...] = ()

    def log_starts(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row: the log starts of all partitions, in order. `batches` say nothing.

        Raises InvalidArgument when the view has to be registered again, and as `Subscription`.
        """
        for _ in batches:
            pass
        logs = self._followed().partitions.values()
        starts = pa.array([[log.log_start for log in logs]], pa.list_(pa.int64()))
        yield pa.record_batch([starts], names=["log_starts"])

    def records(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The records behind the ends of the table that is scanned, with COLUMNS and `declared`.

        `batches` have rows of a partition and the end of what the table has beyond `ends`, if it has any.
        Raises as `log_starts`, DataLost for records that were deleted while they were read, CorruptSegment.
        """
        known = dict(enumerate(self.ends))
        for batch in batches:
            known.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        followed, options = self._followed(), _options(self.location, self.topic, self.declared)
        wanted = [
            OffsetRange(at, max(known.get(at.partition, 0), log.log_start), log.high_watermark)
            for at, log in followed.partitions.items()
        ]
        for part in plan(followed, wanted, options):
            yield from read(part, options)

    def _followed(self) -> Subscription:
        try:
            followed = _subscription(self.location, self.topic)
            followed.refresh()
            self._check(followed)
        except LakelogError:
            _subscription.cache_clear()  # the next query opens the root as it is then
            raise
        return followed

    def _check(self, followed: Subscription) -> None:
        """Raise InvalidArgument if the table that the view scans has not all records below `ends`."""
        for error in followed.missing.values():
            raise error
        topic = followed.topics[self.topic]
        if topic.topic_id != self.topic_id:
            raise self._outdated("was deleted and created again")
        if any(log.snapshot.tiered > log.log_start for log in followed.partitions.values()):
            raise self._outdated("has records in the remote root")
        if topic.table().refresh(wait=True).metadata.id != self.table_id:
            raise self._outdated("has a new table")

    def _outdated(self, change: str) -> InvalidArgument:
        return InvalidArgument(
            f"topic {self.topic} {change} since its view was registered; call topics(spark, root) again"
        )


@lru_cache(maxsize=16)
def _options(location: RootLocation, topic: str, declared: tuple[str, ...] = ()) -> Options:
    given = {"path": location.root, "subscribe": topic, "columns": ",".join((*COLUMNS, *declared))}
    return parse({**storage_options(dict(location.storage)), **given}, streaming=False)


@lru_cache(maxsize=16)
def _subscription(location: RootLocation, topic: str) -> Subscription:
    """The logs of the topic, which a Python process of Spark follows from query to query."""
    return Subscription(_options(location, topic))
