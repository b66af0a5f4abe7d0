"""A consumer group driven by `step`, with its durable records and its clients, checked after every step."""

from dataclasses import dataclass, field, replace

from coordinator.groups.events import (
    Assign,
    Commit,
    Delete,
    Event,
    Join,
    Leave,
    LogEnd,
    Poll,
    Reset,
    Start,
    Subscribe,
    Tick,
    TopicsChanged,
    TopicState,
    Transact,
    Unsubscribe,
)
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.member import NOTHING, Member, Partitions
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import OffsetValue, Records
from log_tables.topic_partition import TopicPartition
from tests.kit.group_checks import (
    GROUP,
    check_owners,
    check_restored,
    check_shared,
    check_step,
    check_target,
    is_forgotten,
)
from tests.kit.late_target import LateTarget

EPOCH_MS = 1_700_000_000_000

INTERVAL_MS = 5
"""The least time between two targets."""

Offsets = dict[TopicPartition, tuple[str, int]]
"""What must be committed: the topic's incarnation and the offset."""

Incarnation = tuple[TopicPartition, str]
"""A partition of a topic's incarnation."""

Owed = dict[Incarnation, int]
"""The first record that must be given to some member."""

Taken = dict[str, Partitions]


@dataclass
class Client:
    """The knowledge of a member's client.

    `generation` is the newest that a poll has told it, None for a client that does not ask. `held` are the
    partitions that it may be working on; nobody else may.
    """

    generation: int | None = None
    held: Partitions = NOTHING


@dataclass
class Life:
    """A group in a world of topics, clients, and a coordinator that dies.

    `heard` are the records of the steps up to the last one that somebody was answered, `unheard` those of
    each later step, with what was expected after it: a crash may lose them, the last first. `taken` is what
    members have lost without their doing and were not told of yet: by silence, or with its topic. `written`
    are the log ends, `owed` is what the group must be given since a subscription was answered: those of the
    members `answered`.
    """

    group: Group = field(default_factory=lambda: Group(GROUP, default_interval_ms=INTERVAL_MS))
    now_ms: int = 0
    topics: dict[str, TopicState] = field(default_factory=dict)
    clients: dict[str, Client] = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    taken: Taken = field(default_factory=dict)
    heard: Records = field(default_factory=list)
    unheard: list[tuple[Records, Offsets, Taken, Owed]] = field(default_factory=list)
    expected: tuple[Offsets, Taken, Owed] = field(default_factory=lambda: ({}, {}, {}))
    incarnations: int = 0
    written: Owed = field(default_factory=dict)
    owed: Owed = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)
    late: LateTarget = field(default_factory=LateTarget)

    # What happens.

    def happen(self, event: Event, heard: bool = True) -> None:
        """Let `event` happen and check everything; when its answer is `heard` it is durable.

        Raises what `step` raises; then nothing has happened.
        """
        before = self.group
        self.group, records = step(before, event, self.now_ms)
        self.offsets = {} if is_forgotten(before, event) else committed_after(self.offsets, before, event)
        self.offsets |= self._placed(event)
        self.owed = self._owed_after(before, event)
        self._client_side(before, event)
        self.unheard.append((records, self.offsets, self.taken, self.owed))
        check_step(before, event, self.group)
        self.check()
        if heard:
            self.settle()

    def ask(self, event: Leave | Subscribe | Unsubscribe, heard: bool = True) -> None:
        """Let `event` happen as the coordinator does, which first hears of the topics."""
        self.follow()
        self.happen(event, heard)
        if heard and isinstance(event, Subscribe):
            self.start(event.member_id)

    def start(self, name: str) -> None:
        """Before a subscription or a poll is answered, it is noted where a member at `latest` begins."""
        member = self.group.members[name]
        if begun := self.read_ends(name):
            self.happen(begun)
            ends = begun.ends
            shared = self._shared(name)
            for at in ends if member.subscribed else ():
                assert at.topic in shared or self.offsets[at] == ends[at], "it is given older records"
        if member.subscribed:
            self._answer(self.group.members[name])

    def read_ends(self, name: str) -> Start | None:
        """The event with the log ends at which a member begins, for now or some steps later; None if it
        begins nowhere.
        """
        group, member = self.group, self.group.members[name]
        starting = group.starting(member)
        if not starting:
            return None
        ends = {at: self._log_end(at) for at in group.unplaced(member, starting)}
        return Start(name, ends, {name: group.topics[name] for name in starting}, self.wall_ms)

    def _log_end(self, at: TopicPartition) -> LogEnd:
        topic_id = self.group.topics[at.topic].topic_id
        return LogEnd(topic_id, self.written.get((at, topic_id), 0))

    def _answer(self, member: Member) -> None:
        """Note that, from now on, the group owes every record of the member's subscription."""
        committed = {place: self.group.committed(place[0]) for place in incarnations(self.group, member)}
        self.owed = {place: found.offset if found else 0 for place, found in committed.items()} | self.owed
        self.answered.add(member.id)
        self.settle()

    def append(self, at: TopicPartition, end: int) -> None:
        """Records up to `end` are appended to a partition that there is."""
        if at.topic in self.topics:
            place = at, self.topics[at.topic].topic_id
            self.written[place] = max(end, self.written.get(place, 0))

    def _placed(self, event: Event) -> Offsets:
        """The offsets that are noted without a commit of anybody: where partitions begin or end."""
        found = {}
        for at, committed in self.group.offsets.items():
            if isinstance(event, TopicsChanged | Start) and at not in self.offsets:
                if isinstance(event, Start):
                    self._check_begun(event, at, committed)
                else:
                    assert committed.offset == 0
                found[at] = committed.topic_id, committed.offset
        return found

    def _check_begun(self, event: Start, at: TopicPartition, committed: OffsetValue) -> None:
        """Assert that a member begins at the end that was read, or at 0 in a partition that is newer, or
        shared.
        """
        if event.ends.get(at) == (committed.topic_id, committed.offset):
            return
        before, shared = event.topics.get(at.topic), self._shared(event.member_id)
        assert committed.offset == 0
        assert before is not None, f"nobody has looked at {at}"
        assert at.topic in shared or not self.group.topics[at.topic].had(at.partition, before)

    def _shared(self, name: str) -> frozenset[str]:
        """The topics that others than the member `name` subscribe to."""
        others = [other for other in self.group.members.values() if other.id != name]
        return frozenset[str]().union(*(self.group.subscription(other) for other in others))

    def _owed_after(self, before: Group, event: Event) -> Owed:
        match event:
            case Commit(offsets=places) | Reset(offsets=places) | Transact(offsets=places):
                moved = {(at, before.topics[at.topic].topic_id): to.offset for at, to in places.items()}
                return self.owed | moved
            case Delete():
                return {}
            case Join(name) | Leave(name) | Subscribe(name) | Unsubscribe(name):
                self.answered.discard(name)
            case TopicsChanged():
                members = [m for name, m in self.group.members.items() if name in self.answered]
                found = {place: 0 for member in members for place in incarnations(self.group, member)}
                return found | self.owed
            case _:
                self.answered &= self.group.members.keys()
        return self._still_owed(before) if self.group.exists else {}

    def _still_owed(self, before: Group) -> Owed:
        """A subscription ends with its last member, and owes nothing where nothing was committed."""
        if _subscriptions(before) == _subscriptions(self.group):
            return self.owed
        subscribed = {place for m in self.group.members.values() for place in incarnations(self.group, m)}
        committed = {(at, topic_id) for at, (topic_id, _) in self.offsets.items()}
        return {place: first for place, first in self.owed.items() if place in subscribed | committed}

    def settle(self) -> None:
        """Make every append durable."""
        self.heard += [record for records, *_ in self.unheard for record in records]
        self.expected = self.offsets, self.taken, self.owed
        self.unheard.clear()

    def crash(self, lost: int) -> None:
        """The coordinator dies with the last `lost` steps that nobody has heard of; another takes over."""
        del self.unheard[len(self.unheard) - min(lost, len(self.unheard)) :]
        self.offsets, self.taken, self.owed = self.unheard[-1][1:] if self.unheard else self.expected
        self.answered.clear()
        self.settle()
        restored = restore(self.heard, self.now_ms).get(GROUP, Group(GROUP))
        self.group = replace(restored, default_interval_ms=INTERVAL_MS)
        self.late = LateTarget()
        self.follow(heard=False)
        assert self.group.due_ms is None, "a target that was due is computed"

    def compact(self) -> None:
        """Keep only the newest durable record of each key, and no deletion."""
        newest = {key: (number, value) for number, (key, value) in enumerate(self.heard)}
        ordered = sorted(newest.items(), key=lambda item: item[1][0])
        self.heard = [(key, value) for key, (_, value) in ordered if value is not None]

    def aim(self) -> None:
        """The group hears of a target that was computed some steps before, or is computed when it is due."""
        found, before = self.late.take(self.group, self.now_ms), self.group
        if found is not None:
            aimed, of = found
            self.happen(aimed, heard=False)
            if (aimed.due_ms, aimed.changes) == (before.due_ms, before.changes):
                assert self.group.due_ms is None
                check_target(self.group, of)

    def tick(self, ms: int) -> None:
        """Let `ms` pass, and the coordinator look."""
        self.now_ms += ms
        self.aim()
        if self.group.deadline_ms is not None and self.group.deadline_ms <= self.now_ms:
            self.follow()
            self.happen(Tick(0), heard=False)

    def expire(self, ms: int, retention_ms: int) -> None:
        """Let `ms` pass, and the coordinator look whether the group has been without members for too long."""
        self.now_ms += ms
        self.happen(Tick(self.wall_ms, self.wall_ms - retention_ms), heard=False)

    @property
    def wall_ms(self) -> int:
        """The wall clock."""
        return EPOCH_MS + self.now_ms

    # Topics. The group hears of them by `follow`.

    def make(self, name: str, partitions: int) -> None:
        """Create a topic, or re-create it without its records."""
        self.incarnations += 1
        self.topics[name] = TopicState(f"id-{self.incarnations}", partitions)

    def grow(self, name: str, more: int) -> None:
        self.topics[name] = self.topics[name]._replace(partitions=self.topics[name].partitions + more)

    def follow(self, heard: bool = False) -> None:
        self.happen(TopicsChanged(dict(self.topics)), heard)

    # Clients.

    def welcome(self, name: str, knows: bool) -> None:
        """A client speaks for the member that joined; `knows` says whether it asks for generations."""
        self.clients[name] = Client(0 if knows else None)
        self._knows(name)

    def poll(self, name: str, heard: bool = True) -> None:
        """A client asks for records; `heard` is whether the answer reaches it.

        One that knows generations learns of a newer one with what it may keep, and gives up the rest in its
        next poll. Any other one has done with all that it had when it asks.
        """
        client = self.clients[name]
        if client.generation is None:
            client.held = NOTHING
        self.start(name)
        self.happen(Poll(name, client.generation), heard)
        if not heard:
            return
        member = self.group.members[name]
        if client.generation is None:
            client.held = member.owned
            self._knows(name)
        elif member.epoch > client.generation:
            client.generation = member.epoch
            client.held = member.owned - self.group.to_revoke(member)
            self._knows(name)

    def _knows(self, name: str) -> None:
        self.taken = {**self.taken, name: NOTHING}
        self.settle()

    def everybody_polls(self) -> None:
        """Until all know and own what they should. Members that nobody speaks for are deleted first.

        It takes a few rounds: they are told, give up, take over, and are told of that.
        """
        self.follow()
        for name in [*(self.group.members.keys() - self.clients.keys())]:
            self.ask(Leave(name))
        for _ in range(7):
            self.now_ms = max(self.now_ms, int(self.group.due_ms or 0))
            self.aim()
            for name in [*self.clients]:
                self.poll(name)
        assert self.group.is_stable
        check_shared(self.group)
        for name, client in self.clients.items():
            member = self.group.members[name]
            assert client.held == member.owned or not member.subscribed

    def _client_side(self, before: Group, event: Event) -> None:
        """Update the clients' knowledge after `event`. A client that gave up partitions knows it; other
        losses are noted in `taken`, because the client cannot know of them yet.
        """
        match event:
            case Leave(name) | Unsubscribe(name) | Assign(name) if name in self.clients:
                # Whether that came about it may not hear: it begins anew with what it is told next.
                self.clients[name] = Client(None if self.clients[name].generation is None else 0)
            case Delete():
                self.clients.clear()
            case TopicsChanged() | Tick():
                owned = {name: member.owned for name, member in before.members.items()}
                now = {name: member.owned for name, member in self.group.members.items()}
                lost = {name: owned[name] - now.get(name, NOTHING) for name in owned}
                self.taken = {name: self.taken.get(name, NOTHING) | lost[name] for name in owned}
            case _:
                pass
        self.clients = {name: client for name, client in self.clients.items() if name in self.group.members}

    # What holds at any moment.

    def check(self) -> None:
        check_owners(self.group)
        assert {at: (c.topic_id, c.offset) for at, c in self.group.offsets.items()} == self.offsets
        written = [*self.heard, *(record for records, *_ in self.unheard for record in records)]
        check_owed(self.group, self.owed)
        check_restored(self.group, written, self.now_ms)
        for name, client in self.clients.items():
            member = self.group.members[name]
            held = client.held - self.taken.get(name, NOTHING)
            assert member.assigned or held <= member.owned, f"{name} was not told"


def _subscriptions(group: Group) -> dict[str, tuple[frozenset[str], str]]:
    return {name: (member.topics, member.pattern) for name, member in group.members.items()}


def incarnations(group: Group, member: Member) -> list[Incarnation]:
    """The partitions that `member` subscribes to."""
    topics = {name: group.topics[name] for name in group.subscription(member) & group.topics.keys()}
    return [
        (TopicPartition(name, p), topic.topic_id)
        for name, topic in topics.items()
        for p in range(topic.partitions)
    ]


def check_owed(group: Group, owed: Owed) -> None:
    """Nobody begins beyond a record that was appended after a subscription was answered."""
    for (at, topic_id), first in owed.items():
        topic = group.topics.get(at.topic)
        if topic is not None and topic.topic_id == topic_id:
            committed = group.committed(at)
            assert committed is None or committed.offset <= first, f"{at} is owed from {first}"


def committed_after(offsets: Offsets, before: Group, event: Event) -> Offsets:
    """The offsets that must be committed after `event`."""
    match event:
        case Commit(offsets=places) | Reset(offsets=places) | Transact(offsets=places):
            made = {at: (before.topics[at.topic].topic_id, place.offset) for at, place in places.items()}
            return {**offsets, **made}
        case Delete():
            return {}
        case TopicsChanged(topics):
            ids = {name: topic.topic_id for name, topic in topics.items()}
            return {at: kept for at, kept in offsets.items() if ids.get(at.topic) == kept[0]}
        case _:
            return offsets
