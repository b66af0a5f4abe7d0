"""The standbys of this root, as the processes that replicate to them report."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from log_tables.clock import Clock
from log_tables.cluster.process_report import SILENT_S, ProcessWatch
from log_tables.cluster.standby_report import StandbyReport
from log_tables.layout import STANDBYS
from log_tables.store.store import Store

_LOOK_S = 15.0
"""How often it is looked for standbys where there was none."""

_STAGED_KEPT_S = 10.0
"""How long the staged files of a transaction stay that is applied, where a standby follows: the decision is a
whole moment there only with the files, or with all of their records.
"""


@dataclass(frozen=True, slots=True)
class SeenStandby:
    """A standby and its processes that live. One of which none does is not known: it may be far behind."""

    target: str
    processes: Sequence[StandbyReport]

    @property
    def is_level(self) -> bool:
        """Whether it is of one moment."""
        return bool(self.processes) and all(each.is_level for each in self.processes)

    @property
    def lag_s(self) -> float:
        """The age of the moment as of which it has everything, seconds."""
        return max((each.lag_s for each in self.processes), default=math.nan)

    @property
    def commits(self) -> int:
        return sum(each.commits for each in self.processes)

    @property
    def records(self) -> int:
        return sum(each.records for each in self.processes)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.processes)

    @property
    def trouble(self) -> str:
        """The trouble that keeps it, as one of its processes says; empty if nothing does."""
        return next((each.trouble for each in self.processes if each.trouble), "")


class StandbyReports:
    """The standbys that a gateway knows of. `follow` is called from one thread, `seen` from any."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._watches: dict[str, ProcessWatch] = {}
        self._targets: dict[str, str] = {}
        self._found: Sequence[SeenStandby] = ()
        self._looked_s = self._next_s = -math.inf

    def follow(self) -> None:
        """Look at the reports. Raises StoreUnavailable."""
        now = self._clock.monotonic()
        if not self._watches and now < self._next_s:
            return
        self._next_s = now + _LOOK_S
        there = [each.rstrip("/") for each in self._store.list_dirs(f"{STANDBYS}/")]
        self._watches = {
            each: self._watches.get(each) or ProcessWatch(self._store, self._clock, each) for each in there
        }
        self._found = [*self._look()]
        self._looked_s = now

    def _look(self) -> Iterator[SeenStandby]:
        for directory, watch in self._watches.items():
            watch.look()
            reports = watch.reports(StandbyReport)
            for report in reports:
                self._targets[directory] = report.target
            yield SeenStandby(self._targets.get(directory, directory), reports)

    def seen(self) -> Sequence[SeenStandby]:
        """The standbys as last seen; none if that was long ago."""
        return self._found if self._clock.monotonic() < self._looked_s + SILENT_S + _LOOK_S else ()

    @property
    def is_any(self) -> bool:
        """Whether a process replicates this root."""
        return any(each.processes for each in self.seen())

    def keep_staged_s(self) -> float:
        """How long staged files stay for standbys once they are applied, seconds."""
        return _STAGED_KEPT_S if self.is_any else 0.0
