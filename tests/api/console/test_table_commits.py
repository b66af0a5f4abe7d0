"""The commits of a real table, and the way from a record to the commit and the file that brought it."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from api.console.table_commits import commit_of, commit_page
from log_tables.clock import ManualClock
from log_tables.partition.partition import Partition
from log_tables.partition.reader import PartitionReader
from log_tables.segments.rewrite import commit_merge
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore
from tests.kit.partitions import TABLE, another, append, append_each, bury, new_partition, thin_out
from tests.kit.rewrites import merged


def parquet(store: Store, path: str) -> pq.ParquetFile:
    """A file of the table."""
    return pq.ParquetFile(pa.BufferReader(store.get(f"{TABLE}/{path}")))


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    """Claimed, three times two records, claimed by another, one more, the first three merged, truncated."""
    made = new_partition(store, clock)
    for number in range(3):
        append(made, b"%d" % number, b"x")
    other = another(made)
    other.claim("http://second", 7)
    append(other, b"last")
    inputs = other.snapshot.segments[:3]
    assert commit_merge(other.table, inputs, merged(other, inputs))
    other.truncate(1)
    return other


def test_commits_say_their_operation_and_what_they_changed(partition: Partition) -> None:
    found = commit_page(partition)
    assert [each.version for each in found.commits] == [*range(partition.snapshot.version, -1, -1)]
    assert (found.older, found.gone) == (None, False)
    said = [each.operation for each in found.commits]
    assert said == ["DELETE RECORDS", "OPTIMIZE", "WRITE", "CLAIM", *["WRITE"] * 3, "CLAIM", "CREATE TABLE"]
    truncation, merge, last, claim = found.commits[:4]
    assert truncation.note == "log start 1"
    assert (merge.added, merge.removed, merge.records) == (1, 3, 6)
    assert (merge.first_offset, merge.last_offset) == (0, 5)
    assert (last.epoch, last.records, last.first_offset, last.last_offset) == (2, 1, 6, 6)
    assert (claim.epoch, claim.broker, claim.url) == (2, 7, "http://second")
    assert last.size_bytes == partition.snapshot.segments[-1].size


def test_commits_are_given_a_page_at_a_time(partition: Partition) -> None:
    versions, before = list[int](), None
    while True:
        found = commit_page(partition, before, count=4)
        versions += [each.version for each in found.commits]
        assert len(found.commits) <= 4
        before = found.older
        if before is None:
            break
    assert versions == [*range(partition.snapshot.version, -1, -1)]
    assert commit_page(partition, before=10**12, count=1).commits[0].version == partition.snapshot.version


def test_a_log_that_is_gone_is_said_to_be(partition: Partition) -> None:
    bury(partition)
    append(partition, b"after")
    found = commit_page(partition)
    assert found.gone
    assert found.older is None
    assert found.commits[0].operation == "WRITE"
    assert commit_page(partition, before=0) == ([], None, True)


def test_the_commit_of_every_record_is_the_one_that_wrote_it(partition: Partition) -> None:
    at = {offset: commit_of(partition, offset) for offset in range(7)}
    assert [found.version for found in at.values() if found] == [2, 2, 3, 3, 4, 4, 6]
    for offset, found in at.items():
        assert found is not None
        assert found.first_offset <= offset <= found.last_offset
    assert commit_of(partition, 7) is None


def test_the_file_that_a_commit_names_held_the_record(partition: Partition, store: Store) -> None:
    for offset in range(7):
        found = commit_of(partition, offset)
        assert found is not None
        file = parquet(store, found.path).read(columns=["offset"])
        assert offset in file.column("offset").to_pylist()


def test_a_commit_between_many_others_is_found(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock)
    append_each(partition, [b"%d" % number for number in range(20)])
    for _ in range(15):
        partition.claim("http://again")
    append_each(partition, [b"%d" % number for number in range(5)])
    for offset in range(25):
        found = commit_of(partition, offset)
        assert found is not None
        assert found.first_offset == found.last_offset == offset


def test_the_commit_of_a_record_of_before_is_not_made_up(partition: Partition) -> None:
    bury(partition)
    append(partition, b"after")
    assert [commit_of(partition, offset) is None for offset in range(8)] == [*[True] * 7, False]


def test_the_row_groups_of_a_segment_are_those_of_its_file(
    partition: Partition, store: Store, clock: ManualClock
) -> None:
    thin_out(partition, partition.snapshot.segments, lambda offset: offset % 2 == 0)
    reader = PartitionReader(store, TABLE, clock)
    for segment in reader.snapshot.segments:
        groups = reader.row_groups(segment)
        footer = parquet(store, segment.path).metadata
        assert [group.records for group in groups] == [
            footer.row_group(index).num_rows for index in range(footer.num_row_groups)
        ]
        assert (groups[0].first_offset, groups[-1].last_offset) == (segment.base_offset, segment.last_offset)
