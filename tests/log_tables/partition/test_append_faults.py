"""Appends and claims on a store that loses answers, refuses, or is full."""

from collections.abc import Callable

import pytest

from log_tables.errors import LakelogError, NotLeader, OutcomeUnknown, PutRefused, StoreUnavailable
from log_tables.partition.partition import Partition, ProducerStamp
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
from tests.kit.partitions import another, append, entry, sound, values

COMMITS = {"put_if_absent"}


@pytest.mark.parametrize("failure", [answer_lost, repeated])
def test_an_append_whose_answer_was_lost_is_acknowledged_once(
    store: Store, partition: Partition, failure: Failure
) -> None:
    other = another(partition, FaultyStore(store, [Fault(2, failure, COMMITS)]))
    other.claim("http://second")
    assert append(other, b"a") == 0
    assert other.leading
    assert append(other, b"b") == 1
    assert values(another(partition)) == [b"a", b"b"]


@pytest.mark.parametrize("failure", [answer_lost, repeated, unavailable, nothing_landed])
def test_a_claim_survives_what_an_append_does(store: Store, partition: Partition, failure: Failure) -> None:
    other = another(partition, FaultyStore(store, [Fault(1, failure, COMMITS)]))
    other.claim("http://second")
    assert other.snapshot.leader_epoch == 2
    assert append(other, b"a") == 0


@pytest.mark.parametrize("failure", [unavailable, nothing_landed])
def test_an_append_that_did_not_land_is_repeated_as_it_was(
    store: Store, partition: Partition, failure: Failure
) -> None:
    other = another(partition, FaultyStore(store, [Fault(n, failure, COMMITS) for n in (2, 3)]))
    other.claim("http://second")
    assert append(other, b"a") == 0
    assert [segment.records for segment in another(partition).snapshot.segments] == [1]


def test_an_append_whose_outcome_stays_unknown_ends_the_leadership(
    store: Store, partition: Partition
) -> None:
    faulty = FaultyStore(store, [Fault(n, unavailable, COMMITS) for n in range(2, 40)])
    other = another(partition, faulty)
    other.claim("http://second")
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    waiting = [other.sequence(once), other.sequence(entry(b"b"))]
    with pytest.raises(OutcomeUnknown):
        other.commit(waiting[:1])
    assert not other.leading
    with pytest.raises(NotLeader):
        other.commit(waiting[1:])
    healthy = another(partition)
    healthy.claim("http://third")
    assert healthy.append([once])[0].base_offset == 0
    assert healthy.append([once])[0].duplicate
    assert values(another(partition)) == [b"a"]


def test_an_append_that_lands_after_all_is_not_doubled_by_its_repeat(
    store: Store, partition: Partition
) -> None:
    late: list[Callable[[], object]] = []

    def delayed(perform: Callable[[], object]) -> object:
        late.append(perform)
        raise StoreUnavailable("the put is still on its way; wait")

    other = another(partition, FaultyStore(store, [Fault(n, delayed, COMMITS) for n in range(2, 40)]))
    other.claim("http://second")
    once = entry(b"a", producer=ProducerStamp(7, 0, 0))
    with pytest.raises(OutcomeUnknown):
        other.append([once])
    late[0]()
    healthy = another(partition)
    healthy.claim("http://third")
    assert healthy.append([once])[0] == healthy.append([once])[0]
    assert healthy.append([once])[0].duplicate
    assert values(another(partition)) == [b"a"]
    with pytest.raises(LakelogError):
        late[1]()


def test_a_full_disk_ends_the_leadership_and_nothing_is_written(store: Store, partition: Partition) -> None:
    for fault in (Fault(1, refused, {"put_new"}), Fault(2, refused, COMMITS)):
        other = another(partition, FaultyStore(store, [fault]))
        other.claim("http://second")
        with pytest.raises(PutRefused):
            append(other, b"a")
        assert not other.leading
        other.claim("http://second")
        assert other.high_watermark == 0
    assert append(other, b"a") == 0
    assert sound(other)
