"""How often something may fail."""

from coordinator.access.authentication.password_verifier import FailureRate
from log_tables.clock import ManualClock


def test_after_a_burst_there_is_a_failure_each_period(clock: ManualClock) -> None:
    rate = FailureRate(3, 10, clock)
    assert [rate.take("ann") for _ in range(5)] == [True, True, True, False, False]
    assert rate.take("bob")
    clock.advance(9_999)
    assert not rate.take("ann")
    clock.advance(1)
    assert [rate.take("ann") for _ in range(2)] == [True, False]
    clock.advance(1_000_000)
    assert [rate.take("ann") for _ in range(4)] == [True, True, True, False]


def test_what_did_not_fail_costs_nothing(clock: ManualClock) -> None:
    rate = FailureRate(1, 10, clock)
    for _ in range(5):
        assert rate.take("ann")
        rate.give_back("ann")
    rate.give_back("ann")
    assert [rate.take("ann") for _ in range(2)] == [True, False]


def test_the_names_that_failed_last_are_kept(clock: ManualClock) -> None:
    rate = FailureRate(1, 10, clock, names_max=2)
    for name in ("ann", "bob", "cid"):
        assert rate.take(name)
    assert [rate.take(name) for name in ("cid", "bob")] == [False, False]
    assert rate.take("ann")
