"""Types of Protobuf with a form of their own in JSON are known by their fields, too, not by their names."""

import json
from typing import Any

import pytest

from log_tables.schemas import protobuf
from log_tables.schemas.schema import Undecodable
from tests.kit.proto_values import schema_of


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("google.protobuf.Timestamp", "string x = 1;"),
        ("google.protobuf.Timestamp", "string seconds = 1; int32 nanos = 2;"),
        ("google.protobuf.Duration", "repeated int64 seconds = 1; int32 nanos = 2;"),
        ("google.protobuf.FieldMask", "string paths = 1;"),
        ("google.protobuf.Any", "int32 type_url = 1; bytes value = 2;"),
        ("google.protobuf.Int64Value", "repeated int64 value = 1;"),
        ("google.protobuf.Struct", "repeated string fields = 1;"),
        ("google.protobuf.Value", "oneof kind { int32 null_value = 1; }"),
        ("google.protobuf.ListValue", "Value values = 1; message Value {}"),
        ("confluent.type.Decimal", "string value = 1; uint32 precision = 2; int32 scale = 3;"),
    ],
)
def test_another_type_of_the_same_name_is_a_message_as_any(name: str, fields: str) -> None:
    package, _, own = name.rpartition(".")
    text = f'syntax = "proto3"; package {package}; message {own} {{ {fields} }}'
    read = protobuf.to_json(schema_of(text), (0,))
    assert isinstance(json.loads(read(b"", 0)), dict)
    assert isinstance(json.loads(read(b"\x10\x05", 0)), dict)


def test_parts_of_a_value_of_any_kind_may_be_of_other_types() -> None:
    text = """syntax = "proto3"; package google.protobuf; message Value { oneof kind {
        NullValue null_value = 1; double number_value = 2; string string_value = 3; bool bool_value = 4;
        Struct struct_value = 5; ListValue list_value = 6; } }
        enum NullValue { NULL_VALUE = 0; }
        message Struct { Value a = 1; }
        message ListValue { int32 b = 1; }"""
    read = protobuf.to_json(schema_of(text), (0,))
    assert read(bytes.fromhex("2a060a0432020805"), 0) == b'{"a":{"b":5}}'


def known(name: str, file: str, value: str) -> Any:
    text = f'syntax = "proto3"; import "{file}.proto"; message M {{ {name} a = 1; }}'
    encoded = bytes.fromhex(value)
    return json.loads(protobuf.to_json(schema_of(text), (0,))(bytes([10, len(encoded)]) + encoded, 0))["a"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("Duration", "08ffffffffffffffffff01" + "1080b6ca91feffffffff01", "-1.500s"),
        ("Duration", "08ffffffffffffffff7f", "9223372036854775807s"),
        ("Duration", "1001", "0.000000001s"),
        ("FieldMask", "0a01410a03615f42", "A,a_B"),
        ("FieldMask", "0a056126625f63", "a&bC"),
        ("Timestamp", "1001", "1970-01-01T00:00:00.000000001Z"),
        ("Timestamp", "088092b8c398feffffff01", "0001-01-01T00:00:00Z"),
        ("Value", "11000000000000f87f", "NaN"),
        ("Value", "", None),
        ("ListValue", "0a000a0208000a022001", [None, None, True]),
    ],
)
def test_a_type_has_its_own_form(name: str, value: str, shown: object) -> None:
    file = {"FieldMask": "field_mask", "Value": "struct", "ListValue": "struct"}.get(name, name.lower())
    assert known(f"google.protobuf.{name}", f"google/protobuf/{file}", value) == shown


@pytest.mark.parametrize("value", ["08ffffffffffffffff7f", "10ffffffffffffffffff01", "1080a8d6b907"])
def test_a_time_of_no_calendar_is_refused(value: str) -> None:
    with pytest.raises(Undecodable, match=r"^/a is no time of the years 1 to 9999$"):
        known("google.protobuf.Timestamp", "google/protobuf/timestamp", value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", "0"),
        ("0a01ff", "-1"),
        ("0a010118feffffffffffffffff01", "100"),
        ("0a02ff381803", "-0.200"),
    ],
)
def test_a_decimal_is_text(value: str, shown: str) -> None:
    assert known("confluent.type.Decimal", "confluent/type/decimal", value) == shown


@pytest.mark.parametrize("value", ["18ffffffff07", "1841", "0a41" + "7f" * 65])
def test_a_decimal_of_too_many_digits_is_refused(value: str) -> None:
    with pytest.raises(Undecodable, match=r"^/a is a decimal of too many digits$"):
        known("confluent.type.Decimal", "confluent/type/decimal", value)
