"""The reports of processes that do one thing together, and which of these live.

Each overwrites an object of its own in their directory, about every REPORT_S. Others judge by whether the
object changes, never by a time in it. Safety does not rest on any of this, but on the log (docs/FORMAT.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from log_tables.clock import Clock
from log_tables.errors import ObjectMissing
from log_tables.store.objects import ObjectInfo
from log_tables.store.store import Store

REPORT_S = 3.0
"""How often a process reports."""

SILENT_S = 4 * REPORT_S
"""A process whose report did not change for so long does nothing any more."""

SIGN_S = 2 * REPORT_S
"""How long a sign of life is waited for: a process that lives gives one each REPORT_S."""


class Report(Protocol):
    """A process as it reports itself: its name, and the host and the number that it has there."""

    @property
    def process(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def pid(self) -> int: ...


_Report = TypeVar("_Report", bound=Report)

_LOOK_S = 0.25


def put_report(store: Store, directory: str, report: Report) -> None:
    """Overwrite the report of a process. Raises as `Store.put`."""
    store.put(f"{directory}/{report.process}", msgspec.json.encode(report))


def delete_report(store: Store, directory: str, process: str) -> None:
    """Remove the report of a process that has ended. Raises as `Store.delete`."""
    store.delete(f"{directory}/{process}")


def read_report(store: Store, directory: str, process: str, kind: type[_Report]) -> _Report | None:
    """The report of a process; None if it has ended, or is of a version that writes others.

    Raises StoreUnavailable.
    """
    try:
        return msgspec.json.decode(store.get(f"{directory}/{process}"), type=kind)
    except (ObjectMissing, msgspec.MsgspecError):
        return None


@dataclass(slots=True)
class _Seen:
    """The object of a process, when it was first seen so, and whether it has changed before."""

    info: ObjectInfo
    since: float
    changed: bool = False


class ProcessWatch:
    """Which processes of a directory live, as seen from here. Of one thread."""

    def __init__(self, store: Store, clock: Clock, directory: str) -> None:
        self._store, self._clock, self._directory = store, clock, directory
        self._seen: dict[str, _Seen] = {}

    def look(self) -> None:
        """Look for changes. Raises StoreUnavailable."""
        now = self._clock.monotonic()
        found = {each.path.rsplit("/", 1)[-1]: each for each in self._store.list(f"{self._directory}/")}
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

    def reports(self, kind: type[_Report]) -> list[_Report]:
        """The newest reports of the processes that were seen to live. Raises StoreUnavailable."""
        found = (
            read_report(self._store, self._directory, process, kind) for process in self.living(sure=True)
        )
        return [report for report in found if report is not None]


def await_reports(
    clock: Clock, watches: Mapping[str, ProcessWatch], kind: type[_Report], wait_s: float = SIGN_S
) -> dict[str, list[_Report]]:
    """The reports of the processes that live, by the names of `watches`. Waits for a sign of each process
    that has left a report, at most `wait_s`; not at all where there is none. Raises StoreUnavailable.
    """
    waited_s = 0.0
    while True:
        for watch in watches.values():
            watch.look()
        if waited_s >= wait_s or all(watch.living() == watch.living(sure=True) for watch in watches.values()):
            return {name: watch.reports(kind) for name, watch in watches.items()}
        clock.pause(_LOOK_S)
        waited_s += _LOOK_S
