"""Files of Protobuf as descriptors: protoc compiles their text, in a process of its own.

A schema may be anybody's. The compiler sees a directory with this schema, the files that it refers to, and
those that come with the compiler; it has PROTO_COMPILE_MAX_S.
"""

import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from log_tables.limits import PROTO_COMPILE_MAX_S
from log_tables.schemas.schema import InvalidSchema, Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_SCHEMA = "schema.proto"
_NAME = re.compile(r"(?!.*(^|/)\.{0,2}(/|$))[\w.\-/]{1,250}")
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_SAID = re.compile(r"[\w.\-/]+\.proto:")
_MISSING = 'Protobuf is not installed here; run `pip install "lakelog[protobuf]"`'

_OWN = {
    "confluent/meta.proto": """
syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta {
  string doc = 1;
  map<string, string> params = 2;
  repeated string tags = 3;
}
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
""",
    "confluent/type/decimal.proto": """
syntax = "proto3";
package confluent.type;
message Decimal {
  bytes value = 1;
  uint32 precision = 2;
  int32 scale = 3;
}
""",
}
"""Files that Confluent's registry has by itself: the names and numbers of their fields are its own."""


def message_of(schema: Schema, indexes: Sequence[int]) -> "Descriptor":
    """The message type to which `indexes` lead in the file of `schema`. Raises InvalidSchema."""
    try:
        from google.protobuf.descriptor_pool import DescriptorPool
    except ImportError:
        raise InvalidSchema(_MISSING) from None
    files = _files(schema)
    pool: Any = DescriptorPool()
    try:
        for each in files:
            pool.Add(each)
        inside, name = files[-1].message_type, list[str]()
        for index in indexes:
            name.append(inside[index if index >= 0 else len(inside)].name)
            inside = inside[index].nested_type
        package = files[-1].package
        found: Descriptor = pool.FindMessageTypeByName(".".join([*([package] if package else []), *name]))
    except IndexError:
        raise InvalidSchema(f"the schema has no message type {'.'.join(map(str, indexes))}") from None
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"the schema is no file of Protobuf: {error!s:.200}") from None
    return found


@lru_cache(maxsize=256)
def _files(schema: Schema) -> Sequence[Any]:
    """The files of `schema` as FileDescriptorProtos, each after what it imports. Raises InvalidSchema."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        if not _BASE64.fullmatch(schema.text):
            return [*FileDescriptorSet.FromString(_compiled(schema)).file]
        texts = [*(text for _, text in schema.references), schema.text]
        given = [FileDescriptorProto.FromString(b64decode(text)) for text in texts]
    except (DecodeError, ValueError) as error:
        raise InvalidSchema(f"the schema is no file of Protobuf: {error!s:.200}") from None
    imported = {name for each in given for name in each.dependency if name not in {one.name for one in given}}
    return [*_well_known(imported), *given]


def _well_known(names: Iterable[str]) -> Iterator[Any]:
    """The files of Protobuf itself among those with `names`."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    for name in sorted(names):
        module = re.fullmatch(r"google/protobuf/([a-z_]+)\.proto", name)
        if module is not None:
            try:
                descriptor = import_module(f"google.protobuf.{module[1]}_pb2").DESCRIPTOR
            except ImportError:
                continue
            found = FileDescriptorProto()
            descriptor.CopyToProto(found)
            yield found


def _compiled(schema: Schema) -> bytes:
    """The output of protoc for the text of `schema`. Raises InvalidSchema."""
    if find_spec("grpc_tools") is None:
        raise InvalidSchema(_MISSING)
    with TemporaryDirectory(prefix="lakelog-protoc-") as made:
        root, out = Path(made, "in"), Path(made, "out")
        for name, text in {**_OWN, **dict(schema.references), _SCHEMA: schema.text}.items():
            if not _NAME.fullmatch(name):
                raise InvalidSchema(f"the schema refers to {name[:100]!r}, which is no path of a file")
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        options = [f"--descriptor_set_out={out}", "--include_imports", "--experimental_editions"]
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", "-I.", *options, _SCHEMA]
        try:
            done = subprocess.run(
                command, cwd=root, capture_output=True, timeout=PROTO_COMPILE_MAX_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"the schema takes longer than {PROTO_COMPILE_MAX_S} s to compile") from None
        if done.returncode != 0 or not out.exists():
            lines = done.stderr.decode(errors="replace").replace(str(root), "").splitlines()
            said = "; ".join(line for line in lines if _SAID.match(line)) or "protoc has ended"
            raise InvalidSchema(f"the schema is no file of Protobuf: {said[:200]}")
        return out.read_bytes()
