"""JSON, ours or that of proto3, becomes the message of Protobuf that it stands for, or is refused."""

import json
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given

from log_tables.schemas import protobuf
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.schema import Unencodable
from tests.kit.proto_values import FLIGHT, OLD, flights, schema_of, written

MANY = """
syntax = "proto3";
import "google/protobuf/any.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "confluent/type/decimal.proto";
message M {
  M next = 1;
  int32 number = 2;
  bytes raw = 3;
  repeated bytes raws = 4;
  map<int32, bytes> keyed = 5;
  confluent.type.Decimal price = 6;
  repeated confluent.type.Decimal prices = 7;
  google.protobuf.Any any = 8;
  repeated M more = 9;
  map<bool, M> by_flag = 10;
  google.protobuf.BytesValue maybe = 11;
  oneof one { int32 left = 12; M right = 13; google.protobuf.Value value = 14; }
  google.protobuf.Struct plain = 15;
  repeated google.protobuf.Value values = 16;
  google.protobuf.Timestamp dep_time = 17;
  google.protobuf.Empty empty = 18;
}
"""


def back(value: dict[str, Any]) -> dict[str, Any]:
    """The fields that are there in the JSON of the message that `value` stands for."""
    return _there(json.loads(protobuf.to_json(schema_of(MANY), (0,))(written(MANY, value), 0)))


def _there(value: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each for name, each in value.items() if each not in (None, 0, "", [], {}) or name == "empty"
    }


@given(flights())
def test_json_of_proto3_becomes_what_the_runtime_makes_of_it(value: dict[str, Any]) -> None:
    made = GetMessageClass(message_of(schema_of(FLIGHT), (0,)))
    assert written(FLIGHT, value) == ParseDict(value, made()).SerializeToString(deterministic=True)


@given(flights())
def test_our_json_becomes_the_message_of_which_it_was_made(value: dict[str, Any]) -> None:
    encoded = written(FLIGHT, value)
    assert written(FLIGHT, json.loads(protobuf.to_json(schema_of(FLIGHT), (0,))(encoded, 0))) == encoded


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"raw": "AP8"}, {"raw": "AP8="}),
        ({"raw": "_-8="}, {"raw": "/+8="}),
        ({"raws": ["AP8=", ""]}, {"raws": ["AP8=", ""]}),
        ({"keyed": {"-2": "AP8="}}, {"keyed": {"-2": "AP8="}}),
        ({"maybe": "AP8"}, {"maybe": "AP8="}),
        ({"price": "-12.34"}, {"price": "-12.34"}),
        ({"price": 12.5}, {"price": "12.5"}),
        ({"price": "1e3"}, {"price": "1000"}),
        ({"price": {"value": "BNI=", "scale": 2}}, {"price": "12.34"}),
        ({"prices": ["0.10", "128", "-129"]}, {"prices": ["0.10", "128", "-129"]}),
        ({"any": {"@type": "t", "value": "AP8="}}, {"any": {"@type": "t", "value": "AP8="}}),
        (
            {"any": {"@type": "type.googleapis.com/M", "number": 5}},
            {"any": {"@type": "type.googleapis.com/M", "value": "EAU="}},
        ),
        ({"depTime": "2013-01-31T05:00:00Z"}, {"dep_time": "2013-01-31T05:00:00Z"}),
        ({"plain": {"a": [1, None]}}, {"plain": {"a": [1.0, None]}}),
        ({"values": [None, "x"]}, {"values": [None, "x"]}),
        ({"left": 5, "right": None, "value": None}, {"left": 5}),
        ({"empty": {}}, {"empty": {}}),
    ],
)
def test_a_field_may_be_written_in_several_ways(given: dict[str, Any], shown: dict[str, Any]) -> None:
    assert back(given) == {"empty": None} | shown


def test_a_message_within_itself_may_be_text_or_an_object() -> None:
    inner = {"number": 1, "next": {"number": 2}}
    found = written(MANY, {"next": inner, "more": [inner], "byFlag": {"true": inner}})
    text = json.dumps(inner)
    assert written(MANY, {"next": text, "more": [text], "by_flag": {"true": text}}) == found
    assert written(MANY, {"next": {"next": '{"number": 2}', "number": 1}}) == written(MANY, {"next": inner})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ({"nothing": 1}, "/nothing is no field of the schema"),
        ({"next": {"next": {"nothing": 1}}}, "/next/next/nothing is no field of the schema"),
        ({"next": 5}, "/next is no object"),
        ({"next": "x"}, "/next is text that is not JSON"),
        ({"next": "[]"}, "/next is no object"),
        ({"next": {"number": "x"}}, "/next/number is no value of its type"),
        ({"more": {}}, "/more is no array"),
        ({"more": [{}, {"number": 2**40}]}, "/more/1/number is no value of its type"),
        ({"by_flag": []}, "/by_flag is no object"),
        ({"by_flag": {"maybe": {}}}, "/by_flag/maybe is no value of its type"),
        ({"number": 1, "raw": "*"}, "/raw is no text in base64"),
        ({"raw": 5}, "/raw is no text"),
        ({"maybe": "*"}, "/maybe is no text in base64"),
        ({"keyed": {"x": ""}}, "/keyed is no value of its type"),
        ({"price": "x"}, "/price is no decimal"),
        ({"price": True}, "/price is no decimal"),
        ({"price": "1e100"}, "/price is no decimal of up to 64 digits"),
        ({"price": "NaN"}, "/price is no decimal of up to 64 digits"),
        ({"any": 5}, "/any is no object"),
        ({"any": {"@type": "t", "x": 1}}, "/any is no value of its type"),
        ({"left": 1, "right": {}}, "/right is there next to left, and a message has one of them"),
        ({"dep_time": "2013-01-31T05:00:00Z", "depTime": "x"}, "/depTime is there next to dep_time"),
        ({"dep_time": "31 January"}, "/dep_time is no value of its type"),
    ],
)
def test_an_error_leads_to_the_field(value: dict[str, Any], why: str) -> None:
    with pytest.raises(Unencodable) as raised:
        written(MANY, value)
    assert str(raised.value).startswith(why)


@pytest.mark.parametrize("depth", [101, 900])
def test_what_no_runtime_reads_is_not_written(depth: int) -> None:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"next": value}
    with pytest.raises(Unencodable, match="is nested too deep"):
        written(MANY, value)


def test_a_required_field_must_be_there() -> None:
    with pytest.raises(Unencodable, match="missing required fields: id"):
        written(OLD, {"name": "x"})


@pytest.mark.parametrize("name", ["SerializeToString", "SetInParent", "FromString", "add", "__class__"])
def test_a_field_may_have_the_name_of_a_method(name: str) -> None:
    text = f'syntax = "proto3"; message M {{ int32 {name} = 1; M next = 2; }}'
    assert written(text, {name: 5, "next": {name: 6}}) == b"\x08\x05\x12\x02\x08\x06"


def test_a_type_that_only_has_the_name_of_a_known_one_is_refused() -> None:
    for name in ("Timestamp", "Any", "Int64Value", "Struct"):
        text = f"message M {{ {name} a = 1; }} message {name} {{ M b = 1; }}"
        with pytest.raises(Unencodable):
            written(f'syntax = "proto3"; package google.protobuf; {text}', {"a": {"@type": "", "value": ""}})
