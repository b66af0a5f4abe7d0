"""A member's positions: where it goes on in each partition that it owns, and how far it was given records.

Positions live in memory, as those of Kafka's consumers do: after a restart they begin again where the group
last committed, or where the member was set to.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeVar

from coordinator.groups.events import Commit, Heartbeat, OffsetAndMetadata, Poll, Seek
from coordinator.groups.sessions.shared_refresh import SharedRefresh
from coordinator.groups.sessions.tail_follower import WAIT_LED_S, WAITS, TailFollower
from coordinator.groups.shard import Shard
from coordinator.groups.state.group import Group, Member
from ingest.wide import batched
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import Damaged, LakelogError, NotAssigned, OffsetOutOfRange, StoreUnavailable
from log_tables.limits import READ_SEGMENTS_MAX
from log_tables.partition.partition import Partition
from log_tables.partition.read_plan import ReadPlan
from log_tables.table.delta_log import topic_deleted
from log_tables.topic_partition import TopicPartition

Item = TypeVar("Item")

_log = logging.getLogger(__name__)


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


@dataclass(slots=True)
class _Position:
    topic_id: str
    log: Partition
    offset: int


class ConsumerSession:
    """Used on the event loop. After a NotLeader, which every method may raise, it is void."""

    def __init__(
        self,
        cluster: Cluster,
        topics: SharedRefresh,
        tails: TailFollower,
        shard: Shard,
        clock: Clock,
        group_id: str,
        member_id: str,
    ) -> None:
        """`topics` refreshes the metadata log."""
        self._cluster, self._topics, self._tails = cluster, topics, tails
        self.shard, self._clock = shard, clock
        self._group_id, self._member_id = group_id, member_id
        self._positions: dict[TopicPartition, _Position] = {}
        self._given: dict[TopicPartition, int] = {}
        self._auto_committed = clock.monotonic()
        self._serial = 0
        self._turn = 0

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
        self._serial += 1
        serial, pause_s, began = self._serial, WAITS.first_s, self._clock.boottime()
        since = began  # the first refresh is newer; later ones are shared with other readers
        changed = asyncio.Event()
        self.shard.listen(self._group_id, changed)
        try:
            while True:
                changed.clear()
                await self._acknowledge(generation)
                damage = await self._refresh_logs(serial, since)
                if self._serial == serial:
                    await self._check_live(began)
                member = self.shard.group(self._group_id).member(self._member_id)
                if self._serial != serial or (generation is not None and generation < member.epoch):
                    await self.shard.wait_durable(self._group_id)  # no generation is seen twice
                    return PollResult(serial, member.epoch, [])
                seen = self._high_watermarks()
                reads = self._plan(max_bytes, readable)
                left = deadline - self._clock.monotonic()
                if _is_enough(reads, member.config.fetch_min_bytes) or left <= 0 or await ended():
                    if damage is not None:
                        if not reads:
                            raise damage
                        _log.error("a poll gives only what is in other partitions: %s", damage)
                    return PollResult(serial, member.epoch, reads if self._serial == serial else [])
                longest = min(WAIT_LED_S, _liveness_s(member))
                pause_s = min(pause_s, longest)
                await self._wait(changed, seen, min(left, longest, self._due_s(pause_s)))
                since = self._clock.boottime() - pause_s / 2
                pause_s = WAITS.after(pause_s)
        finally:
            self.shard.unlisten(self._group_id, changed)

    def advance(self, serial: int, following: Mapping[TopicPartition, int]) -> None:
        """The client was given the records of poll `serial` up to these offsets.

        Without effect when it has polled again since: it may have given up on that answer.
        """
        if serial != self._serial:
            return
        for at, offset in following.items():
            position = self._positions.get(at)
            if position is not None:
                position.offset = offset
                self._given[at] = offset
        self._turn += 1

    @property
    def given(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets up to which the member was given records that it has not committed."""
        return {at: OffsetAndMetadata(offset) for at, offset in self._given.items()}

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
        noted = {at: position.offset for at, position in self._positions.items() if at in member.owned}
        if noted:
            self.shard.apply(self._group_id, Seek(self._member_id, noted))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the positions in these partitions: the next poll begins where it should."""
        self._serial += 1
        self._drop(partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self._positions.pop(at, None)
            self._given.pop(at, None)

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed: the records before them need no commit any longer."""
        for at, committed in offsets.items():
            if self._given.get(at) == committed.offset:
                del self._given[at]

    def leave(self) -> None:
        """Leave in order: with auto-commit, commit what the member was given."""
        group = self.shard.group(self._group_id)
        if group.member(self._member_id).config.auto_commit:
            self._auto_commit(group, lambda _at: True)

    async def _acknowledge(self, generation: int | None) -> None:
        """Note that the client has processed its records, and let it take over partitions that are free."""
        group = self.shard.group(self._group_id)
        before = group.member(self._member_id)
        if not before.subscribed and not before.assigned:
            raise NotAssigned(
                f"the consumer instance {before.id!r} has no subscription and no partitions; give "
                "it one first"
            )
        if before.config.auto_commit:
            self._auto_commit_due(group, before, generation)
        group = self.shard.apply(self._group_id, Poll(self._member_id, generation))
        member = group.member(self._member_id)
        # Partitions that it did not own just now it may have lost and regained: others consumed in between.
        self._drop(self._positions.keys() - (before.owned & member.owned))
        self._drop([at for at, position in self._positions.items() if not _is_of(position, group, at)])
        if member.owned != before.owned or member.epoch != before.epoch:
            await self.shard.wait_durable(self._group_id)

    def _auto_commit_due(self, group: Group, member: Member, generation: int | None) -> None:
        now = self._clock.monotonic()
        if now - self._auto_committed >= member.config.auto_commit_interval_ms / 1000:
            self._auto_committed = now
            self._auto_commit(group, lambda _at: True)
        elif generation is None or generation >= member.epoch:
            leaving = group.to_revoke(member)
            if leaving:
                self._auto_commit(group, leaving.__contains__)

    def _auto_commit(self, group: Group, chosen: Callable[[TopicPartition], bool]) -> None:
        member = group.member(self._member_id)
        if member.assigned and not group.empty:
            return  # the offsets belong to the subscribed members
        due = {at: place for at, place in self.given.items() if at in member.owned and chosen(at)}
        if due:
            self.commit(due)

    async def _refresh_logs(self, serial: int, since: float) -> Damaged | StoreUnavailable | None:
        """Refresh the partitions, as of `since` or later, and open those that are new.

        At each wait another request may come between: state from before does not count after. Returns the
        error of a partition that could not be read, which does not keep others from being read.
        """
        damage: Damaged | StoreUnavailable | None = None
        group = self.shard.group(self._group_id)
        owned = group.member(self._member_id).owned
        new = [at for at in sorted(owned) if at not in self._positions]
        if new:
            opened: dict[TopicPartition, Partition] = {}
            for some in batched(new):
                found, trouble = await asyncio.to_thread(self._open, group, some)
                opened, damage = opened | found, trouble or damage
            if self._serial != serial:
                return damage
            self._open_at_start(opened)
        damage = _damage(await self._tails.refresh(self._led_elsewhere(), since)) or damage
        if self._tails.due_s(led := self._led_here(), WAIT_LED_S) <= 0:
            damage = _damage(await self._tails.follow(led, WAIT_LED_S)) or damage
        for position in self._positions.values():
            position.log.check_live()  # another reader's refresh may have found that it is deleted
        positions = self._positions.values()
        beyond = [position.log for position in positions if position.offset > position.log.high_watermark]
        if beyond:  # of a commit of this process under way that was read elsewhere
            damage = await _in_threads(_refresh, beyond) or damage
        far = [position for position in self._positions.values() if not position.log.reaches(position.offset)]
        if far:
            damage = await _in_threads(_reach, far) or damage
        return damage

    async def _check_live(self, began: float) -> None:
        """Raise TopicDeleted if a topic with records to return was deleted before `began`.

        For partitions led elsewhere `_refresh_logs` has found that. For partitions led here a commit since
        then has found it. For others all polls of that time share one refresh of the metadata log, which must
        begin now: this process may have been asleep since an earlier one.
        """
        ready = [position for at, position in self._positions.items() if self._has_records(at, position)]
        if all(not position.log.leading or position.log.confirmed >= began for position in ready):
            return
        await self._topics.refresh()
        for at, position in self._positions.items():
            topic = self._cluster.cached_topic(at.topic)
            if topic is None or topic.topic_id != position.topic_id:
                raise topic_deleted(position.log.directory)

    def _open(
        self, group: Group, new: Sequence[TopicPartition]
    ) -> tuple[dict[TopicPartition, Partition], Damaged | None]:
        """The partitions `new`, without those of deleted or re-created topics and those that are damaged; and
        the damage, if any.
        """
        opened, damage = {}, None
        for at in new:
            topic = self._cluster.cached_topic(at.topic)
            in_group = group.topics.get(at.topic)
            if topic is None or in_group is None or topic.topic_id != in_group.topic_id:
                continue
            if at.partition < topic.partition_count:
                try:
                    partition = topic.partition(at.partition)
                    partition.refresh()
                    opened[at] = partition
                except Damaged as error:
                    damage = error
        return opened, damage

    def _open_at_start(self, opened: Mapping[TopicPartition, Partition]) -> None:
        """Set the positions in partitions that are new, but for those whose start is not noted yet."""
        group = self.shard.group(self._group_id)
        member = group.member(self._member_id)
        starting = group.starting(member)
        for at in sorted(opened.keys() & (member.owned - self._positions.keys())):
            committed = group.committed(at)
            offset = member.positions.get(at, None if committed is None else committed.offset)
            if offset is None and at.topic not in starting:
                offset = opened[at].log_start
            if offset is not None:
                self._positions[at] = _Position(group.topics[at.topic].topic_id, opened[at], offset)

    def _plan(self, max_bytes: int, readable: Callable[[str], bool]) -> list[PlannedRead]:
        """A share of `max_bytes` from every partition that has records, another one first each time."""
        ready = [
            at
            for at, position in self._positions.items()
            if readable(at.topic)
            and self._has_records(at, position)
            and position.log.reaches(position.offset)
        ]
        if not ready:
            return []
        turn = self._turn % len(ready)
        share, segments = max(1, max_bytes // len(ready)), max(1, READ_SEGMENTS_MAX // len(ready))
        reads = []
        for at in (*ready[turn:], *ready[:turn]):
            position = self._positions[at]
            try:
                plan = position.log.plan_read(position.offset, share, segments)
            except OffsetOutOfRange:
                continue  # records were deleted just now: the next poll goes by auto.offset.reset
            if plan.segments:
                reads.append(PlannedRead(at, position.log, plan))
            else:
                position.offset = plan.end
        return reads

    def _has_records(self, at: TopicPartition, position: _Position) -> bool:
        """Whether there are records to read, at a position that still exists."""
        low, high = position.log.log_start, position.log.high_watermark
        if not low <= position.offset <= high:
            member = self.shard.group(self._group_id).member(self._member_id)
            # At 0 it has had no record: the partition is one whose records are all for it.
            there = high if member.latest and position.offset else low
            _log.warning(
                "group %s: offset %d of %s is out of range %d to %d; going on at %d (auto.offset.reset)",
                *(self._group_id, position.offset, at, low, high, there),
            )
            position.offset = there
        return position.offset < high

    def _led_elsewhere(self) -> list[Partition]:
        """The partitions led elsewhere: other processes append to them unnoticed."""
        return [position.log for position in self._positions.values() if not position.log.leading]

    def _led_here(self) -> list[Partition]:
        """The partitions led here: their commits wake a poll, but a fence would go unnoticed."""
        return [position.log for position in self._positions.values() if position.log.leading]

    def _due_s(self, pause_s: float) -> float:
        """Seconds until a partition is due for a refresh; those led elsewhere are every `pause_s`."""
        due = (
            self._tails.due_s(self._led_elsewhere(), pause_s),
            self._tails.due_s(self._led_here(), WAIT_LED_S),
        )
        return max(0.0, min(due))

    def _high_watermarks(self) -> list[tuple[Partition, int]]:
        return [(position.log, position.log.high_watermark) for position in self._positions.values()]

    async def _wait(
        self, changed: asyncio.Event, seen: list[tuple[Partition, int]], timeout_s: float
    ) -> None:
        """Return when there are more records than `seen`, when the group changes, or after `timeout_s`."""
        loop = asyncio.get_running_loop()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        with ExitStack() as stack:
            for partition, high_watermark in seen:
                stack.callback(partition.on_commit(wake))
                if partition.high_watermark != high_watermark:
                    changed.set()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), timeout_s)


def _is_of(position: _Position, group: Group, at: TopicPartition) -> bool:
    """Whether the topic of `at` is still the one that the position is in."""
    topic = group.topics.get(at.topic)
    return topic is not None and topic.topic_id == position.topic_id


def _liveness_s(member: Member) -> float:
    """The longest pause between two signs of life of a poll that waits, so that its member stays alive."""
    return min(member.config.session_timeout_ms, member.config.max_poll_interval_ms) / 1000 / 3


def _is_enough(reads: Sequence[PlannedRead], least_bytes: int) -> bool:
    """Whether an answer has `least_bytes`, or as many as it can hold."""
    full = any(reading.plan.end < reading.plan.high_watermark for reading in reads)
    return bool(reads) and (full or sum(map(_bytes, reads)) >= least_bytes)


async def _in_threads(
    look: Callable[[Sequence[Item]], Damaged | StoreUnavailable | None], items: Sequence[Item]
) -> Damaged | StoreUnavailable | None:
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


def _refresh(partitions: Iterable[Partition]) -> Damaged | None:
    """Refresh `partitions`, after commits of this process that are under way; returns the damage of one of
    them.
    """
    damage = None
    for partition in partitions:
        try:
            partition.refresh(wait=True)
        except Damaged as error:
            damage = error
    return damage


def _reach(positions: Iterable[_Position]) -> Damaged | StoreUnavailable | None:
    """Refresh from the remote root, so that plans need not; returns the error of one position."""
    trouble: Damaged | StoreUnavailable | None = None
    for position in positions:
        try:
            position.log.log_from(position.offset)
        except (Damaged, StoreUnavailable) as error:
            trouble = error
    return trouble


def _bytes(reading: PlannedRead) -> int:
    """About how many bytes of records one planned read returns."""
    plan, total = reading.plan, 0
    for segment in plan.segments:
        taken = min(plan.end, segment.last_offset + 1) - max(plan.start, segment.base_offset)
        total += segment.raw_bytes * taken // (segment.last_offset + 1 - segment.base_offset)
    return max(1, total)
