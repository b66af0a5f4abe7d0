"""Processes that append to one partition on a disk that fails, die, and are cut off from power."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from log_tables.clock import Clock, ManualClock
from log_tables.errors import OutcomeUnknown, Retriable
from log_tables.partition.partition import Partition
from log_tables.store.file import AtOnce, Call
from log_tables.table.table import create_table
from log_tables.testing import Crash, Failure, crash_after, crash_before
from tests.kit.disk import Fails, Kept, death, once
from tests.kit.killed import killed
from tests.kit.partitions import TABLE, append
from tests.kit.power import HERE, Left, World

PROCESSES = 2


class Fate(NamedTuple):
    """The fault of a process in one step: its n-th fsync fails, or it dies at that fsync, or at its n-th
    change.
    """

    nth: int
    fsync: Callable[[int], Fails] | None = None
    change: Failure | None = None


FATES = st.one_of(
    st.tuples(st.integers(1, 12), st.sampled_from([once, death])).map(lambda drawn: Fate(drawn[0], drawn[1])),
    st.tuples(st.integers(1, 5), st.sampled_from([crash_before, crash_after])).map(
        lambda drawn: Fate(drawn[0], change=drawn[1])
    ),
)
CUTS = st.none() | st.integers(0, 1 << 32)


def kept(cut: int | None) -> Kept:
    """A rule of which files survive a power cut although they were not fsynced: none, or random ones."""
    chance = ManualClock(seed=cut or 0)
    return lambda _: cut is not None and chance.random() < 0.5


def in_an_order(chance: Clock) -> AtOnce:
    """Two calls at once, as a disk may do them: one of them is done first."""

    def both(one: Call, other: Call) -> None:
        for call in sorted((one, other), key=lambda _: chance.random()):
            call()

    return both


class Appending(RuleBasedStateMachine):
    """After a power cut the table has every acknowledged record, and every segment that it names exists."""

    ordered = False
    """Whether the disk keeps order."""
    fast = False
    """Whether processes rely on that."""

    @initialize(seed=st.integers(0, 1 << 32))
    def start(self, seed: int) -> None:
        self.base, self.lives, self.values = Path(tempfile.mkdtemp()), 0, 0
        self.told: dict[int, bytes] = {}
        self.at_once = in_an_order(ManualClock(seed=seed))
        self._begin()
        create_table(self.world.stores()[0], TABLE, self.world.clock)
        self._promise()

    def _begin(self) -> None:
        self.lives += 1
        self.world = World(
            self.base / str(self.lives),
            lambda _: None,
            ordered=self.ordered,
            fast=self.fast,
            at_once=self.at_once,
            seed=self.lives,
        )
        self.processes: list[Partition | None] = [None] * PROCESSES

    def _promise(self) -> None:
        self.world.told("whole", Left.partition)
        for offset, value in self.told.items():
            self.world.holds(offset, value)

    @rule(number=st.integers(0, PROCESSES - 1), fate=st.none() | FATES, looks=st.booleans())
    def append(self, number: int, fate: Fate | None, looks: bool) -> None:
        """A process appends a record. It is the leader, or becomes it; or was, and has not looked since."""
        with self._dying(number, fate):
            partition = self.processes[number]
            if partition is None:
                partition = Partition(self.world.stores()[0], TABLE, self.world.clock)
                self.processes[number] = partition
            if looks:
                partition.refresh(wait=True)
            if not partition.leading:
                partition.claim(f"http://{number}")
            self.values += 1
            value = b"%d" % self.values
            offset = append(partition, value)
            assert offset is not None
            self.told[offset] = value
            self.world.holds(offset, value)

    @contextmanager
    def _dying(self, number: int, fate: Fate | None) -> Iterator[None]:
        disk, change = self.world.disk, None
        if fate is not None:
            change = fate.change
            if fate.fsync is not None:
                disk.fails = fate.fsync(disk.syncs + fate.nth)
        try:
            with (
                nullcontext()
                if fate is None or change is None
                else killed(disk.root / HERE, fate.nth, change)
            ):
                yield
        except Crash:
            self.processes[number] = None
        except (Retriable, OutcomeUnknown):
            pass
        finally:
            disk.fails = lambda _: None

    @rule(cut=CUTS)
    def look(self, cut: int | None) -> None:
        """If the power failed now."""
        self.world.check(kept(cut))

    @rule(cut=CUTS)
    def cut(self, cut: int | None) -> None:
        """The power fails, and comes back."""
        self.world.check(kept(cut))
        left = self.world.disk.cut(HERE, kept(cut))
        self.world.disk.close()
        self._begin()
        store = self.world.stores()[0]
        for item in left.list(""):
            store.put(item.path, left.get(item.path))
        self._promise()

    def teardown(self) -> None:
        self.world.check(kept(None))
        self.world.disk.close()
        shutil.rmtree(self.base)
