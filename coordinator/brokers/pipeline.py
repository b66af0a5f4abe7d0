"""Appends of clients that do not wait for answers: those of one client to one partition stay in their order.

An append is sequenced when it is given, if the partition is led here. So all that a client sends before the
first answer share a commit. An append that has to wait for a claim, another gateway, a hand-over or the
budget of commits stands in a line, and later ones of its client to the partition stand behind it. One whose
commit failed comes before those that were given later: so none is sequenced in another term of leadership
than those before it that are not durable yet, which may not have heard that theirs has ended.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from coordinator.brokers.peers import Peers
from coordinator.brokers.router import Router, may_be_repeated
from ingest.accumulator import Ticket
from ingest.buffer import Room
from ingest.request_trace import CURRENT, RequestTrace
from ingest.writer import Acks, Appended, AppendOutcome, Writer, appended
from log_tables.clock import Clock
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import BufferFull, LakelogError, OutcomeUnknown, StoreFull, UnmergedSegments
from log_tables.partition.partition import AppendRequest

FORWARDED_BYTES = 8 << 20
"""About the bytes of one request to another gateway."""

BUDGET_PAUSE_S = 0.02
"""Until the budget of commits is asked again."""


_Key = tuple[Hashable, str, int]
"""A client, the id of a topic, and a partition."""


@dataclass(slots=True, eq=False)
class _Entry:
    """One append, of the request of `trace`. `answer` is what its client hears, maybe long before `room` is
    given back.
    """

    number: int
    request: AppendRequest
    acks: Acks
    room: Room
    deadline: float
    answer: "asyncio.Future[AppendOutcome]"
    trace: RequestTrace | None
    ticket: Ticket | None = None

    def say(self, outcome: AppendOutcome) -> None:
        if not self.answer.done():
            self.answer.set_result(outcome)

    def end(self, outcome: AppendOutcome) -> None:
        self.say(outcome)
        self.room.settle(0)


@dataclass(slots=True, eq=False)
class _Line:
    """The appends of one client to one partition: those sequenced and not durable, those that wait."""

    topic: Topic
    partition: int
    under_way: "deque[_Entry]" = field(default_factory=deque)
    waiting: list[_Entry] = field(default_factory=list)
    draining: "asyncio.Task[None] | None" = None
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def term(self) -> int | None:
        """The term of leadership of those that are sequenced; None if there are none."""
        ticket = self.under_way[-1].ticket if self.under_way else None
        return None if ticket is None else ticket[0].term

    def goes_first(self, entry: _Entry) -> bool:
        """Whether none that waits was given before `entry`."""
        return all(entry.number < each.number for each in self.waiting)

    @property
    def idle(self) -> bool:
        return not (self.under_way or self.waiting or self.draining)


class Pipeline:
    """The appends that one gateway has under way. Used on the event loop."""

    def __init__(
        self,
        router: Router,
        writer: Writer,
        peers: Peers,
        clock: Clock,
        lost: Callable[[Topic, LakelogError], None],
    ) -> None:
        """`lost` is called for records that were answered before they were durable, and are lost."""
        self._router, self._writer, self._peers, self._clock, self._lost = router, writer, peers, clock, lost
        self._lines: dict[_Key, _Line] = {}
        self._given = 0

    def append(
        self,
        client: Hashable,
        at: tuple[Topic, int],
        request: AppendRequest,
        acks: Acks,
        room: Room,
        timeout_s: float,
    ) -> "asyncio.Future[AppendOutcome]":
        """Append `request` at a topic's partition, after all that `client` gave for it before.

        The outcome is there when `acks` says so; with acks 0 at once. `room` is given back when the records
        are durable, or refused. An error is an outcome, as in `Router.append`, and never raised. An append
        that is neither sequenced nor refused within `timeout_s` fails with what it waited for.
        """
        topic, partition = at
        self._given += 1
        answer: asyncio.Future[AppendOutcome] = asyncio.get_running_loop().create_future()
        deadline = self._clock.monotonic() + timeout_s
        entry = _Entry(self._given, request, acks, room, deadline, answer, CURRENT.get())
        if acks is Acks.NONE:
            entry.say(Appended(partition, None, request.count))
        key = (client, topic.topic_id, partition)
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(topic, partition)
        if not self._sequence_now(key, line, entry):
            line.waiting.append(entry)
            self._drain(key, line)
        return answer

    async def close(self) -> None:
        """Wait for all appends that were given."""
        while self._lines:
            lines = [*self._lines.values()]
            waits: list[asyncio.Future[Any]] = [line.draining for line in lines if line.draining is not None]
            waits += [each.ticket[1] for line in lines for each in line.under_way if each.ticket]
            if waits:
                await asyncio.wait(waits)
            await asyncio.sleep(0)

    def _sequence_now(self, key: _Key, line: _Line, entry: _Entry) -> bool:
        if line.waiting or line.draining is not None:
            return False
        try:
            ticket = self._writer.sequence_now(line.topic, line.partition, entry.request, line.term)
        except (BufferFull, StoreFull):  # once more, where it is said to whom it concerns
            return False
        if ticket is None:
            return False
        self._begin(key, line, entry, ticket)
        return True

    def _begin(self, key: _Key, line: _Line, entry: _Entry, ticket: Ticket) -> None:
        """`entry` is sequenced, and its commit to come."""
        entry.ticket = ticket
        line.under_way.append(entry)
        if entry.acks is Acks.LEADER:
            entry.say(appended(line.partition, ticket[0], None))
        ticket[1].add_done_callback(partial(self._committed, key, line, entry))

    def _committed(
        self,
        key: _Key,
        line: _Line,
        entry: _Entry,
        done: "asyncio.Future[int | None]",
    ) -> None:
        line.under_way.remove(entry)
        ticket, entry.ticket = entry.ticket, None
        error = done.exception()
        assert ticket is not None
        if error is None:
            entry.end(appended(line.partition, ticket[0], done.result()))
        elif not isinstance(error, LakelogError):
            entry.end(OutcomeUnknown("the gateway failed while it committed; read before you repeat"))
        elif self._may_wait(entry, error):
            line.waiting.append(entry)
        else:
            self._fail(line, entry, error)
        if not line.under_way:
            line.settled.set()
        if line.waiting:
            self._drain(key, line)
        elif line.idle:
            self._lines.pop(key, None)

    def _may_wait(self, entry: _Entry, error: LakelogError) -> bool:
        """Whether `entry` is appended once more after `error`. One that has its answer is not: the records
        after it were sequenced as if it were there.
        """
        late = self._clock.monotonic() > entry.deadline
        return may_be_repeated(error, entry.request) and not late and not entry.answer.done()

    def _fail(self, line: _Line, entry: _Entry, error: LakelogError) -> None:
        if entry.answer.done():
            self._lost(line.topic, error)
        entry.end(error)

    def _drain(self, key: _Key, line: _Line) -> None:
        if line.draining is None:
            line.draining = asyncio.create_task(self._drained(key, line))

    async def _drained(self, key: _Key, line: _Line) -> None:
        try:
            while line.waiting:
                # Those before may have failed with their term, and then they come first.
                while line.under_way:
                    line.settled.clear()
                    await line.settled.wait()
                line.waiting.sort(key=lambda each: each.number)
                await self._append_first(key, line)
        finally:
            line.draining = None
            if line.idle:
                self._lines.pop(key, None)

    async def _append_first(self, key: _Key, line: _Line) -> None:
        """Append the first of those that wait, wherever the partition is led."""
        entries = _first(line.waiting)
        del line.waiting[: len(entries)]
        CURRENT.set(entries[0].trace)  # what is asked for several is asked for the first

        def may_retry(error: LakelogError) -> bool:
            return all(may_be_repeated(error, each.request) for each in entries)

        here, there = partial(self._here, key, line, entries), partial(self._there, line, entries)
        try:
            await self._router.at_leader(line.topic, line.partition, here, there, may_retry)
        except LakelogError as error:
            if _may_pass(error):
                await self._wait_for_budget(line, entries, error)
                return
            for entry in entries:
                self._fail(line, entry, error)
        except GeneratorExit:
            raise  # the event loop has ended amid the send: nobody can be told any more
        except BaseException:
            # Nobody goes on with those behind them, either.
            for entry in (*entries, *line.waiting):
                self._fail(
                    line, entry, OutcomeUnknown("the gateway failed or stopped; read before you repeat")
                )
            line.waiting.clear()
            raise

    async def _here(self, key: _Key, line: _Line, entries: list[_Entry]) -> None:
        """Sequence `entries`. Those that are left wait again when the term ends amid them: some before them
        may have to come first. Raises as `_sequenced`, for the first.
        """
        first = entries[0]
        while entries and line.goes_first(entries[0]):
            CURRENT.set(entries[0].trace)
            try:
                ticket = await self._sequenced(line, entries[0])
            except LakelogError:
                if entries[0] is first:
                    raise
                break
            entry = entries.pop(0)
            if isinstance(ticket, LakelogError):
                self._fail(line, entry, ticket)
            else:
                self._begin(key, line, entry, ticket)
        line.waiting += entries
        entries.clear()

    async def _there(self, line: _Line, entries: list[_Entry], broker: BrokerRecord) -> None:
        """Have `broker` append `entries`, and take each from the list that has its outcome. Raises the first
        error that may be repeated.
        """
        acks = Acks.ALL if any(each.acks is Acks.ALL for each in entries) else Acks.LEADER
        requests = [each.request for each in entries]
        with ExitStack() as copies:  # they are sent as they are copied
            for each in entries:
                copies.enter_context(each.room.more(each.request.size_bytes))
            outcomes = await self._peers.append(broker, line.topic, line.partition, requests, acks)
        for entry, outcome in zip([*entries], outcomes, strict=True):
            error = _retriable(outcome, entry.request)
            if error is not None:
                raise error
            entries.remove(entry)
            self._end(line, entry, outcome)

    async def _sequenced(self, line: _Line, entry: _Entry) -> Ticket | LakelogError:
        """Its ticket, or why it is refused. Raises what may go well at another leader, and BufferFull."""
        try:
            return await self._writer.sequence(line.topic, line.partition, entry.request, line.term)
        except BufferFull:
            raise
        except LakelogError as error:
            if may_be_repeated(error, entry.request):
                raise
            return error

    async def _wait_for_budget(self, line: _Line, entries: list[_Entry], error: LakelogError) -> None:
        now = self._clock.monotonic()
        for entry in [each for each in entries if each.deadline <= now]:
            entries.remove(entry)
            self._fail(line, entry, error)
        line.waiting += entries
        await asyncio.sleep(BUDGET_PAUSE_S)

    def _end(self, line: _Line, entry: _Entry, outcome: AppendOutcome) -> None:
        if isinstance(outcome, LakelogError):
            self._fail(line, entry, outcome)
        else:
            entry.end(outcome)


def _first(waiting: list[_Entry]) -> list[_Entry]:
    """The first of `waiting`, about FORWARDED_BYTES of them, and at least one."""
    size = 0
    for count, entry in enumerate(waiting):
        size += entry.request.size_bytes
        if count and size > FORWARDED_BYTES:
            return waiting[:count]
    return [*waiting]


def _retriable(outcome: AppendOutcome, request: AppendRequest) -> LakelogError | None:
    if not isinstance(outcome, LakelogError):
        return None
    return outcome if _may_pass(outcome) or may_be_repeated(outcome, request) else None


def _may_pass(error: LakelogError) -> bool:
    """Whether `error` is over in a moment, as a lack of budget is. Until somebody merges may take hours: what
    waited for it would hold the room that others need.
    """
    return isinstance(error, BufferFull) and not isinstance(error, UnmergedSegments)
