"""Files of tables, and topics as a whole, go from the standby once the original has removed them.

No clock of this machine says when. A topic goes by the record of the original that says so. A file goes if
the original has it no longer, and it is old by the standby's own store, which has stamped it. Those of a
deleted topic stay until all of it goes: it may come back here, too, once the standby is promoted.
"""

import math
from functools import partial

from jobs.replica.carrier import Carrier
from jobs.replica.tables import Kind, Standing, TableCopy
from jobs.replica.work import Work
from log_tables.clock import Clock
from log_tables.layout import METADATA_DIRECTORY
from log_tables.limits import FILE_RETENTION_MS, REPLACED_FILE_RETENTION_MS
from log_tables.store.store import requests_are_paid

_PAID_PAUSE_S = 10.0
"""The least time between two tables whose files are compared, where requests are paid: each takes five."""

_CLEAN_S, _QUIET_CLEAN_S = REPLACED_FILE_RETENTION_MS / 1000, FILE_RETENTION_MS / 1000
"""How often the files of a table are compared that has removed some, and of any other: the original deletes
them hours or days after it has removed them.
"""

_OF_NO_TOPIC = (Kind.METADATA, Kind.CREDENTIALS)


class Cleaning:
    """Removes from the standby what the original has removed. Of one thread, whose tasks others do."""

    def __init__(self, carrier: Carrier, clock: Clock, standing: Standing, work: Work) -> None:
        self._carrier, self._clock, self._standing, self._work = carrier, clock, standing, work
        self._pause_s = _PAID_PAUSE_S if requests_are_paid(carrier.source.url) else 0.0
        self._due_s = -math.inf
        self._may_be_left = True

    def expect_left(self) -> None:
        """The standby may have topics left whose removal was missed: a process has died before it, or has
        failed, or the record that says so came with a checkpoint.
        """
        self._may_be_left = True

    def drop(self, directory: str) -> None:
        """Forget a topic whose files the original has removed, and remove those of the standby."""
        self.forget(directory)
        metadata = self._standing.tables[METADATA_DIRECTORY]
        self._work.submit(metadata, partial(self._carrier.remove, directory), self._removed)

    def forget(self, directory: str) -> None:
        """Forget a topic whose files the original has removed."""
        for table in [*self._standing.tables]:
            if table == directory or table.startswith(f"{directory}/"):
                self._standing.tables.pop(table).is_gone = True

    def _removed(self, _: TableCopy, is_done: bool) -> None:
        if not is_done:
            self.expect_left()

    def look(self) -> None:
        """Look for what is due. To be called about once a second."""
        self._look_for_left()
        now = self._clock.monotonic()
        if now >= self._due_s:
            self._clean_one(now)

    def _look_for_left(self) -> None:
        """Look for topics that neither the original has, nor the metadata log of the standby names."""
        metadata = self._standing.tables[METADATA_DIRECTORY]
        if self._may_be_left and not (metadata.is_others or metadata.is_to_begin or metadata.waiting):
            self._may_be_left = False
            look = partial(self._carrier.left_over, self._standing.topics.directories())
            self._work.submit(metadata, look, self._found_left)

    def _found_left(self, _: TableCopy, left: set[str] | None) -> None:
        if left is None:
            self.expect_left()
        for directory in left or ():
            self.drop(directory)

    def _clean_one(self, now: float) -> None:
        """Compare the files of one table with the original's, if it is due."""
        live = {*self._standing.topics.places.values()}
        due = (
            copy
            for copy in self._standing.tables.values()
            if now >= copy.cleaned_s + (_CLEAN_S if copy.has_removed else _QUIET_CLEAN_S)
            and (copy.directory in live or copy.kind in _OF_NO_TOPIC)
            and not (copy.is_to_begin or copy.is_gone or copy.waiting or copy.is_tidying or copy.is_others)
        )
        copy = min(due, key=lambda each: each.cleaned_s, default=None)
        if copy is not None:
            self._due_s = now + self._pause_s
            copy.is_tidying, copy.has_removed, copy.cleaned_s = True, False, now
            self._work.submit(copy, partial(self._carrier.clean, copy), self._cleaned)

    def _cleaned(self, copy: TableCopy, is_done: bool) -> None:
        copy.is_tidying, copy.has_removed = False, copy.has_removed or not is_done
