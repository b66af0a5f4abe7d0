"""Appending to partitions wherever they are led: here, or at another gateway."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar
from weakref import WeakValueDictionary

from coordinator.brokers.brokers import Brokers
from coordinator.brokers.leadership import Leadership
from coordinator.brokers.peers import Peers
from ingest.buffer import Room
from ingest.loop_share import Wide
from ingest.pending_tasks import PendingTasks
from ingest.settings import Settings
from ingest.writer import Acks, Appended, AppendOutcome, Writer, room_of
from log_tables.clock import Backoff, Clock
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic
from log_tables.errors import BufferFull, LakelogError, NotLeader, OutcomeUnknown, TopicDeleted, Unreachable
from log_tables.limits import APPENDS_AT_ONCE
from log_tables.partition.partition import AppendRequest

PATIENCE_S = 3.0
"""How long, beyond leader_timeout_ms, a request waits for a partition whose leader is gone."""

BACKOFF = Backoff(0.01, max_s=0.25)
"""Between two attempts, ever longer."""

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

Again = Callable[[int, Acks], Awaitable[None]]


class Router:
    """Sends the appends of one gateway to their leaders. Used on the event loop."""

    def __init__(
        self,
        writer: Writer,
        leadership: Leadership,
        brokers: Brokers,
        peers: Peers,
        settings: Settings,
        clock: Clock,
        forwarded: Callable[[], None] = lambda: None,
        at_once: int = APPENDS_AT_ONCE,
    ) -> None:
        """`forwarded` is called for every request that is sent to another gateway.

        A request to more than `at_once` partitions is wide: all wide requests together append to so many
        partitions at once.
        """
        self._writer, self._leadership, self._brokers, self._peers = writer, leadership, brokers, peers
        self._clock, self._forwarded = clock, forwarded
        self._patience_s = settings.leader_timeout_ms / 1000 + PATIENCE_S
        self._wide = Wide(at_once)
        self._tasks = PendingTasks()
        # The last append to a partition that was answered before; each lives while it is under way.
        self._turns: WeakValueDictionary[tuple[str, int], asyncio.Future[None]] = WeakValueDictionary()

    def sticky_partition(self, topic: Topic) -> int:
        """The partition for records without a key now: one that this gateway leads, if there is any."""
        chosen = self._writer.sticky_partition(topic)
        if self._leadership.leader_id(topic, chosen) == self._brokers.id:
            return chosen
        # The nearest: looking at all of thousands would take a good part of a second.
        mine = next(self._leadership.led_here(topic, first=chosen), None)
        return chosen if mine is None else self._writer.sticky_partition(topic, [mine])

    async def append(
        self,
        topic: Topic,
        parts: Sequence[tuple[int, AppendRequest]],
        acks: Acks,
        room: Room,
        again: Again | None = None,
        in_turn: bool = False,
    ) -> list[AppendOutcome]:
        """Append each entry to its partition, those of one in order; one outcome for each, in order.

        Failed records were not written, unless the error is OutcomeUnknown. With acks 0 and 1 the answer
        comes before the records are durable: then `room` is detached, and given back when they are. Order is
        kept across answers, even with acks 0. A wide request with acks 1 is answered as one with acks all:
        else nothing would bound what is left to commit after its answer.

        TopicDeleted says that another topic has the name now. With acks 0 that is found after the answer:
        then `again` is called with the index of the part and the acks to append it with, and may raise the
        part's error. Such an append is `in_turn`: others wait for it, so it waits for nobody.

        Raises BufferFull, and appends nothing, when the commits of this gateway cost too much; StoreFull when
        the store has no room.
        """
        if not in_turn:
            self._writer.check_budget(topic, parts)
        if acks is Acks.NONE:
            room = room.detach()
            turns = [
                self._turn(topic, part, None if again is None else partial(again, place))
                for place, part in enumerate(parts)
            ]
            self._tasks.start(self._append_answered(topic, turns, room))
            return [Appended(partition, None, entry.count) for partition, entry in parts]
        if self._turns and not in_turn:
            await self._after_answered(topic, parts)
        return await self._append(topic, parts, acks, room)

    async def _append(
        self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]], acks: Acks, room: Room
    ) -> list[AppendOutcome]:
        if self._is_wide(parts):
            return await self._append_left(topic, parts, Acks.ALL, room, [None] * len(parts))
        if self._writer.leads(topic, *(partition for partition, _ in parts)):
            outcomes: Sequence[AppendOutcome | None] = await self._writer.append(topic, parts, acks, room)
        else:
            outcomes = await self._append_known(topic, parts, acks, room)
        return await self._append_left(topic, parts, acks, room, outcomes)

    async def _append_known(
        self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]], acks: Acks, room: Room
    ) -> list[AppendOutcome | None]:
        """Append the parts whose leader is known, all of one gateway at once; None for the others."""
        here, there = self._by_leader(topic, parts)
        done: list[AppendOutcome | None] = [None] * len(parts)

        def note(places: Iterable[int], outcomes: Iterable[AppendOutcome]) -> None:
            for place, outcome in zip(places, outcomes, strict=True):
                done[place] = outcome

        with ExitStack() as stack:

            def own(entries: Sequence[AppendRequest]) -> Room:
                return stack.enter_context(room_of(room, entries)) if acks is Acks.LEADER else room

            asked = []
            for leader, partitions in there:  # first: they work while this one does
                entries = {at: [parts[place][1] for place in places] for at, places in partitions.items()}
                mine = own([*chain.from_iterable(entries.values())])
                asked.append((mine, self._begin_there(stack, leader, topic, entries, acks, mine)))
            if here:
                led = [parts[place] for place in here]
                note(here, await self._writer.append(topic, led, acks, own([entry for _, entry in led])))
            for (leader, partitions), (mine, answer) in zip(there, asked, strict=True):
                outcomes = [*chain.from_iterable(await answer)]
                if any(isinstance(outcome, Unreachable) for outcome in outcomes):
                    self._leadership.note_unreachable(leader.id)
                places = [*chain.from_iterable(partitions.values())]
                note(places, outcomes)
                if acks is Acks.LEADER:  # what is left to be repeated needs its room
                    again = [
                        parts[place][1]
                        for place, outcome in zip(places, outcomes, strict=True)
                        if may_be_repeated(outcome, parts[place][1])
                    ]
                    room.take_back(room_of(mine, again))
        return done

    def _by_leader(
        self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]]
    ) -> tuple[list[int], list[tuple[BrokerRecord, dict[int, list[int]]]]]:
        """The places of the parts that are led here, and of those of each other gateway, by partition.

        Those of which it takes a wait to know are left out.
        """
        leaders = self._leadership.known_leaders(topic, {partition for partition, _ in parts})
        here: list[int] = []
        there: dict[int, tuple[BrokerRecord, dict[int, list[int]]]] = {}
        for place, (partition, _) in enumerate(parts):
            leader = leaders.get(partition)
            if leader is not None:
                there.setdefault(leader.id, (leader, {}))[1].setdefault(partition, []).append(place)
            elif partition in leaders:
                here.append(place)
        return here, [*there.values()]

    def _begin_there(
        self,
        stack: ExitStack,
        leader: BrokerRecord,
        topic: Topic,
        entries: Mapping[int, Sequence[AppendRequest]],
        acks: Acks,
        room: Room,
    ) -> "asyncio.Future[list[list[AppendOutcome]]]":
        """Begin to append at another gateway; what `stack` is given ends with it."""
        try:  # they are sent as they are copied
            stack.enter_context(room.more(sum(entry.size_bytes for its in entries.values() for entry in its)))
        except BufferFull as error:
            refused: asyncio.Future[list[list[AppendOutcome]]] = asyncio.get_running_loop().create_future()
            refused.set_result([[error] * len(its) for its in entries.values()])
            return refused
        self._forwarded()
        answer = self._peers.begin_append(leader, topic, [*entries.items()], acks)
        stack.callback(answer.cancel)  # when this one is cancelled
        return answer

    async def append_forwarded(
        self, topic: Topic, partition: int, entries: Sequence[AppendRequest], acks: Acks, room: Room
    ) -> list[AppendOutcome]:
        """Append entries of one partition that another gateway has sent here: they go no further."""
        try:
            await self._leadership.become_leader(topic, partition, forwarded=True)
            parts = [(partition, entry) for entry in entries]
            self._writer.check_budget(topic, parts)
        except LakelogError as error:
            return [error] * len(entries)
        return await self._writer.append(topic, parts, acks, room)

    async def close(self) -> None:
        """Wait for appends that were answered before they were done."""
        while self._tasks:
            await self._tasks.wait()

    async def at_leader(
        self,
        topic: Topic,
        partition: int,
        here: Callable[[], Awaitable[Answer]],
        there: Callable[[BrokerRecord], Awaitable[Answer]],
        may_retry: Callable[[LakelogError], bool],
    ) -> Answer:
        """The result of `here` or `there`, by where the partition is led. While leadership moves, an error
        that `may_retry` accepts is tried again, at the next leader.
        """
        deadline, pause_s = self._clock.monotonic() + self._patience_s, BACKOFF.first_s
        while True:
            broker = await self._leadership.find_leader(topic, partition)
            try:
                if broker is None:
                    await self._leadership.become_leader(topic, partition)
                    return await here()
                await self._check_reachable(broker)
                self._forwarded()
                return await there(broker)
            except LakelogError as error:
                if broker is not None and isinstance(error, Unreachable):
                    self._leadership.note_unreachable(broker.id)
                if self._clock.monotonic() + pause_s > deadline or not may_retry(error):
                    raise
            await asyncio.sleep(pause_s * (0.5 + self._clock.random() / 2))
            pause_s = BACKOFF.after(pause_s)
            await self._leadership.refresh_leader(topic, partition)

    async def _check_reachable(self, broker: BrokerRecord) -> None:
        """Raise Unreachable for a silent gateway that does not answer: a request to it might be lost."""
        if await self._peers.is_lost(broker):
            raise Unreachable(f"broker {broker.id} is silent and does not answer; repeat the request")

    async def _append_left(
        self,
        topic: Topic,
        parts: Sequence[tuple[int, AppendRequest]],
        acks: Acks,
        room: Room,
        outcomes: Sequence[AppendOutcome | None],
    ) -> list[AppendOutcome]:
        """`outcomes`, after appending the parts that have none yet or may be repeated."""
        left: dict[int, list[int]] = {}
        for place, ((partition, entry), outcome) in enumerate(zip(parts, outcomes, strict=True)):
            if outcome is None or may_be_repeated(outcome, entry):
                left.setdefault(partition, []).append(place)
        done = [*outcomes]
        if not left:
            return [outcome for outcome in done if outcome is not None]

        async def one(number: int) -> list[AppendOutcome]:
            entries = [parts[place][1] for place in left[number]]
            with room_of(room, entries) if acks is Acks.LEADER else nullcontext(room) as own:
                return await self._append_to_one(topic, number, entries, acks, own)

        async def in_turn(number: int) -> list[AppendOutcome]:
            async with self._wide.turn:
                return await one(number)

        if len(left) > self._wide.at_once:
            answers = await self._wide.each(in_turn, [*left])
        else:
            answers = await asyncio.gather(*map(one, left))
        for places, answer in zip(left.values(), answers, strict=True):
            for place, outcome in zip(places, answer, strict=True):
                done[place] = outcome
        return [outcome for outcome in done if outcome is not None]

    async def _append_to_one(
        self, topic: Topic, partition: int, entries: Sequence[AppendRequest], acks: Acks, room: Room
    ) -> list[AppendOutcome]:
        """Append to one partition, in order."""

        def may_retry(error: LakelogError) -> bool:
            return all(may_be_repeated(error, entry) for entry in entries)

        def raised(outcomes: list[AppendOutcome]) -> list[AppendOutcome]:
            """`outcomes`, or the first error if none was written and it may be repeated."""
            first = outcomes[0]
            if isinstance(first, LakelogError) and all(map(may_be_repeated, outcomes, entries)):
                raise first
            return outcomes

        async def here() -> list[AppendOutcome]:
            return raised(await self._writer.append(topic, [(partition, e) for e in entries], acks, room))

        async def there(broker: BrokerRecord) -> list[AppendOutcome]:
            with room.more(sum(entry.size_bytes for entry in entries)):  # they are sent as they are copied
                return raised(await self._peers.append(broker, topic, partition, entries, acks))

        try:
            return await self.at_leader(topic, partition, here, there, may_retry)
        except LakelogError as error:
            return [error] * len(entries)

    def _is_wide(self, parts: Sequence[tuple[int, AppendRequest]]) -> bool:
        at_once = self._wide.at_once
        return len(parts) > at_once and len({partition for partition, _ in parts}) > at_once

    async def _append_answered(self, topic: Topic, turns: Sequence["_Turn"], room: Room) -> None:
        """Appends that were answered before (acks=0)."""
        wide = self._is_wide([turn.part for turn in turns])

        async def one(turn: _Turn) -> None:
            try:
                await turn.come()  # first: a holder of a wide turn must not wait for a request without one
                await self._in_turn(topic, turn, wide, room)
            finally:
                turn.over.set_result(None)

        with room:
            if wide:
                await self._wide.each(one, turns)
            else:
                await asyncio.gather(*map(one, turns))

    def _turn(
        self, topic: Topic, part: tuple[int, AppendRequest], again: Callable[[Acks], Awaitable[None]] | None
    ) -> "_Turn":
        """A part's turn, after the parts of its partition that were answered before it."""
        at = (topic.name, part[0])  # by name: a re-created topic is in the same line
        turn = _Turn(part, again, self._turns.get(at), asyncio.get_running_loop().create_future())
        self._turns[at] = turn.over  # at once: the next request may come before this one begins
        return turn

    async def _in_turn(self, topic: Topic, turn: "_Turn", wide: bool, room: Room) -> None:
        acks = Acks.ALL if wide else Acks.LEADER
        outcome: AppendOutcome | None
        async with self._wide.turn if wide else nullcontext():
            with room_of(room, [turn.part[1]]) as own:
                [outcome] = await self._append(topic, [turn.part], acks, own)
        if isinstance(outcome, TopicDeleted) and turn.again is not None:
            outcome = await _raised(turn.again(acks))  # the wide turn is given back: this may need several
        if isinstance(outcome, LakelogError):
            _log.warning("records of topic %s that were sent with acks=0 are lost: %s", topic.name, outcome)

    async def _after_answered(self, topic: Topic, parts: Sequence[tuple[int, AppendRequest]]) -> None:
        """Wait until the records that were answered before they were sequenced are sequenced."""
        turns = [self._turns.get((topic.name, partition)) for partition, _ in parts]
        under_way = [turn for turn in turns if turn is not None]
        if under_way:
            await asyncio.wait(under_way)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A part of a request with acks=0: it comes after `before`, and `over` is resolved when it is appended.
    `again` appends it when its topic turns out to be deleted.
    """

    part: tuple[int, AppendRequest]
    again: Callable[[Acks], Awaitable[None]] | None
    before: "asyncio.Future[None] | None"
    over: "asyncio.Future[None]"

    async def come(self) -> None:
        if self.before is not None:
            await asyncio.wait((self.before,))


async def _raised(act: Awaitable[None]) -> LakelogError | None:
    """The error that `act` raises, if any."""
    try:
        await act
    except LakelogError as error:
        return error
    return None


def may_be_repeated(outcome: AppendOutcome, entry: AppendRequest) -> bool:
    """Whether nothing was written, and another may lead by now; or a repeat would not write it twice."""
    return isinstance(outcome, NotLeader | Unreachable) or (
        isinstance(outcome, OutcomeUnknown) and entry.producer is not None
    )
