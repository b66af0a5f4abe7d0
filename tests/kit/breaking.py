"""The ways to break a correct history, each in one way, and what has to be found then."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from tests.kit.histories import COPIERS, READERS, RESULTS, SOURCES, Run
from tests.kit.history import (
    At,
    Commit,
    Fetch,
    Operation,
    Outcome,
    Part,
    Place,
    Placed,
    Poll,
    Row,
    Rows,
    Span,
    Write,
)
from tests.kit.history_checker import Kind

T = TypeVar("T")


class Breaker:
    """Breaks a run in one way; `data` chooses where."""

    def __init__(self, run: Run, data: st.DataObject) -> None:
        self.run, self._data = run, data

    def pick(self, choices: Sequence[T]) -> T:
        return self._data.draw(st.sampled_from(choices))

    def writes(self, *outcomes: Outcome, there: bool = True) -> list[int]:
        """The indexes of the writes with these outcomes whose values are in the log, or, without `there`, are
        not.
        """
        held = {value for records in self.run.records.values() for value in records.values()}
        return [
            index
            for index, op in enumerate(self.run.operations)
            if isinstance(op.asked, Write)
            and op.outcome in outcomes
            and (op.asked.parts[0].values[0] in held) == there
        ]

    def write(self, index: int) -> Write:
        asked = self.run.operations[index].asked
        assert isinstance(asked, Write)
        return asked

    def transactions(self, indexes: list[int]) -> list[int]:
        return [index for index in indexes if self.write(index).group]

    def forget_reads(self) -> None:
        """Drop all reads, so that a change of the log is a fault of the log alone."""
        self.run.operations = [op for op in self.run.operations if not isinstance(op.asked, Fetch | Poll)]

    def remove(self, values: Sequence[str]) -> None:
        for at, records in self.run.records.items():
            self.run.records[at] = {o: value for o, value in records.items() if value not in values}

    def change(self, index: int, **changes: object) -> None:
        self.run.operations[index] = replace(self.run.operations[index], **changes)

    def answer_of_rows(self, kind: type, at_least: int) -> tuple[int, Rows]:
        found = [
            (index, op.answer)
            for index, op in enumerate(self.run.operations)
            if isinstance(op.asked, kind) and isinstance(op.answer, Rows) and len(op.answer.rows) >= at_least
        ]
        return self.pick(found)


def lose_a_write(breaker: Breaker) -> None:
    breaker.forget_reads()
    plain = [index for index in breaker.writes(Outcome.OK) if not breaker.write(index).group]
    breaker.remove(breaker.write(breaker.pick(plain)).parts[0].values)


def double_a_value(breaker: Breaker) -> None:
    at = breaker.pick([at for at, records in breaker.run.records.items() if records])
    value = breaker.pick(sorted(breaker.run.records[at].values()))
    breaker.run.append(breaker.pick(SOURCES + RESULTS), (value,))


def write_what_nobody_sent(breaker: Breaker) -> None:
    breaker.run.append(breaker.pick(SOURCES + RESULTS), ("nobody's",))


def write_what_failed(breaker: Breaker) -> None:
    index = breaker.pick(breaker.writes(Outcome.FAILED, there=False))
    for part in breaker.write(index).parts:
        breaker.run.append(part.at, part.values)


def acknowledge_elsewhere(breaker: Breaker) -> None:
    index = breaker.pick(breaker.writes(Outcome.OK))
    answer = breaker.run.operations[index].answer
    assert isinstance(answer, Placed)
    place = breaker.pick(range(len(answer.offsets)))
    told = list(answer.offsets)
    told[place] = (told[place] or 0) + breaker.pick([1, 2, 100])
    breaker.change(index, answer=Placed(tuple(told)))


def write_into_another_partition(breaker: Breaker) -> None:
    index = breaker.pick(breaker.writes(Outcome.UNKNOWN, there=False))
    for part in breaker.write(index).parts:
        breaker.run.append(breaker.pick([at for at in SOURCES + RESULTS if at != part.at]), part.values)


def change_the_order_of_numbers(breaker: Breaker) -> None:
    """Number an older write of a producer behind a newer one, as it would look had they changed places."""
    indexes = [i for i in breaker.writes(Outcome.OK) if breaker.write(i).number is not None]
    at = breaker.pick(SOURCES)
    of_partition = [i for i in indexes if breaker.write(i).parts[0].at == at]
    one = breaker.pick(of_partition[:-1])
    breaker.change(one, asked=replace(breaker.write(one), number=10**6))


def begin_after_the_end_of_what_follows(breaker: Breaker) -> None:
    """The first write of a partition was begun when the second had been acknowledged."""
    second = breaker.run.operations[1]
    breaker.change(0, begin=second.end + 1, end=second.end + 2)


def change_the_order_within_a_write(breaker: Breaker) -> None:
    breaker.forget_reads()
    long = [i for i in breaker.writes(Outcome.UNKNOWN) if len(breaker.write(i).parts[0].values) > 1]
    part = breaker.write(breaker.pick(long)).parts[0]
    records = breaker.run.records[part.at]
    one, two = (next(o for o, held in records.items() if held == value) for value in part.values[:2])
    records[one], records[two] = records[two], records[one]


def half_a_write(breaker: Breaker) -> None:
    breaker.forget_reads()
    indexes = breaker.writes(Outcome.UNKNOWN)
    values = [v for part in breaker.write(breaker.pick(indexes)).parts for v in part.values]
    if len(values) == 1:
        values = list(breaker.write(breaker.transactions(indexes)[0]).parts[0].values)
    breaker.remove([breaker.pick(values)])


def half_a_transaction(breaker: Breaker) -> None:
    """The records of one partition of several are missing."""
    breaker.forget_reads()
    index = breaker.pick(breaker.transactions(breaker.writes(Outcome.UNKNOWN)))
    breaker.remove(breaker.pick(breaker.write(index).parts).values)


def outputs_without_offsets(breaker: Breaker) -> None:
    """Undo the offsets of the last transaction, whose client got no answer, but keep its records."""
    breaker.run.committed[COPIERS][SOURCES[0]] = _last_copy(breaker).start


def offsets_without_outputs(breaker: Breaker) -> None:
    index = max(breaker.transactions(breaker.writes(Outcome.UNKNOWN)))
    breaker.remove([value for part in breaker.write(index).parts for value in part.values])


def offsets_of_a_failed_transaction(breaker: Breaker) -> None:
    breaker.run.committed[COPIERS][SOURCES[0]] = _last_copy(breaker).end + 1
    span = Span(SOURCES[0], _last_copy(breaker).end, _last_copy(breaker).end + 1)
    lost = Write("copier", (Part(RESULTS[0], ("never there",)),), group=COPIERS, consumed=(span,))
    breaker.run.operations.append(Operation(lost, 10**6))


def _last_copy(breaker: Breaker) -> Span:
    index = max(breaker.transactions(breaker.writes(Outcome.UNKNOWN)))
    return breaker.write(index).consumed[0]


def read_something_else(breaker: Breaker) -> None:
    index, answer = breaker.answer_of_rows(Fetch, 1)
    rows = list(answer.rows)
    place = breaker.pick(range(len(rows)))
    rows[place] = replace(rows[place], value="something else")
    breaker.change(index, answer=replace(answer, rows=tuple(rows)))


def read_from_elsewhere(breaker: Breaker) -> None:
    index, _ = breaker.answer_of_rows(Fetch, 1)
    asked = breaker.run.operations[index].asked
    assert isinstance(asked, Fetch)
    breaker.change(index, asked=replace(asked, offset=asked.offset + 1))


def pass_over_a_record(breaker: Breaker) -> None:
    index, answer = breaker.answer_of_rows(Fetch, 1)
    rows = list(answer.rows)
    rows.pop(breaker.pick(range(len(rows))))
    breaker.change(index, answer=replace(answer, rows=tuple(rows)))


def read_out_of_order(breaker: Breaker) -> None:
    index, answer = breaker.answer_of_rows(Fetch, 2)
    place = breaker.pick(range(len(answer.rows) - 1))
    rows = list(answer.rows)
    rows[place], rows[place + 1] = rows[place + 1], rows[place]
    breaker.change(index, answer=replace(answer, rows=tuple(rows)))


def read_nothing_of_what_is_there(breaker: Breaker) -> None:
    at = breaker.pick(SOURCES)
    offset = breaker.pick(range(2))  # those of the first write, which was acknowledged
    breaker.run.operations.append(
        Operation(Fetch(at, offset), 10**6, 10**6 + 1, Outcome.OK, Rows((), offset))
    )


def give_again_what_is_committed(breaker: Breaker) -> None:
    """Somebody may have set the group back in another partition."""
    at = breaker.pick(SOURCES)
    _commit_for_sure(breaker, at, breaker.run.committed[READERS][at])
    for other in {*SOURCES} - {at, breaker.pick(SOURCES)}:
        back = Commit(READERS, (Place(other, breaker.run.committed[READERS][other]),))
        breaker.run.operations.append(Operation(back, 10**6, 10**6 + 1, Outcome.OK))
    offset = breaker.pick(range(breaker.run.committed[READERS][at]))
    row = Row(at, offset, breaker.run.records[at][offset])
    poll = Operation(Poll(READERS, "one"), 10**6 + 2, 10**6 + 3, Outcome.OK, Rows((row,)))
    breaker.run.operations.append(poll)


def commit_beyond_what_was_given(breaker: Breaker) -> None:
    """The first poll of the group was answered to nobody."""
    first = next(index for index, op in enumerate(breaker.run.operations) if isinstance(op.asked, Poll))
    breaker.change(first, outcome=Outcome.UNKNOWN, answer=None)


def go_back_behind_a_commit(breaker: Breaker) -> None:
    at = breaker.pick(SOURCES)
    place = breaker.run.committed[READERS][at]
    _commit_for_sure(breaker, at, place)
    breaker.run.committed[READERS][at] = breaker.pick(range(place))


def forget_a_commit(breaker: Breaker) -> None:
    at = breaker.pick(SOURCES)
    _commit_for_sure(breaker, at, breaker.run.committed[READERS].pop(at))


def _commit_for_sure(breaker: Breaker, at: At, offset: int) -> None:
    """After everything else: what is unknown until then can excuse nothing of which it is not the value."""
    others = [op for op in breaker.run.operations if not isinstance(op.asked, Commit) or op.ok]
    commit = Commit(READERS, (Place(at, offset),), "one")
    breaker.run.operations = [*others, Operation(commit, 10**6, 10**6 + 1, Outcome.OK)]


def commit_what_nobody_sent(breaker: Breaker) -> None:
    breaker.run.committed["nobody's"] = {SOURCES[0]: 1}


def consume_twice(breaker: Breaker) -> None:
    index = breaker.pick(_with_input(breaker))
    again = Write("copier", (Part(RESULTS[0], ("again",)),), group=COPIERS)
    again = replace(again, consumed=breaker.write(index).consumed)
    breaker.run.append(RESULTS[0], ("again",))
    breaker.run.operations.append(Operation(again, 10**6))


def _with_input(breaker: Breaker) -> list[int]:
    there = breaker.transactions(breaker.writes(Outcome.OK, Outcome.UNKNOWN))
    return [i for i in there if breaker.write(i).consumed[0].start < breaker.write(i).consumed[0].end]


BROKEN: list[tuple[Callable[[Breaker], None], Kind, set[Kind]]] = [
    (lose_a_write, Kind.LOST, set()),
    (double_a_value, Kind.DOUBLED, set()),
    (write_what_nobody_sent, Kind.UNSENT, set()),
    (write_what_failed, Kind.FAILED_YET_THERE, {Kind.HALF, Kind.REORDERED, Kind.CONSUMED_TWICE}),
    (acknowledge_elsewhere, Kind.MISPLACED, set()),
    (write_into_another_partition, Kind.MISPLACED, {Kind.HALF, Kind.CONSUMED_TWICE}),
    (change_the_order_of_numbers, Kind.REORDERED, set()),
    (begin_after_the_end_of_what_follows, Kind.REORDERED, set()),
    (change_the_order_within_a_write, Kind.REORDERED, set()),
    (half_a_write, Kind.HALF, set()),
    (half_a_transaction, Kind.HALF, set()),
    (outputs_without_offsets, Kind.HALF, {Kind.COMMIT_LOST}),
    (offsets_without_outputs, Kind.HALF, set()),
    (offsets_of_a_failed_transaction, Kind.HALF, set()),
    (read_something_else, Kind.MISREAD, set()),
    (read_from_elsewhere, Kind.MISREAD, set()),
    (pass_over_a_record, Kind.SKIPPED, set()),
    (read_out_of_order, Kind.DISORDERED_READ, set()),
    (read_nothing_of_what_is_there, Kind.STALE, set()),
    (give_again_what_is_committed, Kind.REWOUND, set()),
    (commit_beyond_what_was_given, Kind.MISSED, set()),
    (go_back_behind_a_commit, Kind.COMMIT_LOST, set()),
    (forget_a_commit, Kind.COMMIT_LOST, set()),
    (commit_what_nobody_sent, Kind.COMMIT_LOST, set()),
    (consume_twice, Kind.CONSUMED_TWICE, set()),
]
"""What is broken, what must be found, and what may be found besides, because it is so, too."""
