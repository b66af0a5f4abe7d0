"""A classic group, its clients and its coordinators, who die: each step checks what must always hold.

A step without records is answered at once. One with records is answered when they are durable, or never: then
the coordinator has died, and another one reads what there is.
"""

from dataclasses import dataclass, replace

from coordinator.groups.classic.classic_group import ClassicState
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
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.state.classic_step import classic_step
from log_tables.errors import (
    FencedInstanceId,
    LakelogError,
    MemberIdRequired,
    RebalanceInProgress,
    StaleGeneration,
    UnknownMember,
)
from tests.kit.driven_classic import LIMITS, DrivenClassic
from tests.kit.driven_group import T0

SESSION_MS, REBALANCE_MS, DELAY_MS = 1_000, 3_000, 200
TICK_MS = 250

PROTOCOLS = {
    "both": (("range", b""), ("sticky", b"")),
    "other": (("sticky", b""), ("range", b"")),
    "range": (("range", b""),),
    "changed": (("range", b"more"),),
}


@dataclass
class Client:
    """A client: the id that it was given, its generation, and the request that it waits for."""

    name: str
    instance_id: str | None
    protocols: str = "both"
    lives: int = 0
    member_id: str = ""
    generation: int = -1
    leader: str = ""
    others: tuple[str, ...] = ()
    waits: int | None = None
    assigned: bool = False


class ClassicLife:
    """The group is never empty of checks: `check` runs after every step."""

    def __init__(self, clients: int) -> None:
        limits = replace(LIMITS, initial_rebalance_delay_ms=DELAY_MS, max_size=clients - 1)
        self.now = DrivenClassic(limits)
        self.clients = [Client(f"c{n}", f"i{n}" if n % 2 else None) for n in range(clients)]
        self._asking: dict[int, tuple[Client, float, JoinGroup | SyncGroup]] = {}
        self._fenced: set[str] = set()
        self._begun: dict[int, tuple[str, str]] = {}
        self._assigned: dict[int, set[bytes]] = {}
        self._tokens = 0

    # Requests of clients.

    def join(self, client: Client, lost: bool = False) -> None:
        if client.waits is not None:
            return
        client.lives += not client.member_id
        event = self.now.request(
            client.member_id,
            new=f"{client.name}-{client.lives}",
            instance_id=client.instance_id,
            protocols=PROTOCOLS[client.protocols],
            session_timeout_ms=2 * REBALANCE_MS if client.instance_id else SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            requires_known_member_id=client.lives % 3 != 0,
            skips_assignment=client.lives % 2 == 0,
        )
        self._ask(client, event, lost)

    def sync(self, client: Client, lost: bool = False) -> None:
        """The leader's assignment names the request, by which a second one of a generation is seen."""
        if client.waits is not None or client.generation < 0:
            return
        self._tokens += 1
        token = b"%d" % self._tokens
        names = (client.member_id, *client.others) if client.leader == client.member_id else ()
        event = self.now.sync_request(
            client.member_id,
            client.generation,
            instance_id=client.instance_id,
            assignments=dict.fromkeys(names, token),
        )
        self._ask(client, event, lost)

    def _ask(self, client: Client, event: JoinGroup | SyncGroup, lost: bool) -> None:
        client.waits = event.request
        self._asking[event.request] = client, self.now.now_ms, event
        try:
            self._step(event, lost)
        except LakelogError as error:
            self._hear(event.request, error)

    def heartbeat(self, client: Client) -> None:
        if client.generation < 0:
            return
        try:
            self._step(GroupHeartbeat(client.member_id, client.generation, client.instance_id))
        except LakelogError as error:
            self._refused(client, error)

    def commit(self, client: Client, lost: bool = False) -> None:
        """A commit is of a member of the newest generation, and of nobody that was fenced."""
        if client.generation < 0:
            return
        event = CommitOffsets(
            offsets={T0: OffsetAndMetadata(1)},
            at_ms=1,
            member_id=client.member_id,
            generation=client.generation,
            instance_id=client.instance_id,
        )
        try:
            self._step(event, lost)
        except LakelogError as error:
            self._refused(client, error)
            return
        assert client.member_id not in self._fenced
        assert client.generation >= max(self._assigned, default=0), "a newer generation has its assignments"

    def leave(self, client: Client, lost: bool = False) -> None:
        if not client.member_id:
            return
        request = next(self.now.numbers)
        left = LeftMember(client.member_id, client.instance_id)
        self._step(LeaveGroup((left,), request), lost)
        self.restart(client)

    def restart(self, client: Client) -> None:
        """Restart the client: its new process knows nothing."""
        if client.waits is not None:
            self._asking.pop(client.waits, None)
        client.member_id, client.generation, client.waits = "", -1, None
        client.leader, client.others, client.assigned = "", (), False

    def zombie_commits(self, client: Client, generation: int) -> None:
        """A generation that was followed by another one commits nothing."""
        if generation >= max(self._assigned, default=0):
            return
        for name in [*self.now.group.classic.members, client.member_id]:
            event = CommitOffsets(
                offsets={T0: OffsetAndMetadata(0)}, at_ms=1, member_id=name, generation=generation
            )
            self.now.refuse(event, LakelogError)

    # Time, and coordinators.

    def pass_ms(self, milliseconds: int) -> None:
        for _ in range(0, milliseconds, TICK_MS):
            self.now.now_ms += TICK_MS
            self._step(ClassicTick())
            for client, since, event in self._asking.values():
                # A SyncGroup may come late in its generation, a JoinGroup early in a rebalance.
                assert self.now.now_ms - since <= REBALANCE_MS + DELAY_MS + TICK_MS, (client, event)

    def take_over(self) -> None:
        """The coordinator dies: all requests that it holds end, and another one reads the log."""
        self.now = self.now.restored()
        for request in [*self._asking]:
            self._asking.pop(request)[0].waits = None
        self.check()

    def settle(self) -> None:
        """All clients do as they are told: the group becomes stable, and each one has an assignment."""
        for client in self.clients[1:]:
            client.protocols = "both"
            self.restart(client)
        for _ in range(60):
            for client in self.clients[1:]:
                self.behave(client)
            self.pass_ms(TICK_MS)
            if self.now.state is ClassicState.STABLE and all(c.assigned for c in self.clients[1:]):
                return
        raise AssertionError(f"the group never became stable: {self.now.group.classic}")

    def behave(self, client: Client, lost: bool = False) -> None:
        """A client does the next thing that it should; with `lost`, the coordinator may die of it."""
        if client.waits is not None:
            return
        if client.assigned:
            self.heartbeat(client)
            if self.now.state is ClassicState.PREPARING_REBALANCE:
                client.generation, client.assigned = -1, False
        if client.generation < 0:
            self.join(client, lost)
        elif not client.assigned:
            self.sync(client, lost)

    # Steps and answers.

    def _step(self, event: ClassicEvent, lost: bool = False) -> None:
        """Apply `event`; with `lost`, the coordinator dies before its records are durable."""
        now = self.now
        now.group, records, answers = classic_step(now.group, event, now.now_ms, now.limits)
        if records and lost:
            self.take_over()
            return
        now.records += records
        for request, answer in answers:
            assert request not in now.answers
            now.answers[request] = answer
            if not isinstance(answer, LeaveAnswer):
                self._hear(request, answer)
        self.check()

    def _hear(self, request: int, answer: Answer) -> None:
        if request not in self._asking:
            return  # its client is gone
        client, _, event = self._asking.pop(request)
        client.waits = None
        match answer:
            case JoinAnswer():
                self._joined(client, answer)
            case SyncAnswer():
                assert isinstance(event, SyncGroup)
                if answer.assignment:
                    self._assigned.setdefault(event.generation, set()).add(answer.assignment)
                    assert len(self._assigned[event.generation]) == 1, "two assignments of one generation"
                client.assigned = True
            case LeaveAnswer():
                raise AssertionError(answer)
            case _:
                self._refused(client, answer)

    def _joined(self, client: Client, answer: JoinAnswer) -> None:
        if client.instance_id is not None and client.member_id != answer.member_id:
            self._fenced |= {f"{client.name}-{life}" for life in range(client.lives)}
        client.member_id, client.generation = answer.member_id, answer.generation
        client.leader, client.assigned = answer.leader, False
        client.others = tuple(member.member_id for member in answer.members)
        leads = _who(answer.leader), answer.protocol
        if answer.generation not in self._begun:
            assert answer.generation > max(self._begun, default=0), "an old generation is begun again"
        assert self._begun.setdefault(answer.generation, leads) == leads, "two leaders, or two protocols"
        if answer.members:
            assert answer.member_id in client.others

    def _refused(self, client: Client, error: LakelogError) -> None:
        match error:
            case MemberIdRequired():
                client.member_id = str(error.details["member_id"])
            case UnknownMember() | FencedInstanceId():
                self.restart(client)
            case StaleGeneration() | RebalanceInProgress():
                client.generation, client.assigned = -1, False
            case _:
                client.generation = -1

    def check(self) -> None:
        """The state and what is waited for fit together."""
        group = self.now.group.classic
        held = [*group.held]
        assert len(held) == len({*held})
        assert {*self._asking} <= {*held}, "a request that nobody will answer"
        if not group.members:  # a rebalance may wait for a client that was given an id
            assert group.state is ClassicState.EMPTY or group.pending
        assert group.state is not ClassicState.EMPTY or not group.members
        assert (group.join_deadline_ms is not None) == (group.state is ClassicState.PREPARING_REBALANCE)
        if group.state is ClassicState.COMPLETING_REBALANCE:
            assert group.sync_deadline_ms is not None
        assert not group.members or group.leader in group.members
        assert not {*group.pending} & {*group.members}
        instances = [m.instance_id for m in group.members.values() if m.instance_id is not None]
        assert len(instances) == len({*instances})
        assert group.generation <= group.newest
        for member in group.members.values():
            assert member.joining is None or group.state is ClassicState.PREPARING_REBALANCE
            assert member.syncing is None or group.state is ClassicState.COMPLETING_REBALANCE
        assert not self._fenced & {*group.members}


def _who(member_id: str) -> str:
    return member_id.split("-", maxsplit=1)[0]
