"""The pauses between looks at partitions that other processes write."""

from api.process.looks import LookLimits, Looks
from log_tables.clock import ManualClock

LIMITS = LookLimits(first_s=1.0, longest_s=60.0, per_s=10.0)


def test_a_pause_grows_while_nothing_comes_and_begins_again_when_something_does() -> None:
    looks, pauses = Looks(LIMITS, ManualClock()), [0.0]
    for _ in range(7):
        pauses.append(looks.pause_s(pauses[-1], moved=False))
    assert pauses == [0, 1, 3, 7, 15, 31, 60, 60]
    assert looks.pause_s(60.0, moved=True) == 0


def test_of_very_many_each_is_looked_at_less_often_where_all_rests() -> None:
    looks = Looks(LIMITS, ManualClock())
    looks.begin(6_000)
    assert looks.pause_s(600.0, moved=False) == 750
    assert looks.pause_s(600.0, moved=False, rests=False) == 60
    looks.begin(600)
    assert looks.pause_s(600.0, moved=False) == 75


def test_a_round_has_as_many_looks_as_time_has_passed() -> None:
    clock = ManualClock()
    looks = Looks(LIMITS, clock)

    def turns(asked: int, pause_s: float) -> int:
        return sum(looks.has_turn(pause_s) for _ in range(asked))

    looks.begin(100)
    assert turns(50, 60.0) == 0
    clock.pause(1.05)
    looks.begin(100)
    assert (turns(50, 1.0), turns(50, 60.0)) == (50, 10)
    clock.pause(0.05)
    looks.begin(100)
    assert turns(50, 60.0) == 1, "half a look is kept for the next round"
    clock.pause(10)
    looks.begin(100)
    assert turns(5, 60.0) == 5
    looks.begin(100)
    assert turns(50, 60.0) == 1, "and those that nobody took are not"
