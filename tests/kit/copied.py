"""Copies of a root in memory, from which several things are tried."""

from log_tables.clock import ManualClock
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore


def copied(store: Store, now_ms: int, seed: int) -> tuple[Store, ManualClock]:
    """A copy of `store` whose objects are as old as there, with a clock of its own that says `now_ms`; what
    it draws goes by `seed`.
    """
    items = sorted(store.list(""), key=lambda item: item.modified_ms)
    clock = ManualClock(items[0].modified_ms, seed=seed)
    made = ClockedStore(open_store("memory://"), clock)
    for item in items:
        clock.advance(item.modified_ms - clock.now_ms())
        made.put(item.path, store.get(item.path))
    clock.advance(now_ms - clock.now_ms())
    return made, clock
