"""A topic in which a registry keeps its schemas, in the form of Confluent's and Karapace's."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

from log_tables.clock import Clock
from log_tables.cluster.keyed_log import FollowedLog
from log_tables.errors import LakelogError
from log_tables.partition.reader import PartitionReader
from log_tables.record import Record
from log_tables.schemas.look_ups import LookUps
from log_tables.schemas.registry import Registered, Registry
from log_tables.schemas.registry_state import Change, RegistryState
from log_tables.schemas.schema import Schema, SchemaId

_log = logging.getLogger(__name__)

Follow = Callable[[Callable[[PartitionReader], None]], None]
"""Calls what it is given with the partition of the topic as it is now. Raises LakelogError."""


class _RegistryLog(FollowedLog):
    """The partition of one incarnation of the topic. Whoever reads `state` meanwhile holds the lock of it."""

    def __init__(self, partition: PartitionReader, state: RegistryState) -> None:
        super().__init__(partition)
        self._state, self._log_start = state, partition.log_start

    def refresh(self, wait: bool = False) -> None:
        super().refresh(wait)
        with self._lock:
            if self._log_start == self.partition.log_start:
                return
            # Records were deleted: subjects are as those that are left say, here as in a process that starts.
            self._log_start, self._next = self.partition.log_start, 0
        super().refresh(wait)

    def _begin(self) -> None:
        self._state.begin()

    def _read(self, record: Record) -> None:
        self._state.read(record.key, record.value)

    def _publish(self) -> None:
        self._state.resolve()


class TopicRegistry(Registry):
    """The registry that keeps its schemas in a topic. It is read at most as often as LookUps has it."""

    def __init__(self, name: str, follow: Follow, clock: Clock) -> None:
        self._name, self._follow = name, follow
        self._state = RegistryState(self._note_change)
        self.counts = self._state.counts
        self._look_ups = LookUps(clock)
        self._lock = threading.Lock()
        self._log: _RegistryLog | None = None

    def known(self, schema_id: SchemaId) -> Schema | None:
        return self._state.known.get(schema_id)

    def reason(self, schema_id: SchemaId) -> str | None:
        reasons = self._state.reasons
        return reasons.by_id.get(schema_id) or reasons.source

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        with self._lock:  # whoever waits here finds what the one before has read
            due = self._look_ups.due([each for each in ids if self.known(each) is None], together=True)
            if not due:
                return
            self.counts.asked += 1
            try:
                self._refresh()
            except LakelogError as error:
                self._note_failure(str(error))
                return
            self._judge(due)

    def _judge(self, ids: Sequence[SchemaId]) -> None:
        missing = [each for each in ids if self.known(each) is None]
        self.counts.found += len(ids) - len(missing)
        self.counts.unknown += len(missing)
        for each in missing:
            if not self._state.is_waiting(each):
                self._state.reasons.note(each, f"topic {self._name} has no schema {each}")

    def _refresh(self) -> None:
        """Raises LakelogError."""
        self._follow(self._read)
        self._state.reasons.source = None

    def _read(self, partition: PartitionReader) -> None:
        if self._log is None or self._log.partition is not partition:
            self._state.begin()  # the topic was made again, maybe without a record
            self._log = _RegistryLog(partition, self._state)
        self._log.refresh()

    def _note_failure(self, reason: str) -> None:
        self.counts.failed += 1
        if self._state.reasons.source != reason:
            self._state.reasons.source = reason
            _log.warning("schemas of topic %s cannot be read: %s", self._name, reason)

    def _note_change(self, change: Change) -> None:
        _log.warning(
            "topic %s gives the id %s, which names another schema, to version %d of %r; the first one "
            "counts: see whether somebody else writes to the topic",
            *(self._name, change.schema_id, change.version, change.subject[:100]),
        )

    def subjects(self) -> Sequence[str]:
        with self._lock:
            self._refresh()
            found = self._state.subjects
            return sorted(name for name, versions in found.items() if _live(versions))

    def versions(self, subject: str) -> Sequence[int]:
        with self._lock:
            self._refresh()
            return _live(self._state.subjects.get(subject, {}))

    def registered(self, subject: str, version: int | None = None) -> Registered | None:
        with self._lock:
            self._refresh()
            versions = self._state.subjects.get(subject, {})
            live = _live(versions)
            number = version if version is not None else next(reversed(live), 0)
            return versions[number] if number in live else None

    def find(self, subject: str, schema: Schema) -> Registered | None:
        with self._lock:
            self._refresh()
            versions = self._state.subjects.get(subject, {})
            live = [versions[number] for number in reversed(_live(versions))]
        return next((each for each in live if each.has(schema)), None)

    def schema_of(self, registered: Registered) -> Schema:
        with self._lock:
            return self._state.schema_of(registered)


def _live(versions: Mapping[int, Registered]) -> list[int]:
    """The versions that are not soft-deleted, in order."""
    return sorted(number for number, each in versions.items() if not each.deleted)
