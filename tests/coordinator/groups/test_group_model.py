"""A consumer group driven by anything, in any order: what `Life` checks after every step must always hold.

Members join, fall silent, come back, and are told or not; topics come, go and grow; the coordinator dies
with the steps that nobody has heard of. The same again as a long simulation of many members from a seed.
"""

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from msgspec.structs import replace

from coordinator.groups.events import (
    Assign,
    Commit,
    Delete,
    Event,
    Heartbeat,
    Join,
    Leave,
    OffsetAndMetadata,
    Reset,
    Seek,
    Start,
    Subscribe,
    Unsubscribe,
)
from coordinator.groups.state.group import Group
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import (
    GroupNotEmpty,
    InvalidConsumer,
    LakelogError,
    MemberExists,
    MixedSubscription,
    NotAssigned,
    UnknownMember,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.topic_partition import TopicPartition
from tests.kit.group_life import INTERVAL_MS, Life
from tests.kit.group_simulation import Simulation
from tests.kit.models import short_form

SESSION_MS = 1_000
POLL_MS = 400
CONFIG = MemberConfig(session_timeout_ms=SESSION_MS, max_poll_interval_ms=POLL_MS)
STRATEGIES = ("", "sticky", "range", "roundrobin")
PATTERNS = ("a.*", ".*")

MEMBERS_MAX = 5

who = st.integers(0, MEMBERS_MAX - 1)
topics = st.sampled_from(["a", "ab", "b"])
partitions = st.builds(TopicPartition, topics, st.integers(0, 3))
chosen_topics = st.frozensets(topics, min_size=1) | st.sampled_from(PATTERNS)
heard = st.booleans()
offsets = st.integers(0, 99)

Refused = type[LakelogError] | None


class Machine(RuleBasedStateMachine):
    """The events of a group, and which of them must be refused."""

    @initialize(
        strategy=st.sampled_from(STRATEGIES),
        sharing=st.lists(chosen_topics, max_size=MEMBERS_MAX - 1),
        alone=st.integers(0, 2),
    )
    def start(self, strategy: str, sharing: list[frozenset[str] | str], alone: int) -> None:
        self.life = Life()
        self.late: Start | None = None
        self.strategy = strategy
        for name, partitions in (("a", 3), ("b", 2)):
            self.life.make(name, partitions)
        self.life.follow()
        for number, what in enumerate(sharing):
            self.join(number, number % 2 == 0, "own")
            self.subscribe(number, what, True)
        self.life.everybody_polls()
        for number in range(len(sharing), min(len(sharing) + alone, MEMBERS_MAX)):
            self.join(number, False, "own")
            self.assign(number, frozenset({TopicPartition("a", 0), TopicPartition("b", number % 2)}), True)

    @property
    def group(self) -> Group:
        return self.life.group

    def _name(self, number: int) -> str:
        """The name of a member; "nobody" if the group has none."""
        there = sorted(self.group.members)
        return there[number % len(there)] if there else "nobody"

    def _attempt(self, event: Event, heard: bool, refused: Refused) -> None:
        """Let `event` happen, which must be `refused` with that error, if any, and then changes nothing."""
        if refused is None and isinstance(event, Leave | Subscribe | Unsubscribe):
            self.life.ask(event, heard)
            return
        if refused is None:
            self.life.happen(event, heard)
            return
        before = self.group
        with pytest.raises(refused):
            self.life.happen(event, heard)
        assert self.group is before

    # Members.

    @rule(
        number=who,
        knows=st.booleans(),
        asks=st.sampled_from([*STRATEGIES, "own", "own", "own"]),
        reset=st.sampled_from(["latest", "latest", "latest", "earliest"]),
    )
    def join(self, number: int, knows: bool, asks: str, reset: str = "latest") -> None:
        name, asked = f"m{number}", self.strategy if asks == "own" else asks
        refused: Refused = None
        if name in self.group.members:
            refused = MemberExists
        elif asked and self.group.members and asked != self.group.strategy:
            refused = InvalidConsumer
        config = replace(CONFIG, auto_offset_reset=reset, strategy=asked)
        self._attempt(Join(name, config), True, refused)
        if refused is None:
            self.life.welcome(name, knows)

    @rule(number=who, heard=heard)
    def leave(self, number: int, heard: bool) -> None:
        name = self._name(number)
        self._attempt(Leave(name), heard, self._unknown(name))

    @rule(number=who)
    def heartbeat(self, number: int) -> None:
        name = self._name(number)
        self._attempt(Heartbeat(name), True, self._unknown(name))

    @rule(number=who, chosen=chosen_topics, heard=heard)
    def subscribe(self, number: int, chosen: frozenset[str] | str, heard: bool) -> None:
        name = self._name(number)
        pattern = chosen if isinstance(chosen, str) else ""
        named = frozenset[str]() if isinstance(chosen, str) else chosen
        refused = self._unknown(name)
        if refused is None:
            member = self.group.members[name]
            if member.assigned or (member.pattern and named) or (member.topics and pattern):
                refused = MixedSubscription
        self._attempt(Subscribe(name, named, pattern), heard, refused)

    @rule(number=who, heard=heard)
    def unsubscribe(self, number: int, heard: bool) -> None:
        name = self._name(number)
        self._attempt(Unsubscribe(name), heard, self._unknown(name))

    @rule(number=who, chosen=st.frozensets(partitions, max_size=3), heard=heard)
    def assign(self, number: int, chosen: frozenset[TopicPartition], heard: bool) -> None:
        name = self._name(number)
        refused = self._unknown(name)
        if refused is None and self.group.members[name].subscribed:
            refused = MixedSubscription
        elif refused is None and self._missing(chosen) is not None:
            refused = LakelogError  # which of them is looked at first is not said
        self._attempt(Assign(name, chosen), heard, refused)

    @rule(number=who, heard=heard)
    def poll(self, number: int, heard: bool) -> None:
        name = self._name(number)
        if name in self.life.clients:
            self.life.poll(name, heard)

    @rule(number=who)
    def read_ends(self, number: int) -> None:
        """A coordinator reads log ends; what it makes of them comes some steps later."""
        name = self._name(number)
        if name in self.group.members:
            self.late = self.life.read_ends(name) or self.late

    @rule(heard=heard)
    def note_late_ends(self, heard: bool) -> None:
        if self.late is not None:
            self._attempt(self.late, heard, self._unknown(self.late.member_id))

    @rule()
    def everybody_polls(self) -> None:
        self.life.everybody_polls()

    # Offsets.

    @rule(number=who, at=partitions, its_own=st.booleans(), offset=offsets, heard=heard)
    def commit(self, number: int, at: TopicPartition, its_own: bool, offset: int, heard: bool) -> None:
        name = self._name(number)
        if its_own:
            name, at = self._owner(number, name, at)
        refused = self._not_owned(name, at)
        if refused is None and self.group.members[name].assigned and not self.group.empty:
            refused = GroupNotEmpty
        elif refused is None:
            refused = self._missing([at])
        self._attempt(Commit(name, {at: OffsetAndMetadata(offset)}, self.life.wall_ms), heard, refused)

    @rule(at=partitions, offset=offsets, heard=heard)
    def everybody_commits(self, at: TopicPartition, offset: int, heard: bool) -> None:
        """Let every member commit to one partition, although at most one may."""
        for number in range(len(self.group.members)):
            self.commit(number, at, False, offset, heard)

    @rule(number=who, at=partitions, its_own=st.booleans(), offset=offsets, heard=heard)
    def seek(self, number: int, at: TopicPartition, its_own: bool, offset: int, heard: bool) -> None:
        name = self._name(number)
        if its_own:
            name, at = self._owner(number, name, at)
        refused = self._not_owned(name, at)
        self._attempt(Seek(name, {at: offset}), heard, refused)
        if refused is None:
            assert self.group.members[name].positions[at] == offset

    @rule(at=partitions, offset=offsets, force=st.booleans(), heard=heard)
    def reset(self, at: TopicPartition, offset: int, force: bool, heard: bool) -> None:
        refused = GroupNotEmpty if not force and not self.group.empty else self._missing([at])
        self._attempt(
            Reset({at: OffsetAndMetadata(offset)}, self.life.wall_ms, force, every=frozenset({at})),
            heard,
            refused,
        )
        if refused is None:
            assert not any(at in member.positions for member in self.group.members.values())

    @rule(force=st.sampled_from([False] * 7 + [True]), heard=heard)
    def delete(self, force: bool, heard: bool) -> None:
        self._attempt(
            Delete(force, self.life.wall_ms),
            heard,
            GroupNotEmpty if self.group.members and not force else None,
        )

    # The world.

    @rule(name=topics, count=st.integers(1, 4))
    def make_topic(self, name: str, count: int) -> None:
        self.life.make(name, count)

    @rule(name=topics)
    def delete_topic(self, name: str) -> None:
        self.life.topics.pop(name, None)

    @rule(name=topics)
    def grow_topic(self, name: str) -> None:
        if name in self.life.topics and self.life.topics[name].partitions < 4:
            self.life.grow(name, 1)

    @rule(at=partitions, end=offsets)
    def append(self, at: TopicPartition, end: int) -> None:
        if at.topic in self.life.topics and at.partition < self.life.topics[at.topic].partitions:
            self.life.append(at, end)

    @rule()
    def follow(self) -> None:
        self.life.follow()

    @rule(ms=st.sampled_from([1, POLL_MS // 3, POLL_MS, SESSION_MS // 2, SESSION_MS]))
    def tick(self, ms: int) -> None:
        self.life.tick(ms)

    @rule(
        ms=st.sampled_from([0, SESSION_MS, 3 * SESSION_MS]), retention_ms=st.sampled_from([1, 2 * SESSION_MS])
    )
    def expire(self, ms: int, retention_ms: int) -> None:
        self.life.expire(ms, retention_ms)

    @rule()
    def compute(self) -> None:
        self.life.late.compute(self.life.group)

    @rule(ms=st.integers(0, INTERVAL_MS))
    def aim(self, ms: int) -> None:
        self.life.now_ms += ms
        self.life.aim()

    @rule(lost=st.integers(0, 5))
    def crash(self, lost: int) -> None:
        self.life.crash(lost)

    @rule()
    def compact(self) -> None:
        self.life.compact()
        self.life.check()

    # Refusals.

    def _unknown(self, name: str) -> Refused:
        return None if name in self.group.members else UnknownMember

    def _not_owned(self, name: str, at: TopicPartition) -> Refused:
        if name not in self.group.members:
            return UnknownMember
        return None if at in self.group.members[name].owned else NotAssigned

    def _owner(self, number: int, name: str, at: TopicPartition) -> tuple[str, TopicPartition]:
        """A member and one of the partitions that it owns; `name` and `at` if nobody owns any."""
        owners = sorted(member.id for member in self.group.members.values() if member.owned)
        if not owners:
            return name, at
        owner = owners[number % len(owners)]
        owned = sorted(self.group.members[owner].owned)
        return owner, owned[at.partition % len(owned)]

    def _missing(self, chosen: Iterable[TopicPartition]) -> Refused:
        for at in chosen:
            if at.topic not in self.group.topics:
                return UnknownTopic
            if at.partition >= self.group.topics[at.topic].partitions:
                return UnknownPartition
        return None


def test_a_group_keeps_the_rules_whatever_happens() -> None:
    run_state_machine_as_test(Machine, settings=short_form(100, 50))


@pytest.mark.torture
def test_a_group_keeps_the_rules_whatever_happens_for_long() -> None:
    run_state_machine_as_test(Machine, settings=settings(max_examples=2_000, stateful_step_count=80))


def _simulate(seed: int, members: int, steps: int) -> Counter[str]:
    simulation = Simulation(seed, members, STRATEGIES[1 + seed % 3] if seed % 2 else "")
    simulation.run(steps)
    return simulation.seen


def test_many_members_keep_the_rules(seed: int) -> None:
    seen = sum((_simulate(seed + number, 16, 1_500) for number in range(6)), Counter[str]())
    for what in ("committed", "taken over", "fenced", "died", "back, dormant", "crashed", "made", "grown"):
        assert seen[what] >= 10, f"the simulation did not do enough: {seen}"
    assert seen["forgotten"], f"no group was ever forgotten: {seen}"


@pytest.mark.torture
def test_many_members_keep_the_rules_for_long(seed: int) -> None:
    for number in range(100):
        _simulate(seed + number, 3 + number % 40, 5_000)
