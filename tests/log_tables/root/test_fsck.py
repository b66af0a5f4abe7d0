"""The check of a root finds nothing in a sound one, names what is broken in another, and writes nothing."""

from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.layout import TXN_HIGH_WATERMARK, TXN_LEADER, checkpoint_path, commit_path
from log_tables.limits import LOG_RETENTION_MS
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.record import Record, input_batch, with_offsets
from log_tables.root.fsck import check
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.segment import describe
from log_tables.segments.segment import encode as encode_segment
from log_tables.store.store import Store, open_store
from log_tables.table.checkpoint import decode, encode
from log_tables.table.commit import Commit, ProducedBatch, Txn, put_commit
from log_tables.table.delta_log import commit_info
from log_tables.table.txns import Txns
from log_tables.testing import WRITES, ClockedStore, Fault, FaultyStore
from tests.kit.failures import before
from tests.kit.partitions import append, thin_out

DIRECTORY = "topics/t/partition=0"
METADATA = "topics/__cluster_metadata/partition=0"


@pytest.fixture
def store(store_root: Path, clock: ManualClock) -> Store:
    return ClockedStore(open_store(store_root), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    """A led partition of three segments, of two records each, by an idempotent producer."""
    cluster = Cluster.open(store, clock, "http://first")
    partition = cluster.claim(create_topic(cluster, "t"), 0)
    for number in range(3):
        append(partition, b"a", b"b", producer=ProducerStamp(7, 0, 2 * number), at_us=-1_500 + number)
    return partition


def problems(partition: Partition) -> list[str]:
    return check(partition.table.store).problems


def segment_path(partition: Partition, index: int) -> str:
    return f"{DIRECTORY}/{partition.snapshot.segments[index].path}"


def commit_unchecked(partition: Partition, commit: Commit) -> None:
    """Put `commit` past every check, as a program that is wrong would."""
    version = partition.snapshot.version + 1
    assert put_commit(partition.table.store, DIRECTORY, version, commit, partition.clock) is None


def appended(partition: Partition, base: int, **lies: object) -> Commit:
    """An append of two records from `base` on, in whose stats some fields lie."""
    batch = with_offsets([input_batch([Record(b"x", timestamp_us=0)] * 2, 0)], np.arange(base, base + 2))
    data = encode_segment(batch, "zstd")
    path = f"{base:020}-89abcdef.parquet"
    partition.table.store.put_new(f"{DIRECTORY}/{path}", data)
    time = partition.snapshot.segments[-1].modification_time
    made = replace(describe(path, batch, data, time), **lies)
    info = commit_info(partition.clock, "WRITE", leader_epoch=1)
    return Commit(info, (Txn(TXN_HIGH_WATERMARK, base + 2),), (made.add(data_change=True),))


# What is sound.


def test_segments_that_are_merged_and_deleted_while_it_reads_are_no_problem(partition: Partition) -> None:
    store, inputs = partition.table.store, partition.snapshot.segments

    def meanwhile() -> None:
        assert commit_merge(partition.table, inputs, merge(store, DIRECTORY, inputs, "zstd", partition.clock))
        store.delete_objects([f"{DIRECTORY}/{item.path}" for item in inputs])

    lost = f"{DIRECTORY}/{inputs[1].path}"
    assert check(FaultyStore(store, [Fault(1, before(meanwhile), {"get"}, lost)])).problems == []
    (path,) = (f"{DIRECTORY}/{item.path}" for item in partition.refresh(wait=True).segments)
    store.delete(path)
    assert any("there is no object" in problem for problem in problems(partition))


def test_a_sound_root_has_no_problems_and_is_described(partition: Partition) -> None:
    watched = FaultyStore(partition.table.store)
    report = check(watched)
    assert report.problems == []
    assert not WRITES & {call.operation for call in watched.calls}
    metadata, found = report.partitions
    assert (metadata.directory, metadata.records) == (METADATA, 1)
    assert (found.directory, found.version, found.segments, found.records) == (DIRECTORY, 4, 3, 6)
    assert (found.log_start, found.high_watermark, found.leader_epoch, found.unreferenced) == (0, 6, 1, 0)
    assert report.as_dict()["sound"] is True


def test_what_was_merged_compacted_truncated_checkpointed_and_cleaned_is_sound(
    partition: Partition, clock: ManualClock
) -> None:
    store = partition.table.store
    first = partition.snapshot.segments[:2]
    assert commit_merge(partition.table, first, merge(store, DIRECTORY, first, "gzip", clock))
    partition.truncate(1)
    partition.checkpoint()
    thin_out(partition, partition.snapshot.segments[-1:], lambda offset: offset == 5)
    append(partition, b"c", producer=ProducerStamp(7, 0, 6))
    assert problems(partition) == []
    clock.advance(LOG_RETENTION_MS + 1)
    partition.checkpoint()
    assert partition.table.delete_expired_log() > 0
    append(partition, b"d", producer=ProducerStamp(7, 1, 0))
    found = check(store).partitions[1]
    assert (found.problems, found.unreferenced) == ([], 3)
    assert (found.records, found.log_start, found.high_watermark) == (7, 1, 8)


def test_a_root_without_data_is_no_root(store_root: Path) -> None:
    with pytest.raises(InvalidArgument, match="there is no lakelog data"):
        check(open_store(store_root))


def test_an_unreferenced_file_is_counted_and_no_problem(partition: Partition) -> None:
    partition.table.store.put_new(f"{DIRECTORY}/00000000000000000006-0123abcd.parquet", b"never committed")
    report = check(partition.table.store)
    assert (report.partitions[1].unreferenced, report.problems) == (1, [])


def test_a_deleted_topic_is_not_looked_at(partition: Partition, store: Store) -> None:
    store.delete(segment_path(partition, 0))
    assert problems(partition) != []
    delete_topic(Cluster.open(store, partition.clock), "t")
    assert problems(partition) == []


# Segments.


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-1],
        lambda data: data[:80] + bytes([data[80] ^ 1]) + data[81:],
        lambda data: data[:0],
        lambda data: data + b"x",
    ],
)
def test_a_segment_that_was_changed_is_named(
    partition: Partition, store: Store, damage: Callable[[bytes], bytes]
) -> None:
    path = segment_path(partition, 1)
    store.put(path, damage(store.get(path)))
    found = problems(partition)
    assert found
    assert all(problem.startswith(f"{DIRECTORY}: segment {path.split('/')[-1]}") for problem in found)


def test_a_segment_that_is_another_or_missing_is_named(partition: Partition, store: Store) -> None:
    append(partition, b"x")
    append(partition, b"y")  # a segment of the same size
    *_, last = partition.snapshot.segments
    newest = len(partition.snapshot.segments) - 1
    whole = store.get(segment_path(partition, newest))
    store.put(segment_path(partition, newest), store.get(segment_path(partition, newest - 1)))
    said = f"is not the file of 1 record, offsets {last.base_offset}-{last.base_offset}"
    assert any(said in problem for problem in problems(partition))
    store.put(segment_path(partition, newest), whole)
    store.delete(segment_path(partition, 1))
    (problem,) = problems(partition)
    assert f"there is no object {segment_path(partition, 1)}" in problem


@pytest.mark.parametrize(
    ("lies", "problem"),
    [
        ({"size": 7}, "the log says 7"),
        ({"nulls": (0, 1, 2)}, "holds nulls in key, value and headers 2, 0, 2, its stats say 0, 1, 2"),
        (
            {"max_timestamp": "1969-12-31T23:59:59.999Z"},
            "its stats say 1970-01-01T00:00:00.000Z to 1969-12-31",
        ),
        ({"min_timestamp": "1970-01-01T00:00:00.001Z"}, "holds timestamps 1970-01-01T00:00:00.000Z to 1970"),
    ],
)
def test_stats_that_lie_are_named(partition: Partition, lies: dict[str, object], problem: str) -> None:
    commit_unchecked(partition, appended(partition, 6, **lies))
    (found,) = problems(partition)
    assert problem in found


# The log.


def test_offsets_that_are_missing_are_named(partition: Partition) -> None:
    gone = partition.snapshot.segments[1].remove(0, data_change=True)
    commit_unchecked(partition, Commit(commit_info(partition.clock, "DELETE"), removes=(gone,)))
    assert any("offsets 2-3 are missing before segment" in problem for problem in problems(partition))


def test_offsets_that_are_missing_at_the_end_are_named(partition: Partition) -> None:
    gone = partition.snapshot.segments[2].remove(0, data_change=True)
    commit_unchecked(partition, Commit(commit_info(partition.clock, "DELETE"), removes=(gone,)))
    assert any("offsets 4-5 are missing at the end" in problem for problem in problems(partition))


@pytest.mark.parametrize(("base", "reason"), [(4, "begins at offset 4"), (8, "begins at offset 8")])
def test_offsets_that_were_given_twice_or_skipped_are_named(
    partition: Partition, base: int, reason: str
) -> None:
    commit_unchecked(partition, appended(partition, base))
    (found,) = problems(partition)
    assert "version 5 of topics/t/partition=0 (WRITE) breaks the log" in found
    assert reason in found


def test_a_leader_epoch_that_moves_back_is_named(partition: Partition) -> None:
    info = commit_info(partition.clock, "CLAIM")
    commit_unchecked(partition, Commit(info, (Txn(TXN_LEADER, 0),)))
    assert any("leader epoch moved back from 1 to 0" in problem for problem in problems(partition))


@pytest.mark.parametrize(
    ("stamp", "problem"),
    [
        (ProducedBatch(7, 0, 8, 6, 2), "version 5 has producer 7 at sequence 8, 6 is next"),
        (ProducedBatch(7, 0, 4, 6, 2), "version 5 has producer 7 at sequence 4, 6 is next"),
    ],
)
def test_sequences_that_have_a_gap_or_a_repeat_are_named(
    partition: Partition, stamp: ProducedBatch, problem: str
) -> None:
    commit = appended(partition, 6)
    commit_unchecked(partition, changed(commit, info=replace(commit.info, producers=(stamp,))))
    assert f"{DIRECTORY}: {problem}" in problems(partition)


def test_an_epoch_that_moves_back_is_named(partition: Partition) -> None:
    append(partition, b"c", producer=ProducerStamp(7, 3, 0))
    commit = appended(partition, 7)
    info = replace(commit.info, producers=(ProducedBatch(7, 2, 1, 7, 2),))
    commit_unchecked(partition, changed(commit, info=info))
    assert f"{DIRECTORY}: version 6 has producer 7 at epoch 2, after epoch 3" in problems(partition)


def test_a_commit_that_cannot_be_read_is_named_and_the_other_tables_are_looked_at(
    partition: Partition, store: Store
) -> None:
    cluster = Cluster.open(store, partition.clock, "http://first")
    append(cluster.claim(create_topic(cluster, "u"), 0), b"a")
    store.put(commit_path(DIRECTORY, 3), b"{")
    report = check(store)
    assert [found.directory for found in report.partitions] == [METADATA, DIRECTORY, "topics/u/partition=0"]
    assert report.partitions[2].records == 1
    (problem,) = report.problems
    assert commit_path(DIRECTORY, 3) in problem


def test_a_checkpoint_that_says_something_else_is_named(partition: Partition, store: Store) -> None:
    partition.checkpoint()
    path = checkpoint_path(DIRECTORY, 4)
    written = decode(store.get(path), 4, DIRECTORY)
    store.put(path, encode(changed(written, adds=written.adds[1:])))
    lost = partition.snapshot.segments[0].path
    said = f"checkpoint 4 differs from the commits before it: it lacks the segment {lost}"
    remedy = "delete checkpoint 4 and _last_checkpoint: gateways make the next one"
    assert problems(partition) == [f"{DIRECTORY}: {said}; {remedy}"]
    store.put(path, encode(changed(written, txns=Txns())))
    assert len(problems(partition)) == len(written.txns)
    store.put(path, b"rotten")
    assert any(
        "checkpoint 4 of topics/t/partition=0 cannot be read" in problem for problem in problems(partition)
    )


def test_a_table_that_is_lost_is_named(partition: Partition, store: Store) -> None:
    for item in list(store.list(DIRECTORY)):
        store.delete(item.path)
    (problem,) = problems(partition)
    assert "there is no table, though the metadata log names it" in problem


def test_a_metadata_log_that_cannot_be_read_is_named(partition: Partition, store: Store) -> None:
    log = Cluster.open(store, partition.clock).metadata_log.partition
    log.claim("http://first")
    append(log, b"no topic")
    assert any("the metadata log cannot be read" in problem for problem in problems(partition))


def test_problems_name_no_path_of_the_machine(partition: Partition, store: Store, store_root: Path) -> None:
    store.delete(segment_path(partition, 0))
    store.put(segment_path(partition, 1), b"rotten")
    store.put(commit_path(METADATA, 2), b"rotten")
    found = problems(partition)
    assert found
    assert all(str(store_root) not in problem for problem in found)
