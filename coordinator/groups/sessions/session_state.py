"""A member's positions, and the next step of its poll. No I/O: `ConsumerSession` does the steps.

Positions live in memory, as those of Kafka's consumers do: after a restart they begin again where the group
last committed, or where the member was set to.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Generic, NamedTuple, Protocol, TypeVar

from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.sessions.tail_follower import WAIT_LED_S, WAITS
from coordinator.groups.state.group import Group
from coordinator.groups.state.member import Member, Partitions
from log_tables.errors import Damaged, OffsetOutOfRange, StoreUnavailable
from log_tables.limits import READ_SEGMENTS_MAX
from log_tables.partition.read_plan import ReadPlan
from log_tables.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class Log(Protocol):
    """A partition as far as positions need it, without I/O (`Partition`)."""

    @property
    def log_start(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def leading(self) -> bool: ...
    @property
    def confirmed(self) -> float: ...
    def check_live(self) -> None: ...
    def reaches(self, offset: int) -> bool: ...
    def plan_read(self, offset: int, max_bytes: int, max_segments: int | None = None) -> ReadPlan: ...


AnyLog = TypeVar("AnyLog", bound=Log)
Plans = list[tuple[TopicPartition, ReadPlan]]


@dataclass(slots=True)
class Position(Generic[AnyLog]):
    """The offset at which the member goes on in `log`, of the topic's incarnation `topic_id`."""

    topic_id: str
    log: AnyLog
    offset: int


class Act(Enum):
    """The kinds of steps of a poll."""

    ACKNOWLEDGE = auto()
    """Tell the group that the client has processed what it was given."""
    OPEN = auto()
    """Open partitions, and set their positions by `place`."""
    REFRESH = auto()
    """Refresh partitions as of `since` or later: they are led elsewhere, and grow unnoticed."""
    FOLLOW = auto()
    """Refresh partitions now and then: they are led here, and only a fence would go unnoticed."""
    CATCH_UP = auto()
    """Refresh partitions after the commits under way: positions are beyond what is known."""
    REACH = auto()
    """Look up the remote segments of partitions: positions are before the local ones."""
    CHECK_TOPICS = auto()
    """Check by the metadata log that the topics are still there."""
    ASK_CLIENT = auto()
    """Ask whether the client still waits (`ended`)."""
    WAIT = auto()
    """Wait for more than `seen`, for a change of the group, or for `timeout_s`; or until a partition is due
    for a refresh, as those led elsewhere are every `pause_s`."""
    GIVE = auto()
    """Answer with the records of `plans`; with `news` when the group's changes so far are durable."""


class Step(NamedTuple):
    """A step of a poll, for `partitions` if it is for some."""

    act: Act
    partitions: Sequence[TopicPartition] | None = None

    @property
    def needed(self) -> bool:
        """Whether there is something to do."""
        return self.partitions is None or bool(self.partitions)


@dataclass(slots=True)
class PollState:
    """A poll under way. Its `now` and deadline are by `Clock.monotonic`, `began` and `since` by
    `Clock.boottime`; `damage` is why a partition could not be read. `seen` are the high watermarks of the
    positions as of the last look.
    """

    serial: int
    generation: int | None
    max_bytes: int
    deadline: float
    readable: Callable[[str], bool]
    began: float
    since: float
    member: Member
    now: float
    damage: Damaged | StoreUnavailable | None = None
    ended: bool = False
    seen: dict[TopicPartition, int] = field(default_factory=dict)
    timeout_s: float = 0
    pause_s: float = WAITS.first_s
    plans: Plans = field(default_factory=list)
    news: bool = False
    steps: Iterator[Step] = field(default_factory=lambda: iter(()))


class SessionState(Generic[AnyLog]):
    """The positions of a member, and what its client was given. `serial` counts the polls: each makes those
    before it void.
    """

    def __init__(self, group_id: str, member_id: str, now: float) -> None:
        """`now` is by `Clock.monotonic`, here and in all methods."""
        self.positions: dict[TopicPartition, Position[AnyLog]] = {}
        self.serial = 0
        self._group_id, self._member_id = group_id, member_id
        self._given: dict[TopicPartition, int] = {}
        self._giving: set[TopicPartition] = set()  # whose records the newest poll gives
        self._auto_committed, self._turn = now, 0

    # Positions.

    def keep(self, before: Member, group: Group) -> None:
        """Forget the positions in partitions that the member does not own without a break since `before`:
        another member may have consumed there. So in those whose topic was re-created.
        """
        kept = before.owned & group.member(self._member_id).owned
        gone = [at for at, each in self.positions.items() if at not in kept or not _is_of(each, group, at)]
        self._drop(gone)

    def place(self, poll: PollState, opened: Mapping[TopicPartition, AnyLog], group: Group) -> None:
        """Set the positions in partitions that are new, but for those whose start is not noted yet."""
        if poll.serial != self.serial:
            return
        member = group.member(self._member_id)
        starting = group.starting(member)
        for at in sorted(opened.keys() & (member.owned - self.positions.keys())):
            committed = group.committed(at)
            offset = member.positions.get(at, None if committed is None else committed.offset)
            if offset is None and at.topic not in starting:
                offset = opened[at].log_start
            if offset is not None:
                self.positions[at] = Position(group.topics[at.topic].topic_id, opened[at], offset)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the positions in these partitions: the next look begins where it should. What a poll under
        way gives of them does not count; of others it does.
        """
        self._drop(partitions)

    def _drop(self, partitions: Iterable[TopicPartition]) -> None:
        for at in partitions:
            self.positions.pop(at, None)
            self._given.pop(at, None)
            self._giving.discard(at)

    def advance(self, serial: int, following: Mapping[TopicPartition, int]) -> None:
        """The client was given the records of poll `serial` up to these offsets.

        Without effect when it has polled again since: it may have given up on that answer.
        """
        if serial != self.serial:
            return
        for at, offset in following.items():
            if at in self._giving:
                self.positions[at].offset = self._given[at] = offset
        self._turn += 1

    def led(self, here: bool) -> list[TopicPartition]:
        """The partitions that are led here, or elsewhere."""
        return [at for at, position in self.positions.items() if position.log.leading == here]

    # Commits.

    @property
    def given(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets up to which the member was given records that it has not committed."""
        return {at: OffsetAndMetadata(offset) for at, offset in self._given.items()}

    def note_committed(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These offsets are committed: the records before them need no commit any longer."""
        for at, committed in offsets.items():
            if self._given.get(at) == committed.offset:
                del self._given[at]

    def auto_commit(
        self, group: Group, generation: int | None, now: float
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The auto-commit of a poll at `now`: all that was given, each interval; else only where the member
        gives up a partition in this poll, if its client can know of that.
        """
        member = group.member(self._member_id)
        if not member.config.auto_commit:
            return {}
        if now - self._auto_committed >= member.config.auto_commit_interval_ms / 1000:
            self._auto_committed = now
            return self.last_commit(group)
        knows = generation is None or generation >= member.epoch
        leaving = group.to_revoke(member) if knows else ()
        return self.last_commit(group, leaving) if leaving else {}

    def last_commit(
        self, group: Group, among: Partitions | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The auto-commit in the partitions `among`, or in all, before the member gives them up."""
        member = group.member(self._member_id)
        if not member.config.auto_commit or (member.assigned and not group.empty):
            return {}  # the offsets belong to the subscribed members
        owned = member.owned if among is None else among
        return {at: place for at, place in self.given.items() if at in owned}

    # The poll.

    def begin(
        self,
        group: Group,
        generation: int | None,
        max_bytes: int,
        deadline: float,
        readable: Callable[[str], bool],
        began: float,
    ) -> PollState:
        """Begin a poll (`ConsumerSession.poll`), which makes earlier ones void. Raises UnknownMember."""
        self.serial += 1
        member = group.member(self._member_id)
        poll = PollState(
            self.serial, generation, max_bytes, deadline, readable, began, began, member, deadline
        )
        poll.steps = self._steps(poll)
        return poll

    def next_step(self, poll: PollState, group: Group, now: float) -> Step:
        """The next step of `poll`, when the last one is done; GIVE is the last.

        Raises UnknownMember; TopicDeleted for a topic that is known to be deleted, `poll.damage` when there
        is nothing else to give.
        """
        poll.member, poll.now = group.member(self._member_id), now
        if poll.serial == self.serial:
            return next(step for step in poll.steps if step.needed)
        poll.plans, poll.news = [], True
        return Step(Act.GIVE)

    def _steps(self, poll: PollState) -> Iterator[Step]:
        """At each `yield` others may change the group, and all logs grow: nothing is kept across one."""
        while True:
            yield Step(Act.ACKNOWLEDGE)
            ready = yield from self._refreshes(poll)
            if poll.generation is not None and poll.generation < poll.member.epoch:
                poll.plans, poll.news = [], True
                break
            poll.plans = self._plans(poll, ready)
            self._giving = {at for at, _ in poll.plans}
            if _is_enough(poll.plans, poll.member.config.fetch_min_bytes) or poll.now >= poll.deadline:
                break
            yield Step(Act.ASK_CLIENT)
            if poll.ended:
                poll.plans = [(at, plan) for at, plan in poll.plans if at in self._giving]
                break
            if poll.seen.keys() != self.positions.keys():
                continue  # positions were forgotten since the look
            longest = min(WAIT_LED_S, _liveness_s(poll.member))
            poll.timeout_s, poll.pause_s = min(poll.deadline - poll.now, longest), min(poll.pause_s, longest)
            yield Step(Act.WAIT)
            poll.pause_s, poll.damage = WAITS.after(poll.pause_s), None
        if poll.damage is not None and not poll.news:
            if not poll.plans:
                raise poll.damage
            _log.error("a poll gives only what is in other partitions: %s", poll.damage)
        yield Step(Act.GIVE)

    def _refreshes(self, poll: PollState) -> Generator[Step, None, list[TopicPartition]]:
        """The refreshes of a look, each of which rests on those before it; returns the partitions that have
        records to read then.
        """
        yield Step(Act.OPEN, sorted(poll.member.owned - self.positions.keys()))
        yield Step(Act.REFRESH, self.led(here=False))
        yield Step(Act.FOLLOW, self.led(here=True))
        for position in self.positions.values():
            position.log.check_live()  # another reader's refresh may have found that it is deleted
        # Our own commit is not finished here, but another reader has already seen it.
        yield Step(
            Act.CATCH_UP, [at for at, each in self.positions.items() if each.offset > each.log.high_watermark]
        )
        yield Step(
            Act.REACH, [at for at, each in self.positions.items() if not each.log.reaches(each.offset)]
        )
        # A refresh has found whether a topic led elsewhere is deleted. For one led here a commit since the
        # poll began has. Others are looked up: this process may have been asleep since an earlier look.
        ready = self._ready(poll)
        logs = (self.positions[at].log for at in ready)
        if any(log.leading and log.confirmed < poll.began for log in logs):
            yield Step(Act.CHECK_TOPICS)
            ready = self._ready(poll)
        return ready

    def _ready(self, poll: PollState) -> list[TopicPartition]:
        # First what is seen: a record that comes after this look for records ends the wait at once.
        poll.seen = {at: position.log.high_watermark for at, position in self.positions.items()}
        return [at for at, each in self.positions.items() if self._has_records(at, each, poll.member)]

    def _plans(self, poll: PollState, ready: list[TopicPartition]) -> Plans:
        """A share of `max_bytes` from every partition that has records, another one first each time."""
        places = self.positions
        ready = [at for at in ready if poll.readable(at.topic) and places[at].log.reaches(places[at].offset)]
        if not ready:
            return []
        turn = self._turn % len(ready)
        share, segments = max(1, poll.max_bytes // len(ready)), max(1, READ_SEGMENTS_MAX // len(ready))
        plans = []
        for at in (*ready[turn:], *ready[:turn]):
            position = self.positions[at]
            try:
                plan = position.log.plan_read(position.offset, share, segments)
            except OffsetOutOfRange:
                continue  # records were deleted just now: the next poll goes by auto.offset.reset
            if plan.segments:
                plans.append((at, plan))
            else:  # a gap up to the end of the log: there is nothing to give before it
                position.offset = self._given[at] = plan.end
        return plans

    def _has_records(self, at: TopicPartition, position: Position[AnyLog], member: Member) -> bool:
        """Whether there are records to read, at a position that still exists."""
        low, high = position.log.log_start, position.log.high_watermark
        if not low <= position.offset <= high:
            # At 0 it has had no record: the partition is one whose records are all for it.
            there = high if member.latest and position.offset else low
            _log.warning(
                "group %s: offset %d of %s is out of range %d to %d; going on at %d (auto.offset.reset)",
                *(self._group_id, position.offset, at, low, high, there),
            )
            position.offset = there
        return position.offset < high


def _is_of(position: Position[AnyLog], group: Group, at: TopicPartition) -> bool:
    """Whether the topic of `at` is still the one that the position is in."""
    topic = group.topics.get(at.topic)
    return topic is not None and topic.topic_id == position.topic_id


def _liveness_s(member: Member) -> float:
    """The longest pause between two signs of life of a poll that waits, so that its member stays alive."""
    return min(member.config.session_timeout_ms, member.config.max_poll_interval_ms) / 1000 / 3


def _is_enough(plans: Plans, least_bytes: int) -> bool:
    """Whether an answer has `least_bytes`, or as many as it can hold."""
    full = any(plan.end < plan.high_watermark for _, plan in plans)
    return bool(plans) and (full or sum(_bytes(plan) for _, plan in plans) >= least_bytes)


def _bytes(plan: ReadPlan) -> int:
    """About how many bytes of records one planned read returns."""
    total = 0
    for segment in plan.segments:
        taken = min(plan.end, segment.last_offset + 1) - max(plan.start, segment.base_offset)
        total += segment.raw_bytes * taken // (segment.last_offset + 1 - segment.base_offset)
    return max(1, total)
