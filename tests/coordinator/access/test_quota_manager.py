"""Quotas: what a principal may use in the long run is its rate, and a burst is never more than a second's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.principal import Principal
from coordinator.access.quota_manager import DELAY_MAX_S, QuotaKind, QuotaManager
from log_tables.clock import ManualClock
from log_tables.cluster.access_record import DEFAULT_QUOTA, Quota
from log_tables.errors import QuotaReached

ALICE = Principal("User:alice", ("Group:a", "Group:b"))
BYTES = QuotaKind.PRODUCER_BYTES


def manager(clock: ManualClock, **quotas: float) -> QuotaManager:
    names = {"own": ALICE.name, "a": "Group:a", "b": "Group:b", "default": DEFAULT_QUOTA}
    known = {names[name]: Quota(producer_byte_rate=rate) for name, rate in quotas.items()}
    return QuotaManager(lambda: known, clock)


@pytest.mark.parametrize(
    ("quotas", "rate"),
    [
        ({}, None),
        ({"default": 1.0}, 1.0),
        ({"default": 1.0, "a": 5.0}, 5.0),
        ({"a": 5.0, "b": 7.0}, 7.0),
        ({"own": 2.0, "a": 5.0, "default": 9.0}, 2.0),
    ],
)
def test_the_nearest_quota_counts(clock: ManualClock, quotas: dict[str, float], rate: float | None) -> None:
    found = manager(clock, **quotas)
    assert found.rate(ALICE, BYTES) == rate
    assert found.rate(ALICE, QuotaKind.CONSUMER_BYTES) is None


@given(
    st.lists(st.tuples(st.floats(0, 5_000), st.integers(0, 3_000)), min_size=20, max_size=200),
    st.floats(1, 10_000),
)
def test_in_the_long_run_nobody_uses_more_than_its_rate(uses: list[tuple[float, int]], rate: float) -> None:
    """Without its last request, a principal is charged at most its rate and the burst of one second."""
    clock = ManualClock()
    found, begin, charged, last = manager(clock, own=rate), clock.monotonic(), 0.0, 0.0
    for amount, pause_ms in uses:
        clock.advance(pause_ms)
        try:
            delay_s = found.delay_s(ALICE, BYTES)
        except QuotaReached:
            continue
        clock.advance(round(delay_s * 1_000) + 1)
        assert charged <= rate * (clock.monotonic() - begin + 1) + 1e-6 * charged + last
        found.charge(ALICE, BYTES, amount)
        charged, last = charged + amount, amount


def test_a_short_debt_delays_and_a_long_one_refuses(clock: ManualClock) -> None:
    found = manager(clock, own=100)
    assert found.delay_s(ALICE, BYTES) == 0
    found.charge(ALICE, BYTES, 150)
    assert found.delay_s(ALICE, BYTES) == pytest.approx(0.5)
    found.charge(ALICE, BYTES, 250)
    with pytest.raises(QuotaReached, match=r"User:alice .* producer_byte_rate of 100 a second") as refused:
        found.delay_s(ALICE, BYTES)
    assert float(refused.value.details["retry_after_s"]) > DELAY_MAX_S
    clock.advance(2_500)
    assert found.delay_s(ALICE, BYTES) == pytest.approx(0.5)
    clock.advance(500)
    assert found.delay_s(ALICE, BYTES) == 0


@pytest.mark.parametrize(("rate", "debt_s"), [(1_000, 0.05), (10, 0.5)])
def test_a_changed_quota_makes_no_debt_longer_and_a_larger_one_makes_it_shorter(
    clock: ManualClock, rate: float, debt_s: float
) -> None:
    known = {ALICE.name: Quota(producer_byte_rate=100)}
    found = QuotaManager(lambda: known, clock)
    found.charge(ALICE, BYTES, 150)
    known[ALICE.name] = Quota(producer_byte_rate=rate)
    assert found.delay_s(ALICE, BYTES) == pytest.approx(debt_s)


def test_principals_do_not_share_a_bucket(clock: ManualClock) -> None:
    found = manager(clock, default=10)
    found.charge(ALICE, BYTES, 1_000)
    assert found.delay_s(Principal("User:bob"), BYTES) == 0
