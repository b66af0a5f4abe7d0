"""Values of Avro become the JSON that stands for them; anything that is no value of its schema is refused."""

import io
import json
import math
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.misfit import misfits
from log_tables.rows import Rows
from log_tables.schemas import avro
from log_tables.schemas.avro_writer import from_json
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.decoded import decoded as decode
from log_tables.schemas.framing import prefixed
from log_tables.schemas.schema import (
    InvalidSchema,
    KnownSchemas,
    Schema,
    SchemaKind,
    Undecodable,
    Unencodable,
)
from log_tables.schemas.varint import to_zigzag, zigzag
from tests.kit.avro_values import records, schema_of, written
from tests.log_tables.columns.test_fit import table


def decoded(kind: object, value: bytes) -> Any:
    return msgspec.json.decode(avro.to_json(schema_of(kind))(value, 0))


def reason(kind: object, value: bytes) -> str:
    with pytest.raises(Undecodable) as raised:
        avro.to_json(schema_of(kind))(value, 0)
    return str(raised.value)


def record(**fields: object) -> dict[str, object]:
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


@given(st.data())
def test_what_fastavro_writes_is_read_as_its_json(data: st.DataObject) -> None:
    kind = data.draw(records())
    value, shown = data.draw(kind.values)
    found = decoded(kind.type, written(kind.type, value))
    assert found == json.loads(json.dumps(shown))


@given(st.data())
def test_broken_values_are_refused_or_are_what_fastavro_reads(data: st.DataObject) -> None:
    kind = data.draw(records())
    value = bytearray(written(kind.type, data.draw(kind.values)[0]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(value)))
        match data.draw(st.sampled_from(["cut", "flip", "more"])):
            case "cut":
                del value[at:]
            case "flip" if at < len(value):
                value[at] ^= 1 << data.draw(st.integers(0, 7))
            case _:
                value[at:at] = data.draw(st.binary(max_size=4))
    try:
        avro.to_json(schema_of(kind.type))(bytes(value), 0)
    except Undecodable:
        return
    source = io.BytesIO(value)
    try:
        fastavro.schemaless_reader(source, fastavro.parse_schema(kind.type), None)
    except (OverflowError, ValueError):
        return  # a time that is none stays a number here
    assert source.tell() == len(value)


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_are_read_as_they_are_written(number: int) -> None:
    data = to_zigzag(number)
    assert zigzag(data, 0) == (number, len(data))


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (record(a="long"), b"", "/a ends too early"),
        (record(a="long"), b"\x02\x02", "the value has 1 bytes after its end"),
        (record(a="long"), b"\xff" * 11, "/a has a number of more than 64 bits"),
        (record(a="string"), to_zigzag(2**31) + b"x", "/a has a length of 2147483648, and 1 bytes are left"),
        (record(a="string"), b"\x01", "/a has a length of -1, and 0 bytes are left"),
        (record(a="string"), b"\x02\xff", "/a has text that is not UTF-8"),
        (record(a=["null", "long"]), b"\x04", "/a has branch 2 of a union of 2"),
        (record(a="boolean"), b"\x07", "/a has 7 as a boolean"),
        (
            record(a={"type": "enum", "name": "e", "symbols": ["x"]}),
            b"\x02",
            "/a has symbol 1 of an enum of 1",
        ),
        (
            record(a={"type": "array", "items": "null"}),
            to_zigzag(2**62),
            "/a has 4611686018427387904 items in 0 bytes",
        ),
        (
            record(a={"type": "array", "items": "long"}),
            to_zigzag(-(2**62)) + b"\0",
            "/a has 4611686018427387904 items in 0 bytes",
        ),
        (record(a=record(b="double") | {"name": "s"}), b"\0", "/a/b ends too early"),
        (
            record(a={"type": "bytes", "logicalType": "decimal", "precision": 2}),
            b"\x04\x00\x64",
            "/a has more than 2 digits",
        ),
        (
            record(a={"type": "bytes", "logicalType": "decimal", "precision": 38}),
            to_zigzag(10**6) + b"\x01" * 10**6,
            "/a has more than 38 digits",
        ),
    ],
)
def test_a_reason_names_the_field_and_no_part_of_the_value(kind: object, value: bytes, why: str) -> None:
    assert reason(kind, value) == why


LIST = {
    "type": "record",
    "name": "list",
    "fields": [{"name": "v", "type": "long"}, {"name": "next", "type": ["null", "list"], "default": None}],
}


@pytest.mark.parametrize(("kind", "data", "shown", "fitting"), table("type of the field a"))
def test_a_type_has_the_json_that_the_page_says(kind: str, data: str, shown: str, fitting: str) -> None:
    field = json.loads(kind.strip("`"))
    value = prefixed(1, bytes.fromhex("" if data == "no bytes" else data.strip("`")))
    schemas = KnownSchemas({1: schema_of(record(a=field))})
    found = decode(value, (), Encoding(Format.AVRO), schemas)
    assert found.json is not None
    assert json.loads(found.json) == {"a": json.loads(shown.strip("`"))}
    declaration = Declaration(parse(f"a {fitting.strip('`')}").columns, Encoding(Format.AVRO))
    assert [*misfits(Rows([value], 0), declaration, schemas)] == []


def test_a_type_within_itself_is_the_text_of_its_json() -> None:
    value = {"v": 1, "next": {"v": 2, "next": {"v": 3, "next": None}}}
    found = decoded(LIST, written(LIST, value))
    assert found["v"] == 1
    assert json.loads(found["next"]) == value["next"]


def test_a_value_that_is_nested_too_deep_is_refused() -> None:
    assert reason(LIST, b"\x02\x02" * 100_000 + b"\x02\x00").endswith("is nested more than 128 deep")


def test_a_value_cannot_become_more_than_its_room() -> None:
    wide = record(**{f"field_{index}": "null" for index in range(5_000)}, flag="boolean") | {"name": "wide"}
    kind = record(a={"type": "array", "items": wide})
    assert "would be more than" in reason(kind, to_zigzag(1_000_000) + b"\0" * 1_000_000)


def test_a_schema_of_5_000_fields_is_read() -> None:
    kind = record(**{f"field_{index}": "long" for index in range(5_000)})
    assert decoded(kind, b"\x02" * 5_000) == {f"field_{index}": 1 for index in range(5_000)}


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]x", '{"type": "record"}', '"no_such_type"', "[" * 100_000, '{"type": "array"}', "3", "null"],
)
def test_a_schema_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        avro.to_json(Schema(SchemaKind.AVRO, text))


def test_types_of_references_are_known() -> None:
    inner = json.dumps(record(x="long") | {"name": "inner", "namespace": "n"})
    outer = json.dumps(record(a="n.inner"))
    read = avro.to_json(Schema(SchemaKind.AVRO, outer, (("n.inner", inner),)))
    assert read(b"\x06", 0) == b'{"a":{"x":3}}'


def test_types_of_a_union_have_names_without_their_namespace_unless_two_share_it() -> None:
    one, other = ({**record(x="long"), "name": "p", "namespace": each} for each in ("a", "b"))
    third = {**record(x="long"), "name": "q", "namespace": "a"}
    assert decoded(record(u=["null", one, third]), b"\x04\x02") == {"u": {"q": {"x": 1}}}
    assert decoded(record(u=["null", one, other]), b"\x04\x02") == {"u": {"b.p": {"x": 1}}}


def test_a_pointer_follows_aliases() -> None:
    kind: dict[str, Any] = record(a="long", s=record(x="long") | {"name": "s"})
    kind["fields"][0]["aliases"] = ["old"]
    kind["fields"][1]["type"]["fields"][0]["aliases"] = ["was"]
    steps = avro.steps(schema_of(kind))
    assert steps(["old"]) == ("a",)
    assert steps(["s", "was"]) == ("s", "x")
    assert steps(["nowhere", "old"]) == ("nowhere", "old")


def test_numbers_that_json_has_not_are_words() -> None:
    for number, word in ((math.nan, "NaN"), (math.inf, "Infinity"), (-math.inf, "-Infinity")):
        assert decoded(record(a="double"), written(record(a="double"), {"a": number})) == {"a": word}


@given(st.data())
def test_the_json_of_a_value_is_written_as_that_value(data: st.DataObject) -> None:
    kind = data.draw(records())
    value = written(kind.type, data.draw(kind.values)[0])
    shown = decoded(kind.type, value)
    again = from_json(schema_of(kind.type))(shown)
    assert decoded(kind.type, again) == shown


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        (record(a="long"), {}, "/a is missing"),
        (record(a="long"), {"a": 1, "b": 2}, "/b is no field of the schema"),
        (record(a="long"), {"a": "1"}, "/a is no whole number"),
        (record(a="long"), {"a": True}, "/a is no whole number"),
        (record(a="int"), {"a": 2**31}, "/a is no whole number of 32 bits"),
        (record(a="string"), {"a": 1}, "/a is no text"),
        (record(a="bytes"), {"a": "?"}, "/a is no text in base64"),
        (record(a=["null", "long", "string"]), {"a": 1}, "/a is a union of several types"),
        (record(a={"type": "int", "logicalType": "date"}), {"a": "today"}, "/a is no date"),
        (record(a={"type": "array", "items": "long"}), {"a": {}}, "/a is no array"),
        (record(a={"type": "enum", "name": "e", "symbols": ["x"]}), {"a": "y"}, "the value is no value of"),
        (record(a="long"), [], "the value is no object"),
    ],
)
def test_json_that_is_no_value_of_a_schema_is_refused(kind: object, value: object, why: str) -> None:
    with pytest.raises(Unencodable) as raised:
        from_json(schema_of(kind))(value)
    assert str(raised.value).startswith(why)


def test_avros_own_json_is_written_too() -> None:
    kind = record(a="bytes", b=["null", "string"], c={"type": "int", "logicalType": "date"})
    found = from_json(schema_of(kind), of_avro=True)({"a": "\xff", "b": {"string": "x"}, "c": 1})
    assert decoded(kind, found) == {"a": "/w==", "b": "x", "c": "1970-01-02"}


def doubled(levels: int, leaf: object) -> dict[str, Any]:
    """A record of two records of two records …, of which each type is written once."""
    kind = record(l="null", r=leaf) | {"name": "level0"}
    for level in range(1, levels):
        kind = record(l=kind, r=kind["name"]) | {"name": f"level{level}"}
    return kind


def test_types_that_are_used_twice_at_each_level_are_compiled_once() -> None:
    array = record(a={"type": "array", "items": doubled(60, "long")}) | {"name": "whole"}
    assert decoded(array, b"\0") == {"a": []}


def test_an_empty_value_cannot_become_many_records() -> None:
    assert "would be more than" in reason(doubled(60, "null"), b"")


def test_symbols_that_repeat_take_room() -> None:
    enum = {"type": "enum", "name": "e", "symbols": ["x" * 100_000]}
    kind = record(a={"type": "array", "items": enum})
    assert "would be more than" in reason(kind, to_zigzag(10_000) + b"\0" * 10_000 + b"\0")


@pytest.mark.parametrize("order", [("b", "a"), ("a", "b")])
def test_a_type_is_text_where_it_is_within_itself_whatever_comes_first(order: tuple[str, str]) -> None:
    inner = record(a=["null", "A"]) | {"name": "B"}
    kinds: dict[str, Any] = {"a": "A", "b": "B"}
    whole = record(x="long", b=inner) | {"name": "A"}
    fields = [{"name": name, "type": kinds[name]} for name in order]
    kind = {"type": "record", "name": "root", "fields": [{"name": "t", "type": ["null", whole]}, *fields]}
    values = {"a": b"\x02\x02\x04\0", "b": b"\x02\x06\0"}
    found = decoded(kind, b"\0" + b"".join(values[name] for name in order))
    assert found["a"] == {"x": 1, "b": {"a": '{"x":2,"b":{"a":null}}'}}
    assert found["b"] == {"a": {"x": 3, "b": '{"a":null}'}}
