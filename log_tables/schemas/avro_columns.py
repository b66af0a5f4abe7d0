"""Many values of one Avro schema as columns, a field of all of them at a time.

It is for schemas whose types are plain: records, leaves, and unions of null and one of these. Each value is
followed by its own place, and one that does not end where it should is left to `avro`, which says why. Where
a field has no plain column of the type that is asked for, there are no columns at all.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.limits import SCHEMA_FIELDS_MAX, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.schemas.avro import Type, parsed
from log_tables.schemas.places import SLACK, Places
from log_tables.schemas.schema import InvalidSchema, Schema

Steps = tuple[str, ...]

_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_ASCII_LAST = 0x7F


@dataclass(slots=True)
class Raw:
    """A field of many values: numbers, or where its bytes are and how many; `valid` says which have it."""

    kind: str
    data: np.ndarray
    sizes: np.ndarray | None = None
    valid: np.ndarray | None = None
    symbols: Sequence[str] = ()


Walk = Callable[[Places], dict[Steps, Raw]]
"""Reads a type of many values: the fields in it that are wanted, by the steps that lead to them."""


def columns_of(
    schema: Schema,
    wanted: Mapping[Steps, pa.DataType],
    data: np.ndarray,
    begins: np.ndarray,
    ends: np.ndarray,
) -> tuple[dict[Steps, pa.Array], np.ndarray] | None:
    """(The columns `wanted` of values, which of them are left to `avro`); None where all are.

    `data` are bytes, in which the values of `schema` are from `begins` to `ends`. A value that is left has
    anything in the columns.
    """
    walk = _walk(schema, frozenset(wanted))
    if walk is None:
        return None
    padded = np.concatenate([data, np.zeros(SLACK, np.uint8)])
    values = Places(padded, begins.astype(np.int64), ends.astype(np.int64), np.zeros(len(begins), bool))
    found = walk(values)
    values.bad |= values.at != values.ends
    columns = {}
    for steps, kind in wanted.items():
        made = _column(found.get(steps), kind, values)
        if made is None:
            return None
        columns[steps] = made
    return columns, values.bad


@lru_cache(maxsize=256)
def _walk(schema: Schema, wanted: frozenset[Steps]) -> Walk | None:
    """The reader of the fields `wanted` of values of `schema`; None for one that has other types."""
    named: dict[str, Any] = {}
    try:
        return _Compiler(named).walk(parsed(schema, named), wanted)
    except (InvalidSchema, _NotPlain):
        return None


class _NotPlain(Exception):
    """A type is not read here."""


class _Compiler:
    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named
        self._open: list[str] = []
        self._left = SCHEMA_FIELDS_MAX

    def walk(self, kind: Type, wanted: frozenset[Steps]) -> Walk:
        """The reader of a type, of which the fields `wanted` are asked for; () is the type itself."""
        self._left -= 1
        if self._left < 0:
            raise _NotPlain
        if isinstance(kind, list):
            return self._or_null(kind, wanted)
        if isinstance(kind, str):
            return _leaf(kind, "", {}, () in wanted) if kind in _LEAVES else self._by_name(kind, wanted)
        name = kind["type"]
        if not isinstance(name, str):
            return self.walk(name, wanted)
        if name == "record":
            return self._record(kind, wanted)
        return _leaf(name, kind.get("logicalType", ""), kind, () in wanted)

    def _by_name(self, name: str, wanted: frozenset[Steps]) -> Walk:
        if name in self._open:
            raise _NotPlain
        return self.walk(self._named[name], wanted)

    def _record(self, kind: dict[str, Any], wanted: frozenset[Steps]) -> Walk:
        if () in wanted or not kind["fields"]:
            raise _NotPlain
        self._open.append(kind["name"])
        fields: list[tuple[str, Walk]] = []
        for each in kind["fields"]:
            own = frozenset(steps[1:] for steps in wanted if steps[:1] == (each["name"],))
            fields.append((each["name"], self.walk(each["type"], own)))
        self._open.pop()

        def walk(values: Places) -> dict[Steps, Raw]:
            found: dict[Steps, Raw] = {}
            for name, inner in fields:
                found.update({(name, *steps): raw for steps, raw in inner(values).items()})
            return found

        return walk

    def _or_null(self, kinds: list[Type], wanted: frozenset[Steps]) -> Walk:
        others = [kind for kind in kinds if kind != "null"]
        if len(others) != 1 or len(kinds) != 2:
            raise _NotPlain
        inner, branch = self.walk(others[0], wanted), kinds.index(others[0])

        def walk(values: Places) -> dict[Steps, Raw]:
            chosen = values.varints()
            values.bad |= (chosen < 0) | (chosen > 1)
            rows = np.flatnonzero((chosen == branch) & ~values.bad)
            if len(rows) == len(chosen):
                return inner(values)
            part = Places(values.data, values.at[rows], values.ends[rows], np.zeros(len(rows), bool))
            found = inner(part)
            values.at[rows] = part.at
            values.bad[rows] |= part.bad
            return {steps: _spread(raw, rows, len(chosen)) for steps, raw in found.items()}

        return walk


def _spread(raw: Raw, rows: np.ndarray, count: int) -> Raw:
    """A field that only `rows` of `count` values have."""
    data, valid = np.zeros(count, raw.data.dtype), np.zeros(count, bool)
    data[rows], valid[rows] = raw.data, True if raw.valid is None else raw.valid
    sizes = None
    if raw.sizes is not None:
        sizes = np.zeros(count, np.int64)
        sizes[rows] = raw.sizes
    return Raw(raw.kind, data, sizes, valid, raw.symbols)


def _leaf(name: str, logical: str, kind: Mapping[str, Any], wanted: bool) -> Walk:
    """The reader of a type without parts."""
    read = _LEAVES.get(name)
    if name == "fixed":
        if wanted:
            raise _NotPlain
        size = int(kind["size"])
        read = lambda values: Raw(name, values.skip(size))  # noqa: E731
    if read is None:
        raise _NotPlain
    named = _LOGICAL.get((name, logical), name)
    if wanted and logical and named == name and (name, logical) in _OTHER_JSON:
        raise _NotPlain
    symbols = tuple(kind.get("symbols", ()))

    def walk(values: Places) -> dict[Steps, Raw]:
        found = read(values)
        if name == "enum":
            wrong = (found.data < 0) | (found.data >= len(symbols))
            values.bad |= wrong
            found.data = np.where(wrong, 0, found.data)
        found.kind, found.symbols = named, symbols
        return {(): found} if wanted else {}

    return walk


def _number(values: Places) -> Raw:
    return Raw("long", values.varints())


def _bytes(values: Places) -> Raw:
    sizes = values.varints()
    return Raw("bytes", values.skip(sizes), sizes)


def _real(kind: str) -> Callable[[Places], Raw]:
    return lambda values: Raw("double", values.fractions(kind).astype(np.float64))


def _boolean(values: Places) -> Raw:
    found = values.bytes()
    values.bad |= found > 1
    return Raw("boolean", found == 1)


_LEAVES: dict[str, Callable[[Places], Raw]] = {
    "int": _number,
    "long": _number,
    "enum": _number,
    "string": _bytes,
    "bytes": _bytes,
    "float": _real("<f4"),
    "double": _real("<f8"),
    "boolean": _boolean,
}
_LOGICAL = {
    ("int", "date"): "date",
    ("long", "timestamp-millis"): "ms",
    ("long", "timestamp-micros"): "us",
    ("long", "timestamp-nanos"): "ns",
    ("long", "local-timestamp-millis"): "ms",
    ("long", "local-timestamp-micros"): "us",
    ("long", "local-timestamp-nanos"): "ns",
}
_OTHER_JSON = {("int", "time-millis"), ("long", "time-micros"), ("bytes", "decimal")}
"""Types whose JSON is made of their numbers."""


def _column(raw: Raw | None, kind: pa.DataType, values: Places) -> pa.Array | None:
    """A field as a column of a type; None where only its JSON says what it is there."""
    if raw is None:
        return pa.nulls(len(values.at), kind)
    make = _COLUMNS.get((raw.kind, str(kind)))
    return None if make is None else make(raw, kind, values)


def _plain(raw: Raw, kind: pa.DataType, _: Places) -> pa.Array:
    return pa.array(raw.data, kind, mask=_nulls(raw))


def _nulls(raw: Raw) -> np.ndarray | None:
    return None if raw.valid is None else ~raw.valid


def _as_double(raw: Raw, kind: pa.DataType, _: Places) -> pa.Array:
    return pa.array(raw.data.astype(np.float64), kind, mask=_nulls(raw))


def _date(raw: Raw, kind: pa.DataType, values: Places) -> pa.Array:
    values.bad |= (raw.data < _FIRST_DAY) | (raw.data > _LAST_DAY)
    return pa.array(np.where(values.bad, 0, raw.data).astype(np.int32), pa.int32(), mask=_nulls(raw)).view(
        kind
    )


def _timestamp(raw: Raw, kind: pa.DataType, values: Places) -> pa.Array:
    low, high = TIMESTAMP_MIN_US, TIMESTAMP_MAX_US
    if raw.kind == "ms":
        values.bad |= (raw.data < low // 1000) | (raw.data > high // 1000)
        numbers = np.where(values.bad, 0, raw.data) * 1000
    else:
        numbers = raw.data if raw.kind == "us" else raw.data // 1000
        values.bad |= (numbers < low) | (numbers > high)
    return pa.array(np.where(values.bad, 0, numbers), pa.int64(), mask=_nulls(raw)).view(kind)


def _text(raw: Raw, kind: pa.DataType, values: Places) -> pa.Array | None:
    assert raw.sizes is not None
    absent = values.bad if raw.valid is None else values.bad | ~raw.valid
    begins, ends = raw.data, raw.data + raw.sizes
    if absent.any():
        ends = np.maximum.accumulate(np.where(absent, 0, ends))
        begins = np.where(absent, ends, begins)
    # Each text is followed by what is between it and the next one.
    bounds = np.empty(2 * len(begins), np.int32)
    bounds[::2], bounds[1::2] = begins, ends
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(values.data)]
    texts = pa.Array.from_buffers(kind, len(bounds) - 1, buffers)
    own = pa.array(np.arange(0, len(bounds), 2), mask=_nulls(raw))
    made = pc.take(texts, own, boundscheck=False)
    data = np.frombuffer(made.buffers()[2] or b"", np.uint8)
    if len(data) and data.max() > _ASCII_LAST:
        try:
            made.validate(full=True)
        except pa.ArrowInvalid:
            return None
    return made


def _symbol(raw: Raw, kind: pa.DataType, _: Places) -> pa.Array:
    return pa.array(raw.symbols, kind).take(pa.array(raw.data, mask=_nulls(raw)))


_COLUMNS: dict[tuple[str, str], Callable[[Raw, pa.DataType, Places], pa.Array | None]] = {
    ("boolean", "bool"): _plain,
    ("int", "int64"): _plain,
    ("long", "int64"): _plain,
    ("int", "double"): _as_double,
    ("long", "double"): _as_double,
    ("double", "double"): _plain,
    ("float", "double"): _plain,
    ("string", "string"): _text,
    ("bytes", "binary"): _text,
    ("enum", "string"): _symbol,
    ("date", "date32[day]"): _date,
    **{(unit, "timestamp[us, tz=UTC]"): _timestamp for unit in ("ms", "us", "ns")},
}
"""By the kind of a field and the type of its column."""
