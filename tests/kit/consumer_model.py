"""A group's coordinator as one of its members sees it, in memory, with answers that are lost on purpose.

It does what coordinator/groups does for one member: it gives up and takes over partitions in polls, commits
by itself what it gave, and forgets. `faults` are those of the next requests.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from functools import wraps
from typing import ParamSpec, TypeVar

import pyarrow as pa

from lakelog.client.consumer.membership import Membership
from lakelog.client.request import Call
from log_tables.errors import NotAssigned, OutcomeUnknown, UnknownMember, Unreachable
from log_tables.record import POLL_SCHEMA
from log_tables.topic_partition import TopicPartition

P = ParamSpec("P")
Result = TypeVar("Result")

PARTITIONS = tuple(TopicPartition("t", number) for number in range(3))

Offsets = dict[TopicPartition, int]


class Fault(Enum):
    """The fault of a request: it never arrives, or its answer is lost, before or after the gateway has
    written it.
    """

    UNSENT = auto()
    LOST = auto()
    LOST_LATE = auto()


def as_call(method: Callable[P, Result]) -> Callable[P, Call[Result]]:
    """A method whose call asks nobody."""

    @wraps(method)
    def call(*args: P.args, **options: P.kwargs) -> Call[Result]:
        yield from ()
        return method(*args, **options)

    return call


def driven(call: Call[Result]) -> Result:
    """The result of a call that asks for nothing but functions of the program."""
    try:
        asked = next(call)
        while True:
            assert callable(asked)
            asked()
            asked = call.send(None)
    except StopIteration as end:
        result: Result = end.value
        return result


class ModelCoordinator(Membership):
    """The only member's requests, answered at once. `on_commit` hears of what is committed for the member."""

    def __init__(self, *, auto_commit: bool, earliest: bool, on_commit: Callable[[Offsets], None]) -> None:
        self._auto_commit, self._earliest, self._on_commit = auto_commit, earliest, on_commit
        self.partitions = {*PARTITIONS}
        self.ends: Offsets = dict.fromkeys(PARTITIONS, 0)
        self.offsets: Offsets = {}
        self.faults: list[Fault | None] = []
        self.commit_due = False
        self.others: set[TopicPartition] = set()
        self.mine: set[TopicPartition] = set()
        self._exists = self._shares = False
        self._epoch = 0
        self._noted: Offsets = {}
        self._positions: Offsets = {}
        self._given: Offsets = {}

    # The world.

    def evict(self) -> None:
        """The member was silent for longer than its session."""
        self._exists = self._shares = False
        self._disown(self.mine)

    def fence(self) -> None:
        """The member did not poll for too long."""
        if self._shares:
            self._disown(self.mine)
            self._epoch += 1

    def move(self, at: TopicPartition) -> None:
        """The partition is to be another member's, or ours again."""
        self.others ^= {at}
        if self._shares:
            self._epoch += 1

    def grow(self, at: TopicPartition) -> None:
        """The topic has one partition more."""
        self.partitions.add(at)
        self.ends[at] = 0
        if self._shares:
            self._epoch += 1
            if not self._earliest:
                self.offsets.setdefault(at, 0)

    def start(self, at: TopicPartition) -> int:
        """The offset from which on a member that owns the partition reads."""
        return self._noted.get(at, self.offsets.get(at, 0))

    # The requests.

    @as_call
    def create(self) -> None:
        with self._request():
            self._exists = True

    @as_call
    def delete(self) -> None:
        with self._request():
            self._check()
            if self._auto_commit:
                self._commit({at: offset for at, offset in self._given.items() if at in self.mine})
            self.evict()

    @as_call
    def subscribe(self, _topics: Iterable[str], _pattern: str) -> None:
        with self._request():
            self._check()
            self._shares = True
            self._epoch += 1
            if not self._earliest:
                self.offsets = {at: self.ends[at] for at in self.partitions} | self.offsets

    @as_call
    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        with self._request():
            self._check()
            self.mine = set(partitions)
            if not self._earliest:
                ends = {at: self.ends[at] for at in self.mine - self.offsets.keys()}
                self._noted = ends | self._noted

    @as_call
    def assignment(self) -> tuple[set[TopicPartition], int]:
        with self._request():
            self._check()
            return self.mine - self.others, self._epoch

    @as_call
    def owned(self) -> set[TopicPartition]:
        with self._request():
            return set(self.mine)

    @as_call
    def end(self, at: TopicPartition) -> int:
        with self._request():
            return self.ends[at]

    @as_call
    def records(
        self, generation: int | None, _timeout_ms: int, max_bytes: int | None
    ) -> tuple[pa.Table, int]:
        with self._request() as fault:
            self._check()
            self._acknowledge(generation)
            self._open()
            if generation is not None and generation < self._epoch:
                return POLL_SCHEMA.empty_table(), self._epoch
            count = max_bytes or 1
            reads = {at: range(p, min(p + count, self.ends[at])) for at, p in self._positions.items()}
            if fault is not Fault.LOST:
                self._give({at: read.stop for at, read in reads.items() if read})
            return _table(reads), self._epoch

    @as_call
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        with self._request():
            self._check(offsets)
            self._commit(dict(offsets))

    @as_call
    def committed(self, partitions: Iterable[TopicPartition]) -> Offsets:
        with self._request():
            self._check()
            return {at: self.offsets[at] for at in partitions if at in self.offsets}

    @as_call
    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        with self._request():
            self._check(positions)
            self._noted |= positions
            self._forget(positions)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> Call[None]:
        yield from self.seek(dict.fromkeys(partitions, 0))

    @contextmanager
    def _request(self) -> Iterator[Fault | None]:
        fault = self.faults.pop(0) if self.faults else None
        if fault is Fault.UNSENT:
            raise Unreachable("the request was not sent")
        yield fault
        if fault is not None:
            raise OutcomeUnknown("the answer was lost")

    def _check(self, owned: Iterable[TopicPartition] = ()) -> None:
        if not self._exists:
            raise UnknownMember("it was evicted")
        if not self.mine.issuperset(owned):
            raise NotAssigned("another owns it")

    def _acknowledge(self, generation: int | None) -> None:
        heard = generation is None or generation >= self._epoch
        leaving = self.mine & self.others if self._shares else set()
        if self._auto_commit and (self.commit_due or heard):
            chosen = self.mine if self.commit_due else leaving
            self._commit({at: offset for at, offset in self._given.items() if at in chosen})
        self.commit_due = False
        owned = self.partitions - self.others if self._shares and heard else self.mine
        if owned != self.mine:
            self._disown(self.mine - owned)
            self.mine = owned
            self._epoch += 1

    def _open(self) -> None:
        for at in self.mine - self._positions.keys():
            self._positions[at] = self.start(at)

    def _give(self, offsets: Offsets) -> None:
        self._positions |= offsets
        self._given |= offsets

    def _commit(self, offsets: Offsets) -> None:
        self._on_commit(offsets)
        self.offsets |= offsets
        for at, offset in offsets.items():
            self._noted.pop(at, None)
            if self._given.get(at) == offset:
                del self._given[at]

    def _disown(self, partitions: Iterable[TopicPartition]) -> None:
        gone = set(partitions)
        self.mine = self.mine - gone
        self._forget(gone)
        for at in gone:
            self._noted.pop(at, None)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self._positions.pop(at, None)
            self._given.pop(at, None)


def _table(reads: Mapping[TopicPartition, range]) -> pa.Table:
    """The records of a poll, each partition in a batch of its own."""
    return pa.Table.from_batches([_batch(at, read) for at, read in reads.items() if read], POLL_SCHEMA)


def _batch(at: TopicPartition, offsets: range) -> pa.RecordBatch:
    shared = {"topic": at.topic, "partition": at.partition, "timestamp": 0, "headers": []}
    return pa.RecordBatch.from_pylist([{**shared, "offset": offset} for offset in offsets], POLL_SCHEMA)
