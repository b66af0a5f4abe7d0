"""Files of Protobuf are compiled, whoever wrote them, and nothing but a schema comes of it."""

import base64
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from log_tables.schemas import proto_compiler, protobuf
from log_tables.schemas.decoder import decoder_of
from log_tables.schemas.schema import InvalidSchema
from tests.kit.proto_values import FLIGHT, schema_of

EMPTY = 'syntax = "proto3"; message A {}'


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "the schema has no message type 0"),
        ('syntax = "proto3"; message A { B b = 1; }', 'schema.proto:1:32: "B" is not defined.'),
        ('syntax = "proto3"; import "/etc/passwd"; message A {}', 'Import "/etc/passwd" was not found'),
        ('syntax = "proto3"; import "../a.proto"; message A {}', "are not allowed in the virtual path"),
        ("AAAA", "the schema is no file of Protobuf"),
        ("message A {" * 5_000, "the schema is no file of Protobuf"),
    ],
)
def test_a_schema_that_is_none_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidSchema) as raised:
        protobuf.to_json(schema_of(text), (0,))
    assert why in str(raised.value)


@pytest.mark.parametrize("name", ["/etc/x.proto", "../x.proto", "a/../../x.proto", "", "x\0.proto", "a//b"])
def test_a_reference_leads_nowhere_but_into_its_directory(name: str) -> None:
    with pytest.raises(InvalidSchema, match="no path of a file"):
        protobuf.to_json(schema_of('syntax = "proto3"; message A {}', (name, "")), (0,))


def test_a_schema_refers_to_others() -> None:
    inner = 'syntax = "proto3"; package p; message In { int32 x = 1; }'
    outer = 'syntax = "proto3"; import "dir/in.proto"; message Out { p.In in = 1; }'
    read = protobuf.to_json(schema_of(outer, ("dir/in.proto", inner)), (0,))
    assert read(b"\x0a\x02\x08\x07", 0) == b'{"in":{"x":7}}'


def serialized(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializeToString()).decode()


def test_serialized_files_refer_to_others_whatever_they_call_themselves() -> None:
    inner = FileDescriptorProto(name="default", syntax="proto3", package="p")
    inner.message_type.add(name="In").field.add(name="x", number=1, type=5, label=1)
    outer = FileDescriptorProto(
        name="default", syntax="proto3", dependency=["in", "google/protobuf/api.proto"]
    )
    outer.dependency.append("confluent/type/decimal.proto")
    message = outer.message_type.add(name="Out")
    for number, name in enumerate((".p.In", ".confluent.type.Decimal", ".google.protobuf.Mixin"), 1):
        message.field.add(name=f"f{number}", number=number, type=11, label=1, type_name=name)
    schema = schema_of(serialized(outer), ("in", serialized(inner)))
    assert protobuf.to_json(schema, (0,))(b"\x0a\x02\x08\x07", 0) == b'{"f1":{"x":7},"f2":null,"f3":null}'


@pytest.mark.parametrize("name", ["key", "x"])
def test_a_serialized_map_without_keys_and_values_is_refused(name: str) -> None:
    file = FileDescriptorProto(name="default", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="AEntry")
    entry.options.map_entry = True
    entry.field.add(name=name, number=1, type=5, label=1)
    message.field.add(name="a", number=1, type=11, label=3, type_name=".M.AEntry")
    with pytest.raises(InvalidSchema, match="the map of AEntry has no keys and values"):
        protobuf.to_json(schema_of(serialized(file)), (0,))


def test_the_entry_of_a_map_may_be_the_type_of_a_field() -> None:
    file = FileDescriptorProto(name="default", syntax="proto3")
    message = file.message_type.add(name="M")
    entry = message.nested_type.add(name="AEntry")
    entry.options.map_entry = True
    for number, field in enumerate(("key", "value"), 1):
        entry.field.add(name=field, number=number, type=5, label=1)
    message.field.add(name="a", number=1, type=11, label=1, type_name=".M.AEntry")
    read = protobuf.to_json(schema_of(serialized(file)), (0,))
    assert read(b"\x0a\x02\x08\x01", 0).startswith(b'{"a":')


def test_a_reference_may_have_the_name_of_our_own_file() -> None:
    text = 'syntax = "proto3"; import "schema.proto"; message B { A a = 1; }'
    assert protobuf.to_json(schema_of(text, ("schema.proto", EMPTY)), (0,))(b"", 0) == b'{"a":null}'


@pytest.mark.parametrize(
    "name",
    [
        *(
            "grpc_tools/__init__.py",
            "log_tables/__init__.py",
            "re.py",
            "sitecustomize.py",
            "encodings/utf_8.py",
        ),
        "google/__init__.py",
    ],
)
def test_a_reference_is_never_a_module_of_python(name: str, tmp_path: Path) -> None:
    program = f"open({str(tmp_path / 'ran')!r}, 'w')"
    schema = schema_of(EMPTY, (name, program), ("grpc_tools/protoc.py", program), ("os.py", program))
    assert protobuf.to_json(schema, (0,))(b"", 0) == b"{}"
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("references", "why"),
    [
        ((("a", ""), ("a/b", "")), "a file and to another one inside of it"),
        ((("a/b", ""), ("a", "")), "a file and to another one inside of it"),
        ((("\u00e9" * 200, ""),), "no path of a file"),
        ((("a.proto", "\ud800"),), "surrogates not allowed"),
    ],
)
def test_references_that_are_no_files_are_refused(references: tuple[tuple[str, str], ...], why: str) -> None:
    with pytest.raises(InvalidSchema, match=why):
        protobuf.to_json(schema_of(EMPTY, *references), (0,))


def test_a_compiler_that_writes_too_much_is_stopped() -> None:
    fields = "".join(f"B b{number} = {number};" for number in range(1, 5_000))
    text = f'syntax = "proto3"; message {"p" * 30_000} {{ message B {{}} {fields} }}'
    with pytest.raises(InvalidSchema, match="is it too large"):
        protobuf.to_json(schema_of(text), (0,))


def test_an_error_names_no_path_of_the_machine() -> None:
    with pytest.raises(InvalidSchema) as raised:
        protobuf.to_json(schema_of('syntax = "proto3"; import "nothing.proto"; message A { B b = 1; }'), (0,))
    assert str(raised.value).startswith("the schema is no file of Protobuf: ")
    assert "/" not in str(raised.value)
    assert len(str(raised.value)) < 250


def test_extensions_are_left_alone() -> None:
    text = """syntax = "proto2"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { optional string of = 50001; }
        message A { optional int32 a = 1 [(of) = "x"]; extensions 2 to 9; extend A { optional A b = 2; } }
        extend A { repeated A c = 3; }"""
    assert protobuf.to_json(schema_of(text), (0,))(b"\x08\x05\x12\x02\x08\x05\x1a\x00", 0) == b'{"a":5}'


def test_a_message_type_that_is_none_takes_no_decoders_place() -> None:
    decoder = decoder_of(schema_of(FLIGHT), (0,))
    for index in range(1_000):
        assert decoder_of(schema_of(FLIGHT), (2, index)) == f"the schema has no message type 2.{index}"
    assert decoder_of(schema_of(FLIGHT), (0,)) is decoder


def test_a_schema_that_is_none_is_compiled_once() -> None:
    text = "message A { C c = 1; }"
    found = {decoder_of(schema_of(text), (index,)) for index in range(300)}
    (why,) = found
    assert "schema.proto:1:13" in str(why)


def test_a_schema_may_be_a_serialized_file() -> None:
    file = FileDescriptorProto(name="t", syntax="proto3", dependency=["google/protobuf/timestamp.proto"])
    message = file.message_type.add(name="M")
    message.field.add(name="at", number=1, type=11, label=1, type_name=".google.protobuf.Timestamp")
    assert (
        protobuf.to_json(schema_of(serialized(file)), (0,))(b"\x0a\x00", 0)
        == b'{"at":"1970-01-01T00:00:00Z"}'
    )


def test_without_the_extra_a_schema_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pool", None)
    with pytest.raises(InvalidSchema, match=r'pip install "lakelog\[protobuf\]"'):
        proto_compiler.message_of(schema_of('syntax = "proto3"; message A {}'), (0,))
