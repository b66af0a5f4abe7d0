"""The content that an Arrow IPC stream declares, checked before it is decoded. Pure.

A few bytes of Arrow can stand for gigabytes: a column of nulls has no buffers, so that its length is free; a
compressed buffer says itself what it unpacks to; a header may name one text, or one field, a million times.
Arrow makes what is said. So the headers are read here first, without a copy, and what they say is bounded.

The numbers of fields are those of Arrow's Message.fbs and Schema.fbs; the layout is that of FlatBuffers.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from log_tables.errors import InvalidRecord
from log_tables.limits import (
    BATCH_MAX_BYTES,
    KIB,
    RECORD_COLUMNS_BYTES,
    STREAM_BATCHES_MAX,
    STREAM_FIELDS_MAX,
    STREAM_RECORDS_MAX,
)

_CONTINUES = 0xFFFFFFFF
_SCHEMA, _RECORD_BATCH = 1, 3
_UNION, _TIMESTAMP = 14, 10
_NAME_BYTES_MAX = 1 * KIB
"""Of a field's name, or a time zone's."""

_OLD_COMPRESSION = b"ARROW:experimental_compression"
"""A key in a message's own metadata, which Arrow still obeys although it stands outside the fields below."""


def check_stream(
    body: bytes | memoryview,
    records_max: int = STREAM_RECORDS_MAX,
    batches_max: int = STREAM_BATCHES_MAX,
    unpacked_max_bytes: int = BATCH_MAX_BYTES,
    one_by_one: bool = False,
) -> int:
    """The bytes that the columns of an IPC stream take at most, once they are those of records, in addition
    to `body`, in which columns stand that are not compressed.

    Raises InvalidRecord when there are more than `records_max` records (or headers of records) or
    `batches_max` batches, or when what is compressed unpacks to more than `unpacked_max_bytes`; struct.error
    for what is no IPC stream, though only Arrow tells that for sure. Records and what they unpack to
    are those of each batch if batches are read `one_by_one`, else of all.
    """
    records = batches = rows_held = held = unpacked = 0
    for message in _messages(memoryview(body)):
        if message.kind == _SCHEMA:
            _check_schema(message)
            continue
        if message.kind != _RECORD_BATCH:
            raise InvalidRecord(
                "the stream holds more than plain record batches; send it without dictionaries"
            )
        batches += 1
        if one_by_one:
            records = unpacked = 0
        if batches > batches_max:
            raise InvalidRecord(f"the stream has more than {batches_max} batches; make fewer, larger ones")
        _check_texts(message.head, _pairs(_table(message.head, 0), 4))
        rows, size, compressed = _batch(message)
        records, rows_held = records + rows, rows_held + rows
        if compressed:
            unpacked, held = unpacked + size, held + size
        if records > records_max:
            raise InvalidRecord(
                f"the stream has {records} records (or headers of records) or more, "
                f"{records_max} are allowed; send fewer at once"
            )
        if unpacked > unpacked_max_bytes:
            raise InvalidRecord(
                f"the stream unpacks to more than {unpacked_max_bytes} bytes; send less at once"
            )
    return held + rows_held * RECORD_COLUMNS_BYTES


def has_more(stream: bytes, rows: int, unpacked_bytes: int, head_bytes: int) -> bool:
    """Whether an IPC stream says that it has more than `rows` records, or headers of records, or columns of
    more than `unpacked_bytes`, or more than `head_bytes` about them; or is none.
    """
    try:
        for message in _messages(memoryview(stream)):
            head_bytes -= len(message.head)
            if message.kind == _RECORD_BATCH:
                count, size, _ = _batch(message)
                rows, unpacked_bytes = rows - count, unpacked_bytes - size
            if min(rows, unpacked_bytes, head_bytes) < 0:
                return True
    except (struct.error, InvalidRecord):
        return True
    return False


class _Message(NamedTuple):
    """One message: its kind, its head (a FlatBuffers table Message), and its body."""

    kind: int
    head: memoryview
    body: memoryview
    body_bytes: int


def _messages(stream: memoryview) -> Iterator[_Message]:
    """The messages of a stream, as far as they are whole: Arrow says what is wrong with the rest."""
    at = 0
    while at + 4 <= len(stream):
        (length,) = struct.unpack_from("<I", stream, at)
        at += 4
        if length == _CONTINUES:
            (length,) = struct.unpack_from("<I", stream, at)
            at += 4
        if length == 0 or at + length > len(stream):
            return
        head, at = stream[at : at + length], at + length
        table = _table(head, 0)
        body_bytes = _number(table, 3, "<q", 0)
        if body_bytes < 0 or at + body_bytes > len(stream):
            return
        yield _Message(_number(table, 1, "<B", 0), head, stream[at : at + body_bytes], body_bytes)
        at += body_bytes


def _check_schema(message: _Message) -> None:
    """Raise InvalidRecord for a schema whose parts together say more than it has bytes."""
    head = message.head
    outer = _table(head, 0)
    place = _place(outer, 2)
    if place is None:
        return
    schema = _table(head, place)
    pairs = [*_pairs(outer, 4), *_pairs(schema, 2)]
    left = [*_tables(schema, 1, STREAM_FIELDS_MAX, _FIELDS)]
    fields = 0
    while left:
        field = left.pop()
        fields += 1
        if fields > STREAM_FIELDS_MAX:
            raise InvalidRecord(_FIELDS)
        _check_field(field)
        pairs += _pairs(field, 6)
        left += _tables(field, 5, STREAM_FIELDS_MAX, _FIELDS)
    _check_texts(head, pairs)


_FIELDS = f"the stream has more than {STREAM_FIELDS_MAX} columns, or columns within columns; see docs/http.md"
_PAIRS_MAX = 100
_PAIRS = f"the stream has more than {_PAIRS_MAX} entries of metadata; send fewer"


def _check_field(field: "_Table") -> None:
    if _place(field, 4) is not None:
        raise InvalidRecord(
            f"the column {_text(field, 0)!r} has type dictionary; send its values as they are"
        )
    kind, place = _number(field, 2, "<B", 0), _place(field, 3)
    names = [_text_bytes(field, 0)]
    if kind == _TIMESTAMP and place is not None:
        names.append(_text_bytes(_table(field.head, place), 1))
    if kind == _UNION or max(names) > _NAME_BYTES_MAX:
        raise InvalidRecord("a column has a type or a name that no record has; see docs/http.md for those")


def _check_texts(head: memoryview, pairs: "list[_Table]") -> None:
    """Raise InvalidRecord unless the texts of `pairs` may all be there: each is copied."""
    if len(pairs) > _PAIRS_MAX:
        raise InvalidRecord(_PAIRS)
    if sum(_text_bytes(pair, 0) + _text_bytes(pair, 1) for pair in pairs) > len(head):
        raise InvalidRecord("the stream's metadata names the same text again and again; send each once")
    if pairs and _OLD_COMPRESSION in bytes(head):
        raise InvalidRecord("the stream is compressed as Arrow before 1.0 did; send it uncompressed")


def _batch(message: _Message) -> tuple[int, int, bool]:
    """The records of a batch, or their headers if there are more; the bytes of its columns, unpacked; whether
    they are compressed. Raises InvalidRecord.
    """
    place = _place(_table(message.head, 0), 2)
    if place is None:
        return 0, 0, False
    batch = _table(message.head, place)
    rows = _number(batch, 0, "<q", 0)
    lengths = [rows, *(length for length, _ in _pairs_of_numbers(batch, 1))]
    if min(lengths) < 0:
        raise InvalidRecord(f"a batch of the stream has {min(lengths)} records; send what was written whole")
    buffers = [*_pairs_of_numbers(batch, 2)]
    stored = sum(length for _, length in buffers)
    if stored > message.body_bytes:
        raise InvalidRecord(
            f"the buffers of a batch have {stored} bytes in {message.body_bytes}; send each once"
        )
    if _place(batch, 3) is None:
        return max(lengths), stored, False
    return max(lengths), sum(_unpacked(message.body, *at) for at in buffers if at[1]), True


def _unpacked(body: memoryview, start: int, length: int) -> int:
    """The unpacked size of a compressed buffer: its first number, or its own size if that is -1."""
    (unpacked,) = struct.unpack_from("<q", body, start)
    return int(unpacked) if unpacked >= 0 else length  # another negative length is Arrow's to refuse


class _Table(NamedTuple):
    """A FlatBuffers table within `head`: where it begins, and where its list of fields is, and ends."""

    head: memoryview
    start: int
    fields: int
    end: int


def _table(head: memoryview, at: int) -> _Table:
    """The table that the offset at `at` leads to."""
    start = _follow(head, at)
    (back,) = struct.unpack_from("<i", head, start)
    (size,) = struct.unpack_from("<H", head, start - back)
    return _Table(head, start, start - back, start - back + size)


def _place(table: _Table, index: int) -> int | None:
    """Where field `index` stands, None when it is absent."""
    slot = table.fields + 4 + 2 * index
    if slot >= table.end:
        return None
    (place,) = struct.unpack_from("<H", table.head, slot)
    return table.start + place if place else None


def _number(table: _Table, index: int, kind: str, default: int) -> int:
    place = _place(table, index)
    return default if place is None else int(struct.unpack_from(kind, table.head, place)[0])


def _vector(table: _Table, index: int) -> tuple[int, int]:
    """Where the items of a vector begin, and how many there are."""
    place = _place(table, index)
    if place is None:
        return 0, 0
    at = _follow(table.head, place)
    return at + 4, struct.unpack_from("<I", table.head, at)[0]


def _tables(table: _Table, index: int, most: int, says: str) -> list[_Table]:
    """The tables of a vector, of which there are `most` at most. Raises InvalidRecord."""
    start, count = _vector(table, index)
    if count > most:
        raise InvalidRecord(says)
    return [_table(table.head, start + 4 * each) for each in range(count)]


def _pairs(table: _Table, index: int) -> list[_Table]:
    """The entries of metadata, each a key and a value."""
    return _tables(table, index, _PAIRS_MAX, _PAIRS)


def _pairs_of_numbers(table: _Table, index: int) -> Iterator[tuple[int, int]]:
    """A vector of FieldNode (length, nulls) or Buffer (offset, length): 16 bytes each."""
    start, count = _vector(table, index)
    if 16 * count > len(table.head) - start:
        raise struct.error(f"a vector of {count} items is not whole")
    return struct.iter_unpack("<qq", table.head[start : start + 16 * count])


def _text_bytes(table: _Table, index: int) -> int:
    return _vector(table, index)[1]


def _text(table: _Table, index: int) -> str:
    start, count = _vector(table, index)
    return bytes(table.head[start : start + min(count, _NAME_BYTES_MAX)]).decode(errors="replace")


def _follow(head: memoryview, at: int) -> int:
    (relative,) = struct.unpack_from("<I", head, at)
    return at + int(relative)
