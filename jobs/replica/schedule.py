"""When which table is looked at: soon after news, and less and less often while there is none."""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import count
from math import ceil

from jobs.replica.tables import Kind, Standing, TableCopy
from log_tables.clock import Clock

PAUSE_S, _PAID_PAUSE_S = 0.15, 0.25
_PAUSE_GROWS = 1.5
QUIET_S = 1.0
"""The pauses between two looks at a table: after news, also where requests are paid, how they grow without
news, and the longest."""

_TICK_S = 0.05
"""Where requests cost nothing, looks begin at multiples of it, so that a thread does many in turn."""

LOOKS_IN_TURN = 8
"""The most looks that a thread does in turn: a large file that one brings over holds up the others."""

_QUIET_LOOKS_S, _QUIET_PAID_LOOKS_S = 400, 4
"""The most looks a second at tables that are quiet, where requests cost nothing and where they do."""

_ALWAYS_BUSY = (Kind.METADATA, Kind.CREDENTIALS)
"""Tables that gateways do not name."""

_SPREAD = (5**0.5 - 1) / 2
"""Its multiples, less what is whole, are spread evenly between 0 and 1, however many there are."""


class Schedule:
    """The order in which the tables of `standing` are looked at. Of one thread, but for `note_busy`."""

    def __init__(self, standing: Standing, clock: Clock, is_paid: bool) -> None:
        """`is_paid`: whether requests to the original are paid."""
        self._standing, self._clock, self.is_paid = standing, clock, is_paid
        self._due = list[tuple[float, int, TableCopy]]()
        self._order = count()
        self._pause_s = _PAID_PAUSE_S if is_paid else PAUSE_S
        self._busy: Collection[str] = ()
        self._newly_busy = deque[str]()

    def plan(self, copy: TableCopy, pause_s: float) -> None:
        """Look at a table after a pause, and not before."""
        due_s = self._clock.monotonic() + pause_s
        copy.due_s = due_s if self.is_paid or not pause_s else ceil(due_s / _TICK_S) * _TICK_S
        heapq.heappush(self._due, (copy.due_s, next(self._order), copy))

    def want(self, copy: TableCopy) -> None:
        """Look at a table at once: it is new, or a commit of another one rests on it."""
        copy.is_wanted = True
        if not copy.is_looking and not copy.is_held and copy.due_s > self._clock.monotonic():
            self.plan(copy, 0.0)

    def plan_after(self, copy: TableCopy, is_news: bool, is_more: bool) -> None:
        """Plan the next look at a table after one that has found commits, or not, of which there may be more.

        A bucket's table without news since the beginning is quiet; their looks are spread over the time.
        """
        if is_news:
            copy.pause_s = self._pause_s
            self.plan(copy, 0.0 if is_more else self._pause_s)
        elif self.is_paid and not copy.pause_s:
            copy.pause_s = self._quiet_s(copy)
            self.plan(copy, copy.pause_s * (next(self._order) * _SPREAD % 1))
        else:
            copy.pause_s = min(max(self._pause_s, copy.pause_s * _PAUSE_GROWS), self._quiet_s(copy))
            self.plan(copy, copy.pause_s)

    def due(self, has_room: Callable[[], bool]) -> Iterator[TableCopy]:
        """The tables whose time has come, each of which has to be planned anew, while there is room for
        them.
        """
        while self._newly_busy:
            copy = self._standing.tables.get(self._newly_busy.pop())
            if copy is not None:
                self.want(copy)
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now and has_room():
            due_s, _, copy = heapq.heappop(self._due)
            if due_s == copy.due_s and not copy.is_looking and not copy.is_gone:  # else it was planned anew
                copy.is_held = False
                yield copy

    def wait_s(self, most_s: float) -> float:
        """The time until the next look, at most `most_s`."""
        return min(self._due[0][0] - self._clock.monotonic(), most_s) if self._due else most_s

    def note_busy(self, tables: Collection[str]) -> None:
        """Look often at these tables, by directory, and at those over their topics. Of any thread."""
        before = self._busy
        self._busy = {*tables, *(directory.rsplit("/", 1)[0] for directory in tables)}
        self._newly_busy.extend(self._busy - {*before})

    def _quiet_s(self, copy: TableCopy) -> float:
        """The longest pause between two looks at a table."""
        if self.is_paid and (copy.kind in _ALWAYS_BUSY or copy.directory in self._busy):
            return QUIET_S
        most = _QUIET_PAID_LOOKS_S if self.is_paid else _QUIET_LOOKS_S
        return max(QUIET_S, len(self._standing.tables) / most)
