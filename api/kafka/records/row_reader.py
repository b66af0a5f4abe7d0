"""A few records of a batch, one after the other, as rows: for them Arrow's columns take longer than these."""

from collections.abc import Iterable
from itertools import islice

from api.kafka.records.errors import BatchError, InvalidBatch, invalid
from api.kafka.records.varint import LONG, read_varint
from api.wire.room import Reserve
from log_tables.limits import CULPRITS_MAX, TIMESTAMP_BOUNDS, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.record import time_or_append_us
from log_tables.rows import Rows

TIMESTAMP_MIN_MS = -(-TIMESTAMP_MIN_US // 1000)
TIMESTAMP_MAX_MS = TIMESTAMP_MAX_US // 1000

_Headers = list[tuple[str, bytes | None]]


def read_rows(
    body: bytes | memoryview, count: int, base_ms: int, append_time_us: int, hold_headers: Reserve
) -> Rows:
    """The `count` records that `body` has.

    Raises InvalidBatch, and what `hold_headers` raises, which is told the number of headers.
    """
    keys: list[bytes | None] = []
    values: list[bytes | None] = []
    times_us: list[int] = []
    headers: list[_Headers] = []
    wrong: list[tuple[int, int]] = []
    at = names = 0
    try:
        for index in range(count):
            size, at = read_varint(body, at)
            end = at + size
            if size < 0 or body[at]:
                raise invalid(f"the record {index} has a wrong length, or unknown attributes")
            delta, at = read_varint(body, at + 1, LONG)
            time_ms = base_ms + delta
            if not TIMESTAMP_MIN_MS <= time_ms <= TIMESTAMP_MAX_MS:
                wrong.append((index, time_ms))
            times_us.append(time_or_append_us(time_ms, append_time_us))
            delta, at = read_varint(body, at)
            if delta != index:
                raise invalid(f"the record {index} has the offset delta {delta}; send them in order")
            key, at = _read_bytes(body, at)
            keys.append(key)
            value, at = _read_bytes(body, at)
            values.append(value)
            number, at = read_varint(body, at)
            if number:
                check_header_count(number, end - at)
                names += number
                hold_headers(names)
            named, at = _read_headers(body, at, number)
            headers.append(named)
            if at != end:
                raise misfit(index)
    except IndexError:
        raise invalid(f"the records end within one of them; the batch says that it has {count}") from None
    if at != len(body):
        raise invalid(f"{len(body) - at} bytes follow the last of {count} records")
    if wrong:
        raise wrong_times(wrong)
    return Rows(
        values,
        times_us,
        None if keys.count(None) == count else keys,
        headers if any(headers) else None,
    )


def misfit(index: int) -> InvalidBatch:
    """The error of a record whose fields are longer or shorter than itself."""
    return invalid(f"the fields of the record {index} do not fill its length")


def wrong_times(times_ms: Iterable[tuple[int, int]]) -> InvalidBatch:
    """The error of times that other readers could not show, each with the place of its record."""
    culprits = [
        (index, f"the timestamp {time_ms} ms is outside {TIMESTAMP_BOUNDS}; send milliseconds since 1970")
        for index, time_ms in islice(times_ms, CULPRITS_MAX)
    ]
    return InvalidBatch(BatchError.INVALID_TIMESTAMP, culprits[0][1], culprits)


def _read_bytes(body: bytes | memoryview, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(body, at)
    if size < 0:
        if size < -1:
            raise invalid(f"a key or a value has the length {size}; send -1 for null")
        return None, at
    end = at + size
    if end > len(body):
        raise IndexError
    return bytes(body[at:end]), end


def _read_headers(body: bytes | memoryview, at: int, count: int) -> tuple[_Headers, int]:
    named: _Headers = []
    for _ in range(count):
        key, at = _read_bytes(body, at)
        if key is None:
            raise invalid("the key of a header is null; send a text")
        value, at = _read_bytes(body, at)
        named.append((_text(key), value))
    return named, at


def check_header_count(count: int, bytes_left: int) -> None:
    """Raise InvalidBatch unless so many headers, of two bytes or more each, can stand in these bytes."""
    if not 0 <= 2 * count <= bytes_left:
        raise invalid(f"a record has {count} headers in {bytes_left} bytes")


def _text(key: bytes) -> str:
    try:
        return key.decode()
    except UnicodeDecodeError:
        raise not_utf8() from None


def not_utf8() -> InvalidBatch:
    """The error of a header that a column of texts cannot hold."""
    return invalid("the key of a header is not UTF-8; send a text")
