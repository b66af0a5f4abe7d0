"""Schemas of values, by the ids that a registry gave them.

An id is a whole number, or the text of a UUID, which Confluent's registry calls a GUID. What it names never
changes.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from log_tables.limits import WANTED_SCHEMAS_MAX

SchemaId = int | str


class SchemaKind(StrEnum):
    """The languages of schemas, by the names that registries have for them (`schemaType`)."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as its `text`, with all that it refers to: (name, text) of each, after those that it needs."""

    kind: SchemaKind
    text: str
    references: tuple[tuple[str, str], ...] = ()


def guid(data: bytes) -> str:
    """The text of the UUID in 16 bytes."""
    digits = data.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


class InvalidSchema(Exception):
    """A schema cannot be read, or is of no use here; the message says why."""


class Undecodable(Exception):
    """A value is not what its schema says. `path` leads to the field that is wrong, from the outermost on."""

    def __init__(self, reason: str, path: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.reason, self.path = reason, path

    def within(self, name: str) -> "Undecodable":
        """This error in the field `name` of what is around it."""
        return Undecodable(self.reason, (name, *self.path))

    def __str__(self) -> str:
        return f"/{'/'.join(self.path)} {self.reason}" if self.path else f"the value {self.reason}"


class Unencodable(Undecodable):
    """Some JSON is no value of a schema; `path` leads to the field."""


class Schemas(ABC):
    """Where schemas are found by their ids. Thread-safe."""

    @abstractmethod
    def known(self, schema_id: SchemaId) -> Schema | None:
        """The schema with this id, if it is known here; no I/O."""

    @abstractmethod
    def look_up(self, ids: Iterable[SchemaId]) -> None:
        """Ask for schemas that are not known, at a bounded rate. Blocking; what cannot be found out now stays
        unknown, and nothing is raised.
        """

    def reason(self, schema_id: SchemaId) -> str | None:
        """Why this id is not known, as far as that was found out; None if nobody has asked. No I/O."""
        del schema_id
        return None


@dataclass(frozen=True)
class KnownSchemas(Schemas):
    """Schemas that are all known from the beginning."""

    by_id: Mapping[SchemaId, Schema] = field(default_factory=dict)

    def known(self, schema_id: SchemaId) -> Schema | None:
        return self.by_id.get(schema_id)

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        del ids


class NotedSchemas(Schemas):
    """`found`, of which is noted what was asked for in vain, so that it can be looked up before a refusal."""

    def __init__(self, found: Schemas) -> None:
        self._found = found
        self._wanted: dict[SchemaId, None] = {}
        self.version = 0
        """It grows when a schema that was looked up is known."""

    def known(self, schema_id: SchemaId) -> Schema | None:
        schema = self._found.known(schema_id)
        if schema is None and len(self._wanted) < WANTED_SCHEMAS_MAX:
            self._wanted[schema_id] = None
        return schema

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        asked = [*ids]
        self._found.look_up(asked)
        for schema_id in asked:
            self._wanted.pop(schema_id, None)
            self.version += self._found.known(schema_id) is not None

    def reason(self, schema_id: SchemaId) -> str | None:
        return self._found.reason(schema_id)

    def wanted(self) -> list[SchemaId]:
        """Ids that `known` was asked for in vain since they were looked up; WANTED_SCHEMAS_MAX at most."""
        return [*self._wanted]


NO_SCHEMAS = KnownSchemas()


class SchemaLocation(ABC):
    """Where a task in another process finds schemas; it can be pickled."""

    @abstractmethod
    def open(self) -> Schemas:
        """The schemas that are there. Raises StoreUnavailable."""


@dataclass(frozen=True, slots=True)
class _Nowhere(SchemaLocation):
    def open(self) -> Schemas:
        return NO_SCHEMAS


NOWHERE = _Nowhere()
