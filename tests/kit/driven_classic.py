"""One classic group, driven request by request."""

from itertools import count
from typing import Any, TypeVar

import pytest

from coordinator.groups.classic.classic_group import ClassicLimits, ClassicMember, ClassicState
from coordinator.groups.classic.consumer_protocol import encode_subscription
from coordinator.groups.classic.events import (
    Answer,
    ClassicEvent,
    ClassicTick,
    CommitOffsets,
    GroupHeartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveAnswer,
    LeaveGroup,
    LeftMember,
    SyncAnswer,
    SyncGroup,
)
from coordinator.groups.events import OffsetAndMetadata, Tick, TopicsChanged
from coordinator.groups.state.classic_step import classic_step
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import ClassicValue, Records
from log_tables.errors import LakelogError, MemberIdRequired
from tests.kit.driven_group import T0, TWO

SESSION_MS, REBALANCE_MS = 10_000, 30_000
SUBSCRIBED = encode_subscription(["t"])
LIMITS = ClassicLimits(
    initial_rebalance_delay_ms=0, min_session_timeout_ms=100, max_session_timeout_ms=60_000, max_size=10
)

Kind = TypeVar("Kind")


class DrivenClassic:
    """A group, the time in milliseconds, all that was made durable, and the answers by request."""

    def __init__(self, limits: ClassicLimits = LIMITS) -> None:
        self.now_ms = 0.0
        self.limits = limits
        self.records: Records = []
        self.answers: dict[int, Answer] = {}
        self.group = step(Group("g"), TopicsChanged(TWO), 0)[0]
        self.numbers = count(1)

    @property
    def state(self) -> ClassicState:
        return self.group.state

    @property
    def generation(self) -> int:
        return self.group.classic.generation

    @property
    def leader(self) -> str:
        return self.group.classic.leader

    @property
    def members(self) -> list[str]:
        return [*self.group.classic.members]

    def member(self, name: str) -> ClassicMember:
        return self.group.classic.members[name]

    def happen(self, event: ClassicEvent) -> Records:
        """Apply `event`; returns its records."""
        self.group, records, answers = classic_step(self.group, event, self.now_ms, self.limits)
        self.records += records
        for request, answer in answers:
            assert request not in self.answers, "a request has one answer"
            self.answers[request] = answer
        return records

    def refuse(self, event: ClassicEvent, error: type[LakelogError]) -> None:
        with pytest.raises(error):
            classic_step(self.group, event, self.now_ms, self.limits)

    def request(self, name: str = "", **asked: Any) -> JoinGroup:
        """A JoinGroup; `new` is the id that a new member gets."""
        asked = {
            "request": next(self.numbers),
            "new_member_id": asked.pop("new", name or "new"),
            "member_id": name,
            "protocol_type": "consumer",
            "protocols": (("range", SUBSCRIBED),),
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            **asked,
        }
        return JoinGroup(**asked)

    def join(self, name: str = "", **asked: Any) -> int:
        """Send a JoinGroup; returns its number."""
        event = self.request(name, **asked)
        self.happen(event)
        return event.request

    def join_new(self, name: str, **asked: Any) -> int:
        """A new member that joins, and is called `name`."""
        first = self.join(new=name, **asked)
        if isinstance(self.answers.get(first), MemberIdRequired):
            return self.join(name, **asked)
        return first

    def sync_request(self, name: str, generation: int | None = None, **asked: Any) -> SyncGroup:
        asked = {"assignments": {}, **asked}
        return SyncGroup(
            request=next(self.numbers),
            member_id=name,
            generation=self.generation if generation is None else generation,
            **asked,
        )

    def sync(self, name: str, **asked: Any) -> int:
        """Send a SyncGroup; the leader's assigns to each member its own name."""
        if name == self.leader and "assignments" not in asked:
            asked["assignments"] = {each: each.encode() for each in self.members}
        event = self.sync_request(name, **asked)
        self.happen(event)
        return event.request

    def heartbeat(self, name: str, generation: int | None = None, instance: str | None = None) -> None:
        self.happen(GroupHeartbeat(name, self.generation if generation is None else generation, instance))

    def leave(self, *names: str) -> LeaveAnswer:
        return self.leave_as(*(LeftMember(name) for name in names))

    def leave_as(self, *members: LeftMember) -> LeaveAnswer:
        event = LeaveGroup(members, next(self.numbers))
        self.happen(event)
        return self.answered(event.request, LeaveAnswer)

    def commit_request(self, name: str, generation: int | None = None, offset: int = 1) -> CommitOffsets:
        return CommitOffsets(
            offsets={T0: OffsetAndMetadata(offset)},
            at_ms=1,
            member_id=name,
            generation=self.generation if generation is None else generation,
        )

    def commit(self, name: str, generation: int | None = None, offset: int = 1) -> None:
        self.happen(self.commit_request(name, generation, offset))

    def pass_ms(self, milliseconds: float) -> None:
        """Let time pass, with a tick at its end."""
        self.now_ms += milliseconds
        self.happen(ClassicTick())

    def expire(self) -> None:
        """Let whoever is late be given up, of any kind."""
        self.group, records = step(self.group, Tick(int(self.now_ms)), self.now_ms)
        self.records += records
        self.happen(ClassicTick())

    def held(self, request: int) -> bool:
        waits = request in self.group.classic.held
        assert waits != (request in self.answers)
        return waits

    def answered(self, request: int, kind: type[Kind]) -> Kind:
        """The answer to a request, which is of this kind."""
        answer = self.answers[request]
        assert isinstance(answer, kind), answer
        return answer

    def joined(self, request: int) -> JoinAnswer:
        return self.answered(request, JoinAnswer)

    def synced(self, request: int) -> bytes:
        return self.answered(request, SyncAnswer).assignment

    def stored(self) -> ClassicValue | None:
        """The newest record of the members."""
        values = [value for _, value in self.records if isinstance(value, ClassicValue)]
        return values[-1] if values else None

    def stable(self, *names: str, **asked: Any) -> "DrivenClassic":
        """A stable group of these members."""
        for name in names:
            self.join_new(name, **asked)
        while self.state is not ClassicState.STABLE:
            for name in self.members:
                if self.member(name).joining is None and self.state is ClassicState.PREPARING_REBALANCE:
                    self.join(name, protocols=self.member(name).protocols)
            for name in self.members:
                self.sync(name)
        return self

    def restored(self) -> "DrivenClassic":
        """The group as another coordinator takes it over."""
        other = DrivenClassic(self.limits)
        other.now_ms, other.records, other.numbers = self.now_ms, [*self.records], self.numbers
        other.group = restore(self.records, self.now_ms).get("g", Group("g"))
        other.group = step(other.group, TopicsChanged(TWO), self.now_ms)[0]
        return other
