"""The rows of a query: the schema of Spark's Kafka source, made from records without a copy."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.record import HEADERS_TYPE

TOPIC, PARTITION, TIMESTAMP_TYPE = "topic", "partition", "timestampType"
HEADERS_COLUMN = HEADERS

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""Values of the column timestampType, as Kafka numbers them."""

_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_SPARK_TYPES: dict[str, DataType] = {
    KEY: BinaryType(),
    VALUE: BinaryType(),
    TOPIC: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    TIMESTAMP: TimestampType(),
    TIMESTAMP_TYPE: IntegerType(),
    HEADERS: ArrayType(_HEADER),
}
COLUMNS = tuple(name for name in _SPARK_TYPES if name != HEADERS)
"""The columns of every row, in order; `headers` follows them if it is asked for."""

_ARROW_TYPES: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: HEADERS_TYPE,
}
_CONSTANT = (TOPIC, PARTITION, TIMESTAMP_TYPE)


def spark_schema(columns: Sequence[str]) -> StructType:
    """The Spark schema of rows with these columns; all may be null, as in Spark's Kafka source."""
    return StructType([StructField(name, _SPARK_TYPES[name]) for name in columns])


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The same for Arrow: Spark takes batches of exactly this schema."""
    return pa.schema([pa.field(name, _ARROW_TYPES[name]) for name in columns])


def stored_columns(columns: Sequence[str]) -> tuple[str, ...]:
    """The columns to read of a segment for `columns`; always with the offset, the position of the read."""
    return (OFFSET, *(name for name in columns if name not in (*_CONSTANT, OFFSET)))


def row_maker(
    columns: Sequence[str], topic: str, partition: int, timestamp_type: int
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function from records of one partition (RECORD_SCHEMA or some of its columns) to rows."""
    schema = arrow_schema(columns)
    constants = {TOPIC: topic, PARTITION: partition, TIMESTAMP_TYPE: timestamp_type}

    def rows(records: pa.RecordBatch) -> pa.RecordBatch:
        count = records.num_rows
        arrays = [
            pa.repeat(pa.scalar(constants[field.name], field.type), count)
            if field.name in constants
            else records.column(field.name)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    return rows
