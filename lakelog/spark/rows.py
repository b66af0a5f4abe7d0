"""The rows of a query: the schema of Spark's Kafka source, made from records without a copy."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
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
from log_tables.record import HEADERS_TYPE, record_schema
from log_tables.schemas.decoded import Encoding

TOPIC, PARTITION, TIMESTAMP_TYPE = "topic", "partition", "timestampType"
HEADERS_COLUMN = HEADERS
VALUE_JSON, KEY_JSON, ERROR = "value_json", "key_json", "_error"

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

DECODED = (VALUE_JSON, KEY_JSON, ERROR)
"""Columns that are made of values and keys by their schemas, where a query names them."""

OFFERED = (*COLUMNS, HEADERS_COLUMN, *DECODED)
"""All columns but those that topics declare."""

_ARROW_TYPES: dict[str, pa.DataType] = {
    KEY: pa.binary(),
    VALUE: pa.binary(),
    TOPIC: pa.string(),
    PARTITION: pa.int32(),
    OFFSET: pa.int64(),
    TIMESTAMP: pa.timestamp("us", tz="UTC"),
    TIMESTAMP_TYPE: pa.int32(),
    HEADERS: HEADERS_TYPE,
    **dict.fromkeys(DECODED, pa.string()),
}
_CONSTANT = (TOPIC, PARTITION, TIMESTAMP_TYPE)
NO_COLUMNS = pa.schema([])
"""The declared columns of a query that names none."""


def spark_schema(columns: Sequence[str], declared: pa.Schema = NO_COLUMNS) -> StructType:
    """The Spark schema of rows with these columns; all may be null, as in Spark's Kafka source.

    Columns that topics declare have the types of `declared`.
    """
    return StructType([StructField(name, _spark_type(name, declared)) for name in columns])


def _spark_type(name: str, declared: pa.Schema) -> DataType:
    known = StringType() if name in DECODED else _SPARK_TYPES.get(name)
    return from_arrow_type(declared.field(name).type) if known is None else known


def arrow_schema(columns: Sequence[str], declared: pa.Schema = NO_COLUMNS) -> pa.Schema:
    """The Arrow schema of `columns`. Spark takes batches of exactly this schema."""
    types = {**{field.name: field.type for field in declared}, **_ARROW_TYPES}
    return pa.schema([pa.field(name, types[name]) for name in columns])


def stored_columns(columns: Sequence[str], declared: pa.Schema, encoding: Encoding) -> pa.Schema:
    """The columns to read of a segment for `columns`; always with the offset, the position of the read."""
    names = {OFFSET, *columns}
    for sources, made in (({VALUE}, {VALUE_JSON, ERROR}), ({KEY}, {KEY_JSON})):
        if made & names:
            names |= sources if encoding.is_json else {*sources, HEADERS}
    return pa.schema([*record_schema(names), *declared])


def row_maker(
    columns: Sequence[str], declared: pa.Schema, topic: str, partition: int, timestamp_type: int
) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """A function from records of one partition, which have the stored and decoded `columns`, to rows."""
    schema = arrow_schema(columns, declared)
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
