"""What an Arrow stream may hold, looked at before any of it is unpacked. Pure.

A few bytes of Arrow can stand for gigabytes: a compressed buffer, a dictionary or a view that names one long
value many times. Only plain columns are taken, and compressed ones only up to a size.
"""

import struct
from collections.abc import Callable, Iterator

import pyarrow as pa

from log_tables.errors import InvalidRecord
from log_tables.limits import BATCH_MAX_BYTES

_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""A key in a message's own metadata, which Arrow still obeys although it stands outside the fields below."""

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
            f"the columns {', '.join(schema.names)} are not understood; "
            f"use each of {', '.join(columns)} at most once"
        )
    for field in schema:
        fits, wanted = columns[field.name]
        if not fits(field.type):
            raise InvalidRecord(f"the column {field.name!r} has type {field.type}; send it as {wanted}")


def check_unpacked_size(body: pa.Buffer) -> None:
    """Raise InvalidRecord when the compressed buffers of an IPC stream say that they hold too much.

    Raises pyarrow's errors, or struct.error, for what is not an IPC stream.
    """
    size = 0
    for message in pa.ipc.MessageReader.open_stream(pa.BufferReader(body)):
        if _OLD_COMPRESSION in message.metadata.to_pybytes():
            raise InvalidRecord("the stream is compressed as Arrow before 1.0 did; send it uncompressed")
        if message.type == "record batch":
            size += sum(_unpacked_sizes(memoryview(message.metadata), message.body))
        if size > BATCH_MAX_BYTES:
            raise InvalidRecord(f"the stream unpacks to more than {BATCH_MAX_BYTES} bytes; send less at once")


def _unpacked_sizes(metadata: memoryview, body: pa.Buffer) -> Iterator[int]:
    """What each compressed buffer of a record batch unpacks to (Arrow's Message.fbs and RecordBatch.fbs).

    Message: 2 = header. RecordBatch: 2 = buffers (offset, length), 3 = compression. A compressed buffer
    begins with its unpacked length, -1 where it is stored as it is.
    """
    message = _offset(metadata, 0)
    batch = _field(metadata, message, 2)
    if batch is None or _field(metadata, batch, 3) is None:
        return
    vector = _field(metadata, batch, 2)
    if vector is None:
        return
    (count,) = struct.unpack_from("<I", metadata, vector)
    for index in range(count):
        start, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * index)
        if length:
            (unpacked,) = struct.unpack_from("<q", body, start)
            # A negative length that is not -1 is Arrow's to refuse.
            yield max(unpacked, 0)


def _field(metadata: memoryview, table: int, index: int) -> int | None:
    """Where the table or vector in field `index` of a FlatBuffers table begins, None when it is absent."""
    (back,) = struct.unpack_from("<i", metadata, table)
    (size,) = struct.unpack_from("<H", metadata, table - back)
    if 4 + 2 * index >= size:
        return None
    (place,) = struct.unpack_from("<H", metadata, table - back + 4 + 2 * index)
    return _offset(metadata, table + place) if place else None


def _offset(metadata: memoryview, at: int) -> int:
    (relative,) = struct.unpack_from("<I", metadata, at)
    return at + int(relative)
