"""A leader that sleeps, in its put or before it, learns what others did to its table meanwhile.

The stores here are on the clock of the test, so an hour passes for log files when the test says so.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from log_tables.errors import LakelogError, NotLeader, OutcomeUnknown
from log_tables.limits import CONFIRMATION_MAX_AGE_S, LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store
from log_tables.testing import Failure, Fault, FaultyStore, ManualClock, unavailable
from tests.kit.failures import after, before
from tests.kit.partitions import TABLE, another, append, append_each, bury, log_versions, values

STALE_MS = int(CONFIRMATION_MAX_AGE_S * 1000) + 1
ALMOST_STALE_MS = int(CONFIRMATION_MAX_AGE_S * 1000) - 1
COMMITS = {"put_if_absent"}
LOG = "_delta_log/"

Step = Callable[[Partition], object]
"""What another process does, which has the table open."""


@dataclass(frozen=True)
class Sleep:
    """A leader claims, appends `mine` and sleeps: what another one does, and what the leader hears."""

    outcome: int | type[LakelogError]
    """Of its append: the offset, or the error."""
    left: list[bytes]
    """What the log holds then."""
    earlier: tuple[bytes, ...] = ()
    """What it held before."""
    awake: Step = lambda _: None
    """Happens after the claim, before the append."""
    asleep: Step = lambda _: None
    when: Callable[[Callable[[], object]], Failure] = before
    """Whether it sleeps before its put has landed, or after that."""
    puts: tuple[int, ...] = (2,)
    """In which of its puts it sleeps; its claim's is the first."""
    leads: bool = False
    """Whether it leads afterwards."""
    versions: list[int] | None = None
    """The commits that are left of the log then."""


def tidy(other: Partition) -> None:
    other.checkpoint()
    other.table.delete_expired_log()


def take_over(other: Partition) -> None:
    other.claim("http://second")
    append(other, b"theirs")


def take_over_and_bury(other: Partition) -> None:
    take_over(other)
    bury(other)


def take_over_append_more_and_bury(other: Partition) -> None:
    take_over(other)
    append(other, b"theirs too")
    bury(other)


def take_over_and_almost_half_an_hour_passes(other: Partition) -> None:
    take_over(other)
    other.clock.pause(ALMOST_STALE_MS / 1000)


def half_an_hour_passes_and_the_log_is_cleaned(other: Partition) -> None:
    other.clock.pause((STALE_MS + 1) / 1000)
    tidy(other)


def take_over_merge_and_bury(other: Partition) -> None:
    """An hour after a merge nothing tells of its inputs any more: absence is no proof."""
    take_over(other)
    store, inputs = other.table.store, other.snapshot.segments
    assert commit_merge(other.table, inputs, merge(store, TABLE, inputs, "zstd", other.clock))
    bury(other)


def delete_what_is_there_within_the_hour(other: Partition) -> None:
    other.refresh()
    other.truncate(other.high_watermark)
    other.clock.pause((LOG_RETENTION_MS - 1) / 1000)
    other.checkpoint()


def maintain_twice_and_take_over(other: Partition) -> None:
    """Two versions of maintenance, then the fence, right after the sleepy one has looked."""
    other.truncate(1)
    other.truncate(2)
    take_over(other)


def almost_half_an_hour_passes_and_the_log_is_cleaned(other: Partition) -> None:
    other.clock.pause(ALMOST_STALE_MS / 1000)
    tidy(other)


SLEEPS = {
    "past a cleanup": Sleep(
        NotLeader,
        [b"earlier", b"theirs", b"theirs too"],
        earlier=(b"earlier",),
        awake=take_over_append_more_and_bury,
        puts=(),
        versions=[6],
    ),
    "in its put": Sleep(
        NotLeader,
        [b"earlier", b"theirs"],
        earlier=(b"earlier",),
        awake=take_over_and_almost_half_an_hour_passes,
        asleep=half_an_hour_passes_and_the_log_is_cleaned,
        versions=[4, 5],  # its own commit landed in a place that was cleaned
    ),
    "in its put for an hour": Sleep(
        OutcomeUnknown, [b"earlier", b"theirs"], earlier=(b"earlier",), asleep=take_over_and_bury
    ),
    "after its put, while its segment is merged and forgotten": Sleep(
        OutcomeUnknown, [b"mine", b"theirs"], asleep=take_over_merge_and_bury, when=after
    ),
    "after its put, while its segment is deleted": Sleep(
        0, [], asleep=delete_what_is_there_within_the_hour, when=after, leads=True
    ),
    "after its put for an hour": Sleep(0, [b"mine", b"theirs"], asleep=take_over_and_bury, when=after),
    "several times for a short time": Sleep(
        NotLeader,
        [b"2", b"theirs"],
        earlier=(b"0", b"1", b"2"),
        awake=maintain_twice_and_take_over,
        asleep=almost_half_an_hour_passes_and_the_log_is_cleaned,
        puts=(2, 3, 4),
    ),
}


@pytest.mark.parametrize("name", SLEEPS)
def test_a_leader_that_slept_is_not_told_wrongly_what_became_of_its_append(
    store: Store, partition: Partition, name: str
) -> None:
    sleep = SLEEPS[name]
    append_each(partition, sleep.earlier)
    other = another(partition)
    failure = sleep.when(lambda: sleep.asleep(other))
    sleepy = another(partition, FaultyStore(store, [Fault(n, failure, COMMITS, LOG) for n in sleep.puts]))
    sleepy.claim("http://sleepy")
    sleep.awake(other)
    if isinstance(sleep.outcome, int):
        assert append(sleepy, b"mine") == sleep.outcome
        assert values(sleepy) == sleep.left
    else:
        said = "may have been removed since" if sleep.outcome is OutcomeUnknown else "does not lead"
        with pytest.raises(sleep.outcome, match=said):
            append(sleepy, b"mine")
    assert sleepy.leading == sleep.leads
    assert sleep.versions in (None, log_versions(partition)[0])
    assert values(another(partition)) == sleep.left
    if not sleep.leads:
        with pytest.raises(NotLeader):
            append(sleepy, b"lost")


def test_a_claim_whose_answer_came_an_hour_late_is_repeated(store: Store, partition: Partition) -> None:
    """A second claim fences as well as the first, so nobody looks up whether the first was committed."""
    other = another(partition)
    sleepy = another(
        partition, FaultyStore(store, [Fault(1, after(lambda: take_over_and_bury(other)), COMMITS, LOG)])
    )
    sleepy.claim("http://sleepy")
    with pytest.raises(NotLeader):
        append(other, b"lost")
    assert append(sleepy, b"mine") == 1
    assert values(another(partition)) == [b"theirs", b"mine"]


def test_a_table_that_cannot_be_read_again_leaves_the_outcome_unknown(
    store: Store, clock: ManualClock, partition: Partition
) -> None:
    def sleep() -> None:
        clock.advance(STALE_MS)
        faulty.faults.append(Fault(1, unavailable, {"get"}))

    faulty = FaultyStore(store, [Fault(2, after(sleep), COMMITS, LOG)])
    sleepy = another(partition, faulty)
    sleepy.claim("http://sleepy")
    with pytest.raises(OutcomeUnknown):
        append(sleepy, b"mine")
    assert not sleepy.leading
    assert values(another(partition)) == [b"mine"]
