"""Threads that wait at a table: seen from outside, as nothing of the table tells."""

import sys
from collections.abc import Callable

from log_tables.table.table import Table


def refreshes_wait(table: Table, count: int = 1) -> Callable[[], bool]:
    """A condition: `count` threads that refresh `table` wait for another one that works on it.

    They stand in `refresh` itself, after they have noted when they came, at the same place as when the
    condition was asked before.
    """
    before: set[tuple[int, int]] = set()

    def wait() -> bool:
        nonlocal before
        now = {
            (thread, frame.f_lasti)
            for thread, frame in sys._current_frames().items()
            if frame.f_code is Table.refresh.__code__
            and frame.f_locals["self"] is table
            and "came" in frame.f_locals
        }
        there, before = now & before, now
        return len(there) >= count

    return wait
