"""A member's session: it does the steps of its polls, and applies its events to the group."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeVar

from coordinator.groups.events import Commit, Heartbeat, OffsetAndMetadata, Poll, Seek
from coordinator.groups.sessions.session_state import Act, PollState, Position, SessionState, Step
from coordinator.groups.sessions.tail_follower import WAIT_LED_S, TailFollower
from coordinator.groups.shard import Shard
from coordinator.groups.state.group import Group
from ingest.loop_share import Wide, batched
from ingest.pending_tasks import SharedRefresh
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Damaged, LakelogError, NotAssigned, StoreUnavailable
from log_tables.partition.partition import Partition
from log_tables.partition.read_plan import ReadPlan
from log_tables.table.delta_log import topic_deleted
from log_tables.topic_partition import TopicPartition

OPENED_BY_ONE = 4
"""Partitions that a thread opens one after the other; others open more meanwhile. Each asks the store."""

Item = TypeVar("Item")
Trouble = Damaged | StoreUnavailable | None


@dataclass(frozen=True, slots=True)
class PlannedRead:
    """The records of one partition that a poll returns, to be read by `partition.read(plan)`."""

    at: TopicPartition
    partition: Partition
    plan: ReadPlan


@dataclass(frozen=True, slots=True)
class PollResult:
    """The result of a poll. `serial` is for `advance`; `epoch` the generation that the member must know."""

    serial: int
    epoch: int
    reads: list[PlannedRead]


class ConsumerSession:
    """Used on the event loop. After a NotLeader, which every method may raise, it is void."""

    def __init__(
        self,
        cluster: Cluster,
        topics: SharedRefresh,
        tails: TailFollower,
        opens: Wide,
        shard: Shard,
        clock: Clock,
        group_id: str,
        member_id: str,
    ) -> None:
        """`topics` refreshes the metadata log. `opens` bounds how many members open partitions at once."""
        self._cluster, self._topics, self._tails, self._opens = cluster, topics, tails, opens
        self.shard, self._clock = shard, clock
        self._group_id, self._member_id = group_id, member_id
        self._state = SessionState[Partition](group_id, member_id, clock.monotonic())

    async def poll(
        self,
        generation: int | None,
        max_bytes: int,
        deadline: float,
        ended: Callable[[], Awaitable[bool]],
        readable: Callable[[str], bool],
    ) -> PollResult:
        """Records of the member's partitions, whose topics must be `readable`: fetch.min.bytes of them, or at
        `deadline` those that there are.

        With `generation`, the newest that the client knows, it answers at once without records when there is
        a newer one to know. `ended` says that the client no longer waits. Raises UnknownMember, NotLeader,
        StoreUnavailable; Damaged when there is a partition that cannot be read, and nothing in the others;
        TopicDeleted when the group does not know yet that a topic is deleted.
        """
        group, now = self.shard.group(self._group_id), self._clock.boottime()
        poll = self._state.begin(group, generation, max_bytes, deadline, readable, now)
        changed = asyncio.Event()
        self.shard.listen(self._group_id, changed)
        try:
            while (step := self._next_step(poll)).act is not Act.GIVE:
                await self._take(step, poll, changed, ended)
            if poll.news:
                # First durable, then answered: a client must not see a generation twice.
                await self.shard.wait_durable(self._group_id)
            reads = [PlannedRead(at, self._log(at), plan) for at, plan in poll.plans]
            return PollResult(poll.serial, poll.member.epoch, reads)
        finally:
            self.shard.unlisten(self._group_id, changed)

    def _next_step(self, poll: PollState) -> Step:
        return self._state.next_step(poll, self.shard.group(self._group_id), self._clock.monotonic())

    async def _take(
        self, step: Step, poll: PollState, changed: asyncio.Event, ended: Callable[[], Awaitable[bool]]
    ) -> None:
        """Do a step of `poll`. At each await other requests come between, which `next_step` notices."""
        match step.act:
            case Act.ACKNOWLEDGE:
                changed.clear()  # before the look at the group: a later change ends the wait
                await self._acknowledge(poll.generation)
            case Act.CHECK_TOPICS:
                # After the refreshes: records of a topic that was deleted before the poll are not given.
                await self._topics.refresh()
                self._check_topics()
            case Act.ASK_CLIENT:
                # After the plans, before a wait: a client that has gone is not waited with.
                poll.ended = await ended()
            case Act.WAIT:
                await self._wait(poll, changed)
                # Refreshes of the last half of the wait will do: readers that began to wait at different
                # times soon share them.
                poll.since = self._clock.boottime() - poll.pause_s / 2
            case _:
                poll.damage = await self._refresh(step, poll) or poll.damage

    async def _refresh(self, step: Step, poll: PollState) -> Trouble:
        """Do a step that refreshes partitions. Returns the error of one that could not be read, which does
        not keep others from being read.
        """
        partitions = step.partitions or ()
        if step.act is Act.OPEN:
            return await self._open(poll, partitions)
        logs = [self._log(at) for at in partitions]
        match step.act:
            case Act.REFRESH:
                # Before the plans: they have what another gateway has answered before this poll began.
                return _damage(await self._tails.refresh(logs, poll.since))
            case Act.FOLLOW if self._tails.due_s(logs, WAIT_LED_S) <= 0:
                # Also where nothing is appended: another gateway may have taken over.
                return _damage(await self._tails.follow(logs, WAIT_LED_S))
            case Act.CATCH_UP:
                # After the shared refreshes, which do not wait for commits under way.
                return await _in_threads(_catch_up, logs)
            case Act.REACH:
                # After all refreshes: they say where the local segments begin.
                return await _in_threads(_reach, [self._state.positions[at] for at in partitions])
        return None

    def advance(self, serial: int, following: Mapping[TopicPartition, int]) -> None:
        """The client was given the records of poll `serial` up to these offsets."""
        self._state.advance(serial, following)

    @property
    def given(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets up to which the member was given records that it has not committed."""
        return self._state.given

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], checked: bool = False) -> Group:
        """Commit these offsets; `checked` as in Commit. Raises NotAssigned, GroupNotEmpty, UnknownMember,
        NotLeader.
        """
        now_ms = self._clock.now_ms()
        event = (
            Commit(self._member_id, offsets, now_ms, checked)
            if checked or offsets
            else Heartbeat(self._member_id)
        )
        group = self.shard.apply(self._group_id, event)
        self.note_committed(offsets)
        return group

    def seek(self, positions: Mapping[TopicPartition, int], checked: bool) -> Group:
        """Go on from these offsets; `checked` as in Seek. Raises NotAssigned, UnknownMember, NotLeader."""
        group = self.shard.apply(self._group_id, Seek(self._member_id, positions, checked))
        self.forget(positions)
        return group

    def note_positions(self) -> None:
        """Have the group note the positions of this member. Raises NotLeader."""
        member = self.shard.group(self._group_id).member(self._member_id)
        noted = {at: each.offset for at, each in self._state.positions.items() if at in member.owned}
        if noted:
            self.shard.apply(self._group_id, Seek(self._member_id, noted))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the positions in these partitions: the next look begins where it should."""
        self._state.forget(partitions)

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed: the records before them need no commit any longer."""
        self._state.note_committed(offsets)

    def leave(self) -> None:
        """Leave in order: with auto-commit, commit what the member was given."""
        due = self._state.last_commit(self.shard.group(self._group_id))
        if due:
            self.commit(due)

    async def _acknowledge(self, generation: int | None) -> None:
        """Note that the client has processed its records, and let it take over partitions that are free."""
        group = self.shard.group(self._group_id)
        before = group.member(self._member_id)
        if not before.subscribed and not before.assigned:
            raise NotAssigned(
                f"the consumer instance {before.id!r} has no subscription and no partitions; give "
                "it one first"
            )
        due = self._state.auto_commit(group, generation, self._clock.monotonic())
        if due:
            self.commit(due)  # before the poll gives up the partitions
        group = self.shard.apply(self._group_id, Poll(self._member_id, generation))
        self._state.keep(before, group)
        member = group.member(self._member_id)
        if member.owned != before.owned or member.epoch != before.epoch:
            # Before anything is read: who takes over begins where the owner before has durably committed.
            await self.shard.wait_durable(self._group_id)

    async def _open(self, poll: PollState, new: Sequence[TopicPartition]) -> Trouble:
        opened: dict[TopicPartition, Partition] = {}
        damage: Trouble = None
        group = self.shard.group(self._group_id)

        async def open_some(
            some: Sequence[TopicPartition],
        ) -> tuple[dict[TopicPartition, Partition], Trouble]:
            async with self._opens.turn:
                return await asyncio.to_thread(self._opened, group, some)

        # Before the other refreshes: what is opened is checked, and planned, in this look.
        for found, trouble in await self._opens.each(open_some, [*batched(new, OPENED_BY_ONE)]):
            opened, damage = opened | found, trouble or damage
        self._state.place(poll, opened, self.shard.group(self._group_id))
        return damage

    def _opened(
        self, group: Group, new: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, Partition], Damaged | None]:
        """The partitions `new`, without those of deleted or re-created topics and those that are damaged; and
        the damage, if any. Blocking.
        """
        opened, damage = {}, None
        for at in new:
            topic = self._cluster.cached_topic(at.topic)
            in_group = group.topics.get(at.topic)
            if topic is None or in_group is None or topic.topic_id != in_group.topic_id:
                continue
            if at.partition < topic.partition_count:
                try:
                    known, partition = topic.is_open(at.partition), topic.partition(at.partition)
                    if known:  # else it was read just now
                        partition.refresh()
                    opened[at] = partition
                except Damaged as error:
                    damage = error
        return opened, damage

    def _log(self, at: TopicPartition) -> Partition:
        return self._state.positions[at].log

    def _check_topics(self) -> None:
        for at, position in self._state.positions.items():
            topic = self._cluster.cached_topic(at.topic)
            if topic is None or topic.topic_id != position.topic_id:
                raise topic_deleted(position.log.directory)

    async def _wait(self, poll: PollState, changed: asyncio.Event) -> None:
        """Return when there are more records than `poll.seen`, when the group changes, or in time."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        due_s = min(
            self._tails.due_s(map(self._log, self._state.led(here=False)), poll.pause_s),
            self._tails.due_s(map(self._log, self._state.led(here=True)), WAIT_LED_S),
        )
        with ExitStack() as stack:
            for at, position in self._state.positions.items():
                stack.callback(position.log.on_commit(wake))
                if position.log.high_watermark != poll.seen[at]:
                    changed.set()
            with suppress(TimeoutError):
                # After each log is listened to and compared: no commit falls between the two.
                await asyncio.wait_for(changed.wait(), min(poll.timeout_s, max(0.0, due_s)))


async def _in_threads(look: Callable[[Sequence[Item]], Trouble], items: Sequence[Item]) -> Trouble:
    """Call `look` with all `items`, some at a time; returns the error of one of them."""
    damage = None
    for some in batched(items):
        damage = await asyncio.to_thread(look, some) or damage
    return damage


def _damage(troubles: Iterable[LakelogError]) -> Damaged | None:
    """The damage among `troubles`. Raises any other error."""
    damage = None
    for trouble in troubles:
        if not isinstance(trouble, Damaged):
            raise trouble
        damage = trouble
    return damage


def _catch_up(partitions: Iterable[Partition]) -> Trouble:
    """Refresh `partitions`, after commits of this process that are under way; returns the damage of one of
    them. Blocking.
    """
    damage = None
    for partition in partitions:
        try:
            partition.refresh(wait=True)
        except Damaged as error:
            damage = error
    return damage


def _reach(positions: Iterable[Position[Partition]]) -> Trouble:
    """Refresh from the remote root, so that plans need not; returns the error of one position. Blocking."""
    trouble: Trouble = None
    for position in positions:
        try:
            position.log.log_from(position.offset)
        except (Damaged, StoreUnavailable) as error:
            trouble = error
    return trouble
