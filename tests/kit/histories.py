"""Correct histories, made up by Hypothesis: a log, and clients that were sometimes told nothing.

Every write, commit and read happens at one moment, which lies between its begin and its end: operations
overlap, and those that are unknown happen long after they were begun, or never.
"""

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal

from hypothesis import strategies as st

from tests.kit.history import (
    Answer,
    Asked,
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
from tests.kit.history_checker import Log

SOURCES = (At("source", 0), At("source", 1))
RESULTS = (At("result", 0), At("result", 1))
READERS, COPIERS = "readers", "copiers"
"""Two groups: one polls and commits, the other consumes by transactions."""

Fate = Literal["ok", "unknown, done", "unknown, not done", "failed"]
Step = Literal["produce", "produce plainly", "copy", "fetch", "poll", "commit"]

FATES: tuple[Fate, ...] = ("ok", "unknown, done", "unknown, not done", "failed")
STEPS: tuple[Step, ...] = ("produce", "produce plainly", "copy", "fetch", "poll", "commit")


@dataclass
class Run:
    """A hand-made history: its operations, the records of each partition, and the committed offsets."""

    operations: list[Operation] = field(default_factory=list)
    records: dict[At, dict[int, str]] = field(default_factory=lambda: {at: {} for at in SOURCES + RESULTS})
    committed: dict[str, dict[At, int]] = field(default_factory=lambda: {READERS: {}, COPIERS: {}})

    @property
    def log(self) -> Log:
        return Log(self.records, self.committed)

    def append(self, at: At, values: tuple[str, ...]) -> tuple[int, ...]:
        """The offsets at which the values are from now on."""
        base = max(self.records[at], default=-1) + 1
        self.records[at].update({base + index: value for index, value in enumerate(values)})
        return tuple(range(base, base + len(values)))


@dataclass
class Maker:
    """Makes a run, step by step. `early` and `late` are how long before and after the moment of its effect an
    operation begins and ends.
    """

    run: Run = field(default_factory=Run)
    polled: dict[At, int] = field(default_factory=lambda: defaultdict(int))
    moment: int = 0

    def do(self, step: Step, index: int, fate: Fate, early: int, late: int) -> None:
        self.moment += 10
        at, name = SOURCES[index], f"{self.moment}"
        if step == "produce":
            values = (f"{name}a", f"{name}b")
            asked: Asked = Write("idempotent", (Part(at, values),), self.moment)
        elif step == "produce plainly":
            asked = Write("plain", (Part(at, (name,)),))
        elif step == "copy":
            asked = self._copy(at, name)
        elif step == "fetch":
            asked = Fetch(at, len(self.run.records[at]) // 3)
        elif step == "poll":
            asked = Poll(READERS, "one")
        else:
            asked = Commit(READERS, (Place(at, self.polled[at]),), "one")
        answer = None if fate in ("unknown, not done", "failed") else self._happen(asked)
        outcome = Outcome(fate.split(",")[0])
        if outcome is Outcome.UNKNOWN:
            operation = Operation(asked, self.moment - 3 * early, math.inf)
        else:
            told = answer if outcome is Outcome.OK else None
            operation = Operation(asked, self.moment - early, self.moment + late, outcome, told)
        self.run.operations.append(operation)

    def _copy(self, at: At, name: str) -> Write:
        start = self.run.committed[COPIERS].get(at, 0)
        end = min(start + 2, len(self.run.records[at]))
        values = [f"{self.run.records[at][offset]}>{name}" for offset in range(start, end)]
        parts = tuple(Part(to, (f"{name}{to}", *values[index::2])) for index, to in enumerate(RESULTS))
        return Write("copier", parts, group=COPIERS, consumed=(Span(at, start, end),))

    def _happen(self, asked: Asked) -> Answer | None:
        if isinstance(asked, Write):
            for span in asked.consumed:
                self.run.committed[asked.group][span.at] = span.end
            return Placed(
                tuple(offset for part in asked.parts for offset in self.run.append(part.at, part.values))
            )
        if isinstance(asked, Fetch):
            rows = self._rows(asked.at, asked.offset)
            return Rows(rows, len(self.run.records[asked.at]))
        if isinstance(asked, Poll):
            rows = tuple(row for at in SOURCES for row in self._rows(at, self.polled[at]))
            self.polled.update({at: len(self.run.records[at]) for at in SOURCES})
            return Rows(rows)
        assert isinstance(asked, Commit)
        self.run.committed[asked.group].update({place.at: place.offset for place in asked.places})
        return None

    def _rows(self, at: At, start: int) -> tuple[Row, ...]:
        return tuple(Row(at, *found) for found in sorted(self.run.records[at].items()) if found[0] >= start)


@st.composite
def runs(draw: st.DrawFn) -> Run:
    """Correct runs. Each begins with something of every kind, so that there is always something to break."""
    maker = Maker()
    for index in (0, 1):
        for step in ("produce", "produce", "produce plainly", "copy", "fetch", "poll", "commit"):
            maker.do(step, index, "ok", 1, 1)
    steps = st.tuples(
        st.sampled_from(STEPS),
        st.integers(0, 1),
        st.sampled_from(FATES),
        st.integers(0, 15),
        st.integers(0, 15),
    )
    for step, index, fate, early, late in draw(st.lists(steps, max_size=30)):
        told = fate if step not in ("fetch", "poll") or fate in ("ok", "failed") else "unknown, not done"
        maker.do(step, index, told, early, late)
    for fate in FATES:
        maker.do("produce", 0, fate, 1, 1)
        maker.do("copy", 0, fate, 1, 1)
    return maker.run
