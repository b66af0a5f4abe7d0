"""The records in which Confluent's registry and Karapace keep their schemas: JSON keys and JSON values.

A key has a `keytype`. SCHEMA is a version of a subject, soft-deleted or not; its tombstone removes it, and so
does the empty value that Karapace writes. DELETE_SUBJECT soft-deletes all versions up to one, CLEAR_SUBJECT
removes what is soft-deleted. CONFIG, MODE, CONTEXT and NOOP say nothing about schemas.
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from log_tables.limits import SCHEMA_REFERENCES_MAX, SCHEMA_TEXT_MAX_CHARS
from log_tables.schemas.registry import Reference, Registered
from log_tables.schemas.schema import SchemaKind

_Name = Annotated[str, Meta(max_length=10_000)]
_Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_Id = Annotated[int, Meta(ge=0, le=2**32 - 1)]


@dataclass(frozen=True, slots=True)
class Removed:
    """A version is gone."""

    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SubjectDeleted:
    """All versions of a subject up to this one are soft-deleted."""

    subject: str
    up_to: int


@dataclass(frozen=True, slots=True)
class SubjectCleared:
    """All soft-deleted versions of a subject are gone."""

    subject: str


RegistryEvent = Registered | Removed | SubjectDeleted | SubjectCleared


class ReferenceRecord(msgspec.Struct, frozen=True):
    """A reference, in records and in answers of HTTP."""

    name: _Name
    subject: _Name
    version: _Version


class _Key(msgspec.Struct, frozen=True):
    keytype: str
    subject: _Name | None = None
    version: int | None = None


class _Value(msgspec.Struct, frozen=True):
    subject: _Name
    version: _Version
    id: _Id
    schema: Annotated[str, Meta(max_length=SCHEMA_TEXT_MAX_CHARS)]
    schema_type: str | None = msgspec.field(default=None, name="schemaType")
    references: Annotated[list[ReferenceRecord], Meta(max_length=SCHEMA_REFERENCES_MAX)] | None = None
    guid: str | None = None
    deleted: bool = False


class _Deletion(msgspec.Struct, frozen=True):
    subject: _Name
    version: int


def parse(key: bytes | None, value: bytes | None) -> RegistryEvent | None:
    """The event that a record of a registry is; None for one that says nothing about schemas.

    Raises ValueError for one that no registry has written.
    """
    try:
        return _parse(msgspec.json.decode(key or b"", type=_Key), value)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _parse(key: _Key, value: bytes | None) -> RegistryEvent | None:
    match key.keytype:
        case "SCHEMA":
            if key.subject is None or key.version is None:
                raise ValueError("its key names no version of a subject")
            return _version(key, value) if value else Removed(key.subject, key.version)
        case "DELETE_SUBJECT" if value is not None:
            found = msgspec.json.decode(value, type=_Deletion)
            return SubjectDeleted(found.subject, found.version)
        case "CLEAR_SUBJECT" if key.subject is not None:
            return SubjectCleared(key.subject)
    return None


def _version(key: _Key, value: bytes) -> Registered:
    found = msgspec.json.decode(value, type=_Value)
    if (found.subject, found.version) != (key.subject, key.version):
        raise ValueError("its value is that of another key")
    return Registered(
        found.subject,
        found.version,
        found.id,
        SchemaKind(found.schema_type or SchemaKind.AVRO),
        found.schema,
        references_of(found.references),
        None if found.guid is None else found.guid.lower(),
        found.deleted,
    )


def references_of(found: list[ReferenceRecord] | None) -> tuple[Reference, ...]:
    """References as records and answers have them."""
    return tuple(Reference(each.name, each.subject, each.version) for each in found or ())
