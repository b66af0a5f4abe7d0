"""The first segments of a table go in commits of a bounded size, and all that is to go goes."""

from collections.abc import Callable

import pytest

from log_tables.errors import OutcomeUnknown, StoreUnavailable
from log_tables.partition.partition import Partition
from log_tables.store.store import Store
from log_tables.table.commit import read_commit
from log_tables.table.first_segments import Due, below, remove_first
from log_tables.table.offer import has_offer
from log_tables.table.snapshot import Snapshot
from log_tables.testing import Fault, FaultyStore, refused
from tests.kit.offers import Overtaken
from tests.kit.partitions import TABLE, another, append, append_each, entry, sound, thin_out, values


def to(before: int) -> Callable[[Snapshot], Due | None]:
    return lambda snapshot: below(snapshot, before) if before > snapshot.log_start else None


@pytest.mark.parametrize(
    ("before", "expected"),
    [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1]), (8, [3, 3, 1]), (10, [3, 3, 2])],
)
def test_it_goes_in_parts(partition: Partition, before: int, expected: list[int]) -> None:
    append_each(partition, [b"%d" % number for number in range(7)])
    partition.append([entry(b"7", b"8", b"9")])
    first = partition.snapshot.version + 1
    gone = remove_first(partition.table, "DELETE RECORDS", to(before), most=3)
    assert len(gone) == sum(expected)
    made = [
        read_commit(partition.table.store, TABLE, version)
        for version in range(first, partition.snapshot.version + 1)
    ]
    assert [len(commit.removes) for commit in made if commit is not None] == expected
    assert partition.log_start == before
    assert values(partition) == [b"%d" % number for number in range(before, 10)]
    assert sound(partition)


def test_a_failure_says_whether_a_part_is_done(store: Store, partition: Partition) -> None:
    append_each(partition, [b"%d" % number for number in range(7)])
    for nth, kind in ((1, StoreUnavailable), (2, OutcomeUnknown)):
        faulty = FaultyStore(store)
        table = another(partition, faulty).table
        faulty.faults.append(Fault(nth, refused, {"put_if_absent"}))
        with pytest.raises(kind):
            remove_first(table, "DELETE RECORDS", to(7), most=3)


def test_an_offer_to_truncate_is_dropped_when_more_would_have_to_go(
    store: Store, partition: Partition
) -> None:
    """The segment around the new log start may be replaced by one that lies wholly below it."""
    append_each(partition, [b"0", b"1"])
    partition.append([entry(b"2", b"3", b"4")])
    around = partition.snapshot.segments[2:]

    def step() -> None:
        append(partition, b"new")
        if has_offer(store, TABLE) and partition.snapshot.cleaned == 0:
            thin_out(another(partition), around, keep=lambda offset: offset == 2)
            partition.take_offer()
            assert (partition.log_start, has_offer(store, TABLE)) == (0, False)

    maker = Partition(Overtaken(store, step, iter([False] * 4)), TABLE, partition.clock)
    assert maker.truncate(4) == 4
    partition.refresh()
    assert partition.snapshot.cleaned == 5
    assert {*values(partition)} == {b"new"}
    assert sound(partition)
