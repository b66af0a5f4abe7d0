"""Idempotent producers of a partition: what a repeat is, and how long a producer is known."""

from collections.abc import Callable

import pytest

from log_tables.clock import Clock, ManualClock, SystemClock
from log_tables.errors import NotLeader, PutRefused, SequenceGap, StaleProducerEpoch
from log_tables.layout import producer_end_txn, producer_sequence_txn
from log_tables.limits import (
    BRIEF_PRODUCER_ID_MIN,
    BRIEF_PRODUCER_MAX_MS,
    BRIEF_PRODUCER_MIN_MS,
    ONCE_PRODUCER_ID_MIN,
    REPEAT_COMMITS,
    SEQUENCE_MODULUS,
)
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.partition.reader import PartitionConfig
from log_tables.partition.sequencer import brief_producer_id, client_producer_id
from log_tables.root.table_check import check_partition
from log_tables.store.store import Store
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.txns import ProducerState
from log_tables.testing import Fault, FaultyStore, refused, unavailable
from tests.kit.partitions import another, append, entry, new_partition, sound, values

DAY_MS = 24 * 60 * 60 * 1000


def test_a_repeat_writes_nothing_and_gets_its_offsets_again(partition: Partition) -> None:
    once = entry(b"a", b"b", producer=ProducerStamp(7, 0, 0))
    append(partition, b"before")
    first = partition.append([once])[0]
    version = partition.snapshot.version
    again = partition.append([once])[0]
    assert (first.base_offset, again.base_offset, again.duplicate) == (1, 1, True)
    assert partition.snapshot.version == version


def test_a_repeat_survives_a_claim_a_checkpoint_and_another_process(partition: Partition) -> None:
    once = entry(b"a", b"b", producer=ProducerStamp(7, 3, 0))
    partition.append([once])
    following = entry(b"c", producer=ProducerStamp(7, 3, 2))
    for checkpointed in (False, True, True):
        if checkpointed:
            partition.checkpoint()
        other = another(partition)
        other.claim("http://second")
        assert other.append([once])[0].base_offset == 0
        partition = other
    assert partition.append([following, following])[1].duplicate
    assert partition.append([once])[0].base_offset == 0
    assert values(another(partition)) == [b"a", b"b", b"c"]
    with pytest.raises(SequenceGap) as gap:
        append(partition, b"x", producer=ProducerStamp(7, 3, 4))
    assert gap.value.details == {"expected": 3}
    with pytest.raises(StaleProducerEpoch):
        append(partition, b"x", producer=ProducerStamp(7, 2, 3))
    assert append(partition, b"d", producer=ProducerStamp(7, 4, 0)) == 3
    assert sound(partition)


def test_the_last_five_batches_are_known_to_the_next_leader_too(partition: Partition) -> None:
    """Each batch is in its own commit, between those of others; a checkpoint hides them from a new reader."""
    sent = [entry(b"x", b"y", producer=ProducerStamp(7, 3, 2 * number)) for number in range(6)]
    for number, each in enumerate(sent):
        partition.append([each, entry(b"of others", producer=ProducerStamp(8, 0, number))])
    for checkpointed in (False, True):
        if checkpointed:
            partition.checkpoint()
        other = another(partition)
        other.claim("http://second")
        assert [other.append([each])[0].base_offset for each in sent] == [None, 3, 6, 9, 12, 15]
        assert other.append([sent[0]])[0].duplicate
        partition = other
    partition.append([entry(b"z", producer=ProducerStamp(7, 3, 12))])
    assert [partition.append([each])[0].base_offset for each in sent] == [None, None, 6, 9, 12, 15]
    assert partition.high_watermark == 19


def test_only_the_newest_commits_are_read_back_for_a_repeat(partition: Partition) -> None:
    sent = [entry(b"x", producer=ProducerStamp(7, 0, number)) for number in range(3)]
    for each in sent:
        partition.append([each])
    for _ in range(REPEAT_COMMITS - 1):
        append(partition, b"of others")
    store = FaultyStore(partition.table.store)
    other = another(partition, store)
    other.claim("http://second")
    store.calls.clear()
    assert [other.append([each])[0].base_offset for each in (*sent, *sent)] == [None, None, 2] * 2
    assert len(store.calls) <= REPEAT_COMMITS


def test_a_repeat_is_acknowledged_when_the_log_cannot_be_read_back(
    store: Store, partition: Partition
) -> None:
    sent = [entry(b"x", producer=ProducerStamp(7, 0, number)) for number in range(3)]
    for each in sent:
        partition.append([each])
    faulty = FaultyStore(store)
    other = another(partition, faulty)
    other.claim("http://second")
    faulty.faults.append(Fault(1, unavailable, ("get",)))
    again = other.append([sent[0]])[0]
    assert (again.base_offset, again.duplicate) == (None, True)
    assert other.append([sent[0]])[0].base_offset == 0


def test_batches_of_a_producer_that_was_forgotten_are_not_those_of_its_next_life(
    store: Store, clock: ManualClock
) -> None:
    partition = new_partition(store, clock, PartitionConfig(producer_expiration_ms=1_000))
    for number in range(3):
        append(partition, b"x", producer=ProducerStamp(7, 0, number))
    other = another(partition)
    other.claim("http://second")
    clock.advance(1_000)
    other.checkpoint()
    assert other.snapshot.producer(7) is None
    anew = [entry(b"a", b"b", producer=ProducerStamp(7, 0, 0)), entry(b"c", producer=ProducerStamp(7, 0, 2))]
    assert [other.append([each])[0].base_offset for each in anew] == [3, 5]
    again = other.append([entry(b"x", producer=ProducerStamp(7, 0, 1))])[0]
    assert (again.base_offset, again.duplicate) == (None, True)
    assert [other.append([each])[0].base_offset for each in anew] == [3, 5]


def test_a_repeat_has_the_time_of_its_first_append(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock, PartitionConfig(log_append_time=True))
    sent = [entry(b"x", producer=ProducerStamp(7, 0, number)) for number in range(3)]
    times = []
    for each in sent:
        clock.advance(10_000)
        times.append(partition.commit([partition.sequence(each)]))
    clock.advance(10_000)
    again = [partition.append([each])[0] for each in sent]
    assert [each.append_time_us for each in again] == times
    assert [each.base_offset for each in again] == [0, 1, 2]


def test_a_repeat_of_what_is_not_committed_yet_waits_for_it(partition: Partition) -> None:
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    first, again = partition.sequence(once), partition.sequence(once)
    assert (again.base_offset, again.duplicate) == (0, True)
    partition.commit([first, again])
    assert values(partition) == [b"a"]


def test_a_repeat_is_not_acknowledged_before_the_first_is_durable(partition: Partition) -> None:
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    first, again = partition.sequence(once), partition.sequence(once)
    with pytest.raises(NotLeader):
        partition.commit([again])
    with pytest.raises(NotLeader):
        partition.commit([first])
    assert values(another(partition)) == []


def test_a_repeat_of_what_failed_is_appended(store: Store, partition: Partition) -> None:
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    other = another(partition, FaultyStore(store, [Fault(1, refused, {"put_new"})]))
    other.claim("http://second")
    first, again = other.sequence(once), other.sequence(once)
    with pytest.raises(PutRefused):
        other.commit([first])
    with pytest.raises(NotLeader):
        other.commit([again])
    other.claim("http://second")
    placed = [other.append([once])[0] for _ in range(2)]
    assert [(item.base_offset, item.duplicate) for item in placed] == [(0, False), (0, True)]
    assert values(other) == [b"a"]


def test_a_producer_that_was_idle_for_long_is_forgotten(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock, PartitionConfig(producer_expiration_ms=DAY_MS))
    append(partition, b"old", producer=ProducerStamp(1, 5, 0))
    clock.advance(DAY_MS - 1)
    append(partition, b"young", producer=ProducerStamp(2, 0, 0))
    partition.checkpoint()
    assert another(partition).snapshot.producer(1) is not None
    clock.advance(1)
    partition.checkpoint()
    other = another(partition)
    assert other.snapshot.producer(1) is None
    assert other.snapshot.producer(2) is not None
    other.claim("http://second")
    with pytest.raises(SequenceGap) as raised:
        append(other, b"x", producer=ProducerStamp(1, 5, 1))
    assert raised.value.details == {"expected": 0}
    assert append(other, b"anew", producer=ProducerStamp(1, 0, 0)) == 2
    assert sound(other)


@pytest.mark.parametrize(
    ("expiration_ms", "kept_ms"),
    [(DAY_MS, BRIEF_PRODUCER_MAX_MS), (20 * 60_000, 20 * 60_000), (1_000, BRIEF_PRODUCER_MIN_MS)],
)
def test_a_producer_of_a_kafka_client_is_forgotten_sooner_and_never_at_once(
    store: Store, clock: ManualClock, expiration_ms: int, kept_ms: int
) -> None:
    brief, other = brief_producer_id(clock), client_producer_id(clock)
    partition = new_partition(store, clock, PartitionConfig(producer_expiration_ms=expiration_ms))
    for producer in (brief, other):
        append(partition, b"x", producer=ProducerStamp(producer, 0, 0))
    clock.advance(kept_ms - 1)
    partition.checkpoint()
    assert another(partition).snapshot.producer(brief) is not None
    assert (another(partition).snapshot.producer(other) is not None) == (expiration_ms >= kept_ms)
    clock.advance(1)
    partition.checkpoint()
    assert another(partition).snapshot.producer(brief) is None


@pytest.mark.parametrize("make", [brief_producer_id, client_producer_id])
def test_ids_of_producers_tell_how_long_they_are_kept(make: Callable[[Clock], int]) -> None:
    ids = [make(SystemClock()) for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert all(0 <= each < ONCE_PRODUCER_ID_MIN for each in ids)
    assert {each >= BRIEF_PRODUCER_ID_MIN for each in ids} == {make is brief_producer_id}


def test_sequences_wrap_around_in_the_log_too(partition: Partition, clock: ManualClock) -> None:
    last = SEQUENCE_MODULUS - 2
    known = ProducerState(0, last, 0)
    numbers = {producer_sequence_txn(7): known.packed, producer_end_txn(7): known.end_offset}
    txns = tuple(Txn(name, version, clock.now_ms()) for name, version in numbers.items())
    partition.table.transact(lambda _: Commit(commit_info(clock, "TWO BILLION RECORDS LATER"), txns=txns))
    partition.claim("http://first")
    wrapping = entry(b"a", b"b", b"c", producer=ProducerStamp(7, 0, last))
    assert partition.append([wrapping])[0].base_offset == 0
    other = another(partition)
    other.claim("http://second")
    assert other.append([wrapping])[0].base_offset == 0
    assert append(other, b"d", producer=ProducerStamp(7, 0, 1)) == 3
    assert values(another(partition)) == [b"a", b"b", b"c", b"d"]
    found = check_partition(other.table.store, other.directory).problems
    assert all("TWO BILLION RECORDS LATER" in problem for problem in found)


def test_a_producer_that_is_kept_is_never_forgotten(partition: Partition, clock: ManualClock) -> None:
    for stamp in (ProducerStamp(1, 0, 0, kept=True), ProducerStamp(2, 0, 0)):
        partition.append([entry(b"x", producer=stamp)])
    clock.advance(2 * DAY_MS)
    partition.checkpoint()
    assert partition.snapshot.producer(1) is not None
    assert partition.snapshot.producer(2) is None
