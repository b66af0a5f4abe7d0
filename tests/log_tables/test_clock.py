"""Which clock goes on in sleep, and the 30-minute rule by it, whatever the wall clock says."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from log_tables.clock import Backoff, ManualClock, SystemClock, sleepless_clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, NotLeader
from log_tables.layout import last_checkpoint_path
from log_tables.limits import LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.store.store import Store, open_store
from log_tables.testing import Call, ClockedStore, FaultyStore
from tests.kit.partitions import TABLE, another, append, new_partition, values

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
SHORT_MS, LONG_MS = 29 * MINUTE_MS, 61 * MINUTE_MS

POSIX = ["CLOCK_REALTIME", "CLOCK_MONOTONIC", "CLOCK_PROCESS_CPUTIME_ID", "CLOCK_THREAD_CPUTIME_ID"]
LINUX = [*POSIX, "CLOCK_MONOTONIC_RAW", "CLOCK_BOOTTIME", "CLOCK_TAI"]
MACOS = [*POSIX, "CLOCK_MONOTONIC_RAW", "CLOCK_UPTIME_RAW"]
NEWER_MACOS = [*MACOS, "CLOCK_MONOTONIC_RAW_APPROX", "CLOCK_UPTIME_RAW_APPROX"]
FREEBSD = [*POSIX, "CLOCK_PROF", "CLOCK_UPTIME", "CLOCK_BOOTTIME"]


@pytest.mark.parametrize(
    ("platform", "names", "chosen"),
    [
        ("linux", LINUX, "CLOCK_BOOTTIME"),
        ("darwin", MACOS, "CLOCK_MONOTONIC_RAW"),
        ("darwin", NEWER_MACOS, "CLOCK_MONOTONIC_RAW"),
    ],
)
def test_each_platform_has_a_clock_that_goes_on_in_sleep(
    platform: str, names: list[str], chosen: str
) -> None:
    assert sleepless_clock(platform, names) == chosen


@pytest.mark.parametrize(
    ("platform", "names"),
    [
        ("linux", [name for name in LINUX if name != "CLOCK_BOOTTIME"]),
        ("darwin", [*POSIX, "CLOCK_UPTIME_RAW", "CLOCK_BOOTTIME"]),
        ("freebsd14", FREEBSD),
        ("win32", []),
    ],
)
def test_a_platform_without_one_is_refused_by_name(platform: str, names: list[str]) -> None:
    with pytest.raises(InvalidArgument, match=rf"\({platform}\).*open tables on Linux or macOS"):
        sleepless_clock(platform, names)


def test_this_platform_has_one_that_is_not_the_wall_clock() -> None:
    clock = SystemClock()
    assert 0 < clock.boottime() <= clock.boottime() < clock.now_ms() / 1000 - DAY_MS


class Refused(ManualClock):
    """The clock of a platform that has none which goes on in sleep."""

    def boottime(self) -> float:
        sleepless_clock("freebsd14", FREEBSD)
        raise AssertionError


def test_where_there_is_none_no_root_is_opened_and_none_is_made() -> None:
    store = open_store("memory://")
    with pytest.raises(InvalidArgument, match="freebsd14"):
        Cluster.open(store, Refused())
    assert [*store.list("")] == []


# The 30-minute rule. Each case is a list of what happens to the machine: milliseconds awake, asleep, and by
# which its wall clock is set.

Happening = tuple[str, int]


def awake(ms: int) -> Happening:
    return "advance", ms


def asleep(ms: int) -> Happening:
    return "sleep", ms


def wall_set(ms: int) -> Happening:
    return "jump", ms


TOO_LONG = [
    [awake(LONG_MS)],
    [asleep(LONG_MS)],
    [awake(SHORT_MS), asleep(LONG_MS - SHORT_MS)],
    [asleep(LONG_MS), wall_set(-LONG_MS)],
    [wall_set(-DAY_MS), asleep(LONG_MS)],
    [awake(LONG_MS), wall_set(-LONG_MS)],
    [asleep(LONG_MS), wall_set(-DAY_MS)],
    [asleep(LONG_MS), wall_set(DAY_MS)],
    [wall_set(DAY_MS), awake(LONG_MS), wall_set(-2 * DAY_MS)],
    [asleep(SHORT_MS), wall_set(-SHORT_MS), asleep(SHORT_MS), wall_set(-SHORT_MS), awake(5 * MINUTE_MS)],
]
SHORT_ENOUGH: list[list[Happening]] = [
    [],
    [asleep(SHORT_MS)],
    [awake(SHORT_MS)],
    [wall_set(DAY_MS)],
    [wall_set(-DAY_MS)],
    [asleep(SHORT_MS), wall_set(DAY_MS)],
    [asleep(SHORT_MS), wall_set(-DAY_MS)],
]


def name_of(case: list[Happening]) -> str:
    return "-".join(f"{what}{ms // MINUTE_MS}" for what, ms in case) or "nothing"


class Machines:
    """A leader on a machine of its own, and another that fences it and cleans the log behind the claim.

    The other one's machine and the store go by clocks of their own, which are right.
    """

    def __init__(self) -> None:
        self.clock, self.right = ManualClock(seed=1), ManualClock(seed=2)
        self.store: Store = ClockedStore(open_store("memory://"), self.right)
        self.watched = FaultyStore(self.store)
        first = new_partition(self.store, self.right)
        append(first, b"0")
        self.other = another(first)
        self.leader = Partition(self.watched, TABLE, self.clock)
        self.leader.claim("http://leader")
        append(self.leader, b"1")

    def happen(self, case: list[Happening]) -> None:
        for what, ms in case:
            getattr(self.clock, what)(ms)

    def fence(self, buried: bool) -> None:
        """The other one claims and appends; with `buried`, what tells of it is cleaned an hour later."""
        self.other.claim("http://other")
        append(self.other, b"2")
        if buried:
            self.right.advance(LOG_RETENTION_MS + 1)
            self.other.refresh(wait=True)
            self.other.checkpoint()
            assert self.other.table.delete_expired_log() > self.leader.snapshot.version
        self.watched.calls.clear()

    @property
    def opened_again(self) -> bool:
        return Call("get", last_checkpoint_path(TABLE)) in self.watched.calls


def lost_append(leader: Partition) -> None:
    with pytest.raises(NotLeader):
        append(leader, b"lost")


def claim(leader: Partition) -> None:
    leader.table.transact(lambda _: None)  # not by `claim`, which looks first
    leader.claim("http://leader")
    append(leader, b"3")


def maintenance(leader: Partition) -> None:
    leader.set_properties({"user.note": "looked at"})
    assert leader.high_watermark == 3


ACTS = [lost_append, claim, maintenance]


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("case", TOO_LONG, ids=name_of)
def test_after_more_than_30_minutes_the_table_is_opened_again_and_the_fence_met(
    case: list[Happening], act: Callable[[Partition], None]
) -> None:
    machines = Machines()
    machines.fence(buried=True)
    machines.happen(case)
    act(machines.leader)
    assert machines.opened_again
    expected = [b"0", b"1", b"2", b"3"] if act is claim else [b"0", b"1", b"2"]
    assert values(another(machines.other)) == expected


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("case", SHORT_ENOUGH, ids=name_of)
def test_before_that_the_log_is_followed_to_the_fence(
    case: list[Happening], act: Callable[[Partition], None]
) -> None:
    machines = Machines()
    machines.fence(buried=False)
    machines.happen(case)
    act(machines.leader)
    assert not machines.opened_again
    expected = [b"0", b"1", b"2", b"3"] if act is claim else [b"0", b"1", b"2"]
    assert values(another(machines.other)) == expected


@pytest.mark.parametrize("case", TOO_LONG, ids=name_of)
def test_a_reader_that_did_not_look_for_so_long_opens_the_table_again(case: list[Happening]) -> None:
    machines = Machines()
    machines.fence(buried=True)
    machines.happen(case)
    assert machines.leader.refresh().high_watermark == 3
    assert machines.opened_again


def test_pauses_grow_up_to_their_bound() -> None:
    backoff = Backoff(0.5, max_s=3.0)
    pauses = [backoff.first_s]
    for _ in range(4):
        pauses.append(backoff.after(pauses[-1]))
    assert pauses == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_attempts_come_at_random_times_and_end() -> None:
    clock, backoff = ManualClock(), Backoff(1.0, max_s=2.0)
    times = [clock.monotonic() for _ in backoff.attempts(clock, 4)]
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) == 4
    assert all(0 < pause <= most for pause, most in zip(pauses, [1.0, 2.0, 2.0], strict=True))
    assert len(set(pauses)) == 3


def test_whoever_gives_up_does_not_wait_before() -> None:
    clock, backoff = ManualClock(), Backoff(1.0, max_s=2.0)
    times = [clock.monotonic() for _ in backoff.attempts(clock, 4)]
    assert clock.monotonic() == times[-1]
