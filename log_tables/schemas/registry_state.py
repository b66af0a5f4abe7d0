"""A registry after each of its records: subjects with versions, and schemas by id.

An id names one schema for ever: what was read first stays, also when the version is removed, as records that
were written with it stay.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from log_tables.limits import SCHEMAS_MAX, SCHEMAS_TEXT_MAX_CHARS
from log_tables.schemas.registry import Reasons, Registered, SourceCounts, resolved
from log_tables.schemas.registry_record import Removed, SubjectCleared, SubjectDeleted, parse
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaId


class Change(NamedTuple):
    """An id that names one schema was given another."""

    schema_id: SchemaId
    subject: str
    version: int


class RegistryState:
    """A registry, as far as its records were read. Only `known` may be read while another thread reads on."""

    def __init__(self, on_change: Callable[[Change], None] = lambda _: None) -> None:
        self.known: dict[SchemaId, Schema] = {}
        self.subjects: dict[str, dict[int, Registered]] = {}
        self.reasons, self.counts = Reasons(), SourceCounts()
        self._on_change = on_change
        self._first: dict[SchemaId, Registered] = {}
        self._unresolved: dict[SchemaId, Registered] = {}
        self._changed: set[SchemaId] = set()
        self._text_chars = 0

    def is_waiting(self, schema_id: SchemaId) -> bool:
        """Whether this id was read, and something that its schema refers to was not."""
        return schema_id in self._unresolved

    def begin(self) -> None:
        """The records come from their first one on: subjects are as these say."""
        self.subjects = {}

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take the next record. One that no registry has written is counted, and left out."""
        try:
            event = parse(key, value)
        except ValueError:
            self.counts.unreadable += 1
            return
        match event:
            case Registered():
                self._register(event)
            case Removed():
                self.subjects.get(event.subject, {}).pop(event.version, None)
            case SubjectDeleted():
                versions = self.subjects.get(event.subject, {})
                for version in [each for each in versions if each <= event.up_to]:
                    versions[version] = replace(versions[version], deleted=True)
            case SubjectCleared():
                versions = self.subjects.get(event.subject, {})
                for version in [number for number, each in versions.items() if each.deleted]:
                    del versions[version]

    def _register(self, found: Registered) -> None:
        versions = self.subjects.get(found.subject, {})
        before = versions.get(found.version)
        if found.deleted and before is not None and before.schema_id == found.schema_id:
            # Karapace writes the text anew here, in its own way, also of a schema that it has not registered.
            versions[found.version] = replace(before, deleted=True)
            return
        ids = self._ids(found)
        if not all(self._is_first(schema_id, found) for schema_id in ids):
            return
        self.subjects.setdefault(found.subject, {})[found.version] = found

    def _ids(self, found: Registered) -> list[SchemaId]:
        """The ids by which values name `found`: ids of whole numbers are those of the default context."""
        ids: list[SchemaId] = [] if context_of(found.subject) else [found.schema_id]
        return ids if found.guid is None else [*ids, found.guid]

    def _is_first(self, schema_id: SchemaId, found: Registered) -> bool:
        """Whether `found` is what the id names, or may name from now on."""
        first = self._first.get(schema_id)
        if first is None:
            if len(self._first) >= SCHEMAS_MAX or self._text_chars > SCHEMAS_TEXT_MAX_CHARS:
                self.counts.unreadable += 1
                return False
            self._text_chars += len(found.text)
            self._first[schema_id] = self._unresolved[schema_id] = found
            return True
        if first.is_same(found):
            return True
        if schema_id not in self._changed:
            self._changed.add(schema_id)
            self.counts.changed += 1
            self._on_change(Change(schema_id, found.subject, found.version))
        return False

    def resolve(self) -> None:
        """Make schemas of all that was read and has all that it refers to."""
        for schema_id, found in [*self._unresolved.items()]:
            try:
                self.known[schema_id] = self.schema_of(found)
            except InvalidSchema as invalid:
                self.reasons.note(schema_id, str(invalid))
            else:
                del self._unresolved[schema_id]
                self.reasons.by_id.pop(schema_id, None)

    def schema_of(self, found: Registered) -> Schema:
        """`found` with all that it refers to. Raises InvalidSchema."""
        context = context_of(found.subject)

        def version(subject: str, number: int) -> Registered | None:
            within = self.subjects.get(f":{context}:{subject}" if context else subject, {})
            return within.get(number) or self.subjects.get(subject, {}).get(number)

        return resolved(found, version)


def context_of(subject: str) -> str:
    """The context in a subject `:.context:name`; "" for the default one."""
    if not subject.startswith(":."):
        return ""
    context = subject[1:].partition(":")[0]
    return "" if context == "." else context
