"""Random Avro schemas with values: as fastavro writes them, and as the JSON that stands for them."""

import io
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

import fastavro
from hypothesis import strategies as st

from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.schemas.moments import real
from log_tables.schemas.schema import Schema, SchemaKind

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Typed(NamedTuple):
    """A type of Avro with strategies of its values: (what fastavro writes, the JSON of it)."""

    type: Any
    values: st.SearchStrategy[tuple[Any, Any]]


def _same(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, Any]]:
    return values.map(lambda value: (value, value))


def _instant(number: int) -> tuple[datetime, str]:
    at = _EPOCH + timedelta(microseconds=number)
    text = at.replace(tzinfo=None, microsecond=0).isoformat()
    return at, f"{text}.{at.microsecond:06d}Z" if at.microsecond else f"{text}Z"


LEAVES = [
    Typed("boolean", _same(st.booleans())),
    Typed("long", _same(st.integers(-(2**63), 2**63 - 1))),
    Typed("int", _same(st.integers(-(2**31), 2**31 - 1))),
    Typed("double", st.floats().map(lambda value: (value, real(value)))),
    Typed("float", st.floats(width=32).map(lambda value: (value, real(value)))),
    Typed("string", _same(TEXT)),
    Typed("bytes", st.binary(max_size=8).map(lambda data: (data, b64encode(data).decode()))),
    Typed(
        {"type": "long", "logicalType": "timestamp-micros"},
        st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US).map(_instant),
    ),
    Typed({"type": "int", "logicalType": "date"}, st.dates().map(lambda day: (day, day.isoformat()))),
    Typed(
        {"type": "long", "logicalType": "time-micros"},
        st.times().map(lambda at: (at, at.isoformat())),
    ),
    Typed(
        {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4},
        st.decimals(-(10**16) + 1, 10**16 - 1, places=4).map(lambda number: (number, f"{number:f}")),
    ),
    Typed({"type": "string", "logicalType": "uuid"}, st.uuids().map(lambda each: (each, str(each)))),
]


def records() -> st.SearchStrategy[Typed]:
    """A record type of up to three levels, each named type with a name of its own."""
    return _records(2).map(lambda kind: Typed(_named(kind.type, count()), kind.values))


@st.composite
def _records(draw: st.DrawFn, depth: int) -> Typed:
    kinds = draw(st.lists(_types(depth), max_size=5))
    fields = [{"name": f"f{index}", "type": kind.type} for index, kind in enumerate(kinds)]
    values = st.tuples(*(kind.values for kind in kinds)).map(_as_record)
    return Typed({"type": "record", "name": "", "fields": fields}, values)


def _named(kind: Any, numbers: Iterator[int]) -> Any:
    """`kind`, in which the types that need a name have one."""
    if isinstance(kind, list):
        return [_named(each, numbers) for each in kind]
    if not isinstance(kind, dict):
        return kind
    named = {key: _named(each, numbers) for key, each in kind.items()}
    return {**named, "name": named["name"] or f"n{next(numbers)}"} if "name" in named else named


def _as_record(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    names = [f"f{index}" for index in range(len(parts))]
    written, shown = ([part[index] for part in parts] for index in (0, 1))
    return dict(zip(names, written, strict=True)), dict(zip(names, shown, strict=True))


def _types(depth: int) -> st.SearchStrategy[Typed]:
    """A type, up to `depth` deep."""
    plain = [st.sampled_from(LEAVES), st.sampled_from(LEAVES).map(_or_null), st.just(ENUM), st.just(UNION)]
    if depth == 0:
        return st.one_of(*plain)
    inner = st.deferred(lambda: _types(depth - 1))
    return st.one_of(*plain, inner.map(_array), inner.map(_map), _records(depth - 1))


def _or_null(kind: Typed) -> Typed:
    return Typed(["null", kind.type], st.one_of(st.just((None, None)), kind.values))


def _array(kind: Typed) -> Typed:
    return Typed({"type": "array", "items": kind.type}, st.lists(kind.values, max_size=3).map(_as_list))


def _map(kind: Typed) -> Typed:
    values = st.dictionaries(TEXT, kind.values, max_size=3)
    return Typed({"type": "map", "values": kind.type}, values.map(_as_map))


ENUM = Typed({"type": "enum", "name": "", "symbols": ["A", "B"]}, _same(st.sampled_from(["A", "B"])))
UNION = Typed(
    ["string", "null", "boolean", "long"],
    st.one_of(
        st.just((None, None)),
        st.booleans().map(lambda value: (value, {"boolean": value})),
        st.integers(-(2**63), 2**63 - 1).map(lambda value: (value, {"long": value})),
        TEXT.map(lambda value: (value, {"string": value})),
    ),
)


def _as_list(items: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    return [written for written, _ in items], [shown for _, shown in items]


def _as_map(items: dict[str, tuple[Any, Any]]) -> tuple[Any, Any]:
    return (
        {key: written for key, (written, _) in items.items()},
        {key: shown for key, (_, shown) in items.items()},
    )


def schema_of(kind: object) -> Schema:
    return Schema(SchemaKind.AVRO, json.dumps(kind))


def written(kind: Any, value: object) -> bytes:
    """`value` as fastavro writes it."""
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, fastavro.parse_schema(kind), value)
    return sink.getvalue()
