"""Staged files of Kafka's clients say whose records they hold, and a damaged one says nothing wrong."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import CorruptSegment
from log_tables.limits import SEQUENCE_MODULUS, STAGING_RETENTION_MS
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.producer_staging import (
    FOOT_BYTES,
    ProducerFile,
    ProducerRecords,
    delete,
    files_of,
    joined,
    read_foot,
    stage,
)
from log_tables.segments.staging import StagedFile, read_run
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, HoldingStore
from log_tables.topic_partition import TopicIdPartition
from tests.kit.support import wait_until


def records(sequence: int, *values: bytes, name: str = "x", partition: int = 0) -> ProducerRecords:
    at = TopicIdPartition("t", "id-t", partition)
    return ProducerRecords(name, 7, 0, 1, sequence, at, input_batch([Record(each) for each in values], 0))


def staged(store: Store, clock: ManualClock, *entries: ProducerRecords) -> ProducerFile:
    return stage(store, clock, 3, entries, joined(entries))


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


def test_records_that_follow_one_another_are_one_run() -> None:
    entries = [records(0, b"a"), records(0, b"z", name="y"), records(1, b"b", b"c"), records(5, b"f")]
    assert joined(entries) == [[0, 2], [1], [3]]
    assert joined([records(SEQUENCE_MODULUS - 1, b"a"), records(0, b"b")]) == [[0, 1]]


def test_a_file_is_read_by_its_foot(store: Store, clock: ManualClock) -> None:
    file = staged(store, clock, records(0, b"a"), records(1, b"b"), records(0, b"c", partition=1))
    assert file.path.startswith("staging/3/")
    assert files_of(store, 3) == ([file], [])
    assert files_of(store, 4) == ([], [])
    first, second = file.runs
    found = StagedFile(file.path, (first.run, second.run))
    assert [b.column("value").to_pylist() for b in read_run(store, found, first.run)] == [[b"a"], [b"b"]]
    assert staging.is_whole(store, found)
    delete(store, [file.path])
    assert files_of(store, 3) == ([], [])


def test_files_are_read_at_the_same_time(store: Store, clock: ManualClock) -> None:
    """An object store takes a while for each, and a coordinator that takes over waits for all."""
    files = [staged(store, clock, records(number, b"a")) for number in range(5)]
    slow = HoldingStore(store, "staging/3/", {"get_range"})
    slow.hold()
    with ThreadPoolExecutor(1) as other:
        reading = other.submit(files_of, slow, 3)
        try:
            wait_until(lambda: slow.held == len(files), "all are being read")
        finally:
            slow.let_go()
        found, errors = reading.result()
    assert (sorted(found, key=lambda each: each.runs[0].sequence), errors) == (files, [])


def test_a_foot_may_be_longer_than_what_is_read_at_first(store: Store, clock: ManualClock) -> None:
    many = [records(0, b"a", name=f"{number:0>900}") for number in range(100)]
    file = staged(store, clock, *many)
    size = store.head(file.path).size
    assert size > 2 * FOOT_BYTES
    assert read_foot(store, file.path, size) == file


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:0],
        lambda data: data[:-1],
        lambda data: data[:100],
        lambda data: data[:-8] + b"\xff" * 8,
        lambda data: data[:-20] + b"?" + data[-19:],
        lambda data: b"garbage" + data[:0],
    ],
)
def test_a_damaged_file_is_told_from_those_that_are_whole(
    store: Store, clock: ManualClock, damage: Callable[[bytes], bytes]
) -> None:
    broken, whole = staged(store, clock, records(0, b"a")), staged(store, clock, records(1, b"b"))
    store.put(broken.path, damage(bytes(store.get(broken.path))))
    files, errors = files_of(store, 3)
    assert files == [whole]
    assert [type(error) for error in errors] == [CorruptSegment]
    assert broken.path in errors[0].message


def test_a_vacuum_finds_the_files_of_yesterday(store: Store, clock: ManualClock) -> None:
    named, old = staged(store, clock, records(0, b"a")), staged(store, clock, records(1, b"b"))
    clock.advance(STAGING_RETENTION_MS + 1)
    young = staged(store, clock, records(2, b"c"))
    assert {file.path for file in staging.old_files(store)} == {named.path, old.path}
    assert {file.path for file in files_of(store, 3)[0]} == {named.path, old.path, young.path}
