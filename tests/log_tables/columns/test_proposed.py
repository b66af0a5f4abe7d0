"""The columns that a schema proposes fit all of its values, and what is said of others is true of values."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.misfit import misfits
from log_tables.columns.proposed import SchemaCheck, checked, proposed
from log_tables.columns.record_columns import resolved
from log_tables.rows import Rows
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.decoder import Decoder, decoder_of
from log_tables.schemas.framing import prefixed
from log_tables.schemas.schema import InvalidSchema, KnownSchemas, Schema, SchemaKind
from tests.kit.avro_values import records, schema_of, written

AVRO = Encoding(Format.AVRO)
NOTHING = Declaration((), AVRO)


def record(**fields: object) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }


def check(kind: object, columns: str) -> SchemaCheck:
    schema, declaration = schema_of(kind), Declaration(parse(columns).columns, AVRO)
    decoder = decoder_of(schema)
    assert isinstance(decoder, Decoder)
    return checked(schema, declaration, resolved(declaration, decoder))


@given(st.data())
def test_every_value_of_a_schema_fits_the_columns_that_it_proposes(data: st.DataObject) -> None:
    kind = data.draw(records())
    declaration = proposed(schema_of(kind.type), NOTHING)
    assert parse(declaration.text).columns == declaration.columns
    value = prefixed(1, written(kind.type, data.draw(kind.values)[0]))
    found = [*misfits(Rows([value], 0), declaration, KnownSchemas({1: schema_of(kind.type)}))]
    assert [each.reason for each in found if "beyond" not in each.reason] == []


KINDS = st.sampled_from(
    ["string", "bigint", "double", "boolean", "date", "timestamp", "binary", "decimal(20,4)", "array<string>"]
)


@given(st.data())
def test_values_fit_declared_columns_where_their_schema_was_said_to(data: st.DataObject) -> None:
    kind = data.draw(records())
    columns = ", ".join(f"f{index} {data.draw(KINDS)}" for index in range(5))
    value = prefixed(1, written(kind.type, data.draw(kind.values)[0]))
    declaration = Declaration(parse(columns).columns, AVRO)
    found = [*misfits(Rows([value], 0), declaration, KnownSchemas({1: schema_of(kind.type)}))]
    said = check(kind.type, columns)
    if said.fits:
        assert [each.reason for each in found if "beyond" not in each.reason] == []


@pytest.mark.parametrize(
    ("kind", "column"),
    [
        ("int", "a bigint"),
        ("double", "a double"),
        (["null", "long", "string"], "a struct<long: bigint, string: string>"),
        ({"type": "array", "items": ["null", "float"]}, "a array<double>"),
        ({"type": "map", "values": "bytes"}, "a map<string, binary>"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}, "a decimal(12,3)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 3}, "a string"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, "a timestamp"),
        ({"type": "fixed", "name": "d", "size": 12, "logicalType": "duration"}, "a string"),
        (["null", "r"], "a string"),
        ("null", ""),
        ({"type": "array", "items": "null"}, ""),
        ({"type": "record", "name": "empty", "fields": []}, ""),
    ],
)
def test_a_type_proposes_the_type_of_a_column(kind: object, column: str) -> None:
    assert proposed(schema_of(record(a=kind)), NOTHING).text == column


def test_declared_columns_stay_and_others_get_names_that_are_free() -> None:
    declared = Declaration(parse("x bigint FROM '/offset', b string").columns, AVRO)
    found = proposed(schema_of(record(offset="long", b="string", value="long", B="long")), declared)
    assert found.text == "x bigint FROM '/offset', b string, value_ bigint FROM '/value', B_ bigint FROM '/B'"


def test_a_check_names_columns_without_a_field_types_that_do_not_fit_and_fields_without_a_column() -> None:
    kind = record(a="string", b="long", c=record(d="double") | {"name": "s"}, e="int")
    said = check(kind, "a bigint, b double, x string, d bigint FROM '/c/d', gone bigint FROM '/c/none'")
    assert [(each.column.name, each.is_there, each.reason) for each in said.columns] == [
        ("a", True, "/a is string, not bigint"),
        ("b", True, None),
        ("x", False, None),
        ("d", True, "/c/d is double, not bigint"),
        ("gone", False, None),
    ]
    assert said.without_column == ("e",)
    assert not said.fits


def test_a_field_that_was_renamed_is_checked_by_its_alias() -> None:
    kind = record(new="string")
    kind["fields"][0]["aliases"] = ["old"]
    said = check(kind, "old bigint")
    assert [each.reason for each in said.columns] == ["/new is string, not bigint"]
    assert said.without_column == ()


def test_types_that_would_be_without_end_are_refused() -> None:
    kind = record(l="long") | {"name": "level0"}
    for level in range(1, 60):
        kind = record(l=kind, r=kind["name"]) | {"name": f"level{level}"}
    with pytest.raises(InvalidSchema, match="more than 20000 fields"):
        proposed(schema_of(kind), NOTHING)
    levels = "".join(f"message L{level} {{ L{level + 1} l = 1; L{level + 1} r = 2; }}" for level in range(60))
    text = f'syntax = "proto3"; {levels} message L60 {{ int32 x = 1; }}'
    with pytest.raises(InvalidSchema, match="more than 20000 fields"):
        proposed(Schema(SchemaKind.PROTOBUF, text), NOTHING)
