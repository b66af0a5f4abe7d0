"""Columns of records whose values name their schemas: they are equal, read by field or by value."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.columns_tag import (
    declaration_id,
    format_of,
    joined_tag,
    missing_schemas,
    tagged,
)
from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.misfit import misfits
from log_tables.columns.record_columns import RecordColumns
from log_tables.limits import MISSING_SCHEMAS_MAX, SAME_SCHEMA_MIN
from log_tables.record import RECORD_SCHEMA, headers_array
from log_tables.rows import Rows
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.framing import VALUE_HEADER, prefixed
from log_tables.schemas.schema import KnownSchemas, Schema, SchemaKind
from tests.kit.avro_values import LEAVES, records, schema_of, written

GUID = "0f0e0d0c-0b0a-0908-0706-050403020100"
FLIGHT = {
    "type": "record",
    "name": "flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "stops", "type": {"type": "array", "items": "string"}},
    ],
}
RENAMED = {
    "type": "record",
    "name": "flight",
    "fields": [{"name": "airline", "type": "string", "aliases": ["carrier"]}],
}
AVRO, AUTO, JSON_SCHEMA = (Encoding(each) for each in (Format.AVRO, Format.AUTO, Format.JSON_SCHEMA))
SCHEMAS = KnownSchemas(
    {
        1: schema_of(FLIGHT),
        2: schema_of(RENAMED),
        3: Schema(SchemaKind.JSON, "{}"),
        4: Schema(SchemaKind.AVRO, "{"),
        GUID: schema_of(FLIGHT),
    }
)
VALUE = {"carrier": "UA", "delay": 1.5, "stops": ["EWR", "IAH"]}
COLUMNS = parse("carrier string, delay double, stops array<string>").columns


def batch(
    values: Sequence[bytes | None], headers: Sequence[Sequence[tuple[str, bytes]]] = ()
) -> pa.RecordBatch:
    """RECORD_SCHEMA rows of `values`."""
    count = len(values)
    columns = [
        pa.array(range(count), pa.int64()),
        pa.array([0] * count, pa.timestamp("us", tz="UTC")),
        pa.nulls(count, pa.binary()),
        pa.array(values, pa.binary()),
        headers_array(headers or [()] * count),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def columns_of(
    value: bytes | None, encoding: Encoding = AVRO, headers: Sequence[tuple[str, bytes]] = ()
) -> dict[str, Any]:
    """The columns of one value, without those that are null."""
    made = RecordColumns(Declaration(COLUMNS, encoding), SCHEMAS).of(batch([value], [headers]))
    [row] = made.to_pylist()
    return {name: item for name, item in row.items() if item is not None}


def error_of(value: bytes, encoding: Encoding = AVRO) -> str:
    found = columns_of(value, encoding)
    assert [*found] == ["value_error"]
    declaration = Declaration(COLUMNS, encoding)
    [judged] = misfits(Rows([value], 0), declaration, SCHEMAS)
    assert judged.reason == found["value_error"]
    return str(found["value_error"])


def test_a_value_is_decoded_by_the_schema_that_its_prefix_names() -> None:
    assert columns_of(prefixed(1, written(FLIGHT, VALUE))) == VALUE


def test_a_value_is_decoded_by_the_schema_that_its_header_names() -> None:
    header = (VALUE_HEADER, b"\x01" + bytes(reversed(range(16))))
    assert columns_of(written(FLIGHT, VALUE), headers=[("other", b"x"), header]) == VALUE


def test_a_value_is_decoded_by_the_one_schema_of_its_topic() -> None:
    assert columns_of(written(FLIGHT, VALUE), Encoding(Format.AVRO, schema_of(FLIGHT))) == VALUE


def test_a_field_that_was_renamed_is_found_by_its_alias() -> None:
    assert columns_of(prefixed(2, written(RENAMED, {"airline": "UA"}))) == {"carrier": "UA"}


def test_values_of_json_schema_are_json_after_their_prefix_whether_the_schema_is_known_or_not() -> None:
    for schema_id in (3, 99):
        assert columns_of(prefixed(schema_id, json.dumps(VALUE).encode()), JSON_SCHEMA) == VALUE


def test_auto_takes_each_value_by_its_schema_and_others_as_json() -> None:
    assert columns_of(prefixed(1, written(FLIGHT, VALUE)), AUTO) == VALUE
    assert columns_of(prefixed(3, json.dumps(VALUE).encode()), AUTO) == VALUE
    assert columns_of(json.dumps(VALUE).encode(), AUTO) == VALUE


def test_a_tombstone_has_neither_columns_nor_an_error() -> None:
    assert columns_of(None) == {}


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{}", "the value names no schema"),
        (b"", "the value names no schema"),
        (b"\0\0\0\0", "the value names no schema"),
        (prefixed(9, b""), "schema 9 is not known"),
        (prefixed(3, b"{}"), "schema 3: it is JSON, not AVRO"),
        (prefixed(1, b""), "schema 1: /carrier ends too early"),
        (prefixed(2, b"\x04UAx"), "schema 2: the value has 1 bytes after its end"),
    ],
)
def test_an_error_names_the_schema_and_the_field(value: bytes, why: str) -> None:
    assert error_of(value) == why


def test_a_schema_that_is_none_is_an_error_of_its_values() -> None:
    assert error_of(prefixed(4, b"")).startswith("schema 4: the schema is no Avro schema")


def test_a_value_fits_all_columns_or_none() -> None:
    columns = parse("carrier bigint, delay double").columns
    made = RecordColumns(Declaration(columns, AVRO), SCHEMAS).of(batch([prefixed(1, written(FLIGHT, VALUE))]))
    assert made.to_pylist() == [
        {"value_error": "/carrier is text, not bigint", "carrier": None, "delay": None}
    ]


def test_the_tag_names_schemas_that_are_not_known() -> None:
    made = RecordColumns(Declaration(COLUMNS, AVRO), SCHEMAS)
    made.of(batch([prefixed(77, b""), prefixed(5, b""), prefixed(1, written(FLIGHT, VALUE)), None]))
    assert declaration_id(made.tag) == Declaration(COLUMNS, AVRO).id
    assert missing_schemas(made.tag) == {5, 77}
    assert format_of(made.tag) is Format.AVRO


@given(st.lists(st.sets(st.one_of(st.integers(0, 2**32 - 1), st.just(GUID))), min_size=1, max_size=3))
def test_a_tag_of_several_segments_names_what_one_of_them_misses(missing: list[set[int | str]]) -> None:
    whole = joined_tag(tagged("3f0a1c5e77d2b904.avro", each) for each in missing)
    found = missing_schemas(whole)
    assert declaration_id(whole) == "3f0a1c5e77d2b904.avro"
    assert found <= set[int | str]().union(*missing)
    assert len(found) == min(MISSING_SCHEMAS_MAX, len(found | set[int | str]().union(*missing)))


KINDS = (
    "string",
    "bigint",
    "double",
    "boolean",
    "date",
    "timestamp",
    "binary",
    "decimal(20,4)",
    "decimal(5,1)",
)


@given(st.data())
def test_values_read_a_field_at_a_time_have_the_columns_of_each_read_alone(data: st.DataObject) -> None:
    fields = data.draw(st.lists(st.sampled_from(LEAVES), min_size=1, max_size=4))
    optional = data.draw(st.lists(st.booleans(), min_size=len(fields), max_size=len(fields)))
    kind = {
        "type": "record",
        "name": "r",
        "fields": [
            {"name": f"f{index}", "type": ["null", each.type] if null else each.type}
            for index, (each, null) in enumerate(zip(fields, optional, strict=True))
        ],
    }
    inner = {"type": "record", "name": "outer", "fields": [{"name": "in", "type": kind}]}
    values: list[bytes | None] = []
    for _ in range(data.draw(st.integers(1, 4))):
        parts = [
            None if null and data.draw(st.booleans()) else data.draw(each.values)[0]
            for each, null in zip(fields, optional, strict=True)
        ]
        encoded = bytearray(written(inner, {"in": {f"f{at}": part for at, part in enumerate(parts)}}))
        if encoded and data.draw(st.booleans()):
            encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        values.append(prefixed(1, bytes(encoded[: data.draw(st.integers(0, 40))])))
    values += [None, prefixed(2, b""), b"x"]
    named = ", ".join(
        f"c{index} {data.draw(st.sampled_from(KINDS))} FROM '/in/f{index}'" for index in range(len(fields))
    )
    declaration = Declaration(parse(f"{named}, absent bigint").columns, AVRO)
    schemas = KnownSchemas({1: schema_of(inner)})
    whole = batch(values * SAME_SCHEMA_MIN)
    found = RecordColumns(declaration, schemas).of(whole)
    one_by_one = [RecordColumns(declaration, schemas).of(whole.slice(row, 1)) for row in range(len(values))]
    expected = pa.concat_batches(one_by_one * SAME_SCHEMA_MIN)
    assert found.schema.equals(expected.schema)
    for name, made, alone in zip(found.schema.names, found.columns, expected.columns, strict=True):
        # Not a number is equal to nothing, and its text is.
        assert [*map(repr, made.to_pylist())] == [*map(repr, alone.to_pylist())], name


@given(st.data())
def test_a_segment_of_several_schemas_has_the_columns_of_each_record_alone(data: st.DataObject) -> None:
    kinds = [data.draw(records()) for _ in range(2)]
    schemas = KnownSchemas({index: schema_of(kind.type) for index, kind in enumerate(kinds)})
    values = [
        prefixed(index, written(kind.type, data.draw(kind.values)[0])) for index, kind in enumerate(kinds)
    ]
    declaration = Declaration(parse("f0 string, f1 bigint, f2 array<double>, f3 boolean").columns, AVRO)
    found = RecordColumns(declaration, schemas).of(batch(values * SAME_SCHEMA_MIN))
    alone = [RecordColumns(declaration, schemas).of(batch([value])) for value in values]
    assert found.to_pylist() == pa.concat_batches(alone * SAME_SCHEMA_MIN).to_pylist()
