"""Which JSON fits which type, value by value: the rules of docs/columns.md, which every faster way follows.

A field that is absent or null is a null. A field of another kind does not fit: nothing is converted that
somebody may have meant otherwise.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, timedelta
from functools import lru_cache

import msgspec
import numpy as np
import pyarrow as pa

from log_tables.columns.column_type import ddl
from log_tables.columns.declaration import Column, Declaration
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US, VALUE_DEPTH_MAX, VALUE_ERROR_MAX_BYTES

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_KINDS = {
    bool: "a boolean",
    int: "a whole number",
    float: "a fraction",
    str: "text",
    dict: "an object",
    list: "an array",
}
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (all times are made UTC before they are compared)
_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(
    _DATE.pattern + r"(?:[Tt ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?"
    r"(?:[Zz]|([+-])([0-9]{2}):?([0-9]{2})?)?)?"
)
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NOT_JSON = "the value is not JSON"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")

_any = msgspec.json.Decoder()
_doubles = msgspec.json.Decoder(float | None)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_arrays = msgspec.json.Decoder(list[msgspec.Raw])


class InvalidField(Exception):
    """A field does not fit its column. It never leaves this package."""


def fit(value: bytes, declaration: Declaration) -> tuple[list[object], str | None]:
    """(The value of each column, None) or, for a value that does not fit, (nulls, why it does not).

    Dates are days and timestamps microseconds since 1970 UTC. The reason has at most VALUE_ERROR_MAX_BYTES.
    """
    try:
        return _fitted(value, declaration), None
    except InvalidField as invalid:
        return [None] * len(declaration.columns), cut(str(invalid))


def cut(reason: str) -> str:
    """`reason`, with at most VALUE_ERROR_MAX_BYTES."""
    return reason.encode()[:VALUE_ERROR_MAX_BYTES].decode(errors="ignore")


def _fitted(value: bytes, declaration: Declaration) -> list[object]:
    try:
        value.decode()
    except UnicodeDecodeError:
        raise InvalidField("the value is not UTF-8") from None
    if depth(value) > VALUE_DEPTH_MAX:
        raise InvalidField(f"the value is nested more than {VALUE_DEPTH_MAX} deep")
    steps = [column.steps for column in declaration.columns]
    try:
        whole = first_fields(tuple(sorted({first for first, *_ in steps}))).decode(value)
    except msgspec.ValidationError:
        raise InvalidField("the value is not a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidField(_NOT_JSON) from None
    fields = {first: getattr(whole, name) for name, first in _slots({first for first, *_ in steps}).items()}
    return [
        _column(_followed(fields[first], inner), column)
        for (first, *inner), column in zip(steps, declaration.columns, strict=True)
    ]


@lru_cache(maxsize=256)
def first_fields(names: tuple[str, ...]) -> "msgspec.json.Decoder[msgspec.Struct]":
    """A decoder of objects, which keeps the text of the fields `names`, in order, and skips others."""
    slots = _slots({*names})
    fields = [(slot, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for slot in slots]
    return msgspec.json.Decoder(msgspec.defstruct("_Fields", fields, rename=slots, gc=False))


def _slots(names: set[str]) -> dict[str, str]:
    return {f"field_{index}": name for index, name in enumerate(sorted(names))}


def _followed(field: bytes | msgspec.Raw | msgspec.UnsetType, steps: Sequence[str]) -> bytes | None:
    """The text of the field to which `steps` lead from `field`; None where they lead nowhere."""
    for step in steps:
        if field is msgspec.UNSET:
            return None
        text = bytes(field)
        begin = text.lstrip()[:1]
        if begin == b"{":
            field = _objects.decode(text).get(step, msgspec.UNSET)
        elif begin == b"[" and _INDEX.fullmatch(step):
            items = _arrays.decode(text)
            field = items[int(step)] if int(step) < len(items) else msgspec.UNSET
        else:
            return None
    return None if field is msgspec.UNSET else bytes(field)


def _column(text: bytes | None, column: Column) -> object:
    if text is None:
        return None
    try:
        if column.type == pa.float64():
            with suppress(msgspec.ValidationError):
                return _doubles.decode(text)  # `-0` is no whole number here
        found = _any.decode(text)
    except msgspec.ValidationError:
        raise InvalidField(f"{column.pointer} is a number beyond double") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidField(_NOT_JSON) from None
    return fitted(found, column.type, column.pointer)


def fitted(value: object, kind: pa.DataType, pointer: str) -> object:
    """The JSON `value`, which is at `pointer`, as `pa.array` takes it for `kind`. Raises InvalidField."""
    if value is None:
        return None
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise _invalid(value, kind, pointer)
        items = value
        return [fitted(item, kind.value_type, f"{pointer}/{index}") for index, item in enumerate(items)]
    if pa.types.is_map(kind):
        pairs = _object(value, kind, pointer).items()
        return [(key, fitted(item, kind.item_type, f"{pointer}/{key}")) for key, item in pairs]
    if pa.types.is_struct(kind):
        found, fields = _object(value, kind, pointer), (kind.field(i) for i in range(kind.num_fields))
        return {
            field.name: fitted(found.get(field.name), field.type, f"{pointer}/{field.name}")
            for field in fields
        }
    return _LEAVES[kind](value, kind, pointer)


def _object(value: object, kind: pa.DataType, pointer: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _invalid(value, kind, pointer)
    return value


def _invalid(value: object, kind: pa.DataType, pointer: str) -> InvalidField:
    wanted = ddl(kind).partition("<")[0]
    return InvalidField(f"{pointer} is {_KINDS[type(value)]}, not {wanted}")


def _string(value: object, kind: pa.DataType, pointer: str) -> str:
    if type(value) is not str:
        raise _invalid(value, kind, pointer)
    return value


def _bigint(value: object, kind: pa.DataType, pointer: str) -> int:
    if type(value) is not int:
        raise _invalid(value, kind, pointer)
    if not INT64_MIN <= value <= INT64_MAX:
        raise InvalidField(f"{pointer} is a number beyond bigint")
    return value


def _double(value: object, kind: pa.DataType, pointer: str) -> float:
    if type(value) is float:
        return value
    if type(value) is not int:
        raise _invalid(value, kind, pointer)
    try:
        return float(value)
    except OverflowError:
        raise InvalidField(f"{pointer} is a number beyond double") from None


def _boolean(value: object, kind: pa.DataType, pointer: str) -> bool:
    if type(value) is not bool:
        raise _invalid(value, kind, pointer)
    return value


def _date(value: object, kind: pa.DataType, pointer: str) -> int:
    days = date_days(_string(value, kind, pointer))
    if days is None:
        raise InvalidField(f"{pointer} is text that is no date such as 2013-01-31")
    return days


def _timestamp(value: object, kind: pa.DataType, pointer: str) -> int:
    microseconds = time_us(_string(value, kind, pointer))
    if microseconds is None:
        raise InvalidField(f"{pointer} is text that is no time such as 2013-01-31T05:00:00Z")
    return microseconds


_LEAVES: Mapping[pa.DataType, Callable[[object, pa.DataType, str], object]] = {
    pa.string(): _string,
    pa.int64(): _bigint,
    pa.float64(): _double,
    pa.bool_(): _boolean,
    pa.date32(): _date,
    pa.timestamp("us", tz="UTC"): _timestamp,
}


def date_days(text: str) -> int | None:
    """The days since 1970 of a date `2013-01-31`; None for any other text."""
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    try:
        return (date(*map(int, match.groups())) - _EPOCH.date()).days
    except ValueError:
        return None


def time_us(text: str) -> int | None:
    """The microseconds since 1970 UTC of a time in ISO 8601; None for any other text.

    Without a zone it is UTC, without a time of day midnight. More digits than microseconds are cut off. Years
    are 1 to 9999, also in UTC.
    """
    match = _TIME.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, sign, zone_h, zone_min = match.groups()
    hours, minutes = int(zone_h or 0), int(zone_min or 0)
    if hours > 18 or minutes > 59:
        return None
    micros = int((fraction or "").ljust(6, "0")[:6])
    try:
        local = datetime(  # noqa: DTZ001 (the zone is subtracted below)
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), micros
        )
    except ValueError:
        return None
    ahead = timedelta(hours=hours, minutes=minutes) * (-1 if sign == "-" else 1)
    found = (local - _EPOCH - ahead) // timedelta(microseconds=1)
    return found if TIMESTAMP_MIN_US <= found <= TIMESTAMP_MAX_US else None


def depth(value: bytes) -> int:
    """How deep the brackets of `value` are nested outside of its texts; all that a value without JSON has."""
    brackets = value.count(b"{") + value.count(b"[")
    if brackets <= VALUE_DEPTH_MAX:
        return brackets
    data = np.frombuffer(_ESCAPE.sub(b"", value) if b"\\" in value else value, np.uint8)
    outside = (np.cumsum(data == ord('"'), dtype=np.int64) & 1) == 0
    opened = ((data == ord("{")) | (data == ord("["))) & outside
    closed = ((data == ord("}")) | (data == ord("]"))) & outside
    return int(np.cumsum(opened.astype(np.int64) - closed, dtype=np.int64).max())
