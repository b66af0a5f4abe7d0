"""How often a source is asked: at once for what is new, seldom for what stays unknown."""

from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.schemas.look_ups import LookUps


def test_a_burst_then_one_a_second_and_each_id_once_a_second(clock: ManualClock) -> None:
    look_ups = LookUps(clock, burst=4, per_s=1)
    assert look_ups.due(range(10)) == [0, 1, 2, 3]
    assert look_ups.due(range(10)) == []
    clock.advance(1_000)
    assert look_ups.due(range(10)) == [4], "an id that was asked for leaves its turn to a new one"
    clock.advance(2_999)
    assert look_ups.due([0, 1, 5]) == [5], "and the rest of half of a burst"
    clock.advance(2_000)
    assert look_ups.due([0, 1]) == [0]


def test_one_look_up_may_be_for_many(clock: ManualClock) -> None:
    look_ups = LookUps(clock, burst=2, per_s=1)
    assert look_ups.due(range(100), together=True) == [*range(100)]
    assert look_ups.due(range(50, 200), together=True) == [*range(100, 200)]
    assert look_ups.due([500], together=True) == []


@given(st.lists(st.tuples(st.integers(0, 2_000), st.lists(st.integers(0, 30), max_size=30)), max_size=40))
def test_no_more_are_asked_than_the_burst_and_the_rate_allow(steps: list[tuple[int, list[int]]]) -> None:
    clock = ManualClock()
    look_ups, asked, last = LookUps(clock, burst=5, per_s=2), 0, dict[object, float]()
    began = clock.monotonic()
    for pause_ms, ids in steps:
        clock.advance(pause_ms)
        for each in look_ups.due(ids):
            assert clock.monotonic() - last.get(each, -1.0) >= 1
            last[each] = clock.monotonic()
            asked += 1
    assert asked <= 5 + 2 * (clock.monotonic() - began)
