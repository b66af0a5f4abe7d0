"""Which JSON fits which type, value by value: the rules of docs/columns.md, which every faster way follows.

A field that is absent or null is a null. A field of another kind does not fit: nothing is converted that
somebody may have meant otherwise.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Optional, TypedDict, TypeVar

import msgspec
import pyarrow as pa

from log_tables.columns.column_bytes import expanded_bytes, item_bytes, widest_items
from log_tables.columns.column_type import DECIMAL, ddl, looked_up
from log_tables.columns.decimal_text import decimal_of
from log_tables.columns.declaration import Column, Declaration
from log_tables.columns.json_depth import too_deep
from log_tables.columns.time_text import date_days, time_us
from log_tables.limits import (
    EXPANDED_MAX_BYTES,
    MIB,
    NESTED_FIELD_MAX_BYTES,
    POINTER_SHOWN_BYTES,
    VALUE_DEPTH_MAX,
    VALUE_ERROR_MAX_BYTES,
)

Reader = Callable[[bytes, str], object]
Items = TypeVar("Items", list[msgspec.Raw], list[object], dict[str, msgspec.Raw])

_EXPANDED = f"the value would be more than {EXPANDED_MAX_BYTES // MIB} MiB of columns"
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_KINDS = {b"{": "an object", b"[": "an array", b'"': "text", b"t": "a boolean", b"f": "a boolean"}
_OBJECT, _LIST, _TEXT = b"{", b"[", b'"'
_NULL, _TRUE = b"null", b"true"
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BIGINT_CHARS = len(str(INT64_MIN))

_texts = msgspec.json.Decoder(str)
_doubles = msgspec.json.Decoder(float)
_binaries = msgspec.json.Decoder(bytes)
_lists = msgspec.json.Decoder(list[msgspec.Raw])
_maps = msgspec.json.Decoder(dict[str, msgspec.Raw])


class InvalidField(Exception):
    """A field does not fit its column. It never leaves this package."""


@dataclass(slots=True)
class Field:
    """A field of values: which columns are made of it, by their indexes, and the declared fields in it.

    `readers` are those of the columns, with the place that reasons name, in the order of the columns' texts.
    """

    columns: list[int] = field(default_factory=list)
    readers: dict[int, tuple["Reader", str]] = field(default_factory=dict)
    fields: dict[str, "Field"] = field(default_factory=dict)

    @property
    def may_be_list(self) -> bool:
        """Whether a pointer leads on by what may be the index of an item."""
        return any(map(_INDEX.fullmatch, self.fields))

    def all_columns(self) -> Iterator[int]:
        """The columns that are made of it and of the fields in it."""
        yield from self.columns
        for inner in self.fields.values():
            yield from inner.all_columns()


@lru_cache(maxsize=256)
def whole(declaration: Declaration) -> Field:
    """A value as a field, with the declared fields in it."""
    root, leaves = Field(), _LEAVES if declaration.encoding.is_json else _DECODED_LEAVES
    for index, column in sorted(enumerate(declaration.columns), key=lambda each: each[1].text):
        node = root
        for step in column.steps:
            node = node.fields.setdefault(step, Field())
        node.columns.append(index)
        node.readers[index] = _reader(column.type, leaves), shown(column.pointer)
    return root


def fit(value: bytes, declaration: Declaration) -> tuple[list[object], str | None]:
    """(The value of each column, None) or, for a value that does not fit, (nulls, why it does not).

    Dates are days and timestamps microseconds since 1970 UTC, decimals those of Python. The reason has at
    most VALUE_ERROR_MAX_BYTES.
    """
    row: list[object] = [None] * len(declaration.columns)
    try:
        _check(value, declaration)
        read(value, whole(declaration), declaration.columns, row)
        _check_bytes(row, declaration)
    except InvalidField as invalid:
        return [None] * len(declaration.columns), cut(str(invalid))
    return row, None


def cut(reason: str) -> str:
    """`reason`, with at most VALUE_ERROR_MAX_BYTES."""
    return reason.encode()[:VALUE_ERROR_MAX_BYTES].decode(errors="ignore")


def _check(value: bytes, declaration: Declaration) -> None:
    """Raise InvalidField unless `value` is a JSON object in UTF-8, and not too deep."""
    try:
        value.decode()
    except UnicodeDecodeError:
        raise InvalidField("the value is not UTF-8") from None
    if too_deep(value):
        raise InvalidField(f"the value is nested more than {VALUE_DEPTH_MAX} deep")
    try:
        _objects(tuple(whole(declaration).fields)).decode(value)
    except msgspec.ValidationError:
        raise InvalidField("the value is not a JSON object") from None
    except msgspec.DecodeError:
        raise InvalidField("the value is not JSON") from None


def _check_bytes(row: Sequence[object], declaration: Declaration) -> None:
    """Raise InvalidField if the columns `row` of a value are too large."""
    if widest_items(declaration) and expanded_bytes(enumerate(row), declaration) > EXPANDED_MAX_BYTES:
        raise InvalidField(_EXPANDED)


def read(text: bytes, at: Field, columns: Sequence[Column], row: list[object]) -> None:
    """Set in `row` the columns that are made of the field `at`, whose JSON is `text`, and of fields in it.

    Raises InvalidField, the same for the same columns in any order.
    """
    for index, (read_field, place) in at.readers.items():
        row[index] = read_field(text, place)
    if at.fields:
        for step, inner in sorted(_inner(text, at, columns).items()):
            read(inner, at.fields[step], columns, row)


def _inner(text: bytes, at: Field, columns: Sequence[Column]) -> dict[str, bytes]:
    """The JSON of the declared fields in `text`, as far as they are there."""
    begin = _begin(text)
    if begin == _OBJECT:
        return _fields(text, tuple(at.fields))
    if begin != _LIST or not at.may_be_list:
        return {}
    first = min(columns[index].pointer for index in at.all_columns())
    items = _lists.decode(_bounded(text, shown(first)))
    steps = [step for step in at.fields if _INDEX.fullmatch(step) and int(step) < len(items)]
    return {step: bytes(items[int(step)]) for step in steps}


def _fields(text: bytes, names: tuple[str, ...]) -> dict[str, bytes]:
    """The JSON of the fields `names` of the object `text`; of equal names the last counts."""
    found = msgspec.structs.astuple(_objects(names).decode(text))
    return {name: bytes(raw) for name, raw in zip(names, found, strict=True) if raw is not msgspec.UNSET}


@lru_cache(maxsize=1024)
def _objects(names: tuple[str, ...]) -> msgspec.json.Decoder[msgspec.Struct]:
    """A decoder of objects, which keeps the text of the fields `names`, and skips others."""
    slots = {f"field_{index}": name for index, name in enumerate(names)}
    fields = [(slot, msgspec.Raw | msgspec.UnsetType, msgspec.UNSET) for slot in slots]
    return msgspec.json.Decoder(msgspec.defstruct("_Fields", fields, rename=slots, gc=False))


def _reader(kind: pa.DataType, leaves: "_Leaves") -> Reader:
    """A function from the JSON of a field, and its place, to what `pa.array` takes for `kind`.

    It raises InvalidField.
    """
    if not pa.types.is_nested(kind):
        leaf = leaves[looked_up(kind)]
        return lambda text, place: None if text.strip() == _NULL else leaf(text, kind, place)
    parts = _list_reader(kind, leaves) if pa.types.is_list(kind) else _object_reader(kind, leaves)
    begin = _LIST if pa.types.is_list(kind) else _OBJECT

    def read_parts(text: bytes, place: str) -> object:
        if text.strip() == _NULL:
            return None
        if _begin(text) != begin:
            raise _invalid(text, kind, place)
        return parts(_bounded(text, place), place if place.startswith(_PART) else _PART + place)

    return read_parts


def _list_reader(kind: pa.DataType, leaves: "_Leaves") -> Reader:
    read_item, size = _reader(kind.value_type, leaves), item_bytes(kind)
    decoder = msgspec.json.Decoder(python_type(kind, _AT_ONCE))

    def read_items(text: bytes, part: str) -> object:
        try:
            found: list[object] = decoder.decode(text)
        except msgspec.MsgspecError:  # the plain way takes some others, and says what is wrong
            return [read_item(bytes(item), part) for item in _within(_lists.decode(text), size)]
        return _within(found, size)

    return read_items


def python_type(kind: pa.DataType, leaves: Mapping[pa.DataType, Any]) -> Any:
    """The type that msgspec decodes a field of `kind` to, or None. `leaves` has those of leaves."""
    if pa.types.is_list(kind):
        return list[python_type(kind.value_type, leaves)] | None  # type: ignore[misc]
    if pa.types.is_map(kind):
        return dict[str, python_type(kind.item_type, leaves)] | None  # type: ignore[misc]
    if pa.types.is_struct(kind):
        parts = {_with_utf8(each.name): python_type(each.type, leaves) for each in kind.fields}
        return Optional[TypedDict("_Part", parts, total=False)]  # type: ignore[operator] # noqa: UP045
    found = leaves[looked_up(kind)]
    return found if found is msgspec.Raw else Optional[found]  # noqa: UP045


def _with_utf8(name: str) -> str:
    """`name`, with which Python keeps its UTF-8.

    msgspec (0.22) finds the keys of a TypedDict by the UTF-8 that Python keeps with them. It keeps it with
    names of ASCII. With others it does once it was asked, as for the name of a class: else the field is lost.
    """
    type(name, (), {})
    return name


def _object_reader(kind: pa.DataType, leaves: "_Leaves") -> Reader:
    """The reader of a map or a struct."""
    if pa.types.is_map(kind):
        read_item, size = _reader(kind.item_type, leaves), item_bytes(kind)
        return lambda text, part: [
            (key, read_item(bytes(item), part)) for key, item in _within(_maps.decode(text), size).items()
        ]
    readers = {each.name: _reader(each.type, leaves) for each in kind.fields}
    names = tuple(readers)
    return lambda text, part: {name: readers[name](item, part) for name, item in _fields(text, names).items()}


def _within(items: Items, size: int) -> Items:
    """The items of an array or a map, of `size` bytes, if they alone are not too large."""
    if len(items) * size > EXPANDED_MAX_BYTES:
        raise InvalidField(_EXPANDED)
    return items


_PART = "a part of "


def shown(pointer: str) -> str:
    """`pointer` as reasons name it: only its end, where it is long."""
    data = pointer.encode()
    return (
        pointer
        if len(data) <= POINTER_SHOWN_BYTES
        else "…" + data[-POINTER_SHOWN_BYTES:].decode(errors="ignore")
    )


def _begin(text: bytes) -> bytes:
    return text.lstrip()[:1]


def _bounded(text: bytes, place: str) -> bytes:
    if len(text) > NESTED_FIELD_MAX_BYTES:
        raise InvalidField(f"{place} has more than {NESTED_FIELD_MAX_BYTES} bytes of items")
    return text


def _invalid(text: bytes, kind: pa.DataType, place: str) -> InvalidField:
    found = _KINDS.get(_begin(text)) or ("a whole number" if _is_whole(text) else "a fraction")
    return InvalidField(f"{place} is {found}, not {ddl(kind).partition('<')[0]}")


def _is_number(text: bytes) -> bool:
    return _begin(text) not in _KINDS


def _is_whole(text: bytes) -> bool:
    return b"." not in text and b"e" not in text and b"E" not in text


def _string(text: bytes, kind: pa.DataType, place: str) -> str:
    if _begin(text) != _TEXT:
        raise _invalid(text, kind, place)
    return _texts.decode(text)


def _bigint(text: bytes, kind: pa.DataType, place: str) -> int:
    if not _is_number(text) or not _is_whole(text):
        raise _invalid(text, kind, place)
    digits = text.strip()
    if len(digits) > _BIGINT_CHARS or not INT64_MIN <= int(digits) <= INT64_MAX:
        raise InvalidField(f"{place} is a number beyond bigint")
    return int(digits)


def _double(text: bytes, kind: pa.DataType, place: str) -> float:
    if not _is_number(text):
        raise _invalid(text, kind, place)
    try:
        return _doubles.decode(text)
    except msgspec.ValidationError:
        raise InvalidField(f"{place} is a number beyond double") from None


def _real(text: bytes, kind: pa.DataType, place: str) -> float:
    """A double of Avro or Protobuf, which may be what JSON has no number for."""
    return _NOT_FINITE[text] if text in _NOT_FINITE else _double(text, kind, place)


_NOT_FINITE = {b'"NaN"': math.nan, b'"Infinity"': math.inf, b'"-Infinity"': -math.inf}


def _boolean(text: bytes, kind: pa.DataType, place: str) -> bool:
    if _begin(text) not in (b"t", b"f"):
        raise _invalid(text, kind, place)
    return text.strip() == _TRUE


def _date(text: bytes, kind: pa.DataType, place: str) -> int:
    days = date_days(_string(text, kind, place))
    if days is None:
        raise InvalidField(f"{place} is text that is no date such as 2013-01-31")
    return days


def _timestamp(text: bytes, kind: pa.DataType, place: str) -> int:
    microseconds = time_us(_string(text, kind, place))
    if microseconds is None:
        raise InvalidField(f"{place} is text that is no time such as 2013-01-31T05:00:00Z")
    return microseconds


def _decimal(text: bytes, kind: pa.DataType, place: str) -> Decimal:
    if _begin(text) != _TEXT and not _is_number(text):
        raise _invalid(text, kind, place)
    written = _texts.decode(text) if _begin(text) == _TEXT else text.decode().strip()
    found = decimal_of(written, kind)
    if isinstance(found, str):
        raise InvalidField(f"{place} {found}")
    return found


def _binary(text: bytes, kind: pa.DataType, place: str) -> bytes:
    if _begin(text) != _TEXT:
        raise _invalid(text, kind, place)
    try:
        return _binaries.decode(text)
    except msgspec.ValidationError:
        raise InvalidField(f"{place} is text that is no base64 such as AQI=") from None


_AT_ONCE: Mapping[pa.DataType, Any] = {
    pa.string(): str,
    pa.int64(): Annotated[int, msgspec.Meta(ge=INT64_MIN, le=INT64_MAX)],
    pa.float64(): float,
    pa.bool_(): bool,
    pa.date32(): None,
    pa.timestamp("us", tz="UTC"): None,
    pa.binary(): bytes,
    DECIMAL: None,
}
"""Types by which msgspec decodes what the functions below read, in a sixth to a sixtieth of the time.
Dates, times and decimals are not among them: they are texts in JSON, and others here."""

_Leaves = Mapping[pa.DataType, Callable[[bytes, pa.DataType, str], object]]

_LEAVES: _Leaves = {
    pa.string(): _string,
    pa.int64(): _bigint,
    pa.float64(): _double,
    pa.bool_(): _boolean,
    pa.date32(): _date,
    pa.timestamp("us", tz="UTC"): _timestamp,
    pa.binary(): _binary,
    DECIMAL: _decimal,
}

_DECODED_LEAVES: _Leaves = {**_LEAVES, pa.float64(): _real}
"""Those of values that were not JSON before they were decoded."""
