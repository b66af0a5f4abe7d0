"""The options and columns of a query that writes: those of Spark's Kafka sink, plus the column `timestamp`.

Both are checked when Spark makes the writer, before a task runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from lakelog.spark.options import (
    SECURITY_OPTIONS,
    SOURCE_OPTIONS,
    GatewayLocation,
    RootLocation,
    check_names,
    gateway_location,
    root_location,
)
from lakelog.spark.rows import PARTITION, TOPIC
from log_tables.cluster.topic import check_writable
from log_tables.errors import InvalidArgument
from log_tables.layout import HEADERS, KEY, TIMESTAMP, VALUE

SINK_OPTIONS = ("path", "topic", "gateway", *SECURITY_OPTIONS.values())
"""Every option for writing but those that begin with STORAGE_PREFIX."""

_OF_SPARK = ("checkpointLocation", "queryName")
"""Options of the query itself, which Spark hands on."""

_BYTES = "string or binary"
_TYPES: Mapping[str, str] = {
    KEY: _BYTES,
    VALUE: _BYTES,
    HEADERS: "array<struct<key:string,value:binary>>",
    TIMESTAMP: "timestamp",
    TOPIC: "string",
    PARTITION: "int",
}
"""The columns, and what type each may have."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of one query that writes, checked. Without a `topic` the rows name theirs."""

    location: RootLocation
    topic: str | None
    gateway: GatewayLocation


def parse_sink(given: Mapping[str, str]) -> SinkOptions:
    """The options of a query that writes. Raises InvalidArgument, InvalidTopicName for the wrong one."""
    options = {name.lower(): value for name, value in given.items()}
    of_source = {name.lower(): name for name in SOURCE_OPTIONS if name not in SINK_OPTIONS}
    for name in options:
        if name in of_source:
            raise InvalidArgument(
                f"the option {of_source[name]} is for reading and has no meaning in a query that writes; "
                "drop it"
            )
    check_names(given, (*SINK_OPTIONS, *_OF_SPARK))
    topic = options.get("topic")
    if topic is not None:
        check_writable(topic)
    return SinkOptions(root_location(given), topic, gateway_location(given))


def check_columns(schema: StructType, topic: str | None) -> None:
    """Raise InvalidArgument, naming the column, for rows that are not records; `topic` is the option's."""
    names = schema.fieldNames()
    for field in schema:
        if field.name not in _TYPES:
            raise InvalidArgument(
                f"the column {field.name!r} is not a column of a record, which has {', '.join(_TYPES)}; drop "
                "it, or put it into value"
            )
        if names.count(field.name) > 1:
            raise InvalidArgument(f"there are several columns {field.name!r}; keep one of them")
        if not _fits(field.name, field.dataType):
            raise InvalidArgument(
                f"the column {field.name!r} is {field.dataType.simpleString()}; cast it to "
                f"{_TYPES[field.name]}"
            )
    if VALUE not in names:
        raise InvalidArgument(
            f"there is no column 'value' among {', '.join(names) or 'none'}; every record has a value, so "
            "give a column this name"
        )
    if topic is None and TOPIC not in names:
        raise InvalidArgument(
            "nothing says which topic to write; set the option topic, or add a column 'topic'"
        )


def _fits(name: str, kind: DataType) -> bool:
    if _TYPES[name] == _BYTES:
        return isinstance(kind, StringType | BinaryType)
    if name == HEADERS:
        return _are_headers(kind)
    wanted = {TIMESTAMP: TimestampType, TOPIC: StringType, PARTITION: IntegerType}[name]
    return isinstance(kind, wanted)


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType]
    return fields == [("key", StringType), ("value", BinaryType)]
