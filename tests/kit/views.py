"""Topics as views of Spark: registered, queried, and how many files a query reads."""

from typing import TYPE_CHECKING, Any

from log_tables.cluster.cluster import Cluster
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


NOW_US = 1_700_000_000_000_000


def append(
    partition: Partition, *values: bytes | None, key: bytes | None = None, at_us: int = NOW_US
) -> None:
    """One commit of the values."""
    if not partition.leading:
        partition.claim("")
    records = [Record(value, key=key, headers=[("h", b"\x00")]) for value in values]
    partition.append([AppendRequest(input_batch(records, at_us))])


def register(spark: "SparkSession", cluster: Cluster, **options: Any) -> list[str]:
    from lakelog.spark.sql.views import topics

    return topics(spark, cluster.store.url, **options)


def rows(spark: "SparkSession", sql: str) -> list[tuple[object, ...]]:
    return [
        tuple(bytes(cell) if isinstance(cell, bytearray) else cell for cell in row)
        for row in spark.sql(sql).collect()
    ]


def files_read(query: "DataFrame") -> list[int]:
    """How many files each scan of the executed plan has read, by its own metric."""
    query.collect()
    plan = query._jdf.queryExecution().executedPlan()
    if plan.nodeName() == "AdaptiveSparkPlan":
        plan = plan.executedPlan()
    leaves = plan.collectLeaves()
    scans = [leaves.apply(index) for index in range(leaves.size())]
    return [scan.metrics().apply("numFiles").value() for scan in scans if scan.nodeName().startswith("Scan")]
