"""The records of a log, as rows and as Arrow columns."""

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import repeat

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.errors import InvalidRecord
from log_tables.layout import HEADERS, KEY, OFFSET, PARTITION, TIMESTAMP, VALUE
from log_tables.limits import NO_TIMESTAMP_MS, TIMESTAMP_BOUNDS, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

Buffer = bytes | bytearray | memoryview

_TIMESTAMP = pa.timestamp("us", tz="UTC")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HEADERS_TYPE = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)

INPUT_SCHEMA = pa.schema(
    [
        pa.field(TIMESTAMP, _TIMESTAMP, nullable=False),
        pa.field(KEY, pa.binary()),
        pa.field(VALUE, pa.binary()),
        pa.field(HEADERS, HEADERS_TYPE),
    ]
)
"""The columns of an append: records that have no offset yet."""

RECORD_SCHEMA = pa.schema([pa.field(OFFSET, pa.int64(), nullable=False), *INPUT_SCHEMA])
"""The columns of a segment and of a read."""

POLL_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        *RECORD_SCHEMA,
    ]
)
"""The columns of a poll: of an answer to a consumer instance of the format arrow, and of `Consumer.poll`."""


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record. A null `value` is a tombstone; `offset` is None until the log has given one.

    A struct: millions are made in a read, and a dataclass takes ten times as long. It refers to nothing that
    could refer to it, so the garbage collector need not look.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_us: int | None = None
    offset: int | None = None


def record_schema(names: Collection[str]) -> pa.Schema:
    """The columns of RECORD_SCHEMA that have one of `names`."""
    return pa.schema([field for field in RECORD_SCHEMA if field.name in names])


def delta_schema(partitioned: bool = False, declared: Iterable[object] = ()) -> str:
    """RECORD_SCHEMA as the `schemaString` of a Delta table (Delta's "Schema Serialization Format").

    With `partitioned`, the column `partition` comes first: its values are in the log, not in the files. The
    fields `declared` are appended.
    """

    def field(name: str, kind: object, nullable: bool = True) -> dict[str, object]:
        return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}

    header = {"type": "struct", "fields": [field("key", "string"), field("value", "binary")]}
    headers = {"type": "array", "elementType": header, "containsNull": True}
    fields = [
        *([field(PARTITION, "integer")] if partitioned else []),
        field(OFFSET, "long", nullable=False),
        field(TIMESTAMP, "timestamp", nullable=False),
        field(KEY, "binary"),
        field(VALUE, "binary"),
        field(HEADERS, headers),
        *declared,
    ]
    return json.dumps({"type": "struct", "fields": fields})


def binary_array(items: Sequence[Buffer | None]) -> pa.Array:
    """A binary column of `items` (bytes-like, None = null), copied once and without per-item conversion."""
    if None in items:
        missing = np.fromiter((item is None for item in items), bool, len(items))
        filled: Iterable[Buffer] = (b"" if item is None else item for item in items)
        return _binary_array(list(filled), missing)
    return _binary_array(items, None)  # type: ignore[arg-type]


def _binary_array(items: Sequence[Buffer], missing: np.ndarray | None) -> pa.Array:
    data = b"".join(items)
    if len(data) >= 2**31:
        raise InvalidRecord(f"{len(data)} bytes are too many for one batch; send less than 2 GiB")
    offsets = np.zeros(len(items) + 1, np.int32)
    np.fromiter(map(len, items), np.int32, len(items)).cumsum(out=offsets[1:])
    validity = None
    if missing is not None:
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(items), buffers)


def text_array(values: pa.Array) -> pa.Array:
    """Bytes as text, null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def timestamp_array(microseconds: np.ndarray) -> pa.Array:
    """A timestamp column from int64 microseconds since 1970 UTC, without a copy.

    Raises InvalidRecord for a time before the year 1 or after 9999: other readers could not show it.
    """
    values = np.ascontiguousarray(microseconds, dtype=np.int64)
    check_timestamps(values)
    return checked_timestamps(values)


def checked_timestamps(microseconds: np.ndarray) -> pa.Array:
    """A timestamp column from int64 microseconds that are known to be in the years 1 to 9999."""
    return pa.Array.from_buffers(_TIMESTAMP, len(microseconds), [None, pa.py_buffer(microseconds)])


def check_timestamps(microseconds: np.ndarray) -> None:
    """Raise InvalidRecord for a time (int64 microseconds) before the year 1 or after 9999."""
    if len(microseconds) == 0:
        return
    low, high = int(microseconds.min()), int(microseconds.max())
    if low < TIMESTAMP_MIN_US or high > TIMESTAMP_MAX_US:
        wrong_ms, rest_us = divmod(low if low < TIMESTAMP_MIN_US else high, 1000)
        shown = f"{wrong_ms}.{rest_us:03d}" if rest_us else f"{wrong_ms}"
        raise InvalidRecord(
            f"the timestamp {shown} ms is outside {TIMESTAMP_BOUNDS}; send milliseconds since 1970"
        )


def time_or_append_us(time_ms: int | None, append_time_us: int) -> int:
    """The time of a record, in microseconds, whose producer named `time_ms`, or none."""
    return append_time_us if time_ms is None or time_ms == NO_TIMESTAMP_MS else time_ms * 1000


def times_or_append_us(times_us: np.ndarray, append_time_us: int) -> np.ndarray:
    """The times of records, in microseconds (int64), where some may stand for none."""
    is_none = times_us == NO_TIMESTAMP_MS * 1000
    return np.where(is_none, np.int64(append_time_us), times_us) if is_none.any() else times_us


def int64s(column: pa.Array) -> np.ndarray:
    """The numbers of an int64 or timestamp column without nulls, without a copy.

    Not `to_numpy`: that imports pandas where it is installed, for most of a second.
    """
    values = np.frombuffer(column.buffers()[1] or b"", np.int64)
    return values[column.offset : column.offset + len(column)]


def timestamp_text(microseconds: int, up: bool = False) -> str:
    """Microseconds since 1970 UTC as ISO 8601 with milliseconds; `up` rounds up instead of down."""
    milliseconds = -(-microseconds // 1000) if up else microseconds // 1000
    time = _EPOCH + timedelta(milliseconds=milliseconds)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def timestamp_us(text: str) -> int:
    """The microseconds since 1970 UTC of a text of `timestamp_text`."""
    return (datetime.fromisoformat(text) - _EPOCH) // timedelta(microseconds=1)


def constant_timestamps(microseconds: int, count: int) -> pa.Array:
    return timestamp_array(np.full(count, microseconds, dtype=np.int64))


def headers_array(rows: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    """A headers column; a record without headers has a null, as Spark's Kafka source shows it."""
    if not any(rows):
        return pa.nulls(len(rows), HEADERS_TYPE)
    flat = [pair for row in rows for pair in row]
    # A view of UTF-8 bytes, not pa.array(list): that imports pandas where it is installed, for 0.9 s.
    keys = binary_array([key.encode() for key, _ in flat]).view(pa.string())
    items = pa.StructArray.from_arrays([keys, binary_array([v for _, v in flat])], ["key", "value"])
    ends = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum([len(row) for row in rows], out=ends[1:])
    missing = np.fromiter((not row for row in rows), bool, len(rows))
    validity = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    return pa.Array.from_buffers(HEADERS_TYPE, len(rows), [validity, pa.py_buffer(ends)], children=[items])


def input_batch(records: Sequence[Record], now_us: int) -> pa.RecordBatch:
    """Rows as INPUT_SCHEMA; a record without a timestamp gets `now_us` (microseconds)."""
    stamps = np.fromiter(
        (now_us if r.timestamp_us is None else r.timestamp_us for r in records),
        np.int64,
        len(records),
    )
    columns = [
        timestamp_array(stamps),
        binary_array([r.key for r in records]),
        binary_array([r.value for r in records]),
        headers_array([r.headers for r in records]),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def input_batch_from_columns(
    values: pa.Array,
    *,
    now_us: int,
    keys: pa.Array | None = None,
    timestamps: pa.Array | None = None,
    headers: pa.Array | None = None,
) -> pa.RecordBatch:
    """Columns as INPUT_SCHEMA; a missing column is null, a missing or null timestamp, or one of
    NO_TIMESTAMP_MS, is `now_us`. Nanoseconds are cut down.

    Raises InvalidRecord when a column cannot be read as the type the schema asks for.
    """
    count = len(values)
    try:
        columns = [
            _timestamps(timestamps, now_us, count),
            pa.nulls(count, pa.binary()) if keys is None else _cast(keys, pa.binary()),
            _cast(values, pa.binary()),
            pa.nulls(count, HEADERS_TYPE) if headers is None else _cast(headers, HEADERS_TYPE),
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise InvalidRecord(f"a column has the wrong type: {error}; see docs/http.md for the types") from None
    return pa.RecordBatch.from_arrays(columns, schema=INPUT_SCHEMA)


def _timestamps(given: pa.Array | None, now_us: int, count: int) -> pa.Array:
    if given is None:
        return constant_timestamps(now_us, count)
    if pa.types.is_integer(given.type):
        given = _cast(_cast(given, pa.int64()), pa.timestamp("ms", tz="UTC"))
    given = _cast(_cut_down(given), _TIMESTAMP)
    if given.null_count:
        given = pc.fill_null(given, pa.scalar(now_us, _TIMESTAMP))
    return timestamp_array(times_or_append_us(int64s(given), now_us))


def _cut_down(stamps: pa.Array) -> pa.Array:
    """Times in nanoseconds, pandas' unit, as microseconds: a cast would cut those before 1970 up."""
    if not pa.types.is_timestamp(stamps.type) or stamps.type.unit != "ns":
        return stamps
    numbers = stamps.view(pa.int64())
    cut = pc.divide(numbers, 1000)
    is_above = pc.greater(pc.multiply(cut, 1000), numbers)
    return pc.subtract(cut, is_above.cast(pa.int64())).cast(pa.timestamp("us", tz=stamps.type.tz))


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


def with_offsets(batches: Sequence[pa.RecordBatch], offsets: np.ndarray) -> pa.RecordBatch:
    """INPUT_SCHEMA batches, one after the other, as one RECORD_SCHEMA batch with `offsets` (int64)."""
    merged = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    column = pa.Array.from_buffers(
        pa.int64(), len(offsets), [None, pa.py_buffer(np.ascontiguousarray(offsets, np.int64))]
    )
    return pa.RecordBatch.from_arrays([column, *merged.columns], schema=RECORD_SCHEMA)


def to_records(batch: pa.RecordBatch | pa.Table) -> list[Record]:
    """RECORD_SCHEMA rows as Record objects."""
    stamps = batch.column(TIMESTAMP).cast(pa.int64()).to_pylist()
    values, keys, offsets = (batch.column(name).to_pylist() for name in (VALUE, KEY, OFFSET))
    return list(map(Record, values, keys, header_pairs(batch.column(HEADERS)), stamps, offsets))


def header_pairs(column: pa.Array | pa.ChunkedArray) -> Iterable[tuple[tuple[str, bytes | None], ...]]:
    """The headers of each record as pairs of name and content; a null is no headers."""
    if column.null_count == len(column):
        return repeat((), len(column))
    return (tuple((each["key"], each["value"]) for each in row or ()) for row in column.to_pylist())


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Bytes that the rows of `batch` take in memory (only the part a slice refers to)."""
    # As one array: that is the same number, and takes a third of the time.
    return int(batch.to_struct_array().nbytes)


def cut(batch: pa.RecordBatch, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """`batch` in pieces of at most `max_bytes`, or of one record."""
    if batch.num_rows == 1 or batch_bytes(batch) <= max_bytes:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from cut(batch.slice(0, middle), max_bytes)
    yield from cut(batch.slice(middle), max_bytes)


def size_bound(batch: pa.RecordBatch) -> int:
    """Bytes of key and value that no record of `batch` has more of; found sooner than the largest record."""
    return sum(_longest(batch.column(name)) for name in (KEY, VALUE))


def _longest(column: pa.Array) -> int:
    """The bytes of the longest item of a binary column; what stands at a null counts, too."""
    if column.null_count == len(column):
        return 0
    ends = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return int(np.diff(ends).max())


def record_sizes(batch: pa.RecordBatch) -> pa.Array:
    """The bytes of key and value of each record."""
    return pc.add(
        pc.fill_null(pc.binary_length(batch.column(KEY)), 0),
        pc.fill_null(pc.binary_length(batch.column(VALUE)), 0),
    )
