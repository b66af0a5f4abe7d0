"""The reports of the processes of a mirror, and which of these live.

Each overwrites an object of its own at every look at the source. Others judge by whether the object changes,
never by a time in it. Safety does not rest on any of this, but on the claims (docs/FORMAT.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from log_tables.clock import Clock
from log_tables.errors import ObjectMissing
from log_tables.layout import mirror_directory, mirror_report_path
from log_tables.store.objects import ObjectInfo
from log_tables.store.store import Store

REPORT_S = 3.0
"""How often a process of a mirror looks at its source, and reports."""

SILENT_S = 4 * REPORT_S
"""A process whose report did not change for so long copies nothing any more."""


class SourcePartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition that a process copies, at the last look: the source's first offset, and the one behind its
    last stable record; and for how many seconds the copy has lacked records of the source.
    """

    partition: int
    start: int
    end: int
    behind_s: float = 0.0


class MirrorReport(msgspec.Struct, frozen=True):
    """A process of a mirror at its last look.

    `number` grows with each report. `host` and `pid` are where the process is. `topics` has the partitions
    that it copies. `trouble` says why nothing is copied now; empty while it is. `offsets_behind` is how many
    committed offsets of groups are not here yet as they are at the source.
    """

    process: str
    number: int
    host: str = ""
    pid: int = 0
    topics: dict[str, Sequence[SourcePartition]] = {}
    trouble: str = ""
    offsets_behind: int = 0


def put_report(store: Store, mirror: str, report: MirrorReport) -> None:
    """Overwrite the report of a process. Raises as `Store.put`."""
    store.put(mirror_report_path(mirror, report.process), msgspec.json.encode(report))


def delete_report(store: Store, mirror: str, process: str) -> None:
    """Remove the report of a process that copies nothing any more. Raises as `Store.delete`."""
    store.delete(mirror_report_path(mirror, process))


def read_report(store: Store, mirror: str, process: str) -> MirrorReport | None:
    """The report of a process; None if it has ended, or is of a version that writes others.

    Raises StoreUnavailable.
    """
    try:
        return msgspec.json.decode(store.get(mirror_report_path(mirror, process)), type=MirrorReport)
    except (ObjectMissing, msgspec.MsgspecError):
        return None


@dataclass(slots=True)
class _Seen:
    """The object of a process, when it was first seen so, and whether it has changed before."""

    info: ObjectInfo
    since: float
    changed: bool = False


class MirrorWatch:
    """Which processes of a mirror live, as seen from here. Of one thread."""

    def __init__(self, store: Store, clock: Clock, mirror: str) -> None:
        self._store, self._clock, self._mirror = store, clock, mirror
        self._seen: dict[str, _Seen] = {}

    def look(self) -> None:
        """Look for changes. Raises StoreUnavailable."""
        now, directory = self._clock.monotonic(), mirror_directory(self._mirror)
        found = {each.path.rsplit("/", 1)[-1]: each for each in self._store.list(directory)}
        for process, info in found.items():
            known = self._seen.get(process)
            if known is None or known.info != info:
                self._seen[process] = _Seen(info, now, known is not None)
        for process in self._seen.keys() - found.keys():
            del self._seen[process]

    def living(self, sure: bool = False) -> list[str]:
        """The processes whose object changed lately, by name, and those that are just met. If `sure`, only
        those that were seen to change.
        """
        now = self._clock.monotonic()
        return sorted(
            process
            for process, seen in self._seen.items()
            if now < seen.since + SILENT_S and (seen.changed or not sure)
        )

    def silent(self) -> list[str]:
        """The processes that do not live."""
        return sorted(self._seen.keys() - set(self.living()))
