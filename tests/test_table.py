"""One table followed by several processes: who commits which version, and who learns what of it.

The stores here are on the clock of the test, so an hour passes for log files when the test says so.
"""

from collections.abc import Callable

import pytest

from log_tables.errors import (
    NotLeader,
)
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.partition import Partition
from log_tables.store import Store, open_store
from log_tables.testing import (
    ClockedStore,
    Fault,
    FaultyStore,
    ManualClock,
)
from tests.partitions import another, append, append_each, log_versions, new_partition, values

STALE_MS = int(CONFIRMATION_MAX_AGE_S * 1000) + 1
ALMOST_STALE_MS = int(CONFIRMATION_MAX_AGE_S * 1000) - 1
COMMITS = {"put_if_absent"}
LOG = "_delta_log/"


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return ClockedStore(open_store("memory://"), clock)


@pytest.fixture
def partition(store: Store, clock: ManualClock) -> Partition:
    return new_partition(store, clock)


def before(step: Callable[[], object]) -> Callable[[Callable[[], object]], object]:
    """A failure that is none: `step` happens, then what was asked."""

    def perform_after(perform: Callable[[], object]) -> object:
        step()
        return perform()

    return perform_after


def after(step: Callable[[], object]) -> Callable[[Callable[[], object]], object]:
    """What was asked happens, then `step`, and only then the answer arrives."""

    def perform_before(perform: Callable[[], object]) -> object:
        result = perform()
        step()
        return result

    return perform_before


def bury(partition: Partition) -> None:
    """Checkpoint what `partition` knows and clean the log before it, an hour later."""
    partition.clock.pause(LOG_RETENTION_MS / 1000 + 1)
    partition.refresh(wait=True)
    partition.checkpoint()
    partition.clean_log()


def test_a_leader_that_slept_past_a_cleanup_is_fenced(partition: Partition) -> None:
    append(partition, b"mine")
    other = another(partition)
    other.claim("http://second")
    append_each(other, [b"theirs", b"theirs too"])
    bury(other)
    assert log_versions(other)[0] == [other.snapshot.version]

    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert not partition.leading
    assert values(another(partition)) == [b"mine", b"theirs", b"theirs too"]


def test_a_leader_that_slept_in_its_put_is_fenced(store: Store, partition: Partition) -> None:
    append(partition, b"mine")
    other = another(partition)

    def sleep() -> None:
        other.claim("http://second")
        append(other, b"theirs")
        bury(other)

    sleepy = another(partition, FaultyStore(store, [Fault(2, before(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    with pytest.raises(NotLeader):
        append(sleepy, b"lost")
    assert values(another(partition)) == [b"mine", b"theirs"]


def test_a_leader_whose_answer_came_an_hour_late_knows_that_it_won(
    store: Store, partition: Partition
) -> None:
    other = another(partition)

    def sleep() -> None:
        other.refresh()
        append_each_of(other)
        bury(other)

    def append_each_of(found: Partition) -> None:
        found.claim("http://second")
        append_each(found, [b"theirs"])

    sleepy = another(partition, FaultyStore(store, [Fault(2, after(sleep), COMMITS, LOG)]))
    sleepy.claim("http://sleepy")
    assert append(sleepy, b"mine") == 0
    assert not sleepy.leading
    assert values(another(partition)) == [b"mine", b"theirs"]
    with pytest.raises(NotLeader):
        append(sleepy, b"lost")


def test_many_short_sleeps_do_not_add_up_to_a_lost_fence(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    append_each(partition, [b"0", b"1", b"2"])
    other = another(partition)

    def nap() -> None:
        clock.advance(ALMOST_STALE_MS)
        other.checkpoint()
        other.clean_log()

    sleepy = another(partition, FaultyStore(store, [Fault(n, before(nap), COMMITS, LOG) for n in (2, 3, 4)]))
    sleepy.claim("http://sleepy")
    # Two versions of maintenance, then the fence, right after the sleepy one has looked.
    other.truncate(1)
    other.truncate(2)
    other.claim("http://second")
    append(other, b"theirs")

    with pytest.raises(NotLeader):
        append(sleepy, b"lost")
    assert values(another(partition)) == [b"2", b"theirs"]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("step", range(1, 9))
def test_an_opening_that_meets_a_cleanup_at_any_step_sees_the_newest_version(
    store: Store, clock: ManualClock, partition: Partition, step: int, checkpointed: bool
) -> None:
    if checkpointed:
        partition.checkpoint()
    append_each(partition, [b"0", b"1"])
    clock.advance(LOG_RETENTION_MS + 1)
    cleaner = another(partition)

    def clean() -> None:
        cleaner.checkpoint()
        cleaner.clean_log()

    reads = {"get", "head", "list"}
    opening = another(partition, FaultyStore(store, [Fault(step, before(clean), reads)]))
    assert opening.snapshot.version == partition.snapshot.version


def test_a_claim_is_seen_by_all_though_a_clock_let_the_log_be_cleaned_too_early(
    clock: ManualClock, partition: Partition
) -> None:
    append(partition, b"0")
    follower = another(partition)
    append(partition, b"1")
    append(partition, b"2")
    partition.checkpoint()
    clock.jump(LOG_RETENTION_MS + 1)
    assert partition.clean_log() > follower.snapshot.version
    follower.claim("http://second")
    assert follower.high_watermark == 3
    with pytest.raises(NotLeader):
        append(partition, b"lost")
    assert append(follower, b"3") == 3
    assert values(another(partition)) == [b"0", b"1", b"2", b"3"]
