"""A partition whose files are vacuumed, on a store whose clock is not that of the machine."""

from log_tables.clock import ManualClock
from log_tables.layout import segment_base_offset, segment_name, vacuum_directory
from log_tables.limits import LEDGER_NAMES_MAX, VACUUM_MARK_AGE_MS
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table
from log_tables.table.vacuum import VacuumResult, vacuum
from log_tables.testing import ClockedStore
from tests.kit.partitions import TABLE, another, append_each, new_partition

HOUR_MS = 60 * 60 * 1000
DAY_MS = 24 * HOUR_MS
NOTHING = VacuumResult(0, 0, 0, 0)
ORPHAN = segment_name(0, "0123abcd")


class World:
    """A partition on a store whose clock is its own, and time that passes for both."""

    def __init__(self, inner: Store | None = None) -> None:
        self.clock, self.store_clock = ManualClock(seed=1), ManualClock(seed=2)
        self.store: Store = ClockedStore(inner or open_store("memory://"), self.store_clock)
        self.partition = new_partition(self.store, self.clock)

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.store_clock.advance(ms)

    def vacuum(self, store: Store | None = None, ledger_names_max: int = LEDGER_NAMES_MAX) -> VacuumResult:
        """Run a vacuum by a process that has just opened the table."""
        return vacuum(Table(store or self.store, TABLE, self.clock), ledger_names_max=ledger_names_max)

    def merge(self, first: int = 0, end: int | None = None) -> tuple[Segment, ...]:
        """Merge segments at once; returns the replaced ones."""
        inputs = self.partition.refresh(wait=True).segments[first:end]
        assert commit_merge(self.partition.table, inputs, self.merged(inputs))
        return inputs

    def merged(self, inputs: tuple[Segment, ...]) -> Segment:
        return merge(self.store, TABLE, inputs, "lz4", self.clock)

    def files(self) -> set[str]:
        """The names of the segment files that there are."""
        names = (item.path.removeprefix(f"{TABLE}/") for item in self.store.list(f"{TABLE}/"))
        return {name for name in names if segment_base_offset(name) is not None}

    def live(self) -> set[str]:
        return {segment.path for segment in another(self.partition).snapshot.segments}

    def ledgers(self) -> list[str]:
        return [item.path for item in self.store.list(f"{vacuum_directory(TABLE)}/")]


def due_and_unmarked(world: World) -> None:
    """Let a vacuum have files to mark and files to delete."""
    append_each(world.partition, [b"0", b"1", b"2"])
    world.merge()
    world.wait(VACUUM_MARK_AGE_MS + 1)
    assert world.vacuum().marked == 3
    append_each(world.partition, [b"3", b"4"])
    world.merge(1)
    world.wait(DAY_MS + 1)
