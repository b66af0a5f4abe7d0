"""A partition that copies another log: its offsets, its times, its gaps, and its end, in each commit."""

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from log_tables.clock import Clock
from log_tables.errors import InvalidOffset, LakelogError, NotLeader
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.record import Record, input_batch, with_offsets
from log_tables.segments import rewrite
from log_tables.store.store import Store
from log_tables.testing import (
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    nothing_landed,
    refused,
    repeated,
    unavailable,
)
from tests.kit.partitions import TABLE, another, append, held, new_partition, sound
from tests.kit.rewrites import merged
from tests.kit.tiers import tiered, with_tier

AT_US = 5_000_000


def source(offsets: Sequence[int]) -> pa.RecordBatch:
    """The records of another log at `offsets`: each value says its offset, and the times go back."""
    rows = [Record(b"%d" % offset, timestamp_us=AT_US - offset) for offset in offsets]
    return with_offsets([input_batch(rows, 0)], np.array(offsets, np.int64))


def mirror(partition: Partition, offsets: Sequence[int], end: int) -> None:
    partition.mirror(source(offsets), end)


@pytest.fixture
def copied(store: Store, clock: Clock) -> Partition:
    """A log that begins at offset 7, has gaps in and between its commits, and ends behind one."""
    partition = new_partition(store, clock)
    mirror(partition, [7, 8, 9], 10)
    mirror(partition, [13, 15], 18)
    mirror(partition, [], 20)
    return partition


COPY = [7, 8, 9, 13, 15]


def test_records_have_the_offsets_and_times_of_the_other_log(copied: Partition) -> None:
    for reader in (copied, another(copied)):
        assert held(reader) == held(reader, max_bytes=1) == {offset: b"%d" % offset for offset in COPY}
        assert reader.fetch(0, 1 << 20)["timestamp"].cast(pa.int64()).to_pylist() == [AT_US - o for o in COPY]
        assert (reader.high_watermark, reader.snapshot.mirrored) == (20, 20)
    assert sound(copied)


def test_a_read_in_a_gap_goes_on_behind_it(copied: Partition) -> None:
    for offset in range(21):
        assert copied.fetch(offset, 1 << 20)["offset"].to_pylist() == [o for o in COPY if o >= offset]
        plan = copied.bound(copied.plan_read(offset, 1))
        assert plan.end > offset or offset == 20


def test_the_first_append_after_the_copy_stands_at_its_end(copied: Partition) -> None:
    assert append(copied, b"ours") == 20
    assert append(copied, b"more") == 21
    assert (copied.snapshot.mirrored, copied.snapshot.whole_from) == (20, 20)
    assert held(another(copied))[20] == b"ours"
    assert sound(copied)


@pytest.mark.parametrize(
    ("offsets", "end"),
    [([20], 20), ([], 20), ([], 3), ([19], 25), ([22, 21], 25), ([21, 21], 25), ([25], 25)],
    ids=["ends before", "none, not on", "back", "below", "not in order", "twice", "beyond the end"],
)
def test_what_does_not_follow_is_refused_and_nothing_changes(
    copied: Partition, offsets: list[int], end: int
) -> None:
    before = copied.snapshot
    with pytest.raises(InvalidOffset, match=r"go on from there|read them again"):
        mirror(copied, offsets, end)
    assert copied.snapshot is before
    assert copied.leading


def test_of_two_copies_the_older_one_is_fenced(copied: Partition) -> None:
    other = another(copied)
    other.claim("http://other")
    with pytest.raises(NotLeader):
        mirror(copied, [21], 22)
    assert not copied.leading
    mirror(other, [20], 21)
    assert held(other)[20] == b"20"
    assert sound(other)


def test_a_copy_is_merged_moved_to_the_remote_root_and_truncated(copied: Partition, root: RemoteRoot) -> None:
    inputs = copied.snapshot.segments
    made = merged(copied, inputs)
    assert rewrite.commit_merge(copied.table, inputs, made)
    assert (made.base_offset, made.last_offset, made.records) == (7, 15, 5)
    assert [*held(copied)] == COPY
    mirror(copied, [21], 30)
    assert tiered(copied, root, 1) == ([7], [21])
    both = with_tier(copied, root)
    assert [*held(both)] == [*held(both, max_bytes=1)] == [*COPY, 21]
    assert copied.truncate(25) == 25
    assert held(another(copied)) == {}
    assert copied.fetch(25, 1).num_rows == 0
    assert sound(copied)


@pytest.mark.parametrize("failure", [unavailable, refused, answer_lost, repeated, nothing_landed])
@pytest.mark.parametrize("nth", range(1, 8))
def test_whatever_fails_the_copy_goes_on_from_its_high_watermark(
    store: Store, clock: Clock, failure: Failure, nth: int
) -> None:
    new_partition(store, clock)
    faulty = FaultyStore(store, [Fault(nth, failure, {"put_new", "put_if_absent"})])
    for through in (faulty, store):
        partition = Partition(through, TABLE, clock)
        with suppress(*([LakelogError] if through is faulty else [])):
            partition.claim("http://mirror")
            for begin in range(partition.high_watermark, 40, 10):
                mirror(partition, [begin + 2, begin + 5] if begin != 10 else [], begin + 10)
    assert [*held(another(partition))] == [2, 5, 22, 25, 32, 35]
    assert sound(partition)
