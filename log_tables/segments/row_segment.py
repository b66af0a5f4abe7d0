"""A segment of a few records, written from rows: one row group, a page for each column.

pyarrow's writer takes longer to set up than a few records take here, and first needs them as Arrow columns
(docs/decisions/0108-a-few-records-are-written-without-arrow.md). Both forms have the same columns and types,
statistics of offset and timestamp, and a checksum for each page.

The format is Parquet's (https://github.com/apache/parquet-format), in Thrift's compact protocol.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, pairwise
from struct import Struct, pack
from typing import NamedTuple
from zlib import crc32

import numpy as np
import pyarrow as pa

from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.record import Buffer, with_offsets
from log_tables.rows import Headers, Rows, as_batches
from log_tables.version import VERSION

_MAGIC = b"PAR1"

_INT64, _BYTE_ARRAY = 2, 6
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
_PLAIN, _RLE, _DELTA = 0, 3, 5
_CODECS = {"uncompressed": 0, "snappy": 1, "gzip": 2, "zstd": 6, "lz4": 7}
_ARROW_CODECS = {"lz4": "lz4_raw"}
"""Parquet's LZ4_RAW, which pyarrow writes for `lz4`, too."""

_COMPRESSED_MIN = 64
"""The bytes of a page from which on it is compressed: nulls alone take fewer."""

_COMPRESSION_LEVELS = {"zstd": 1}
"""The levels that are not the library's own."""

_DELTA_BLOCK, _DELTA_PARTS = 128, 4
"""Deltas in a block of DELTA_BINARY_PACKED, and its parts: each says how many bits its deltas take."""
_DELTA_HEADER = bytes((0x80, 0x01, _DELTA_PARTS))

_HEADERS_DEFINED = 4
"""How deep a header's key and value are: headers, list, element and they themselves may each be missing."""

_u32 = Struct("<I").pack
_i64 = Struct("<q").pack


@lru_cache(maxsize=4_096)
def _varint(number: int) -> bytes:
    """An unsigned number as ULEB128."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _zigzag(number: int) -> bytes:
    return _varint(number << 1 if number >= 0 else ~(number << 1))


class _Field(NamedTuple):
    """A field of a Thrift struct: its id, its type in the compact protocol, and its bytes."""

    id: int
    kind: int
    data: bytes


def _int(field: int, number: int, *, wide: bool = False) -> _Field:
    return _Field(field, 6 if wide else 5, _zigzag(number))


def _text(field: int, content: bytes) -> _Field:
    return _Field(field, 8, _varint(len(content)) + content)


def _list(field: int, kind: int, items: Sequence[bytes]) -> _Field:
    return _Field(field, 9, bytes([len(items) << 4 | kind]) + b"".join(items))  # of at most 14


def _nested(field: int, *fields: _Field) -> _Field:
    return _Field(field, 12, _struct(*fields))


def _fields(before: int, *fields: _Field) -> bytes:
    """`fields` that follow the one with the id `before`."""
    ids = [before, *(field.id for field in fields)]
    return b"".join(
        bytes([(each - last) << 4 | field.kind]) + field.data
        for (last, each), field in zip(pairwise(ids), fields, strict=True)
    )


def _struct(*fields: _Field) -> bytes:
    return _fields(0, *fields) + b"\0"


def _element(
    name: str, repetition: int, *fields: _Field, kind: int | None = None, children: int | None = None
) -> bytes:
    """A SchemaElement, whose other `fields` have ids above 5."""
    named = [_int(3, repetition), _text(4, name.encode())]
    first = [] if kind is None else [_int(1, kind)]
    counted = [] if children is None else [_int(5, children)]
    return _struct(*first, *named, *counted, *fields)


_BOOL_TRUE = 1
_MICROSECONDS = _nested(2, _nested(2))
_TIMESTAMP_TYPE = (_int(6, 10), _nested(10, _nested(8, _Field(1, _BOOL_TRUE, b""), _MICROSECONDS)))
_LIST_TYPE = (_int(6, 3), _nested(10, _nested(3)))
_STRING_TYPE = (_int(6, 0), _nested(10, _nested(1)))

_SCHEMA = [
    _element("schema", _REQUIRED, children=5),
    _element(OFFSET, _REQUIRED, kind=_INT64),
    _element(TIMESTAMP, _REQUIRED, *_TIMESTAMP_TYPE, kind=_INT64),
    _element(KEY, _OPTIONAL, kind=_BYTE_ARRAY),
    _element(VALUE, _OPTIONAL, kind=_BYTE_ARRAY),
    _element(HEADERS, _OPTIONAL, *_LIST_TYPE, children=1),
    _element("list", _REPEATED, children=1),
    _element("element", _OPTIONAL, children=2),
    _element("key", _OPTIONAL, *_STRING_TYPE, kind=_BYTE_ARRAY),
    _element("value", _OPTIONAL, kind=_BYTE_ARRAY),
]
_PATHS = (
    (OFFSET,),
    (TIMESTAMP,),
    (KEY,),
    (VALUE,),
    (HEADERS, "list", "element", "key"),
    (HEADERS, "list", "element", "value"),
)
_KINDS = (_INT64, _INT64, *[_BYTE_ARRAY] * 4)

# What stands before a field whose id is the one after that of the field before, or after the next.
_INT, _LONG, _STRUCT, _LONG_AFTER_NEXT, _STRUCT_AFTER_TWO = b"\x15", b"\x16", b"\x1c", b"\x26", b"\x3c"
_STOP = b"\0"

_FILE_BEGIN = _fields(0, _int(1, 2), _list(2, 12, _SCHEMA))
_ROW_GROUPS = b"\x19" + bytes([1 << 4 | 12]) + b"\x19" + bytes([len(_PATHS) << 4 | 12])
_ORDERS = _list(7, 12, [_struct(_nested(1))] * len(_PATHS))
_FILE_END = _fields(4, _text(6, f"lakelog version {VERSION}".encode()), _ORDERS) + _STOP
_DATA_PAGE = _fields(0, _int(1, 0))
_LEVELS_RLE = (_INT + _zigzag(_RLE)) * 2


@lru_cache(maxsize=64)
def _chunk_begin(column: int, encoding: int, codec: int) -> bytes:
    """A ColumnChunk up to the number of its values."""
    path = [_varint(len(name)) + name.encode() for name in _PATHS[column]]
    encodings = _list(2, 5, [_zigzag(_RLE), _zigzag(encoding)])
    meta = _fields(0, _int(1, _KINDS[column]), encodings, _list(3, 8, path), _int(4, codec))
    return _fields(0, _int(2, 0, wide=True)) + _STRUCT + meta


class _Page(NamedTuple):
    """The only page of a column: `entries` values and nulls; `bounds` are the least and the greatest."""

    data: bytes
    entries: int
    encoding: int = _PLAIN
    bounds: tuple[int, int] | None = None


class RowSegment(NamedTuple):
    """The records of a segment that was written from rows."""

    rows: Rows
    base_offset: int

    def batch(self) -> pa.RecordBatch:
        """The records as RECORD_SCHEMA."""
        offsets = np.arange(self.base_offset, self.base_offset + len(self.rows), dtype=np.int64)
        return with_offsets(as_batches([self.rows]), offsets)


def encode_rows(rows: Rows, base_offset: int, compression: str = "uncompressed") -> bytes:
    """`rows`, at least one, with the offsets from `base_offset` on, as the bytes of a Parquet file.

    `compression`, one of COMPRESSIONS, applies to keys, values and headers, but not to pages of a few bytes.
    """
    count = len(rows)
    codec = _CODECS[compression]
    pages = (
        _offsets(base_offset, count),
        _times(rows.timestamps_us, count),
        _optional(rows.keys, count),
        _optional(rows.values, count),
        *_headers(rows.headers, count),
    )
    parts, chunks, at, raw_size = [_MAGIC], [], len(_MAGIC), 0
    for column, page in enumerate(pages):
        data = page.data
        used = codec if column > 1 and len(data) >= _COMPRESSED_MIN else 0
        packed = _compressed(data, compression) if used else data
        stats = b"" if page.bounds is None else _statistics(*page.bounds)
        header = _page_header(page, len(data), packed, stats)
        size = len(header) + len(packed)
        chunks.append(_chunk(column, used, page, len(header) + len(data), size, at, stats))
        parts += header, packed
        at += size
        raw_size += len(header) + len(data)
    rows_here = _zigzag(count)
    sizes = _zigzag(raw_size), _zigzag(at - len(_MAGIC))
    footer = b"".join(
        [
            *(_FILE_BEGIN, _LONG, rows_here, _ROW_GROUPS, *chunks),
            *(_LONG, sizes[0], _LONG, rows_here, _LONG_AFTER_NEXT, _zigzag(len(_MAGIC)), _LONG, sizes[1]),
            *(_STOP, _FILE_END),
        ]
    )
    return b"".join([*parts, footer, _u32(len(footer)), _MAGIC])


def _offsets(base: int, count: int) -> _Page:
    return _Page(_steady(base, 1, count), count, _DELTA, (base, base + count - 1))


def _times(times_us: Sequence[int] | int, count: int) -> _Page:
    if isinstance(times_us, int):
        return _Page(_steady(times_us, 0, count), count, _DELTA, (times_us, times_us))
    return _Page(pack(f"<{count}q", *times_us), count, _PLAIN, (min(times_us), max(times_us)))


def _steady(first: int, step: int, count: int) -> bytes:
    """`count` numbers, each `step` above the one before, as DELTA_BINARY_PACKED: the deltas take no bits."""
    blocks = -(-(count - 1) // _DELTA_BLOCK)
    return b"".join(
        (_DELTA_HEADER, _varint(count), _zigzag(first), (_zigzag(step) + bytes(_DELTA_PARTS)) * blocks)
    )


def _optional(items: Sequence[Buffer | None] | None, count: int) -> _Page:
    """A column of bytes, of which some may be null; None is nulls only."""
    if items is None:
        return _Page(_levels_of_one(0, count), count)
    if None not in items:
        return _Page(_levels_of_one(1, count) + _plain(items), count)  # type: ignore[arg-type]
    present = [item for item in items if item is not None]
    return _Page(_levels([item is not None for item in items], 1) + _plain(present), count)


def _headers(rows: Sequence[Headers] | None, count: int) -> tuple[_Page, _Page]:
    """The columns of the names and the contents of headers; a record without any has a null."""
    if rows is None or not any(rows):
        page = _Page(_levels_of_one(0, count) * 2, count)  # how often repeated, and how deep defined
        return page, page
    pairs = [*chain.from_iterable(rows)]
    # Of each pair, or record without any: whether it goes on with the record of the one before.
    goes_on = [place > 0 for row in rows for place in range(len(row) or 1)]
    depths = [
        _HEADERS_DEFINED - (pair[1] is None) if pair else 0 for row in rows for pair in (row or (None,))
    ]
    repeated = _levels(goes_on, 1)
    names = _levels([min(depth, 1) * _HEADERS_DEFINED for depth in depths], 3)
    contents = [content for _, content in pairs if content is not None]
    return (
        _Page(repeated + names + _plain([name.encode() for name, _ in pairs]), len(depths)),
        _Page(repeated + _levels(depths, 3) + _plain(contents), len(depths)),
    )


def _plain(items: Sequence[Buffer]) -> bytes:
    lengths = [*map(len, items)]
    if lengths and lengths.count(lengths[0]) == len(lengths):
        length = _u32(lengths[0])
        return length + length.join(items)
    return b"".join(chain.from_iterable(zip(map(_u32, lengths), items, strict=True)))


def _levels_of_one(level: int, count: int) -> bytes:
    """`count` times the same level, as a run, after its length."""
    run = _varint(count << 1) + bytes((level,))
    return _u32(len(run)) + run


def _levels(levels: Sequence[int], bits: int) -> bytes:
    """Levels of so many `bits`, packed in groups of eight, after their length."""
    groups = -(-len(levels) // 8)
    padded = np.zeros((groups * 8, 1), np.uint8)
    padded[: len(levels), 0] = levels
    packed = np.packbits(np.unpackbits(padded, axis=1, count=bits, bitorder="little"), bitorder="little")
    run = _varint(groups << 1 | 1) + packed.tobytes()
    return _u32(len(run)) + run


def _compressed(data: bytes, compression: str) -> bytes:
    codec = pa.Codec(_ARROW_CODECS.get(compression, compression), _COMPRESSION_LEVELS.get(compression))
    packed: bytes = codec.compress(data, asbytes=True)
    return packed


def _statistics(least: int, greatest: int) -> bytes:
    """Statistics of a column of int64 without nulls, after the fields that were before them."""
    return _struct(_int(3, 0, wide=True), _text(5, _i64(greatest)), _text(6, _i64(least)))


def _page_header(page: _Page, size: int, packed: bytes, stats: bytes) -> bytes:
    checksum = crc32(packed)
    signed = checksum - (checksum >> 31 << 32)
    return b"".join(
        (
            *(_DATA_PAGE, _INT, _zigzag(size), _INT, _zigzag(len(packed)), _INT, _zigzag(signed), _STRUCT),
            *(_INT, _zigzag(page.entries), _INT, _zigzag(page.encoding), _LEVELS_RLE),
            *((_STRUCT, stats) if stats else ()),
            *(_STOP, _STOP),
        )
    )


def _chunk(column: int, codec: int, page: _Page, raw_size: int, size: int, at: int, stats: bytes) -> bytes:
    """The ColumnChunk of a page that takes `size` bytes from `at` on, `raw_size` before it was compressed."""
    return b"".join(
        (
            *(
                _chunk_begin(column, page.encoding, codec),
                _LONG,
                _zigzag(page.entries),
                _LONG,
                _zigzag(raw_size),
            ),
            *(_LONG, _zigzag(size), _LONG_AFTER_NEXT, _zigzag(at)),
            *((_STRUCT_AFTER_TWO, stats) if stats else ()),
            *(_STOP, _STOP),
        )
    )
