"""A process that replicates: it reports what it does, and shares the tables with others that do so, too."""

import logging
import threading
from collections.abc import Callable

from jobs.processes import Processes
from jobs.replica.replicator import Figures, Replicator
from log_tables.clock import Clock
from log_tables.cluster.busy_tables import BusyWatch
from log_tables.cluster.process_report import REPORT_S
from log_tables.cluster.standby import read_mark
from log_tables.cluster.standby_report import StandbyReport
from log_tables.errors import Conflict, LakelogError, OutcomeUnknown, Retriable
from log_tables.layout import standby_directory
from log_tables.store.store import Store

_log = logging.getLogger(__name__)

_LOOK_S = 1.0
"""How often gateways are asked which tables are busy."""


class Replication:
    """The replication from `source` to `target` by this process."""

    def __init__(self, source: Store, target: Store, clock: Clock, with_credentials: bool = False) -> None:
        self._source, self._target, self._clock = source, target, clock
        directory = standby_directory(target.url)
        self._processes = Processes(source, clock, directory, f"{target.url} is replicated to")
        self._replicator = Replicator(source, target, clock, with_credentials, self._processes.owns)
        self._number = 0

    def run(self, stopping: threading.Event, level: Callable[[Figures], None] = lambda _: None) -> None:
        """Replicate until `stopping` is set. `level` is called after each round in which the standby has all
        that was seen and is of one moment. Raises as `Replicator.run`.
        """
        self._report()  # the others make room
        self._processes.look()
        ended = threading.Event()
        reporting = threading.Thread(target=self._keep_reporting, args=(ended,), name="standby-report")
        reporting.start()
        try:
            self._replicator.run(stopping, level)
        finally:
            ended.set()
            reporting.join()
            self._processes.close()

    def _keep_reporting(self, ended: threading.Event) -> None:
        said, busy, reported_s = "", BusyWatch(self._source), self._clock.monotonic()
        while not ended.wait(_LOOK_S):
            try:
                if self._replicator.is_paid:
                    self._replicator.note_busy(busy.look())
                if self._clock.monotonic() < reported_s + REPORT_S:
                    continue
                reported_s = self._clock.monotonic()
                self._replicator.check_source()
                self._check_standby()
                self._processes.look()
                self._report()
                said = ""
            except (Retriable, OutcomeUnknown) as error:
                if str(error) != said:
                    _log.warning("replication is not reported now: %s", error)
                said = str(error)
            except LakelogError as error:
                self._replicator.end(error)
                return

    def _check_standby(self) -> None:
        """Raise Conflict when the standby was promoted, or is gone: a quiet root would not show it."""
        mark = read_mark(self._target)
        if mark is None and not any(True for _ in self._target.list("")):
            raise Conflict(
                f"the standby at {self._target.url} is gone; run `lakelog replicate` again to begin a new one"
            )
        if mark is None or mark.is_promoted:
            raise Conflict("the standby was promoted; nothing is replicated to it any more")
        self._replicator.note_mark(mark)

    def _report(self) -> None:
        now, at = self._replicator.figures, self._processes
        self._number += 1
        at.report(
            StandbyReport(
                at.process,
                self._number,
                self._target.url,
                at.host,
                at.pid,
                now.is_level,
                round(now.lag_s, 3),
                now.commits,
                now.records,
                now.bytes,
                now.tables,
                now.put_bytes,
                now.trouble,
            )
        )
