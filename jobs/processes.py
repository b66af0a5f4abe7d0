"""The processes that share a work, without a word to one another.

Each reports itself in the store, and sees which others live. From their names all compute alike who does a
part: the process whose hash with it is the greatest (Thaler and Ravishankar, "Using name-based mappings to
increase hit rates", 1998), so one that comes or goes moves only what it takes or had. While they do not
agree yet, the log decides: of two commits of a version one is put.
"""

import contextlib
import logging
import os
import socket

import mmh3
import msgspec

from log_tables.clock import Clock
from log_tables.cluster.process_report import ProcessWatch, Report, delete_report, put_report, read_report
from log_tables.errors import LakelogError
from log_tables.store.store import Store

_log = logging.getLogger(__name__)

_FORGOTTEN_S = 3600.0
"""The report of a process that was silent for so long is removed."""


class _Place(msgspec.Struct, frozen=True):
    """Where a process is, as any report has it."""

    process: str = ""
    host: str = ""
    pid: int = 0


class Processes:
    """This process among those that report in `directory`. `what` they do is for the log. Of one thread;
    blocking.
    """

    def __init__(self, store: Store, clock: Clock, directory: str, what: str) -> None:
        self._store, self._clock, self._directory, self._what = store, clock, directory, what
        self.process, self.host, self.pid = clock.unique_id(), socket.gethostname(), os.getpid()
        self._watch = ProcessWatch(store, clock, directory)
        self._met: set[str] = set()
        self._gone: set[str] = set()
        self._silent: dict[str, float] = {}
        self._living = [self.process]

    def look(self) -> None:
        """See which processes live. Raises StoreUnavailable, and as `Store.delete`."""
        self._watch.look()
        self._gone &= {*self._watch.living()} - {*self._watch.living(sure=True)}
        for process in self._watch.living():
            if process != self.process and process not in self._met:
                self._met.add(process)
                if self._is_gone(process):
                    self._gone.add(process)
        others = set(self._watch.living()) - self._gone - {self.process}
        living = sorted({self.process, *others})
        if living != self._living:
            _log.info("%s by %s processes", self._what, len(living))
        self._living = living
        self._forget()

    def _is_gone(self, process: str) -> bool:
        """Whether it was killed on this machine: there its number is free."""
        found = read_report(self._store, self._directory, process, _Place)
        if found is None:
            return True
        if found.host != self.host or found.pid <= 0:
            return False
        try:
            os.kill(found.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return False

    def _forget(self) -> None:
        """Remove the reports of processes that are silent for long."""
        now, silent = self._clock.monotonic(), {*self._watch.silent(), *self._gone}
        self._silent = {process: self._silent.get(process, now) for process in silent}
        for process, since in self._silent.items():
            if now >= since + _FORGOTTEN_S:
                delete_report(self._store, self._directory, process)

    def owns(self, part: str) -> bool:
        """Whether this process is to do the part that is called so. Of any thread."""
        living = self._living
        if len(living) == 1:
            return True
        return self.process == max(living, key=lambda each: (_weight(each, part), each))

    def report(self, said: Report) -> None:
        """Overwrite the report of this process. Raises as `Store.put`."""
        put_report(self._store, self._directory, said)

    def close(self) -> None:
        """Say that this process does nothing any more, if the store can be told."""
        with contextlib.suppress(LakelogError):
            delete_report(self._store, self._directory, self.process)


def _weight(process: str, part: str) -> int:
    found: int = mmh3.hash64(f"{process}/{part}", signed=False)[0]
    return found
