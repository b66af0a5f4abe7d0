"""The history checker against histories that are wrong, each in one way, and against correct ones."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from tests.kit.breaking import BROKEN, Breaker
from tests.kit.histories import Run, runs
from tests.kit.history import (
    At,
    Commit,
    Fetch,
    History,
    Operation,
    Outcome,
    Part,
    Place,
    Placed,
    Poll,
    Row,
    Rows,
    Write,
    load,
)
from tests.kit.history_checker import Finding, Kind, Log, check


@given(run=runs())
def test_nothing_is_found_in_a_correct_history(run: Run) -> None:
    assert check(run.operations, run.log) == []


@pytest.mark.parametrize(
    ("breaking", "kind", "besides"), BROKEN, ids=lambda each: getattr(each, "__name__", "")
)
@given(run=runs(), data=st.data())
def test_what_is_broken_is_found(
    breaking: Callable[[Breaker], None], kind: Kind, besides: set[Kind], run: Run, data: st.DataObject
) -> None:
    breaking(Breaker(run, data))
    kinds = {finding.kind for finding in check(run.operations, run.log)}
    assert kind in kinds
    assert kinds <= {kind} | besides


def test_every_kind_of_finding_is_broken_on_purpose() -> None:
    assert {kind for _, kind, _ in BROKEN} == set(Kind)


AT = At("t", 0)
SENT = Write("somebody", (Part(AT, ("a", "b")),))


def found(operations: list[Operation], *values: str) -> list[Finding]:
    return check(operations, Log({AT: dict(enumerate(values))}, {}))


@pytest.mark.parametrize(
    ("there", "kinds"),
    [
        ("", set()),
        ("ab", set()),
        ("abab", {Kind.DOUBLED}),
        ("a", {Kind.HALF}),
        ("b", {Kind.HALF}),
        ("ba", {Kind.REORDERED}),
    ],
)
def test_what_is_unknown_is_there_once_or_not_at_all(there: str, kinds: set[Kind]) -> None:
    assert {finding.kind for finding in found([Operation(SENT, 0)], *there)} == kinds


def test_what_is_unknown_may_happen_long_after() -> None:
    later = Write("somebody", (Part(AT, ("c",)),))
    acknowledged = Operation(later, 10, 11, Outcome.OK, Placed((0,)))
    assert found([Operation(SENT, 0), acknowledged], "c", "a", "b") == []


def test_a_finding_names_values_and_offsets() -> None:
    acknowledged = Operation(SENT, 0, 1, Outcome.OK, Placed((0, 1)))
    assert found([acknowledged]) == [
        Finding(Kind.LOST, "['a', 'b'] of somebody, acknowledged at (0, 1)"),
    ]
    assert found([acknowledged], "a", "x", "b") == [
        Finding(Kind.UNSENT, "'x' at t/0@1"),
        Finding(Kind.MISPLACED, "'b' is at t/0@2, not at t/0@1"),
    ]


def test_a_transaction_whose_place_was_not_told_may_come_behind_others_but_not_behind_its_own_group() -> None:
    first = Write("x", (Part(AT, ("a",)),), group="g")
    second = Write("x", (Part(AT, ("b",)),), group="g")
    answered = Operation(first, 0, 1, Outcome.OK, Placed((None,)))
    other = Operation(Write("y", (Part(AT, ("c",)),)), 2, 3, Outcome.OK, Placed((0,)))
    assert found([answered, other], "c", "a") == []
    follower = Operation(second, 2, 3, Outcome.OK, Placed((None,)))
    (finding,) = found([answered, follower], "b", "a")
    assert finding.kind is Kind.REORDERED


def test_a_history_is_read_again_from_its_file(tmp_path: Path) -> None:
    clock = ManualClock()
    history = History(tmp_path / "history", clock)
    with history.doing(SENT) as sending, history.doing(Fetch(AT, 3)) as fetching:
        clock.advance(1_000)
        sending.ok(Placed((0, None)))
        fetching.ok(Rows((Row(AT, 3, "c"),), 4))
    with history.doing(Commit("g", (Place(AT, 4),))) as committing:
        committing.failed()
    with history.doing(Poll("g", "m")):
        pass
    sent, fetched, committed, polled = history.operations()
    assert (sent.begin, sent.end, sent.outcome) == (0, 1, Outcome.OK)
    assert (committed.outcome, polled.outcome) == (Outcome.FAILED, Outcome.UNKNOWN)
    assert load([tmp_path / "history"]) == [sent, fetched, committed, polled]


def test_who_is_killed_leaves_what_it_did_unknown(tmp_path: Path) -> None:
    file = tmp_path / "history"
    history = History(file)
    with history.doing(SENT) as sending:
        sending.ok(Placed((0, 1)))
    file.write_bytes(file.read_bytes()[:-10])
    (operation,) = load([file])
    assert operation == Operation(SENT, operation.begin)


def test_an_exception_leaves_it_unknown() -> None:
    history = History()
    with pytest.raises(ZeroDivisionError), history.doing(SENT):
        _ = 1 / 0
    (operation,) = history.operations()
    assert operation.outcome is Outcome.UNKNOWN
