"""Schemas that are objects under the root: those that an operator put there, and those of registries.

    schemas/files/17.avsc, 18.proto, 19.json    by id, in the languages Avro, Protobuf and JSON Schema
    schemas/<16 hex digits>/17.json             of the registry whose URL has this SHA-256: a KeptSchema

An id is a number or the text of a UUID. Objects of a registry are put once and never change.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from log_tables.errors import ObjectMissing
from log_tables.layout import SCHEMA_FILES, SCHEMAS, schema_directory
from log_tables.limits import SCHEMA_REFERENCES_MAX, SCHEMA_TEXT_MAX_CHARS
from log_tables.schemas.registry import GUID, Reference, Registered, id_text, resolved
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaId, SchemaKind
from log_tables.schemas.source import one_url
from log_tables.store.store import Store, ensure

SUFFIXES = {SchemaKind.AVRO: "avsc", SchemaKind.PROTOBUF: "proto", SchemaKind.JSON: "json"}

_BYTES_MAX = 8 * SCHEMA_TEXT_MAX_CHARS
_IMPORT = re.compile(r'\bimport\s+(?:public\s+|weak\s+)?"([^"\n]{1,1000})"\s*;')
_COMMENT = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_PATH = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)*", re.ASCII)
_OBJECT = re.compile(rf"{SCHEMAS}/[0-9a-f]{{16}}/(?:0|[1-9][0-9]{{0,9}}|{GUID.pattern})\.json")
_WELL_KNOWN = "google/protobuf/"
_Text = Annotated[str, Meta(max_length=SCHEMA_TEXT_MAX_CHARS)]


class KeptSchema(msgspec.Struct, frozen=True):
    """A schema with all that it refers to, as [name, text] each."""

    kind: SchemaKind
    text: _Text
    references: Annotated[list[tuple[str, _Text]], Meta(max_length=SCHEMA_REFERENCES_MAX)] = []


class SchemaFiles:
    """The objects in `schemas/files/`. They may be added at any time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def read(self, schema_id: SchemaId) -> Schema | None:
        """The schema with this id, None without one. Raises StoreUnavailable, InvalidSchema."""
        for kind, suffix in SUFFIXES.items():
            text = self._text(f"{id_text(schema_id)}.{suffix}")
            if text is not None:
                return self._with_imported(text) if kind is SchemaKind.PROTOBUF else Schema(kind, text)
        return None

    def _with_imported(self, text: str) -> Schema:
        """A file of Protobuf with those that it imports, by their paths in the same folder."""

        def imported(path: str, _: int) -> Registered:
            found = self._text(path)
            if found is None:
                raise _missing(path)
            return _importing(path, found)

        return resolved(_importing("", text), imported)

    def _text(self, name: str) -> str | None:
        if not _PATH.fullmatch(name):
            raise _missing(name)
        path = f"{SCHEMA_FILES}/{name}"
        with suppress(ObjectMissing):
            return _decoded(_bounded(self._store, path), path)
        return None


def _missing(path: str) -> InvalidSchema:
    return InvalidSchema(f"it imports {path[:100]!r}, which is not in {SCHEMA_FILES}/")


def _importing(path: str, text: str) -> Registered:
    plain = _COMMENT.sub(lambda found: found[1] or " ", text)
    names = [name for name in _IMPORT.findall(plain) if not name.startswith(_WELL_KNOWN)]
    return Registered(
        path, 1, 0, SchemaKind.PROTOBUF, text, tuple(Reference(name, name, 1) for name in names)
    )


class KeptSchemas:
    """The schemas of one registry that were put under the root."""

    def __init__(self, store: Store, url: str) -> None:
        self._store = store
        self.directory = schema_directory(hashlib.sha256(one_url(url).encode()).hexdigest()[:16])

    def read(self, schema_id: SchemaId) -> Schema | None:
        """The schema with this id, None without one. Raises StoreUnavailable, InvalidSchema."""
        path = self._path(schema_id)
        with suppress(ObjectMissing):
            return kept_schema(_bounded(self._store, path), path)
        return None

    def keep(self, schema_id: SchemaId, schema: Schema) -> Schema:
        """Put `schema` under the root; returns the one that is there, which another process may have put.

        Raises StoreUnavailable, OutcomeUnknown, InvalidSchema.
        """
        kept = KeptSchema(schema.kind, schema.text, [*schema.references])
        if ensure(self._store, self._path(schema_id), msgspec.json.encode(kept)):
            return schema
        return self.read(schema_id) or schema

    def _path(self, schema_id: SchemaId) -> str:
        return f"{self.directory}/{id_text(schema_id)}.json"


def kept_schema(data: bytes, path: str) -> Schema:
    """The schema in an object of a registry. Raises InvalidSchema."""
    try:
        found = msgspec.json.decode(data, type=KeptSchema)
    except (ValueError, RecursionError) as error:
        raise InvalidSchema(
            f"{path} cannot be read ({error}); remove it, or restore it from a backup"
        ) from None
    return Schema(found.kind, found.text, tuple((name, text) for name, text in found.references))


def schema_problems(store: Store) -> Iterator[str]:
    """Each object of a registry that is none. Raises StoreUnavailable."""
    for item in store.list(f"{SCHEMAS}/"):
        if item.path.startswith(f"{SCHEMA_FILES}/"):
            continue
        try:
            if not _OBJECT.fullmatch(item.path):
                yield f"{item.path} is no schema of a registry; put schemas of your own into {SCHEMA_FILES}/"
            else:
                kept_schema(_bounded(store, item.path), item.path)
        except InvalidSchema as invalid:
            yield str(invalid)


def _bounded(store: Store, path: str) -> bytes:
    """Raises ObjectMissing, StoreUnavailable, InvalidSchema."""
    if store.head(path).size > _BYTES_MAX:
        raise InvalidSchema(f"{path} has more than {_BYTES_MAX} bytes")
    return store.get(path)


def _decoded(data: bytes, path: str) -> str:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidSchema(f"{path} is not UTF-8") from None
    if len(text) > SCHEMA_TEXT_MAX_CHARS:
        raise InvalidSchema(f"{path} has more than {SCHEMA_TEXT_MAX_CHARS} characters")
    return text
