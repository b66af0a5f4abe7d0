"""Bytes of Protobuf are looked at as the runtime reads them: what it would take, and where they are wrong."""

import resource
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from log_tables.schemas import protobuf
from log_tables.schemas.proto_compiler import message_of
from log_tables.schemas.proto_wire import Wire
from log_tables.schemas.room import Room
from log_tables.schemas.schema import Undecodable
from tests.kit.proto_messages import messages
from tests.kit.proto_values import EDITION, FLIGHT, MANY, OLD, schema_of

WIDE = "".join(f"int32 f{index} = {index + 1};" for index in range(5_000))


def mutated(draw: Callable[..., Any], value: bytes) -> bytes:
    """`value`, cut, with flipped bits, with bytes or with a length that is too large in it."""
    found = bytearray(value)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(found)))
        match draw(st.sampled_from(["cut", "flip", "more", "length"])):
            case "cut":
                del found[at:]
            case "flip" if at < len(found):
                found[at] ^= 1 << draw(st.integers(0, 7))
            case "length":
                found[at:at] = b"\x52" + draw(
                    st.sampled_from([b"\x80\x80\x80\x80\x08", b"\xff" * 9 + b"\x01"])
                )
            case _:
                found[at:at] = draw(st.binary(max_size=4))
    return bytes(found)


@pytest.mark.parametrize("text", [FLIGHT, MANY, OLD, EDITION])
def test_whatever_the_runtime_refuses_has_a_reason_and_whatever_it_reads_is_counted(text: str) -> None:
    schema = schema_of(text)
    wire, kind = Wire(message_of(schema, (0,))), GetMessageClass(message_of(schema, (0,)))
    read = protobuf.to_json(schema, (0,))

    @given(messages(schema), st.data())
    @settings(max_examples=50, suppress_health_check=[*HealthCheck])
    def check(message: Any, data: st.DataObject) -> None:
        value = mutated(data.draw, message.SerializePartialToString())
        try:
            kind.FromString(value)
        except DecodeError:
            assert kind.DESCRIPTOR.full_name not in str(wire.why_not(value))
        else:
            wire.count(value, Room())
        try:
            read(value, 0)
        except Undecodable:
            pass

    check()


def repeated(inner: str, message: str) -> Callable[[bytes, int], bytes]:
    """The reader of messages M with many of `message` in field 1."""
    return protobuf.to_json(schema_of(f'syntax = "proto3"; message M {{ {message} a = 1; }} {inner}'), (0,))


@pytest.mark.parametrize(
    ("message", "item"),
    [
        ("repeated W", b"\x0a\x00"),
        ("map<int32, W>", b"\x0a\x02\x08\x01"),
        ("repeated X", b"\x0a\x02\x0a\x00"),
        ("map<string, X>", b"\x0a\x04\x12\x02\x0a\x00"),
    ],
)
def test_messages_of_many_fields_and_no_bytes_are_counted_before_they_are_made(
    message: str, item: bytes
) -> None:
    read = repeated(f"message W {{ {WIDE} }} message X {{ W w = 1; }}", message)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(Undecodable, match=r"^/a(/w)? would be more than"):
        read(item * (2**20 // len(item)), 0)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


def test_groups_are_counted() -> None:
    fields = WIDE.replace("int32", "optional int32")
    text = f'syntax = "proto2"; message M {{ repeated group W = 1 {{ {fields} }} }}'
    with pytest.raises(Undecodable, match=r"^/w would be more than"):
        protobuf.to_json(schema_of(text), (0,))(b"\x0b\x0c" * 100_000, 0)


def test_a_large_value_of_ordinary_messages_is_read() -> None:
    read = repeated(
        "message W { " + "".join(f"string f{n} = {n};" for n in range(1, 200)) + "}", "repeated W"
    )
    assert read(b"\x0a\x03\x0a\x01x" * 5_000, 0).count(b'"f1":"x"') == 5_000


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("0a", "/id ends too early"),
        ("08ff", "/id ends too early"),
        ("52020aff", "/next/id ends too early"),
        ("5202ff", "/next ends too early"),
        ("08ffffffffffffffffffff01", "/id has a number of more than 64 bits"),
        ("820103000000", "/numbers ends too early"),
        ("1a8080808008", "/delay has a length of 2 GiB or more"),
        ("32030a0261", "/seats ends too early"),
        ("320312017a" + "32030a01ff", "/seats has text that is not UTF-8"),
        ("0f", "/id has a broken tag"),
        ("00", "the value has a broken tag"),
        ("0c", "the value ends a group that has not begun"),
        ("f301", "the value ends too early"),
    ],
)
def test_a_reason_has_the_path_of_the_field(value: str, why: str) -> None:
    with pytest.raises(Undecodable) as raised:
        protobuf.to_json(schema_of(FLIGHT), (0,))(bytes.fromhex(value), 0)
    assert str(raised.value) == why


@pytest.mark.parametrize("depth", [99, 100, 101, 1_000])
def test_a_value_is_read_as_deep_as_the_runtime_does(depth: int) -> None:
    value = b""
    for _ in range(depth):
        value = b"\x53" + value + b"\x54"  # a group that is unknown
    wire = Wire(message_of(schema_of(FLIGHT), (0,)))
    if depth <= 100:
        wire.count(value, Room())
        assert protobuf.to_json(schema_of(FLIGHT), (0,))(value, 0)
    else:
        assert str(wire.why_not(value)) == "the value is nested more than 100 deep"
