"""Registries whose schemas are objects under the root: files, and what was kept of a registry."""

import logging
import threading
from abc import abstractmethod
from collections.abc import Iterable, Sequence

from log_tables.clock import Clock
from log_tables.cluster.schema_files import KeptSchemas, SchemaFiles
from log_tables.errors import LakelogError
from log_tables.layout import SCHEMA_FILES
from log_tables.limits import ROOT_LOOK_UPS_BURST, ROOT_LOOK_UPS_PER_S
from log_tables.schemas.look_ups import LookUps
from log_tables.schemas.registry import Reasons, Registered, Registry, SourceCounts
from log_tables.schemas.schema import InvalidSchema, Schema, SchemaId

_log = logging.getLogger(__name__)


class RootRegistry(Registry):
    """Schemas that are read from the root one by one."""

    def __init__(self, source: str, objects: SchemaFiles | KeptSchemas, clock: Clock) -> None:
        self._source, self._objects = source, objects
        self.counts, self._reasons = SourceCounts(), Reasons()
        self._known: dict[SchemaId, Schema] = {}
        self._look_ups = LookUps(clock, ROOT_LOOK_UPS_BURST, ROOT_LOOK_UPS_PER_S)
        self._lock = threading.Lock()

    def known(self, schema_id: SchemaId) -> Schema | None:
        return self._known.get(schema_id)

    def reason(self, schema_id: SchemaId) -> str | None:
        return self._reasons.by_id.get(schema_id) or self._reasons.source

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        with self._lock:  # whoever waits here finds what the one before has read
            for schema_id in self._read(ids):
                self._note_unknown(schema_id, self._missing(schema_id))

    def _read(self, ids: Iterable[SchemaId]) -> list[SchemaId]:
        """Read those of `ids` that are due; returns those of them that are not there."""
        missing = []
        for schema_id in self._look_ups.due(each for each in ids if each not in self._known):
            self.counts.asked += 1
            try:
                found = self._objects.read(schema_id)
            except InvalidSchema as invalid:
                self.counts.unreadable += 1
                self._reasons.note(schema_id, str(invalid))
            except LakelogError as error:
                self.counts.failed += 1
                self._note_failure(str(error))
            else:
                if found is None:
                    missing.append(schema_id)
                else:
                    self._note(schema_id, found)
        return missing

    def _note(self, schema_id: SchemaId, found: Schema) -> None:
        self.counts.found += 1
        self._known[schema_id] = found
        self._reasons.by_id.pop(schema_id, None)

    def _note_unknown(self, schema_id: SchemaId, reason: str) -> None:
        self.counts.unknown += 1
        self._reasons.note(schema_id, reason)

    def _note_failure(self, reason: str) -> None:
        """Note why the source does not answer, and log it once."""
        if self._reasons.source != reason:
            self._reasons.source = reason
            _log.warning("schemas of %s cannot be had: %s", self._source, reason)

    @abstractmethod
    def _missing(self, schema_id: SchemaId) -> str:
        """The reason that an id which is not there has."""


class FilesRegistry(RootRegistry):
    """The files that an operator put under the root. They have no subjects."""

    def _missing(self, schema_id: SchemaId) -> str:
        return f"there is no {SCHEMA_FILES}/{schema_id}.avsc, .proto or .json"

    def subjects(self) -> Sequence[str]:
        return ()

    def versions(self, subject: str) -> Sequence[int]:
        del subject
        return ()

    def registered(self, subject: str, version: int | None = None) -> Registered | None:
        del subject, version
        return None

    def find(self, subject: str, schema: Schema) -> Registered | None:
        del subject, schema
        return None

    def schema_of(self, registered: Registered) -> Schema:
        return Schema(registered.kind, registered.text)
