"""Objects of a root that belong to no table: its schemas, and audit events that wait to be appended.

Each of those events is in the tables, or in its object, or both; then the tables know the stamp by which it
is not appended again. So an object goes from the standby once its tables are as new as the moment at which it
was gone.
"""

import logging
import math
from contextlib import suppress

from jobs.replica.carrier import Carrier
from jobs.replica.tables import Standing
from jobs.replica.work import Work
from log_tables.clock import Clock
from log_tables.cluster.admin.audit_spill import spilled
from log_tables.errors import LakelogError, ObjectMissing
from log_tables.layout import METADATA_DIRECTORY
from log_tables.limits import LOG_RETENTION_MS
from log_tables.store.store import Store, requests_are_paid

_log = logging.getLogger(__name__)

_PAID_PAUSE_S, _FAILED_S = 0.25, 1.0
"""The least time between two looks at the schemas, where requests are paid, and after an error."""

_PAID_SPILLS_S = 2.0
"""The least time between two looks at audit events that wait, where requests are paid."""

_OTHERS_S = LOG_RETENTION_MS / 1000
"""How long objects stay where other processes copy tables: this one does not know how new these are."""


class SchemaFiles:
    """Brings the schemas over for which commits wait, for all of them at once. Of one thread, whose tasks
    others do.
    """

    def __init__(self, carrier: Carrier, clock: Clock, standing: Standing, work: Work) -> None:
        self._carrier, self._clock, self._standing, self._work = carrier, clock, standing, work
        self._pause_s = _PAID_PAUSE_S if requests_are_paid(carrier.source.url) else 0.0
        self._is_looking, self._due_s = False, -math.inf
        self.trouble = ""

    def look(self) -> None:
        """Begin to look for new ones, if they are wanted and it is time."""
        now = self._clock.monotonic()
        if not self._standing.wants_schemas or self._is_looking or now < self._due_s:
            return
        self._is_looking, self._standing.wants_schemas = True, False
        self._due_s = now + self._pause_s
        log = self._standing.tables[METADATA_DIRECTORY]
        self._work.submit(log, self._follow, lambda _, trouble: self._followed(now, trouble))

    def wait_s(self, most_s: float) -> float:
        """The time until the next look, at most `most_s`."""
        if not self._standing.wants_schemas or self._is_looking:
            return most_s
        return min(most_s, max(0.0, self._due_s - self._clock.monotonic()))

    def _follow(self) -> str:
        """Returns the error of a store; empty without one."""
        try:
            self._carrier.copy_schemas()
        except LakelogError as error:
            return f"schemas: {error}"
        return ""

    def _followed(self, began_s: float, trouble: str) -> None:
        self._is_looking = False
        if trouble and trouble != self.trouble:
            _log.warning("not replicated now: %s", trouble)
        self.trouble = trouble
        if trouble:
            self._due_s = self._clock.monotonic() + _FAILED_S
        else:
            self._standing.schemas_s = began_s


class Spills:
    """Lets audit events that wait in `target` follow those in `source`. Others do the tasks of its thread."""

    def __init__(self, source: Store, target: Store, clock: Clock, standing: Standing, work: Work) -> None:
        self._source, self._target, self._clock = source, target, clock
        self._standing, self._work = standing, work
        self._is_looking, self._due_s = False, -math.inf
        self._pause_s = _PAID_SPILLS_S if requests_are_paid(source.url) else 0.0
        self._here: set[str] | None = None
        self._gone: dict[str, float] = {}
        self.level_s = -math.inf
        """The time as of which the standby has all of them."""
        self.trouble = ""

    def look(self, as_of_s: float) -> None:
        """Begin to look for new ones, and for those that are gone. The tables that this process copies are as
        of `as_of_s`.
        """
        if self._is_looking or self._clock.monotonic() < self._due_s:
            return
        self._due_s = self._clock.monotonic() + self._pause_s
        others = any(copy.is_others and not copy.is_gone for copy in self._standing.tables.values())
        most_s = as_of_s if not others else min(as_of_s, self._clock.monotonic() - _OTHERS_S)
        left = [path for path, gone_s in self._gone.items() if gone_s <= most_s]
        began_s, self._is_looking = self._clock.monotonic(), True
        log = self._standing.tables[METADATA_DIRECTORY]
        self._work.submit(log, lambda: self._follow(left), lambda _, there: self._followed(began_s, there))

    def _follow(self, left: list[str]) -> tuple[set[str], set[str]] | str:
        """Bring new ones over, and remove those that are `left`; returns those of the original and those of
        the standby, or the error of a store.
        """
        try:
            here = {item.path for item in spilled(self._target)} if self._here is None else {*self._here}
            there = {item.path for item in spilled(self._source)}
            for path in sorted(there - here):
                with suppress(ObjectMissing):  # it has just been appended
                    self._target.put(path, self._source.get(path))
                    here.add(path)
            gone = [path for path in left if path not in there]
            if gone:
                self._target.delete_objects(gone)
        except LakelogError as error:
            return str(error)
        return there, here.difference(gone)

    def _followed(self, began_s: float, found: tuple[set[str], set[str]] | str) -> None:
        self._is_looking = False
        if isinstance(found, str):
            if found != self.trouble:
                _log.warning("audit events that wait are not replicated now: %s", found)
            self.trouble, self._here = found, None
            return
        there, self._here = found
        self._gone = {path: self._gone.get(path, began_s) for path in self._here - there}
        self.trouble, self.level_s = "", began_s
