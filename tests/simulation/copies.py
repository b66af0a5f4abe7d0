"""A copy of the root while it is in use, and what has to be in it."""

from typing import ClassVar

from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, ObjectMissing
from log_tables.layout import UNFINISHED_COPY
from log_tables.record import to_records
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root, open_target
from log_tables.store.store import Store
from tests.kit.history import Write
from tests.simulation.actors import Actor
from tests.simulation.judges import judge_root
from tests.simulation.plan import COPY, TOPIC
from tests.simulation.scheduler import Process


class RootCopier(Actor):
    """Copies the root once, and adopts the copy; what a death has interrupted it continues.

    Where only the answer to the last delete was missing, the copy is whole, and the next attempt says that
    its place is not empty.
    """

    name: ClassVar[str] = "copy"
    _began: float | None = None
    _tried: float | None = None
    _is_copied = _is_done = False

    def work(self, process: Process) -> None:
        self.stop.wait(process.clock.random())
        while not self._is_copied and not self.stop.is_set():
            began = self.world.clock.monotonic()
            source = self.world.opened(process)
            target = open_target(source, self.world.stores.copied, {}, process.clock)
            last, self._tried = self._tried, self._tried or began
            try:
                copy_root(source, target, process.clock)
            except InvalidArgument:
                if last is None or _is_marked(target):
                    raise
                began = last
            self._began, self._is_copied = began, True
        if not self._is_done and not self.stop.is_set():
            adopt(self.world.stores.open(self.world.stores.copied, create=False), process.clock, wait_s=1)
            self._is_done = True
        self.stop.wait()

    def has_worked(self, since: float) -> bool:  # noqa: ARG002 -- one copy is enough
        return self._is_done

    def judge(self) -> None:
        """All that was acknowledged before the copy began is in it, where it was acknowledged."""
        if self._began is None:
            return
        store = self.world.stores.open(self.world.stores.copied, create=False)
        judge_root(store)
        cluster = Cluster.open(store, self.world.clock, create=False)
        held = {}
        for name in (TOPIC, COPY):
            for number, log in enumerate(cluster.topic(name).partitions()):
                for offset, record in enumerate(to_records(log.fetch(0, 1 << 30))):
                    held[name, number, offset] = (record.value or b"").decode().strip('"')
        for op in self.world.history.operations():
            if not (isinstance(op.asked, Write) and op.ok and op.end < self._began):
                continue
            offsets = iter(getattr(op.answer, "offsets", ()))
            for at, value in ((part.at, value) for part in op.asked.parts for value in part.values):
                told = next(offsets, None)
                if at.topic in (TOPIC, COPY) and told is not None:
                    found = held.get((at.topic, at.partition, told))
                    assert found == value, f"the copy has {found!r} at {at}@{told}, not {value!r}"


def _is_marked(target: Store) -> bool:
    """Whether a copy says that it is not finished."""
    try:
        target.head(UNFINISHED_COPY)
    except ObjectMissing:
        return False
    return True
