"""Idempotent producers of a partition: what a repeat is, and how long a producer is known."""

import pytest

from log_tables.clock import ManualClock
from log_tables.errors import NotLeader, PutRefused, SequenceGap, StaleProducerEpoch
from log_tables.layout import producer_end_txn, producer_sequence_txn
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.partition.reader import PartitionConfig
from log_tables.store.store import Store
from log_tables.table.commit import Commit, Txn
from log_tables.table.delta_log import commit_info
from log_tables.table.snapshot import ProducerState
from log_tables.testing import Fault, FaultyStore, refused
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
    assert partition.append([once])[0].base_offset is None
    assert values(another(partition)) == [b"a", b"b", b"c"]
    with pytest.raises(SequenceGap) as gap:
        append(partition, b"x", producer=ProducerStamp(7, 3, 4))
    assert gap.value.details == {"expected": 3}
    with pytest.raises(StaleProducerEpoch):
        append(partition, b"x", producer=ProducerStamp(7, 2, 3))
    assert append(partition, b"d", producer=ProducerStamp(7, 4, 0)) == 3
    assert sound(partition)


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
    assert sound(other)


def test_a_producer_that_is_kept_is_never_forgotten(partition: Partition, clock: ManualClock) -> None:
    for stamp in (ProducerStamp(1, 0, 0, kept=True), ProducerStamp(2, 0, 0)):
        partition.append([entry(b"x", producer=stamp)])
    clock.advance(2 * DAY_MS)
    partition.checkpoint()
    assert partition.snapshot.producer(1) is not None
    assert partition.snapshot.producer(2) is None
