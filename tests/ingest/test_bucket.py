"""ingest/bucket.py: a burst at once, then the rate, on a clock that is moved by hand."""

import pytest

from ingest.bucket import CommitBucket
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


def test_no_rate_is_no_bound(clock: ManualClock) -> None:
    bucket = CommitBucket(rate=0, burst=1, clock=clock)
    for _ in range(1_000):
        assert bucket.delay_s() == 0
        bucket.take()
