"""A group with members of every kind, its coordinators, who die, and its protocol, which changes with them.

Its clients hold what they would read: each partition has one holder at any time. A step is durable and heard,
durable and not heard, or lost with its coordinator, whom another one follows.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count

from coordinator.groups.classic.classic_group import ClassicState
from coordinator.groups.classic.consumer_protocol import (
    assigned_partitions,
    encode_assignment,
    held_partitions,
)
from coordinator.groups.classic.events import (
    Answer,
    ClassicEvent,
    ClassicTick,
    CommitOffsets,
    GroupHeartbeat,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LeftMember,
    SyncAnswer,
    SyncGroup,
)
from coordinator.groups.events import (
    LEAVES,
    LEAVES_FOR_A_WHILE,
    ConsumerHeartbeat,
    Event,
    Join,
    Leave,
    OffsetAndMetadata,
    Poll,
    Subscribe,
    Tick,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.state.assignment import sticky
from coordinator.groups.state.classic_step import classic_step
from coordinator.groups.state.consumer_step import told
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.member import NOTHING, Partitions
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import KafkaClient, MemberConfig, Records
from log_tables.errors import (
    Conflict,
    FencedInstanceId,
    FencedMemberEpoch,
    LakelogError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
    UnreleasedInstanceId,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.consumer_bytes import subscription
from tests.kit.driven_classic import LIMITS
from tests.kit.late_target import LateTarget
from tests.kit.mixed_clients import Client, Fate, Kind, counts

PARTITIONS, SESSION_MS, REBALANCE_MS, TICK_MS = 7, 1_000, 3_000, 250
INTERVAL_MS = 100
"""The least time between two targets."""
TOPICS = {"t": TopicState("id-t", PARTITIONS)}
ALL = frozenset(TopicPartition("t", number) for number in range(PARTITIONS))


@dataclass
class MixedLife:
    """The clients and the group, at `now_ms`. `check` runs after every step."""

    kinds: Iterable[Kind]
    cooperative: bool = False
    now_ms: float = 0.0
    records: Records = field(default_factory=list)
    group: Group = field(default_factory=lambda: Group("g"))
    late: LateTarget = field(default_factory=LateTarget)

    def __post_init__(self) -> None:
        self.clients = [Client(f"{kind.name.lower()}-{n}", kind) for n, kind in enumerate(self.kinds)]
        self._numbers = count(1)
        self._asking: dict[int, Client] = {}
        self.epochs: dict[int, tuple[str, Partitions]] = {}
        self.newest = 0
        self.seen: set[str] = set()
        self._take_over()

    # The coordinator.

    def _take_over(self) -> None:
        """Another coordinator reads what there is; whoever waited for an answer asks again."""
        self.late = LateTarget()
        restored = restore(self.records, self.now_ms).get("g", Group("g"))
        self.group = replace(restored, default_interval_ms=INTERVAL_MS)
        self.group, records = step(self.group, TopicsChanged(TOPICS), self.now_ms)
        self.records += records
        for client in self.clients:
            client.waits = None
        self._asking.clear()

    def _apply(self, event: Event | ClassicEvent, fate: Fate = Fate.HEARD) -> bool:
        """Whether the client hears of it. Raises what the step raises."""
        before = self.group
        answers: list[tuple[int, Answer]] = []
        if isinstance(event, ClassicEvent):
            after, records, answers = classic_step(before, event, self.now_ms, LIMITS)
        else:
            after, records = step(before, event, self.now_ms)
        if fate is Fate.LOST:
            self._take_over()
            return False
        self.group = after
        self.records += records
        if not after.classic.members:
            answers += [(number, RebalanceInProgress("it has changed")) for number in before.classic.held]
        self.check()
        for number, answer in answers:
            client = self._asking.pop(number, None)
            if client is not None:
                client.waits = None
                if fate is Fate.HEARD:
                    self._answered(client, answer)
        self.check()
        return fate is Fate.HEARD

    def pass_ms(self, milliseconds: float) -> None:
        self.now_ms += milliseconds
        found = self.late.take(self.group, self.now_ms)
        if found is not None:
            self._apply(found[0])
            assert self.group.due_ms is None or self.group.due_ms > self.now_ms
        self._apply(Tick(int(self.now_ms)))
        self._apply(ClassicTick())

    def die(self) -> None:
        """The coordinator dies, and another one follows."""
        self._take_over()
        self.check()

    # What must always hold.

    def check(self) -> None:
        members = self.group.members
        owned = [at for member in members.values() for at in member.owned]
        assert len(owned) == len({*owned}), "a partition has two owners"
        for client in self.clients:
            member = members.get(client.member_id)
            if member is not None and client.epoch == member.epoch and not member.away:
                assert client.holds <= member.owned, f"{client} holds more than {member}"
        assert self.group.generation >= self.newest or not members, "the epochs go back"
        for member in members.values():
            if not member.is_classic and member.kafka is not None:
                held = self.epochs.setdefault(member.epoch, (member.id, member.owned))
                assert held[0] == member.id, f"epoch {member.epoch} is given twice"
                assert member.owned <= held[1], f"epoch {member.epoch} has two assignments"
        reading = (client for client in self.clients if client.holds and counts(client, self.group))
        holders = [at for client in reading for at in client.holds]
        assert len(holders) == len({*holders}), "a partition has two holders"
        self.newest = max(self.newest, self.group.generation, self.group.classic.generation)

    def commit(self, client: Client) -> None:
        """A client commits what it has read: one that is no member any longer is refused."""
        if not client.holds or client.kind is Kind.INSTANCE:
            return
        offsets = {min(client.holds): OffsetAndMetadata(1)}
        try:
            self._apply(
                CommitOffsets(offsets=offsets, at_ms=1, member_id=client.member_id, generation=client.epoch)
            )
        except (Conflict, UnknownMember):
            self.seen.add("refused commit")
        else:
            assert counts(client, self.group), f"the commit of {client} was taken"

    # The clients.

    def behave(self, client: Client, fate: Fate = Fate.HEARD, slow: bool = False) -> None:
        """Let a client do what it does next. One that is `slow` holds on to what it is to let go of."""
        try:
            if client.kind is Kind.INSTANCE:
                self._poll(client, fate)
            elif client.kind is Kind.CLASSIC:
                self._go_on(client, fate)
            else:
                self._beat(client, fate, slow)
        except (UnknownMember, FencedMemberEpoch, FencedInstanceId) as error:
            self.seen.add(type(error).__name__)
            self._forget(client)
        except UnreleasedInstanceId:
            self.seen.add("UnreleasedInstanceId")
        if fate is not Fate.HEARD:
            client.says_all = True
            if client.kind is Kind.CLASSIC:
                client.joined = False

    def restart(self, client: Client) -> None:
        """The process of a client dies, and another one begins."""
        self._forget(client)
        client.member_id = ""

    def leave(self, client: Client, fate: Fate = Fate.HEARD, for_a_while: bool = False) -> None:
        """A client stops in order."""
        held, client.holds, client.owes = client.holds, NOTHING, None
        epoch = LEAVES_FOR_A_WHILE if for_a_while and client.instance_id else LEAVES
        event: Event | ClassicEvent
        if client.kind is Kind.INSTANCE:
            event = Leave(client.member_id)
        elif client.kind is Kind.CLASSIC:
            event = LeaveGroup((LeftMember(client.member_id),))
        else:
            event = self._heartbeat(client, epoch, None)
        try:
            if client.joined or client.epoch or held:
                self._apply(event, fate)
        except LakelogError as error:
            self.seen.add(type(error).__name__)
        self.restart(client)

    def _forget(self, client: Client) -> None:
        """It is no member any longer: it drops what it holds."""
        client.epoch, client.holds, client.owes, client.joined = 0, NOTHING, None, False
        client.says, client.says_all = False, False
        if client.waits is not None:
            self._asking.pop(client.waits, None)
            client.waits = None

    def _named(self, client: Client) -> str:
        if not client.member_id:
            client.lives += 1
            client.member_id = f"{client.name}.{client.lives}"
        return client.member_id

    # By KIP-848.

    def _heartbeat(self, client: Client, epoch: int, owned: Partitions | None) -> ConsumerHeartbeat:
        full = epoch == 0 or client.says_all
        return ConsumerHeartbeat(
            member_id=self._named(client),
            epoch=epoch,
            session_timeout_ms=SESSION_MS,
            client=KafkaClient(client.name, "10.0.0.1", client.instance_id),
            rebalance_timeout_ms=REBALANCE_MS if full else -1,
            topics=frozenset({"t"}) if full else None,
            owned=owned,
        )

    def _beat(self, client: Client, fate: Fate, slow: bool) -> None:
        if client.owes is not None and not slow:
            client.holds, client.owes, client.says = client.owes, None, True
        says = client.says or client.says_all or client.epoch == 0
        event = self._heartbeat(client, client.epoch, client.holds if says else None)
        before = self.group
        if not self._apply(event, fate):
            return
        client.says = client.says_all = False
        client.epoch = self.group.members[client.member_id].epoch
        assignment = told(before, self.group, event)
        if assignment is not None and assignment != client.holds:
            client.owes = assignment
        self.seen.add("heartbeat")

    # Over HTTP.

    def _poll(self, client: Client, fate: Fate) -> None:
        client.holds = NOTHING  # what it was given before is processed
        if not client.joined:
            config = MemberConfig(
                auto_offset_reset="earliest", session_timeout_ms=SESSION_MS, max_poll_interval_ms=REBALANCE_MS
            )
            if self._named(client) not in self.group.members and not self._apply(
                Join(client.member_id, config), fate
            ):
                return
            if not self._apply(Subscribe(client.member_id, frozenset({"t"}))):
                return
            client.joined = True
        if self._apply(Poll(client.member_id), fate):
            client.holds = self.group.members[client.member_id].owned
            client.epoch = self.group.members[client.member_id].epoch

    # By the classic protocol.

    @property
    def _protocol(self) -> str:
        return "cooperative-sticky" if self.cooperative else "range"

    def _go_on(self, client: Client, fate: Fate) -> None:
        if client.waits is not None:
            return
        if not client.joined:
            self._join(client, fate)
            return
        try:
            self._apply(GroupHeartbeat(client.member_id, client.epoch), fate)
            member = self.group.members.get(client.member_id)
            if fate is Fate.HEARD and (
                member.asked_ms is not None
                if member
                else self.group.classic.state is ClassicState.PREPARING_REBALANCE
            ):
                self._join(client, Fate.HEARD)
        except Conflict:  # a generation that is over
            client.holds, client.joined = NOTHING, False

    def _join(self, client: Client, fate: Fate) -> None:
        if not self.cooperative:
            client.holds = NOTHING
        client.joined = False
        number = client.waits = next(self._numbers)
        self._asking[number] = client
        data = subscription(["t"], client.holds)
        event = JoinGroup(
            request=number,
            new_member_id=f"{client.name}.{client.lives + 1}",
            member_id=client.member_id,
            client_id=client.name,
            protocol_type="consumer",
            protocols=((self._protocol, data),),
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        try:
            self._apply(event, fate)
        except LakelogError:
            client.waits = None
            self._asking.pop(number, None)
            self.restart(client)
        if fate is not Fate.HEARD:
            client.waits = None

    def _answered(self, client: Client, answer: Answer) -> None:
        match answer:
            case MemberIdRequired():
                client.lives += 1
                client.member_id = str(answer.details["member_id"])
                self._join(client, Fate.HEARD)
            case JoinAnswer():
                self.seen.add("joined")
                client.member_id, client.epoch, client.joined = answer.member_id, answer.generation, True
                leads = [(each.member_id, held_partitions(each.metadata)) for each in answer.members]
                client.leads = tuple(leads) if answer.leader == answer.member_id else ()
                self._sync(client)
            case SyncAnswer():
                given = assigned_partitions(answer.assignment) or NOTHING
                loses = client.holds - given
                client.holds = given
                if self.cooperative and loses:
                    self.seen.add("revoked")
                    self._join(client, Fate.HEARD)
            case RebalanceInProgress():
                client.joined = False
            case LakelogError():
                self._forget(client)

    def _sync(self, client: Client) -> None:
        number = client.waits = next(self._numbers)
        self._asking[number] = client
        assignments = {}
        if client.leads:
            held = dict(client.leads)
            shares = sticky({name: ["t"] for name in held}, {"t": PARTITIONS}, held)
            taken = {at: name for name, partitions in held.items() for at in partitions}
            for name, share in shares.items():
                kept = {at for at in share if not self.cooperative or taken.get(at, name) == name}
                assignments[name] = encode_assignment(kept)
        event = SyncGroup(
            request=number, member_id=client.member_id, generation=client.epoch, assignments=assignments
        )
        try:
            self._apply(event)
        except LakelogError:
            self._asking.pop(number, None)
            client.waits, client.joined, client.holds = None, False, NOTHING

    # The end.

    def settle(self) -> None:
        """Let everybody do as they should until nothing changes."""
        for _ in range(40):
            for client in self.clients:
                self.behave(client)
                self.behave(client)
            self.pass_ms(TICK_MS)
            if self._settled:
                return
        raise AssertionError(f"nothing settles for {self.clients} in {self.group}")

    @property
    def _settled(self) -> bool:
        held = sorted(at for client in self.clients for at in client.holds)
        members = len(self.group.members) + len(self.group.classic.members)
        return held == sorted(ALL) and members == len(self.clients) and self.group.is_stable
