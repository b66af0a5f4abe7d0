"""The operations of clients with their answers, in memory or as a file of JSON lines for processes.

An operation is written down before its request is sent and again with its answer. One that was never
answered, because the answer was lost or the client killed, stays *unknown*: it may have happened once, or not
at all, and also later than anybody waited for it.
"""

import math
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from log_tables.clock import Clock, SystemClock


class At(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Outcome(StrEnum):
    OK = "ok"
    FAILED = "failed"
    """Certainly nothing happened, and nothing will."""
    UNKNOWN = "unknown"


class Part(Struct, frozen=True):
    """Values for one partition, in the order in which they shall be there. Each is sent by one write only."""

    at: At
    values: tuple[str, ...]


class Span(Struct, frozen=True):
    """The offsets of a partition from `start` on, below `end`."""

    at: At
    start: int
    end: int


class Write(Struct, frozen=True, tag=True):
    """Records that are appended together or not at all: a request to one partition, or a transaction.

    `number` is its place in what `producer` sends to the partition, where an order is promised whatever
    is answered (sequences). A transaction has a group, and consumes what it was made of: its `end`s are
    committed with it.
    """

    producer: str
    parts: tuple[Part, ...]
    number: int | None = None
    group: str = ""
    consumed: tuple[Span, ...] = ()


class Fetch(Struct, frozen=True, tag=True):
    """A stateless read of a partition from `offset` on."""

    at: At
    offset: int


class Poll(Struct, frozen=True, tag=True):
    """A read by the member of a group."""

    group: str
    member: str


class Place(Struct, frozen=True):
    """The offset of a group's next record in a partition."""

    at: At
    offset: int


class Commit(Struct, frozen=True, tag=True):
    """One request of a member, if it has a name, sent once: a repeat is another commit, because the first may
    still be on its way.
    """

    group: str
    places: tuple[Place, ...]
    member: str = ""


class Create(Struct, frozen=True, tag=True):
    """Create a topic, by as many requests as it takes."""

    topic: str


class Delete(Struct, frozen=True, tag=True):
    """Delete a topic, by as many requests as it takes."""

    topic: str


class Truncate(Struct, frozen=True, tag=True):
    """The records below `before` are deleted."""

    at: At
    before: int


class Placed(Struct, frozen=True, tag=True):
    """The offset of each value of a write, part by part; None where it was not told."""

    offsets: tuple[int | None, ...]


class Row(Struct, frozen=True):
    at: At
    offset: int
    value: str


class Rows(Struct, frozen=True, tag=True):
    """The rows of a fetch or a poll, in their order, and, for a fetch, the offset at which to go on."""

    rows: tuple[Row, ...]
    next_offset: int | None = None


class Absent(Struct, frozen=True, tag=True):
    """The topic was said not to exist."""


class Changed(Struct, frozen=True, tag=True):
    """A topic was made or deleted. `sure` is false where only a refusal of a repeat told it."""

    sure: bool


Asked = Write | Fetch | Poll | Commit | Create | Delete | Truncate
Answer = Placed | Rows | Absent | Changed


class Operation(Struct, frozen=True):
    """A request between `begin` and `end`, in seconds of one clock for all clients of a machine.

    Without an answer the end is infinite.
    """

    asked: Asked
    begin: float
    end: float = math.inf
    outcome: Outcome = Outcome.UNKNOWN
    answer: Answer | None = None

    @property
    def ok(self) -> bool:
        return self.outcome is Outcome.OK


class _Begun(Struct, frozen=True, tag=True):
    number: int
    time: float
    asked: Asked


class _Ended(Struct, frozen=True, tag=True):
    number: int
    time: float
    outcome: Outcome
    answer: Answer | None


_decode_line = msgspec.json.Decoder(_Begun | _Ended).decode


class Doing:
    """An operation under way: unknown, unless it is said to be something else."""

    def __init__(self) -> None:
        self.outcome = Outcome.UNKNOWN
        self.answer: Answer | None = None

    def ok(self, answer: Answer | None = None) -> None:
        self.outcome, self.answer = Outcome.OK, answer

    def failed(self, answer: Answer | None = None) -> None:
        """Nothing happened, and nothing will."""
        self.outcome, self.answer = Outcome.FAILED, answer


class History:
    """The operations of some clients. Thread-safe; also appended to `file`, where one is named."""

    def __init__(self, file: Path | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._file = None if file is None else file.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._operations: list[Operation] = []

    @contextmanager
    def doing(self, asked: Asked) -> Iterator[Doing]:
        """Around a request. An exception, or nothing said, leaves it unknown."""
        with self._lock:
            number = len(self._operations)
            begun = _Begun(number, self._clock.monotonic(), asked)
            self._operations.append(Operation(asked, begun.time))
            self._write(begun)
        doing = Doing()
        yield doing
        if doing.outcome is Outcome.UNKNOWN:
            return
        with self._lock:
            ended = _Ended(number, self._clock.monotonic(), doing.outcome, doing.answer)
            self._operations[number] = _joined(begun, ended)
            self._write(ended)

    def operations(self) -> list[Operation]:
        """All operations until now; those still under way are unknown."""
        with self._lock:
            return list(self._operations)

    def _write(self, line: _Begun | _Ended) -> None:
        if self._file is not None:
            self._file.write(msgspec.json.encode(line) + b"\n")


def load(files: Iterable[Path]) -> list[Operation]:
    """The operations of histories that were written to `files`, by processes that may have been killed."""
    return [operation for file in files for operation in _load(file)]


def _load(file: Path) -> Iterator[Operation]:
    begun: dict[int, _Begun] = {}
    ended: dict[int, _Ended] = {}
    for raw in file.read_bytes().splitlines(keepends=True):
        if not raw.endswith(b"\n"):
            continue  # who was killed may have written half a line
        line = _decode_line(raw)
        if isinstance(line, _Begun):
            begun[line.number] = line
        else:
            ended[line.number] = line
    for number, line in begun.items():
        yield _joined(line, ended[number]) if number in ended else Operation(line.asked, line.time)


def _joined(begun: _Begun, ended: _Ended) -> Operation:
    return Operation(begun.asked, begun.time, ended.time, ended.outcome, ended.answer)
