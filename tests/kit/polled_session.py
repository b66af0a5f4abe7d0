"""A member's session with logs that are values, driven step by step: nothing waits, and nothing is read."""

from collections.abc import Callable
from dataclasses import dataclass

from coordinator.groups.events import (
    Event,
    Join,
    OffsetAndMetadata,
    Poll,
    Reset,
    Subscribe,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.sessions.session_state import Act, PollState, SessionState, Step
from coordinator.groups.state.group import Group
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import OffsetOutOfRange, TopicDeleted
from log_tables.partition.read_plan import ReadPlan
from log_tables.table.snapshot import Segment
from log_tables.topic_partition import TopicPartition
from tests.kit.groups import any_topic

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
AT, OTHER, LAST = PARTITIONS
MEMBER = MemberConfig(auto_offset_reset="earliest", auto_commit=False, session_timeout_ms=10_000)
MANY = 1_000_000


@dataclass(eq=False)
class ModelLog:
    """A log with offsets `log_start` to `end`, of which `high_watermark` is known here.

    `refreshed` and `confirmed` say when. Below `remote` it is in the remote root, which was looked up if
    `reached`.
    """

    log_start: int = 0
    end: int = 0
    high_watermark: int = 0
    leading: bool = False
    refreshed: float = -1
    confirmed: float = -1
    remote: int = 0
    reached: bool = False
    deleted: bool = False

    def check_live(self) -> None:
        if self.deleted:
            raise TopicDeleted("the topic is deleted")

    def reaches(self, offset: int) -> bool:
        return offset >= self.remote or self.reached

    def plan_read(self, offset: int, max_bytes: int, max_segments: int | None = None) -> ReadPlan:
        """A record is a byte."""
        low, high = self.log_start, self.high_watermark
        assert self.reaches(offset), "a plan would ask the store"
        assert max_segments, "there is always one"
        if not low <= offset <= high:
            raise OffsetOutOfRange("out of range", log_start_offset=low, high_watermark=high)
        segments = () if offset == high else (_segment(low, high),)
        end = min(high, offset + max_bytes)
        return ReadPlan(start=offset, end=end, log_start=low, high_watermark=high, segments=segments)

    def refresh(self, now: float) -> None:
        self.high_watermark, self.refreshed, self.confirmed = self.end, now, now


def _segment(low: int, high: int) -> Segment:
    return Segment(
        path="a",
        size=1,
        base_offset=low,
        last_offset=high - 1,
        records=high - low,
        min_timestamp="",
        max_timestamp="",
        modification_time=0,
        nulls=(0, 0, 0),
        raw_bytes=high - low,
    )


class Scene:
    """A group with the member `m`, its session, and the logs that it reads."""

    def __init__(self, config: MemberConfig = MEMBER) -> None:
        self.now = 1.0
        self.logs = {at: ModelLog() for at in PARTITIONS}
        self.topics = {"t": TopicState("t-1", len(PARTITIONS))}
        self.group = Group("g")
        self.expected: dict[TopicPartition, int] = {}
        self.reset_since: set[TopicPartition] = set()
        """The partitions that were reset after the last poll was answered."""
        self.acknowledged: frozenset[TopicPartition] = frozenset()
        self.due = True
        self.happen(TopicsChanged(self.topics))
        self.happen(Join("m", config))
        self.happen(Subscribe("m", frozenset({"t"})))
        self.session = SessionState[ModelLog]("g", "m", self.now)

    def happen(self, event: Event) -> None:
        self.group, _ = step(self.group, event, self.now * 1_000)
        owned = self.group.members["m"].owned if "m" in self.group.members else frozenset()
        self.expected = {at: offset for at, offset in self.expected.items() if at in owned}

    def begin(self, timeout_s: float = 0, max_bytes: int = MANY, generation: int | None = None) -> PollState:
        self.now += 1
        return self.session.begin(
            self.group, generation, max_bytes, self.now + timeout_s, any_topic, self.now
        )

    def next(self, poll: PollState) -> Step:
        return self.session.next_step(poll, self.group, self.now)

    def take(self, step: Step, poll: PollState) -> None:
        """Do a step as the loop does, at once."""
        self.now += 0.001
        for log in (self.logs[at] for at in step.partitions or ()):
            if step.act is Act.REACH:
                log.reached = True
            elif step.act is not Act.FOLLOW or self.due:
                log.refresh(self.now)
        match step.act:
            case Act.ACKNOWLEDGE:
                before = self.group.member("m")
                self.happen(Poll("m", poll.generation))
                self.session.keep(before, self.group)
                self.acknowledged = self.group.member("m").owned
            case Act.OPEN:
                found = {at: self.logs[at] for at in step.partitions or ()}
                self.session.place(poll, found, self.group)
            case Act.CHECK_TOPICS:
                for log in self.logs.values():
                    log.confirmed = self.now
            case Act.WAIT:
                self.now += max(0.0, min(poll.timeout_s, poll.pause_s))
                poll.since = self.now - poll.pause_s / 2

    def steps(self, poll: PollState, between: Callable[[Step], None] = lambda _: None) -> list[Act]:
        """Do all steps of a poll, with `between` after each of them; returns which they were."""
        taken: list[Act] = []
        while (step := self.next(poll)).act is not Act.GIVE:
            taken.append(step.act)
            self.take(step, poll)
            between(step)
        self.check_given(poll)
        return taken

    def check_given(self, poll: PollState) -> None:
        """Assert that a poll gives only partitions of the member, in order, by the newest knowledge, and of
        existing topics.
        """
        if poll.serial == self.session.serial:
            self.reset_since.clear()
        assert not (poll.news and poll.plans)
        for at, plan in poll.plans:
            log = self.logs[at]
            assert at in self.acknowledged
            assert plan.start == self.place(at)
            assert plan.start < plan.end <= log.high_watermark
            assert log.confirmed >= poll.began if log.leading else log.refreshed > poll.since

    def place(self, at: TopicPartition) -> int:
        """The member's next offset, by the plainest rules."""
        committed, log = self.group.committed(at), self.logs[at]
        noted = self.group.member("m").positions.get(
            at, log.log_start if committed is None else committed.offset
        )
        offset = self.expected.get(at, noted)
        return offset if log.log_start <= offset <= log.high_watermark else log.log_start

    def give(self, poll: PollState) -> None:
        """The client has the records."""
        following = {at: plan.end for at, plan in poll.plans}
        self.session.advance(poll.serial, following)
        if poll.serial == self.session.serial:
            kept = self.group.member("m").owned - self.reset_since
            self.expected |= {at: offset for at, offset in following.items() if at in kept}

    def reset(self, at: TopicPartition, offset: int) -> None:
        self.happen(Reset({at: OffsetAndMetadata(offset)}, 0, force=True))
        self.session.forget([at])
        self.expected.pop(at, None)
        self.reset_since.add(at)
