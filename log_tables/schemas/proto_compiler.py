"""Files of Protobuf as descriptors: protoc compiles their text, in a process of its own.

A schema may be anybody's. The compiler sees a directory with this schema, the files that it refers to, and
those that come with the compiler. Its time, its memory and what it writes are bounded.
"""

import os
import re
import subprocess
import sys
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import TYPE_CHECKING, Any

from log_tables.limits import PROTO_COMPILE_MAX_S
from log_tables.schemas.schema import InvalidSchema, Schema

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_NAME = re.compile(r"(?!.*(^|/)\.{0,2}(/|$))[\w.\-/]{1,250}", re.ASCII)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_SAID = re.compile(r"[\w.\-/]+\.proto:")
_SAID_MAX_BYTES = 64 * 1024
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


class UnkeptReason(InvalidSchema):
    """A reason that is not one of the schema alone: the machine's, or that of a message index in a value.
    Whoever keeps reasons does not keep it.
    """


def message_of(schema: Schema, indexes: Sequence[int]) -> "Descriptor":
    """The message type to which `indexes` lead in the file of `schema`. Raises InvalidSchema."""
    file = _file_of(schema)
    inside, name = file.proto.message_type, [file.proto.package] if file.proto.package else []
    for index in indexes:
        if not 0 <= index < len(inside):
            raise UnkeptReason(f"the schema has no message type {'.'.join(map(str, indexes))}")
        name.append(inside[index].name)
        inside = inside[index].nested_type
    found: Descriptor = file.pool.FindMessageTypeByName(".".join(name))
    return found


@dataclass(frozen=True, slots=True)
class _File:
    """The file of a schema, and a pool with it and with all that it imports: of this schema alone, as another
    one may have other types of the same names.
    """

    proto: Any
    pool: Any


@dataclass(slots=True)
class _Kept:
    """The file of a schema, or why it has none; None before it was asked for."""

    found: _File | InvalidSchema | None = None
    making: Lock = field(default_factory=Lock)


@lru_cache(maxsize=256)
def _kept(_: Schema) -> _Kept:
    return _Kept()


def _file_of(schema: Schema) -> _File:
    """The file of `schema`, which is made once. Raises InvalidSchema, again and again for the same reason."""
    kept = _kept(schema)
    with kept.making:
        if kept.found is None:
            try:
                kept.found = _made(schema)
            except UnkeptReason:
                raise
            except InvalidSchema as invalid:
                kept.found = invalid
        found = kept.found
    if isinstance(found, InvalidSchema):
        raise InvalidSchema(str(found))
    return found


def _made(schema: Schema) -> _File:
    """The file of `schema` in a pool of its own. Raises InvalidSchema."""
    try:
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message import DecodeError
    except ImportError:
        raise InvalidSchema(_MISSING) from None
    pool: Any = DescriptorPool()
    try:
        is_text = _BASE64.fullmatch(schema.text) is None
        files = _compiled(schema) if is_text else _decoded(schema)
        for each in files:
            _settle(each)
            pool.Add(each)
    except (DecodeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"the schema is no file of Protobuf: {error!s:.200}") from None
    return _File(files[-1], pool)


def _settle(file: Any) -> None:
    """Leave fields that are declared elsewhere out of a file: they have no columns, and so their bytes are
    read past, whatever is in them. Raises ValueError for an entry of a map that protoc would not have made.
    """
    left = [file]
    while left:
        each = left.pop()
        del each.extension[:]
        left += each.message_type if each is file else each.nested_type
        is_entry = each is not file and each.options.map_entry
        if is_entry and [(one.number, one.name) for one in each.field] != [(1, "key"), (2, "value")]:
            raise ValueError(f"the map of {each.name[:100]} has no keys and values")


def _decoded(schema: Schema) -> list[Any]:
    """The FileDescriptorProtos in the text of `schema`, in base64, each after what it imports."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    named = [*schema.references, (_free_name(schema), schema.text)]
    given = [FileDescriptorProto.FromString(b64decode(text, validate=True)) for _, text in named]
    for file, (name, _) in zip(given, named, strict=True):
        file.name = name  # that by which it is imported: registries have others in it
    others = {name for each in given for name in each.dependency} - {name for name, _ in named}
    if not others:
        return given
    imports = "".join(f'import "{_checked(name)}";\n' for name in sorted(others))
    compiled = _compiled(Schema(schema.kind, f'syntax = "proto3";\n{imports}'))
    return [*compiled[:-1], *given]


def _free_name(schema: Schema) -> str:
    """A name for the file of `schema` that none of its references has."""
    name, taken = "schema.proto", {name for name, _ in schema.references}
    while name in taken:
        name = f"_{name}"
    return name


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidSchema(f"the schema refers to {name[:100]!r}, which is no path of a file")
    return name


def _compiled(schema: Schema) -> list[Any]:
    """The FileDescriptorProtos that protoc makes of the text of `schema`, each after what it imports. Raises
    InvalidSchema.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    if find_spec("grpc_tools") is None:
        raise InvalidSchema(_MISSING)
    own = _free_name(schema)
    texts = {**_OWN, **{_checked(name): text for name, text in schema.references}, own: schema.text}
    try:
        with TemporaryDirectory(prefix="lakelog-protoc-") as made:
            for name, text in texts.items():
                path = Path(made, "in", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, "utf-8")
            return [*FileDescriptorSet.FromString(_run(Path(made), own)).file]
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise InvalidSchema("the schema refers to a file and to another one inside of it") from None
    except OSError as error:
        raise UnkeptReason(f"the schema cannot be compiled now: {error.strerror}") from None


def _run(made: Path, name: str) -> bytes:
    """The output of protoc for the file `name` in `made`/in. Raises InvalidSchema, OSError."""
    out, errors = made / "out", made / "errors"
    options = [f"--descriptor_set_out={out}", "--include_imports", "--experimental_editions"]
    # With the paths of this process but relative ones, and without a working directory of modules.
    paths = [path for path in sys.path if os.path.isabs(path)]
    with errors.open("wb") as said:
        try:
            done = subprocess.run(
                [
                    *(sys.executable, "-P", "-m", "log_tables.schemas.protoc"),
                    *(str(made / "in"), f"{PROTO_COMPILE_MAX_S:.0f}", *options, name),
                ],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                timeout=PROTO_COMPILE_MAX_S,
                start_new_session=True,  # Ctrl-C is for the gateway
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"the schema takes longer than {PROTO_COMPILE_MAX_S} s to compile") from None
    if done.returncode != 0 or not out.exists():
        with errors.open("rb") as told:
            lines = told.read(_SAID_MAX_BYTES).decode(errors="replace").replace(str(made), "").splitlines()
        reason = (
            "; ".join(line for line in lines if _SAID.match(line))
            or "protoc ends without a reason; is it too large?"
        )
        raise InvalidSchema(f"the schema is no file of Protobuf: {reason[:200]}")
    return out.read_bytes()
