"""The data source `lakelog`: topics as Spark's Kafka source and sink have them, in batches and streams.

The option `table` reads the tables of what is known of the root (`consumer_lag`, `audit` …). Spark plans a
query of a Python source once and keeps the plan with a view of it, but every execution runs the tasks again.
So the one task opens the root itself when it runs: a view is always up to date.
"""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
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

from lakelog.spark.connect import SOURCE, check_source, is_connect
from lakelog.spark.options import SOURCE_OPTIONS, check_names
from lakelog.spark.rows import spark_schema
from lakelog.spark.sink.sink import BatchSink, StreamSink
from lakelog.spark.source.options import columns_of, declared_of, names_table, table_of
from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.stream import RefusedReader, StreamReader
from lakelog.spark.worker import short_errors, store_at
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
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


@short_errors
class LakelogSource(DataSource):
    """`format("lakelog")` for reading and writing, batches and streams: see docs/spark.md."""

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return SOURCE

    def schema(self) -> StructType:
        """The rows' schema. Raises InvalidArgument for an unknown option or a wrong `table` or `columns`.

        The root is looked at if `columns` names declared ones. Spark asks for it in `load`, so a misspelt
        option fails there.
        """
        check_names(self.options, SOURCE_OPTIONS)
        if names_table(self.options):
            return table_schema(table_of(self.options)[1])
        return spark_schema(columns_of(self.options), declared_of(self.options))

    def reader(self, schema: StructType) -> BatchReader | TableReader:
        """Raises InvalidArgument."""
        self._check_schema(schema)
        return TableReader(self.options) if names_table(self.options) else BatchReader(self.options)

    def streamReader(self, schema: StructType) -> StreamReader | RefusedReader:  # noqa: N802
        """A reader that raises InvalidArgument at its first call if the options are wrong.

        Spark 4.2 would hide an error that is raised here behind one of its own (UnboundLocalError).
        """
        try:
            self._check_schema(schema)
            return StreamReader(self.options)
        except InvalidArgument as error:
            return RefusedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """Raises InvalidArgument."""
        return BatchSink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: ARG002, N802
        """As in Spark's Kafka sink, outputMode complete (`overwrite`) appends too. Raises InvalidArgument."""
        return StreamSink(self.options, schema)

    def _check_schema(self, schema: StructType) -> None:
        own = self.schema()
        if schema != own:
            raise InvalidArgument(
                f"the schema {schema.simpleString()} was set, but the source lakelog has its own, "
                f"{own.simpleString()}; drop .schema(...), and choose columns with the option columns"
            )


def register(spark: SparkSession) -> None:
    """Make `format("lakelog")` known to a session that has not found it.

    Spark looks for data sources once in a process, among the installed packages; a package that came with
    `--py-files` is not among them. Such an archive also gets onto the path of Spark's Python processes:
    PySpark forgets wheels in executors, and all archives in the process that plans a stream.

    A session of Spark Connect has to find it in the server's Python, or among its artifacts. Raises
    SparkMissing when it is in neither.
    """
    archive = Path(__file__).parents[2]
    if archive.is_file() and not is_connect(spark):
        _add_to_path(spark, archive)
    spark.dataSource.register(LakelogSource)
    if is_connect(spark):
        check_source(spark)


def _add_to_path(spark: SparkSession, archive: Path) -> None:
    """Add the archive by its name in the executors' directory, and by its path, where streams are planned."""
    environment = spark.sparkContext.environment
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    ours = [archive.name, str(archive)]
    others = [entry for entry in path if entry and entry not in ours]
    environment["PYTHONPATH"] = os.pathsep.join([*ours, *others])
