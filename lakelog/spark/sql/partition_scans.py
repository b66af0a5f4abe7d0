"""The rows of a topic by one native scan for each table of a partition, here and in the remote root."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from lakelog.spark.rows import PARTITION, TOPIC
from log_tables.cluster.cluster import Cluster
from log_tables.columns.column_type import ddl
from log_tables.columns.declaration import NOTHING, Declaration
from log_tables.errors import InvalidArgument
from log_tables.layout import OFFSET
from log_tables.partition.reader import PartitionReader
from log_tables.record import RECORD_SCHEMA
from log_tables.store.store import Store

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
