"""The tables of what is known of the root (`consumer_lag`, `audit` …), which the option `table` reads.

Spark plans a query of a Python source once and keeps the plan with a view of it, but every execution runs the
tasks again. So the one task opens the root itself when it runs: a view is always up to date.
"""

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import (
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakelog.spark.boundary import short_errors
from lakelog.spark.source.options import table_of
from lakelog.spark.worker import store_at
from log_tables.cluster.cluster import Cluster
from log_tables.sql.system_tables import SYSTEM_TABLES, system_batches

_SPARK_TYPES: Mapping[pa.DataType, DataType] = {
    pa.string(): StringType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.timestamp("us", tz="UTC"): TimestampType(),
}


def table_schema(name: str) -> StructType:
    """The Spark schema of one of TABLES."""
    return StructType(
        [StructField(field.name, _SPARK_TYPES[field.type], field.nullable) for field in SYSTEM_TABLES[name]]
    )


@short_errors
class TableReader(DataSourceReader):
    """Reads one of TABLES, as it is when it is read."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises InvalidArgument."""
        self._location, self._table = table_of(given)

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._table)]

    def read(self, _: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raises InvalidArgument for a root that is none, CorruptLog, CorruptSegment, StoreUnavailable."""
        cluster = Cluster.open(store_at(self._location), create=False)
        yield from system_batches(cluster, self._table)
