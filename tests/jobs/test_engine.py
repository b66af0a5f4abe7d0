"""The contract of every engine: results in order, an item that fails alone, parts that fit into a job."""

import os
import signal
from pathlib import Path

import pytest

from jobs.engine import Engine, Failure, whole
from log_tables.errors import InvalidArgument
from log_tables.task import batches


def half(number: int) -> int:
    if number == 6:
        os._exit(1)
    if number == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 10:
        return Path("nowhere").stat().st_size
    if number % 2:
        raise InvalidArgument(f"{number} is odd; name another")
    return number // 2


def test_results_come_in_order_and_an_item_fails_alone_also_with_its_worker(engine: Engine) -> None:
    made = engine.spread(half, [2, 3, 4, 6, 12, 8, 10, 14])
    assert [made[0], made[2], made[4], made[7]] == [1, 2, 6, 7]
    assert made[1] == Failure("3 is odd; name another")
    assert all(isinstance(made[number], Failure) for number in (3, 5, 6))
    assert "tests.jobs.test_engine.half: FileNotFoundError: " in str(made[6])


def test_of_nothing_there_is_nothing(engine: Engine) -> None:
    assert engine.spread(half, []) == []
    assert engine.shuffle([]) == []


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([3, 3, 3, 3], [(3, 3, 3), (3,)]),
        ([10], [(10,)]),
        ([11, 1, 9, 1], [(11,), (1, 9), (1,)]),
        ([1, 1, 1, 1, 1], [(1, 1, 1, 1), (1,)]),
    ],
)
def test_what_is_handed_over_at_once_is_bounded(sizes: list[int], expected: list[tuple[int, ...]]) -> None:
    assert [*batches(sizes, lambda size: size, 10, 4)] == expected


def test_a_part_is_whole_or_has_its_first_failure() -> None:
    assert whole([1, 2]) == (1, 2)
    assert whole([]) == ()
    assert whole([1, Failure("b"), Failure("c")]) == Failure("b")
