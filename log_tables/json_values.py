"""Arrow values as what JSON has: exact, or not at all. Pure.

Times have their nanoseconds, intervals and durations are ISO 8601, a decimal is a text of its digits, a map
with text for keys is an object.
Python's own conversion needs pandas for nanoseconds, cuts years off and makes a map a list.
"""

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time
from itertools import pairwise
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.errors import InvalidRecord

Special = Callable[[float], Any]
"""A stand-in for NaN or an infinity, which JSON does not have. Raises ValueError where there is none."""

_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_MINUTE, _HOUR, _DAY = 60 * 10**9, 3_600 * 10**9, 86_400 * 10**9


def named(value: float) -> str:
    """The text of NaN or an infinity, as Spark's JSON and Kafka's JSON converter have it."""
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def refused(value: float) -> Any:
    """Raises ValueError: a value that becomes a record is never changed."""
    raise ValueError(f"{named(value)} is no number of JSON")


def json_rows(batch: pa.RecordBatch, before: int = 0) -> Sequence[bytes]:
    """The JSON object of each row of `batch`, whose columns have names of their own.

    `before` rows came before it. Raises InvalidRecord, which names the row and the column, for a value that
    JSON does not have: NaN, a time outside the years 1 to 9999, a text that is not UTF-8.
    """
    names = batch.schema.names
    if not names:
        return [b"{}"] * batch.num_rows
    columns = [
        _column_or_row(column, name, before) for name, column in zip(names, batch.columns, strict=True)
    ]
    return [msgspec.json.encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _column_or_row(column: pa.Array, name: str, before: int) -> list[Any]:
    try:
        return plain(column, refused)
    except _NOT_JSON:
        pass
    for index in range(len(column)):
        try:
            plain(column.slice(index, 1), refused)
        except _NOT_JSON as error:
            raise InvalidRecord(
                f"row {before + index + 1}, column {name!r} cannot be JSON ({error}); convert it"
            ) from None
    raise AssertionError("each value is JSON, and all of them are not")


_NOT_JSON = (ValueError, TypeError, OverflowError, NotImplementedError, pa.ArrowException)


def plain(column: pa.Array, special: Special) -> list[Any]:
    """The values of `column` in kinds that msgspec writes exactly as JSON; bytes stay bytes.

    `special` gives what stands for NaN and infinities. Raises ValueError, TypeError, OverflowError or
    ArrowException for values that cannot be so.
    """
    column = _decoded(column)
    if pa.types.is_nested(column.type):
        return _nested(column, special)
    if pa.types.is_floating(column.type):
        numbers = column.cast(pa.float64()).to_pylist()
        return [each if each is None or math.isfinite(each) else special(each) for each in numbers]
    if pa.types.is_decimal(column.type):
        return [None if each is None else f"{each:f}" for each in column.to_pylist()]
    return _temporal(column) if pa.types.is_temporal(column.type) else column.to_pylist()


def _decoded(column: pa.Array) -> pa.Array:
    """`column` without an encoding of its values."""
    if isinstance(column, pa.ExtensionArray):
        return _decoded(column.storage)
    if pa.types.is_dictionary(column.type):
        return _decoded(column.dictionary_decode())
    return pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column


def _temporal(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return _times(column)
    if pa.types.is_duration(kind):
        factor = _NANOS[kind.unit]
        return [None if each is None else _duration(each * factor) for each in _numbers(column)]
    values: list[Any] = column.to_pylist()
    if pa.types.is_interval(kind):
        return [None if each is None else _interval(*each) for each in values]
    return values


def _nested(column: pa.Array, special: Special) -> list[Any]:
    if pa.types.is_map(column.type):
        return _maps(column, special)
    if pa.types.is_struct(column.type):
        return _structs(column, special)
    if pa.types.is_union(column.type):
        raise TypeError(f"{column.type} is no type of JSON")
    items = plain(column.flatten(), special)
    lists, begin = list[Any](), 0
    for size in pc.list_value_length(column).to_pylist():
        lists.append(None if size is None else items[begin : begin + size])
        begin += size or 0
    return lists


def _structs(column: pa.StructArray, special: Special) -> list[Any]:
    names = [field.name for field in column.type]
    if len(set(names)) < len(names):
        raise ValueError(f"fields of one name among {', '.join(names)}")
    parts = [plain(part, special) for part in column.flatten()]
    rows = zip(*parts, strict=True) if parts else [()] * len(column)
    return _where_valid(column, [dict(zip(names, row, strict=True)) for row in rows])


def _where_valid(column: pa.Array, values: list[Any]) -> list[Any]:
    if column.null_count == 0:
        return values
    return [
        value if valid else None for value, valid in zip(values, column.is_valid().to_pylist(), strict=True)
    ]


def _maps(column: pa.MapArray, special: Special) -> list[Any]:
    """Objects where keys are text, as a declared map<string, …> has them; else lists of pairs."""
    ends = column.offsets.to_pylist()
    begin, size = ends[0], ends[-1] - ends[0]
    keys = plain(column.keys.slice(begin, size), special)
    items = plain(column.items.slice(begin, size), special)
    maps = [
        [*zip(keys[low - begin : high - begin], items[low - begin : high - begin], strict=True)]
        for low, high in pairwise(ends)
    ]
    kind = column.type.key_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _where_valid(column, [*map(_object, maps)])
    return _where_valid(column, maps)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError(f"a map has a key twice among {', '.join(key for key, _ in pairs)[:100]}")
    return made


def _numbers(column: pa.Array) -> list[int | None]:
    width = pa.int32() if column.type.bit_width == 32 else pa.int64()
    numbers: list[int | None] = column.view(width).to_pylist()
    return numbers


def _times(column: pa.Array) -> list[Any]:
    """Times as Python has them, to the microsecond; a text where that would leave out nanoseconds."""
    if column.type.unit != "ns":
        return [*map(_whole_minutes, column.to_pylist())]
    nanoseconds = _numbers(column)
    whole = pa.array([None if each is None else each // 1000 for each in nanoseconds], pa.int64())
    is_time = pa.types.is_time(column.type)
    times = plain(whole.view(pa.time64("us") if is_time else pa.timestamp("us", column.type.tz)), refused)
    rests = [(each or 0) % 1000 for each in nanoseconds]
    return [
        _with_nanoseconds(moment, rest) if rest else moment for moment, rest in zip(times, rests, strict=True)
    ]


def _whole_minutes(moment: Any) -> Any:
    """`moment`, in UTC where its zone was seconds apart from it: JSON writes zones in minutes."""
    zoned = isinstance(moment, datetime) and moment.tzinfo not in {None, UTC}
    return moment.astimezone(UTC) if zoned and moment.utcoffset().seconds % 60 else moment


def _with_nanoseconds(moment: datetime | time, rest: int) -> str:
    text = moment.isoformat(timespec="microseconds")
    end = text.index(".") + 7
    return f"{text[:end]}{rest:03d}{text[end:].replace('+00:00', 'Z')}"


def _duration(nanoseconds: int) -> str:
    return _interval(0, *_split(nanoseconds, _DAY))


def _interval(months: int, days: int, nanoseconds: int) -> str:
    """An ISO 8601 duration: `P1Y2M3DT4H5M6.7S`, each part with its own sign, `PT0S` for none."""
    years, months = _split(months, 12)
    hours, rest = _split(nanoseconds, _HOUR)
    minutes, rest = _split(rest, _MINUTE)
    seconds, fraction = divmod(abs(rest), 10**9)
    digits = f".{fraction:09d}".rstrip("0") if fraction else ""
    date = _parts((years, "Y"), (months, "M"), (days, "D"))
    clock = _parts((hours, "H"), (minutes, "M"))
    clock += f"{'-' if rest < 0 else ''}{seconds}{digits}S" if rest else ""
    return f"P{date}{'T' if clock else ''}{clock}" if date or clock else "PT0S"


def _split(number: int, by: int) -> tuple[int, int]:
    """How often `by` is in `number`, and the rest; both have the sign of `number`."""
    whole, rest = divmod(abs(number), by)
    return (whole, rest) if number >= 0 else (-whole, -rest)


def _parts(*parts: tuple[int, str]) -> str:
    return "".join(f"{number}{unit}" for number, unit in parts if number)
