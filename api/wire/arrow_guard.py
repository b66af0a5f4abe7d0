"""Which columns an Arrow stream of records may have. Pure.

Only plain ones are taken: a dictionary or a view names one long value many times. log_tables/arrow_bounds.py
says how much a stream may hold.
"""

from collections.abc import Callable

import pyarrow as pa

from log_tables.errors import InvalidRecord

_PLAIN_BYTES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_fixed_size_binary,
    pa.types.is_null,
)


def _is_bytes(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _PLAIN_BYTES)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_null(kind))


def _is_time(kind: pa.DataType) -> bool:
    return _is_number(kind) or bool(pa.types.is_timestamp(kind))


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return False
    item = kind.value_type
    return (
        pa.types.is_struct(item)
        and [field.name for field in item] == ["key", "value"]
        and (pa.types.is_string(item[0].type) or pa.types.is_large_string(item[0].type))
        and _is_bytes(item[1].type)
    )


_COLUMNS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "value": (_is_bytes, "binary or string"),
    "key": (_is_bytes, "binary or string"),
    "partition": (_is_number, "an integer"),
    "timestamp": (_is_time, "a timestamp, or an integer (milliseconds)"),
    "headers": (_is_headers, "list<struct<key: string, value: binary>>"),
}


_TOPIC: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "topic": (lambda kind: pa.types.is_string(kind) or pa.types.is_large_string(kind), "string"),
}


def check_schema(schema: pa.Schema, topics: bool = False) -> None:
    """Raise InvalidRecord unless there is a `value`, with `topics` a `topic`, and every column is known and
    plain.
    """
    columns = {**_COLUMNS, **_TOPIC} if topics else _COLUMNS
    for name in ("value", *_TOPIC) if topics else ("value",):
        if name not in schema.names:
            raise InvalidRecord(
                f"the stream has no column {name!r}, only {', '.join(schema.names) or 'none'}; add it"
            )
    if set(schema.names) - set(columns) or len(set(schema.names)) < len(schema.names):
        raise InvalidRecord(
            f"the columns {', '.join(schema.names)} include unknown or repeated ones; "
            f"use each of {', '.join(columns)} at most once"
        )
    for field in schema:
        fits, wanted = columns[field.name]
        if not fits(field.type):
            raise InvalidRecord(f"the column {field.name!r} has type {field.type}; send it as {wanted}")
