"""Staged files hold what was staged, the same at every reading; they go when nobody names them for a day."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptSegment, InvalidArgument, PutRefused
from log_tables.layout import STAGING
from log_tables.limits import MIB, STAGED_BATCH_BYTES, STAGED_MAX_AGE_MS, STAGING_RETENTION_MS
from log_tables.record import INPUT_SCHEMA, Record, batch_bytes, input_batch
from log_tables.root import fsck
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords, StagedFile, StagedRun
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, Fault, FaultyStore, refused
from tests.kit.support import S3Server

RECORDS = [
    Record(b"a", b"k", (("trace", b"1"), ("null", None)), 7),
    Record(None, None, (), 8),
    Record(b"", b"", (), 9),
]
BATCH = input_batch(RECORDS, 0)
GROUP = "g"


@pytest.fixture
def store(store_root: Path, clock: ManualClock) -> Store:
    """A store whose clock is the test's."""
    return ClockedStore(open_store(store_root), clock)


def staged_in(store: Store) -> list[str]:
    return [item.path for item in store.list(f"{STAGING}/")]


def two_parts() -> list[PartitionRecords]:
    return [
        PartitionRecords("t", "id", 0, [BATCH]),
        PartitionRecords("u", "other", 3, [BATCH.slice(1), BATCH.slice(0, 1)]),
    ]


@pytest.mark.parametrize("place", ["directory", "s3", "memory"])
def test_what_is_staged_is_read(
    place: str, store_root: Path, clock: ManualClock, request: pytest.FixtureRequest
) -> None:
    """Keys, values, headers and times, nulls and empty ones; run by run, in the order of the batches."""
    if place == "s3":
        server: S3Server = request.getfixturevalue("s3")
        store = open_store(server.bucket("staging"), server.options)
    else:
        store = open_store(store_root if place == "directory" else "memory://")
    staged = staging.stage(store, clock, GROUP, two_parts())
    first, second = staged.runs
    assert (first.topic, first.topic_id, first.partition, first.records) == ("t", "id", 0, 3)
    assert (second.topic, second.topic_id, second.partition, second.records) == ("u", "other", 3, 3)
    assert pa.Table.from_batches(staging.read_run(store, staged, first)) == pa.Table.from_batches([BATCH])
    expected = pa.Table.from_batches([BATCH.slice(1), BATCH.slice(0, 1)])
    assert pa.Table.from_batches(staging.read_run(store, staged, second)) == expected
    staging.check(store, GROUP, [staged])
    assert staged_in(store) == [staged.path]


def test_records_that_come_by_turns_are_one_run_a_partition(store: Store, clock: ManualClock) -> None:
    draft = staging.StagedFileWriter()
    for number in range(3):
        draft.add("t", "id", 0, BATCH.slice(number, 1))
        draft.add("t", "id", 1, BATCH.slice(2 - number, 1))
    staged = draft.put(store, clock, GROUP)
    assert [(run.partition, run.records) for run in staged.runs] == [(0, 3), (1, 3)]
    forwards, backwards = (pa.Table.from_batches(staging.read_run(store, staged, run)) for run in staged.runs)
    assert forwards == pa.Table.from_batches([BATCH])
    assert backwards == pa.Table.from_batches([BATCH.slice(2 - number, 1) for number in range(3)])


def test_what_names_a_file_travels_as_json(store: Store, clock: ManualClock) -> None:
    staged = staging.stage(store, clock, GROUP, two_parts())
    assert msgspec.json.decode(msgspec.json.encode(staged), type=StagedFile) == staged


def test_a_run_is_cut_the_same_at_every_reading_into_batches_that_fit_memory(
    store: Store, clock: ManualClock
) -> None:
    """A record that is larger than a batch may be comes alone."""
    sizes = [3 * MIB] * 5 + [STAGED_BATCH_BYTES + MIB] + [10] * 1000
    large = input_batch([Record(bytes(size)) for size in sizes], 0)
    staged = staging.stage(store, clock, GROUP, [PartitionRecords("t", "id", 0, [large.slice(0, 0), large])])
    (run,) = staged.runs
    once, again = ([*staging.read_run(store, staged, run)] for _ in range(2))
    assert once == again
    assert pa.Table.from_batches(once).combine_chunks() == pa.Table.from_batches([large])
    assert all(batch_bytes(batch) <= STAGED_BATCH_BYTES or batch.num_rows == 1 for batch in once)
    assert all(min(one.num_rows, other.num_rows) > 0 for one, other in pairwise(once))
    assert all(batch.schema == INPUT_SCHEMA for batch in once)


def test_more_than_one_may_hold_of_a_partition_is_refused_before_a_file_is_there(
    store: Store, clock: ManualClock
) -> None:
    """The bound is of each partition, and what is staged below it is read."""
    half = input_batch([Record(bytes(20_000))] * 25, 0)
    draft = staging.StagedFileWriter(run_max_bytes=MIB)
    for partition in (0, 0, 1):
        draft.add("t", "id", partition, half)
    with pytest.raises(
        InvalidArgument, match=f"t-0 are too many for one staged file, which holds up to {MIB}"
    ):
        draft.add("t", "id", 0, half)
    draft.add("t", "id", 1, half)
    staged = draft.put(store, clock, GROUP)
    staging.check(store, GROUP, [staged], run_max_bytes=MIB)
    assert [run.records for run in staged.runs] == [50, 50]
    assert all(sum(map(len, staging.read_run(store, staged, run))) == 50 for run in staged.runs)


def test_what_is_too_large_only_when_it_is_encoded_is_refused(store: Store, clock: ManualClock) -> None:
    """Each batch has a head of its own."""
    draft = staging.StagedFileWriter(run_max_bytes=10_000)
    for _ in range(100):
        draft.add("t", "id", 0, BATCH.slice(0, 1))
    with pytest.raises(InvalidArgument, match="too many for one staged file"):
        draft.put(store, clock, GROUP)
    assert staged_in(store) == []


def test_a_transaction_is_refused_a_file_that_is_too_large_and_reads_it_once_committed(
    store: Store, clock: ManualClock
) -> None:
    """An older program, without the bound, has staged the file, or committed it."""
    large = input_batch([Record(bytes([n]) * 5_000) for n in range(200)], 0)
    staged = staging.stage(store, clock, GROUP, [PartitionRecords("t", "id", 0, [large])])
    (run,) = staged.runs
    with pytest.raises(InvalidArgument, match=f"{run.length} bytes for t-0 are too many"):
        staging.check(store, GROUP, [staged], run_max_bytes=run.length - 1)
    assert pa.Table.from_batches(staging.read_run(store, staged, run)) == pa.Table.from_batches([large])


def test_of_a_run_one_batch_is_in_memory_at_a_time(store: Store, clock: ManualClock) -> None:
    """So a run may unpack to more than its reader has."""
    batches = [input_batch([Record(bytes(STAGED_BATCH_BYTES - 100))], 0)] * 20
    staged = staging.stage(store, clock, GROUP, [PartitionRecords("t", "id", 0, batches)])
    before = pa.total_allocated_bytes()
    for batch in staging.read_run(store, staged, staged.runs[0]):
        assert pa.total_allocated_bytes() - before < 4 * STAGED_BATCH_BYTES
        assert batch.num_rows == 1


def test_a_batch_that_says_more_than_any_that_was_staged_is_damage(store: Store, clock: ManualClock) -> None:
    staged = staging.stage(
        store, clock, GROUP, [PartitionRecords("t", "id", 0, [input_batch([Record(bytes(5_000))], 0)])]
    )
    with pytest.raises(CorruptSegment, match="unpacks to more than 4999 bytes"):
        list(staging.read_run(store, staged, staged.runs[0], unpacked_max_bytes=4_999))


def test_a_put_that_is_refused_leaves_nothing(store: Store, clock: ManualClock) -> None:
    with pytest.raises(PutRefused):
        staging.stage(FaultyStore(store, [Fault(1, refused)]), clock, GROUP, two_parts())
    assert staged_in(store) == []


def _missing(store: Store, staged: StagedFile) -> StagedFile:
    store.delete(staged.path)
    return staged


def _cut_short(store: Store, staged: StagedFile) -> StagedFile:
    store.put(staged.path, store.get(staged.path)[:-40])
    return staged


def _other_records(store: Store, staged: StagedFile) -> StagedFile:
    store.put(staged.path, store.get(staged.path)[: staged.runs[0].length] * 2)
    return msgspec.structs.replace(
        staged, runs=[msgspec.structs.replace(run, records=4) for run in staged.runs]
    )


def _changed(store: Store, staged: StagedFile) -> StagedFile:
    """The name of a header is another, of the same length."""
    first, _, last = bytes(store.get(staged.path)).rpartition(b"trace")
    store.put(staged.path, first + b"TRACE" + last)
    return staged


@pytest.mark.parametrize("damage", [_missing, _cut_short, _other_records, _changed])
def test_a_damaged_file_is_reported_as_damaged(
    damage: Callable[[Store, StagedFile], StagedFile], store: Store, clock: ManualClock
) -> None:
    staged = damage(store, staging.stage(store, clock, GROUP, two_parts()))
    with pytest.raises(CorruptSegment, match=staged.path):
        list(staging.read_run(store, staged, staged.runs[1]))


@pytest.mark.parametrize(
    "path",
    [
        "topics/t/partition=0/00000000000000000000-01234567.parquet",
        "staging/../topics",
        "staging/x.arrow",
        "",
    ],
)
def test_only_a_staged_file_can_be_named(path: str, store: Store) -> None:
    with pytest.raises(InvalidArgument, match="is not the path of a staged file"):
        staging.check(store, GROUP, [StagedFile(path, ())])


def test_a_file_that_was_used_cannot_be_named_again(store: Store, clock: ManualClock) -> None:
    staged = staging.stage(store, clock, GROUP, two_parts())
    staging.delete(store, [staged])
    staging.delete(store, [staged])
    with pytest.raises(InvalidArgument, match="does not exist, or no longer"):
        staging.check(store, GROUP, [staged])


def test_a_file_that_was_cut_short_cannot_be_named(store: Store, clock: ManualClock) -> None:
    staged = _cut_short(store, staging.stage(store, clock, GROUP, two_parts()))
    with pytest.raises(InvalidArgument, match="bytes instead of"):
        staging.check(store, GROUP, [staged])


Runs = tuple[StagedRun, ...]


def _without_the_last(runs: Runs) -> Runs:
    return runs[:-1]


def _in_other_order(runs: Runs) -> Runs:
    return runs[::-1]


def _with_an_empty_one(runs: Runs) -> Runs:
    end = runs[-1].start + runs[-1].length
    return (*runs, msgspec.structs.replace(runs[-1], start=end, length=0))


def _with_other_counts(runs: Runs) -> Runs:
    return (runs[0], msgspec.structs.replace(runs[1], records=runs[1].records + 1))


def _for_other_partitions(runs: Runs) -> Runs:
    return (runs[0], msgspec.structs.replace(runs[1], partition=2))


@pytest.mark.parametrize(
    "change",
    [_without_the_last, _in_other_order, _with_an_empty_one, _with_other_counts, _for_other_partitions],
)
def test_a_file_is_named_with_the_runs_that_it_was_staged_with(
    change: Callable[[Runs], Runs], store: Store, clock: ManualClock
) -> None:
    """A committed file can be applied only if its runs are exactly those of the staging."""
    staged = staging.stage(store, clock, GROUP, two_parts())
    with pytest.raises(InvalidArgument, match="was not staged with these runs"):
        staging.check(store, GROUP, [StagedFile(staged.path, change(staged.runs))])


def test_only_the_group_that_it_was_staged_for_can_name_a_file(store: Store, clock: ManualClock) -> None:
    """Two gateways would each think that it is theirs, and one delete what the other has yet to append."""
    staged = staging.stage(store, clock, GROUP, two_parts())
    with pytest.raises(InvalidArgument, match="group 'other'"):
        staging.check(store, "other", [staged])


def test_one_of_many_files_that_is_missing_is_found(store: Store, clock: ManualClock) -> None:
    files = [staging.stage(store, clock, GROUP, two_parts()) for _ in range(40)]
    staging.check(store, GROUP, files)
    staging.delete(store, [files[29]])
    with pytest.raises(InvalidArgument, match=files[29].path):
        staging.check(store, GROUP, files)


def test_a_file_is_refused_long_before_it_can_be_vacuumed(store: Store, clock: ManualClock) -> None:
    staged = staging.stage(store, clock, GROUP, two_parts())
    clock.advance(STAGED_MAX_AGE_MS)
    staging.check(store, GROUP, [staged])
    clock.advance(1)
    with pytest.raises(InvalidArgument, match="older than 12 hours"):
        staging.check(store, GROUP, [staged])
    clock.advance(STAGING_RETENTION_MS - STAGED_MAX_AGE_MS - 1)
    assert staging.old_files(store) == []
    clock.advance(1)
    assert [file.path for file in staging.old_files(store)] == [staged.path]


def test_nothing_is_old_that_is_young_or_no_staged_file(store: Store, clock: ManualClock) -> None:
    old = [staging.stage(store, clock, GROUP, two_parts()).path for _ in range(2)]
    store.put("topics/t/partition=0/x.parquet", b"")
    clock.advance(STAGING_RETENTION_MS + 1)
    staging.stage(store, clock, GROUP, two_parts())
    assert [file.path for file in staging.old_files(store)] == sorted(old)


def test_a_root_without_staged_files_has_no_old_ones(store: Store) -> None:
    assert staging.old_files(store) == []


def test_nobody_else_sees_a_staged_file(store: Store, clock: ManualClock) -> None:
    """Neither does fsck complain of it, nor is it a topic."""
    cluster = Cluster.open(store, clock, "http://first")
    create_topic(cluster, "t", 1)
    staging.stage(store, clock, GROUP, two_parts())
    assert fsck.check(store).problems == []
    cluster.refresh()
    assert [topic.name for topic in cluster.topics()] == ["t"]
