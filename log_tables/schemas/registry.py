"""Registries: schemas under subjects, in versions that refer to others."""

import json
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from log_tables.limits import SCHEMA_DEPTH_MAX, SCHEMA_REFERENCES_MAX, SCHEMA_TEXT_MAX_CHARS
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaId, SchemaKind, Schemas

GUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Reference:
    """A schema refers to a version of a subject, by a name of its own."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Registered:
    """A version of a subject. Its text stands for itself; what it refers to is not in it."""

    subject: str
    version: int
    schema_id: int
    kind: SchemaKind
    text: str
    references: tuple[Reference, ...] = ()
    guid: str | None = None
    deleted: bool = False

    def is_same(self, other: "Registered") -> bool:
        """Whether both are the same schema, under whatever subject, written in whatever way."""
        if self.references != other.references:
            return False
        return (self.kind, self.text) == (other.kind, other.text) or self.has(Schema(other.kind, other.text))

    def has(self, schema: Schema) -> bool:
        """Whether `schema` is this one, written in whatever way."""
        return are_same(Schema(self.kind, self.text), schema)


def id_text(schema_id: SchemaId) -> str:
    """An id as it stands in paths. Raises InvalidSchema for what is none: values may hold any text."""
    if isinstance(schema_id, int) or GUID.fullmatch(schema_id):
        return str(schema_id)
    raise InvalidSchema(f"{schema_id[:100]!r} is neither a number nor the text of a UUID")


def are_same(one: Schema, other: Schema) -> bool:
    """Whether two schemas say the same, besides what they refer to, written in whatever way."""
    return one.kind is other.kind and _plain(one.kind, one.text) == _plain(other.kind, other.text)


def _plain(kind: SchemaKind, text: str) -> object:
    """The text without what means nothing in its language: spaces, and the order of names in JSON."""
    if kind is SchemaKind.PROTOBUF:
        return text.split()
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


@dataclass(slots=True)
class SourceCounts:
    """The outcomes of the look-ups of a source since this process began: asked, found, not there, failed; ids
    that got another schema; records or answers that could not be read.
    """

    asked: int = 0
    found: int = 0
    unknown: int = 0
    failed: int = 0
    changed: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class Reasons:
    """Why ids are not known, of the newest that were asked for, and why the source itself did not answer."""

    by_id: dict[SchemaId, str] = field(default_factory=dict)
    source: str | None = None

    def note(self, schema_id: SchemaId, reason: str, most: int = 1_000) -> None:
        self.by_id.pop(schema_id, None)
        while len(self.by_id) >= most:
            self.by_id.pop(next(iter(self.by_id)))
        self.by_id[schema_id] = reason


class Registry(Schemas):
    """Schemas of a source that also has them under subjects. Thread-safe.

    Those that ask raise LakelogError when the source cannot answer.
    """

    counts: SourceCounts

    @abstractmethod
    def reason(self, schema_id: SchemaId) -> str | None:
        """Why this id is not known, as far as that was found out; None if nobody has asked. No I/O."""

    @abstractmethod
    def subjects(self) -> Sequence[str]:
        """The subjects that have a version, in order."""

    @abstractmethod
    def versions(self, subject: str) -> Sequence[int]:
        """The versions of a subject, in order; none of a subject that does not exist."""

    @abstractmethod
    def registered(self, subject: str, version: int | None = None) -> Registered | None:
        """A version of a subject, the latest if none is named; None if there is no such."""

    @abstractmethod
    def find(self, subject: str, schema: Schema) -> Registered | None:
        """The version of `subject` that is `schema`; None if there is no such."""

    @abstractmethod
    def schema_of(self, registered: Registered) -> Schema:
        """A version with all that it refers to. Raises InvalidSchema."""


def resolved(schema: Registered, find: Callable[[str, int], Registered | None]) -> Schema:
    """`schema` with all that it refers to, which `find` gives by subject and version.

    A name that stands for two versions is the one that is met first, as in Confluent's registry. Raises
    InvalidSchema for what is missing, refers to itself, or is too much.
    """
    found: dict[str, str] = {}

    def follow(references: Sequence[Reference], within: tuple[str, ...]) -> None:
        for reference in references:
            if reference.name in found:
                continue
            _check_bounds(reference, within, found)
            target = find(reference.subject, reference.version)
            if target is None:
                raise InvalidSchema(
                    f"it refers to version {reference.version} of {reference.subject[:100]!r}, which is not "
                    "known"
                )
            follow(target.references, (*within, reference.name))
            found[reference.name] = target.text

    follow(schema.references, ())
    if sum(map(len, found.values())) > SCHEMA_TEXT_MAX_CHARS:
        raise InvalidSchema(f"what it refers to has more than {SCHEMA_TEXT_MAX_CHARS} characters")
    return Schema(schema.kind, schema.text, tuple(found.items()))


def _check_bounds(reference: Reference, within: tuple[str, ...], found: dict[str, str]) -> None:
    if reference.name in within:
        raise InvalidSchema(f"{reference.name[:100]!r} refers to itself")
    if len(within) >= SCHEMA_DEPTH_MAX or len(found) >= SCHEMA_REFERENCES_MAX:
        raise InvalidSchema(
            f"it refers to more than {SCHEMA_REFERENCES_MAX} schemas, or more than {SCHEMA_DEPTH_MAX} deep"
        )
