"""Messages of Protobuf become the JSON that stands for them, and anything that is none is refused."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_tables.columns.declaration import Declaration, parse
from log_tables.columns.misfit import misfits
from log_tables.columns.proposed import proposed
from log_tables.rows import Rows
from log_tables.schemas import protobuf
from log_tables.schemas.decoded import Encoding, Format
from log_tables.schemas.decoded import decoded as decode
from log_tables.schemas.encoder import encoded
from log_tables.schemas.framing import VALUE_HEADER, message_indexes, prefixed
from log_tables.schemas.schema import InvalidSchema, KnownSchemas, Undecodable, Unencodable
from log_tables.schemas.varint import to_zigzag
from tests.kit.proto_messages import expected, messages, same
from tests.kit.proto_values import EDITION, FLIGHT, MANY, OLD, flights, schema_of, written
from tests.log_tables.columns.test_fit import table

NOTHING = Declaration((), Encoding(Format.PROTOBUF))
ABSENT = {
    "id": 0,
    "carrier": "",
    "delay": None,
    "at": None,
    "stops": [],
    "seats": {},
    "kind": "DAY",
    "raw": "",
    "gate": None,
    "next": None,
    "airport": None,
    "zone": None,
    "small": 0,
    "fixed": 0,
    "ok": False,
    "numbers": [],
}


def shown(text: str, value: bytes, message: tuple[int, ...] = (0,)) -> Any:
    return json.loads(protobuf.to_json(schema_of(text), message)(value, 0))


def with_absent(value: dict[str, Any]) -> dict[str, Any]:
    """A flight as its JSON is: fields that are absent have their zeros, or are null."""
    inner = value.get("next")
    return {**ABSENT, **value, "next": None if inner is None else with_absent(inner)}


@given(flights())
def test_a_message_has_the_json_of_proto3_with_numbers_and_with_zeros(value: dict[str, Any]) -> None:
    found = shown(FLIGHT, written(FLIGHT, value))
    if found["next"] is not None:
        found["next"] = json.loads(found["next"])
    assert found == with_absent(value)


@pytest.mark.parametrize("text", [MANY, OLD, EDITION])
def test_any_message_has_the_json_of_protobuf_but_for_what_the_page_says(text: str) -> None:
    read = protobuf.to_json(schema_of(text), (0,))

    @given(messages(schema_of(text)))
    @settings(max_examples=30, suppress_health_check=[*HealthCheck])
    def check(message: Any) -> None:
        found = json.loads(read(message.SerializePartialToString(), 0))
        assert same(found, expected(message)), (found, expected(message))

    check()


def test_a_message_within_itself_is_text_whatever_the_order_of_the_file() -> None:
    types = ["message A { B b = 1; }", "message B { A a = 1; }"]
    for fields in ("A a = 1; B b = 2;", "B b = 2; A a = 1;"):
        for each in (types, types[::-1]):
            text = f'syntax = "proto3"; message R {{ {fields} }} {" ".join(each)}'
            found = shown(text, bytes.fromhex("0a060a040a020a0012060a040a020a00"))
            assert found == {
                "a": {"b": {"a": '{"b":{"a":null}}'}},
                "b": {"a": {"b": '{"a":{"b":null}}'}},
            }


def test_keys_of_a_map_are_in_order() -> None:
    text = 'syntax = "proto3"; message M { map<string, int32> a = 1; map<sint32, int32> b = 2; }'
    value = b"".join(bytes([10, 3, 10, 1, each]) + bytes([18, 2, 8, each]) for each in b"jcxbaqz")
    found = shown(text, value)
    assert [*found["a"]] == sorted(found["a"])
    assert [*found["b"]] == [str(each) for each in sorted(map(int, found["b"]))]


@pytest.mark.parametrize("name", ["HasField", "WhichOneof", "DESCRIPTOR", "FromString", "__class__", "from"])
def test_a_field_may_have_any_name(name: str) -> None:
    text = f'syntax = "proto3"; message M {{ optional int32 {name} = 1; optional M b = 2; M c = 3; }}'
    assert shown(text, b"\x08\x05\x12\x00") == {
        name: 5,
        "b": json.dumps({name: None, "b": None, "c": None}, separators=(",", ":")),
        "c": None,
    }


def chain(length: int) -> str:
    types = "".join(f"message M{index} {{ M{index + 1} a = 1; }}" for index in range(length))
    return f'syntax = "proto3"; {types} message M{length} {{}}'


def test_types_may_lead_far_from_one_to_the_next() -> None:
    assert shown(chain(299), b"\x0a\x00") == {"a": {"a": None}}
    with pytest.raises(InvalidSchema, match="lead too far"):
        shown(chain(300), b"")
    with pytest.raises(InvalidSchema, match="lead too far"):
        written(chain(300), {})


@given(flights(), st.data())
def test_broken_messages_are_refused_or_read(value: dict[str, Any], data: st.DataObject) -> None:
    encoded = bytearray(written(FLIGHT, value))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded)))
        match data.draw(st.sampled_from(["cut", "flip", "more"])):
            case "cut":
                del encoded[at:]
            case "flip" if at < len(encoded):
                encoded[at] ^= 1 << data.draw(st.integers(0, 7))
            case _:
                encoded[at:at] = data.draw(st.binary(max_size=4))
    try:
        json.loads(protobuf.to_json(schema_of(FLIGHT), (0,))(bytes(encoded), 0))
    except Undecodable:
        pass


@given(flights())
def test_every_message_fits_the_columns_that_its_schema_proposes(value: dict[str, Any]) -> None:
    declaration = proposed(schema_of(FLIGHT), NOTHING)
    found = prefixed(1, b"\0" + written(FLIGHT, value))
    assert [*misfits(Rows([found], 0), declaration, KnownSchemas({1: schema_of(FLIGHT)}))] == []


@pytest.mark.parametrize(("field", "data", "text", "fitting"), table("field 1 of a message"))
def test_a_field_has_the_json_that_the_page_says(field: str, data: str, text: str, fitting: str) -> None:
    imports = "".join(
        f'import "{name}";'
        for name in (
            *(f"google/protobuf/{each}.proto" for each in ("timestamp", "duration", "wrappers", "struct")),
            *(f"google/protobuf/{each}.proto" for each in ("any", "field_mask", "empty")),
            "confluent/type/decimal.proto",
        )
    )
    file = f'syntax = "proto3"; {imports} enum E {{ A = 0; B = 1; }} message M {{ {field.strip("`")}; }}'
    schema = schema_of(file)
    value = prefixed(1, b"\0" + bytes.fromhex("" if data == "no bytes" else data.strip("`")))
    found = decode(value, (), Encoding(Format.PROTOBUF), KnownSchemas({1: schema}))
    assert found.json is not None, found.error
    assert json.loads(found.json) == {"a": json.loads(text.strip("`"))}
    declaration = Declaration(parse(f"a {fitting.strip('`')}").columns, Encoding(Format.PROTOBUF))
    assert [*misfits(Rows([value], 0), declaration, KnownSchemas({1: schema}))] == []


def test_proto2_has_its_fields_without_their_defaults_and_without_groups_that_are_absent() -> None:
    assert shown(OLD, written(OLD, {"id": 5, "packed": [1, 2]})) == {
        "id": 5,
        "name": None,
        "packed": [1, 2],
        "part": None,
    }


@pytest.mark.parametrize(
    ("data", "start", "indexes", "message"),
    [
        (b"\0x", 0, (0,), 1),
        (b"..\x02\x00x", 2, (0,), 4),
        (to_zigzag(2) + to_zigzag(1) + to_zigzag(0), 0, (1, 0), 3),
    ],
)
def test_indexes_lead_to_a_message(data: bytes, start: int, indexes: tuple[int, ...], message: int) -> None:
    assert message_indexes(data, start) == (indexes, message)


def test_a_message_within_another_is_read_by_its_indexes_in_the_value_or_in_the_header() -> None:
    schemas, encoding = (
        KnownSchemas({1: schema_of(FLIGHT), _GUID: schema_of(FLIGHT)}),
        Encoding(Format.PROTOBUF),
    )
    indexes = to_zigzag(2) + to_zigzag(1) + to_zigzag(0)
    assert decode(prefixed(1, indexes + b"\x08\x05"), (), encoding, schemas).json == b'{"a":5}'
    header = (VALUE_HEADER, b"\x01" + bytes(16) + indexes)
    assert decode(b"\x08\x05", [header], encoding, schemas).json == b'{"a":5}'


_GUID = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "the value ends in the indexes of its message type"),
        (b"\x02\x01", "schema 1: the schema has no message type -1"),
        (b"\x04\x00\x0a", "schema 1: the schema has no message type 0.5"),
        (b"\x02\x0a", "schema 1: the schema has no message type 5"),
        (to_zigzag(10**6), "the value has 1000000 indexes of its message type"),
        (b"\0\x0a\xff", "schema 1: /id ends too early"),
        (b"\0\x12\x01\xff", "schema 1: /carrier has text that is not UTF-8"),
        (b"\0\x52\x03\x12\x01\xff", "schema 1: /next/carrier has text that is not UTF-8"),
        (b"\0\x22\x07\x08\x80\xdb\x9f\xb8\xca\x7b", "schema 1: /at is no time of the years 1 to 9999"),
    ],
)
def test_an_error_says_what_is_wrong(value: bytes, why: str) -> None:
    found = decode(prefixed(1, value), (), Encoding(Format.PROTOBUF), KnownSchemas({1: schema_of(FLIGHT)}))
    assert found.json is None
    assert str(found.error).endswith(why)


def test_a_pointer_follows_the_number_of_a_field() -> None:
    steps = protobuf.steps(schema_of(FLIGHT), (0,))
    assert steps(["2"]) == ("carrier",)
    assert steps(["10", "2"]) == ("next", "carrier")
    assert steps(["6", "2"]) == ("seats", "2")
    assert steps(["5", "0"]) == ("stops", "0")
    assert steps(["carrier", "x"]) == ("carrier", "x")
    assert steps(["99"]) == ("99",)
    assert steps(["9", "1"]) == ("gate", "1")
    assert steps(["9" * 5_000]) == ("9" * 5_000,)


def test_a_value_cannot_become_more_than_its_room() -> None:
    text = f'syntax = "proto3"; enum E {{ {"A" * 30_000} = 0; }} message M {{ repeated E a = 1; }}'
    with pytest.raises(Undecodable, match="/a would be more than"):
        protobuf.to_json(schema_of(text), (0,))(b"\x0a\x90\x4e" + bytes(10_000), 0)


def test_a_message_that_is_nested_too_deep_is_refused() -> None:
    value = b""
    for _ in range(1_000):
        value = b"\x52" + bytes([len(value) & 0x7F | 0x80, len(value) >> 7]) + value
    with pytest.raises(Undecodable, match=r"^the value is nested more than 100 deep$"):
        protobuf.to_json(schema_of(FLIGHT), (0,))(value, 0)


def test_the_same_name_may_be_another_type_in_another_schema() -> None:
    other = 'syntax = "proto3"; package air; message Flight { int32 x = 1; }'
    assert shown(other, b"\x08\x05") == {"x": 5}
    assert shown(FLIGHT, b"\x08\x05")["id"] == 5


def test_json_that_is_no_message_is_refused() -> None:
    values: list[object] = [{"nothing": 1}, {"id": "x"}, [], {"kind": "NOON"}]
    for value in values:
        with pytest.raises(Unencodable):
            written(FLIGHT, value)
    with pytest.raises(Unencodable, match="not JSON"):
        encoded(b"{", 1, schema_of(FLIGHT))


@pytest.mark.parametrize(
    "value",
    [
        b"\x0a\x01\xff",
        b"\x12\x01\xff",
        b"\x1a\x05\x0a\x01\xff\x10\x01",
        b"\x1a\x05\x0a\x01\xff\x10\x01\x1a\x05\x0a\x01x\x10\x01",
    ],
)
def test_text_of_proto2_that_is_not_utf8_is_refused_and_no_base64(value: bytes) -> None:
    fields = "optional string a = 1; repeated string b = 2; map<string, int32> c = 3;"
    text = f'syntax = "proto2"; message M {{ {fields} }}'
    with pytest.raises(Undecodable, match=r"/[abc] has text that is not UTF-8"):
        protobuf.to_json(schema_of(text), (0,))(value, 0)
