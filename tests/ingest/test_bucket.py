"""A burst at once, then the rate, on a clock that is moved by hand."""

import pytest

from ingest.commit_budget import CommitBucket
from log_tables.clock import ManualClock


def test_a_burst_is_free_and_then_each_commit_waits_for_its_token(clock: ManualClock) -> None:
    bucket = CommitBucket(rate=10, burst=3, clock=clock)
    for _ in range(3):
        assert bucket.delay_s() == 0
        bucket.take()
    assert bucket.delay_s() == pytest.approx(0.1)
    clock.advance(40)
    assert bucket.delay_s() == pytest.approx(0.06)
    clock.advance(60)
    assert bucket.delay_s() == 0


def test_idle_time_refills_the_burst_and_no_more(clock: ManualClock) -> None:
    bucket = CommitBucket(rate=10, burst=2, clock=clock)
    clock.advance(3_600_000)
    for _ in range(2):
        assert bucket.delay_s() == 0
        bucket.take()
    assert bucket.delay_s() > 0


def test_over_a_long_time_there_are_as_many_commits_as_the_rate_allows(clock: ManualClock) -> None:
    bucket = CommitBucket(rate=20, burst=5, clock=clock)
    commits = 0
    while clock.monotonic() < 10:
        if bucket.delay_s() == 0:
            bucket.take()
            commits += 1
        else:
            clock.advance(1)
    assert commits in range(203, 207)


def test_a_commit_before_its_token_is_paid_back(clock: ManualClock) -> None:
    bucket = CommitBucket(rate=10, burst=1, clock=clock)
    for _ in range(3):
        bucket.take()
    assert bucket.delay_s() == pytest.approx(0.3)


def used_up(rate: float, clock: ManualClock, burst: int = 3) -> CommitBucket:
    """A bucket that has had its burst, so that its tokens come at the rate."""
    bucket = CommitBucket(rate, burst, clock)
    for _ in range(burst):
        bucket.take()
    return bucket


def commit_times(
    buckets: list[CommitBucket], takes_ms: int, seconds: int, clock: ManualClock
) -> list[set[int]]:
    """When each of these busy partitions commits, in ms: each asks again when its commit is over."""
    end = clock.now_ms() + seconds * 1_000
    times: list[set[int]] = [set() for _ in buckets]
    asks = [clock.now_ms()] * len(buckets)
    commits = [0] * len(buckets)
    while clock.now_ms() < end:
        for index, bucket in enumerate(buckets):
            if asks[index] == clock.now_ms():
                commits[index] = clock.now_ms() + round(bucket.delay_s() * 1_000)
            if commits[index] == clock.now_ms():
                bucket.take()
                times[index].add(clock.now_ms())
                asks[index] = clock.now_ms() + takes_ms
        clock.advance(1)
    return times


@pytest.mark.parametrize("burst", [1, 3])
@pytest.mark.parametrize("rate", [5, 20, 50])
def test_the_commits_of_a_request_to_busy_partitions_go_in_one_round(
    rate: float, burst: int, clock: ManualClock
) -> None:
    """A request waits in all its partitions, and is answered when the last of their commits is done."""
    buckets = []
    for number in range(16):
        clock.advance(7 * number)  # they begin at different moments
        buckets.append(used_up(rate, clock, burst))
    times = commit_times(buckets, 2, 10, clock)
    settled = clock.now_ms() - 9_000
    rounds = [{at for at in each if at > settled} for each in times]
    assert len(rounds[0]) in range(round(9 * rate) - 1, round(9 * rate) + 2)
    assert all(each == rounds[0] for each in rounds)


def test_a_commit_that_is_late_misses_no_round(clock: ManualClock) -> None:
    """A commit that sleeps until the next token always wakes up a little late."""
    clock.advance(9)
    bucket, commits = used_up(20, clock, burst=1), 0
    while clock.monotonic() < 10:
        clock.advance(round(bucket.delay_s() * 1_000) + 3)
        bucket.take()
        commits += 1
    assert commits in range(198, 202)


def test_whoever_was_idle_waits_for_no_round(clock: ManualClock) -> None:
    bucket = used_up(50, clock)
    clock.advance(33)  # between two rounds
    assert bucket.delay_s() == 0


def test_no_rate_is_no_bound(clock: ManualClock) -> None:
    bucket = CommitBucket(rate=0, burst=1, clock=clock)
    for _ in range(1_000):
        assert bucket.delay_s() == 0
        bucket.take()
