"""Leaders that are faster than maintenance."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from log_tables.layout import commit_version
from log_tables.partition.partition import Partition
from log_tables.segments import rewrite
from log_tables.store.store import Store
from log_tables.store.wrapper import StoreWrapper
from log_tables.table.table import Table
from tests.kit.partitions import TABLE, append

T = TypeVar("T")
ATTEMPTS_MAX = 8


class Overtaken(StoreWrapper):
    """`inner`, where the leader takes a step before each put of a commit, unless `gaps` says otherwise."""

    def __init__(self, inner: Store, step: Callable[[], object], gaps: Iterator[bool] | None = None) -> None:
        super().__init__(inner)
        self.attempts = 0
        self._step, self._gaps = step, gaps

    def _call(self, operation: str, path: str, perform: Callable[[], T]) -> T:
        if operation == "put_if_absent" and commit_version(path) is not None:
            self.attempts += 1
            assert self.attempts <= ATTEMPTS_MAX, "the leader was first each time"
            if self._gaps is None or not next(self._gaps, True):
                self._step()
        return perform()


def busy(leader: Partition) -> Callable[[], None]:
    """An append of the leader, and what a gateway does after it."""

    def step() -> None:
        append(leader, b"new")
        if leader.offer_due and leader.has_offer():
            leader.take_offer()

    return step


def merge(table: Table) -> bool:
    inputs = table.snapshot.segments[:10]
    made = rewrite.merge(table.store, TABLE, inputs, "zstd", table.clock)
    return rewrite.commit_merge(table, inputs, made)
