"""Many members of a group over thousands of steps, drawn from a seed; what `Life` checks must always hold.

The clients work: each goes on where the group has committed, and one that is told to give something up
commits first. So what is handed over in order is neither missed nor done twice.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TypeVar

from coordinator.groups.events import (
    Assign,
    Commit,
    Heartbeat,
    Join,
    Leave,
    OffsetAndMetadata,
    Reset,
    Seek,
    Subscribe,
    TopicsChanged,
    Unsubscribe,
)
from log_tables.clock import ManualClock
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import NotAssigned, UnknownTopic
from log_tables.topic_partition import TopicPartition
from tests.kit.group_life import Life

TOPICS = [f"t{number}" for number in range(6)]
PARTITIONS_MAX = 12
PATTERNS = ("t.*", "t[0-2]", "t[3-5]|t0")

Item = TypeVar("Item")


class Simulation:
    """A group and its members. `seen` counts what happened, so that a test can ask that enough did."""

    def __init__(self, seed: int, members: int, strategy: str) -> None:
        self._clock = ManualClock(seed=seed)
        self.life = Life()
        self.seen: Counter[str] = Counter()
        self._members, self._strategy = members, strategy
        self._joined = 0
        self._silent: dict[str, bool] = {}
        self._places: dict[str, dict[TopicPartition, int]] = {}
        self._handed: dict[tuple[TopicPartition, str], int] = {}
        for name in TOPICS[:4]:
            self.life.make(name, self._below(PARTITIONS_MAX) + 1)
        self.life.follow()
        self._actions: list[tuple[int, Callable[[], None]]] = [
            (400, self._poll),
            (120, self._work),
            (120, self._commit),
            (90, self._tick),
            (30, self._join),
            (12, self._leave),
            (20, self._fall_silent),
            (12, self._come_back),
            (20, self._compute),
            (25, self._heartbeats),
            (15, self._subscribe),
            (8, self._unsubscribe),
            (40, self._assign),
            (15, self._seek),
            (6, self._reset),
            (12, self._change_topics),
            (60, self._append),
            (12, self._crash),
            (3, self._everybody),
            (2, self._all_leave),
        ]
        self._weights = sum(weight for weight, _ in self._actions)

    def run(self, steps: int) -> None:
        for number in range(steps):
            drawn = self._below(self._weights)
            for weight, action in self._actions:
                drawn -= weight
                if drawn < 0:
                    action()
                    break
            if number % 50 == 0:
                self.life.compact()
        self._everybody()

    # Chance.

    def _below(self, end: int) -> int:
        return int(self._clock.random() * end)

    def _one(self, items: Sequence[Item]) -> Item:
        return items[self._below(len(items))]

    def _chance(self, share: float) -> bool:
        return self._clock.random() < share

    def _client(self) -> str | None:
        """A client that is not silent."""
        there = sorted(self.life.clients.keys() - self._silent.keys())
        return self._one(there) if there else None

    # Members.

    def _join(self) -> None:
        if len(self.life.group.members) >= self._members:
            return
        self._joined += 1
        name = f"m{self._joined}"
        group = self.life.group
        may_ask = not group.members or (group.strategy == self._strategy and self._chance(0.5))
        asked = self._strategy if may_ask else ""
        reset = "earliest" if self._chance(0.1) else "latest"
        config = MemberConfig(
            auto_offset_reset=reset, session_timeout_ms=2_000, max_poll_interval_ms=800, strategy=asked
        )
        self.life.happen(Join(name, config))
        self.life.welcome(name, self._chance(0.7))
        self._places[name] = {}
        if self._chance(0.9):
            self._subscribed(name)

    def _subscribed(self, name: str) -> None:
        member = self.life.group.members[name]
        if member.assigned:
            return
        if member.pattern or (not member.topics and self._chance(0.3)):
            self.life.ask(Subscribe(name, pattern=self._one(PATTERNS)), self._chance(0.8))
        else:
            # Mostly all of them, so that the rules for equal subscriptions are at work.
            chosen = TOPICS if self._chance(0.8) else [self._one(TOPICS), self._one(TOPICS)]
            self.life.ask(Subscribe(name, frozenset(chosen)), self._chance(0.8))

    def _subscribe(self) -> None:
        if name := self._client():
            self._subscribed(name)

    def _unsubscribe(self) -> None:
        if name := self._client():
            self._stop(self.life.clients[name].held)
            self.life.ask(Unsubscribe(name), self._chance(0.8))
            self._places[name].clear()
            if self._chance(0.5):
                self._subscribed(name)

    def _assign(self) -> None:
        """Somebody takes partitions for itself, for a while."""
        known = sorted(self.life.group.topics)
        free = [name for name in sorted(self.life.clients) if not self.life.group.members[name].subscribed]
        if free and known:
            chosen = {TopicPartition(self._one(known), 0), TopicPartition(self._one(known), 0)}
            self.life.happen(Assign(self._one(free), frozenset(chosen)))
            self.seen["assigned"] += 1

    def _leave(self) -> None:
        if name := self._client():
            self._stop(self.life.clients[name].held)
            self.life.ask(Leave(name), self._chance(0.8))

    def _fall_silent(self) -> None:
        """A client dies, or (with its heart beating) is busy for too long."""
        if name := self._client():
            self._silent[name] = self._chance(0.5)

    def _come_back(self) -> None:
        for name in [*self._silent][:1]:
            del self._silent[name]
            self.seen["back, dormant" if self._is_dormant(name) else "back"] += 1

    def _is_dormant(self, name: str) -> bool:
        member = self.life.group.members.get(name)
        return member is not None and member.dormant

    def _heartbeats(self) -> None:
        for name in sorted(self.life.clients):
            if self._silent.get(name, True):
                self.life.happen(Heartbeat(name))

    # Work.

    def _compute(self) -> None:
        self.life.late.compute(self.life.group)

    def _poll(self) -> None:
        if name := self._client():
            self._polled(name, self._chance(0.9))

    def _polled(self, name: str, heard: bool) -> None:
        client = self.life.clients[name]
        before, knows = client.held, client.generation is not None
        self.life.poll(name, heard)
        lost, places = before - client.held, self._places[name]
        if lost and knows and heard and self.life.group.members[name].subscribed:
            self.seen["handed over"] += 1
            self._hand_over(name, lost)
        elif lost:
            self._stop(lost)
        self._places[name] = {at: place for at, place in places.items() if at in client.held}
        for at in client.held - places.keys():
            self._begin(name, at)

    def _hand_over(self, name: str, lost: Iterable[TopicPartition]) -> None:
        """Commit the work of a member in the partitions that it is about to lose and still owns."""
        places = {at: self._places[name][at] for at in lost if at in self._places[name]}
        owned = {at: place for at, place in places.items() if at in self.life.group.members[name].owned}
        with suppress(UnknownTopic):
            self.life.happen(
                Commit(
                    name, {at: OffsetAndMetadata(offset) for at, offset in owned.items()}, self.life.wall_ms
                )
            )
            self._handed.update({self._incarnation(at): place for at, place in owned.items()})

    def _begin(self, name: str, at: TopicPartition) -> None:
        member = self.life.group.members[name]
        committed = self.life.group.committed(at)
        place = member.positions.get(at, committed.offset if committed else 0)
        handed = self._handed.pop(self._incarnation(at), None)
        if handed is not None and at not in member.positions and member.subscribed:
            assert place == handed, f"{at} was handed over at {handed}"
            self.seen["taken over"] += 1
        self._places[name][at] = place

    def _stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the handed-out records of these partitions: without an orderly handover they may be read
        again.
        """
        for at in partitions:
            self._handed.pop(self._incarnation(at), None)

    def _incarnation(self, at: TopicPartition) -> tuple[TopicPartition, str]:
        """`at` in the topic that the group knows: one that is re-created begins at its beginning."""
        topic = self.life.group.topics.get(at.topic)
        return at, "" if topic is None else topic.topic_id

    def _work(self) -> None:
        if name := self._client():
            for at in sorted(self.life.clients[name].held & self._places[name].keys()):
                self._places[name][at] += self._below(10)
                self.life.append(at, self._places[name][at] + self._below(3))

    def _commit(self) -> None:
        """A client commits all that it thinks it owns; a silent one, too: it may only be slow."""
        names = sorted(self.life.clients)
        if not names or not self._places[name := self._one(names)]:
            return
        offsets = {at: OffsetAndMetadata(offset) for at, offset in self._places[name].items()}
        group, member = self.life.group, self.life.group.members[name]
        rightful = offsets.keys() <= member.owned
        if member.assigned and not group.empty:
            return
        try:
            self.life.happen(Commit(name, offsets, self.life.wall_ms), self._chance(0.8))
            self.seen["committed"] += 1
            assert rightful
        except NotAssigned:
            self.seen["fenced"] += 1
            assert not rightful
        except UnknownTopic:
            assert any(at.topic not in group.topics for at in offsets)

    def _seek(self) -> None:
        name = self._client()
        if name and (owned := sorted(self.life.group.members[name].owned)):
            at = self._one(owned)
            self.life.happen(Seek(name, {at: self._below(100)}), self._chance(0.8))
            self._places[name].pop(at, None)

    # The world.

    def _reset(self) -> None:
        if known := sorted(self.life.group.topics):
            at = TopicPartition(self._one(known), 0)
            wanted, now_ms = {at: OffsetAndMetadata(self._below(50))}, self.life.wall_ms
            self.life.happen(Reset(wanted, now_ms, force=True, every=frozenset({at})))
            self._handed.pop(self._incarnation(at), None)
            for places in self._places.values():
                places.pop(at, None)

    def _tick(self) -> None:
        before = self.life.group.members.keys()
        self.life.tick(self._below(400))
        self.seen["died"] += len(before - self.life.group.members.keys())

    def _all_leave(self) -> None:
        """And the coordinator looks, again and again, until the group is forgotten, or somebody joins."""
        for name in [*self.life.group.members]:
            self._stop(self.life.clients[name].held if name in self.life.clients else ())
            self.life.ask(Leave(name))
        for _ in range(2 + self._below(6)):
            before = self.life.group.exists
            self.life.expire(self._below(2_000), 3_000)
            if before and not self.life.group.exists:
                self.seen["forgotten"] += 1
                self._handed.clear()
                self.life.follow()

    def _append(self) -> None:
        """A producer appends, also where the group has not heard of the partition yet."""
        name = self._one(TOPICS)
        if name in self.life.topics:
            at = TopicPartition(name, self._below(self.life.topics[name].partitions))
            self.life.append(at, self._below(200))

    def _change_topics(self) -> None:
        name = self._one(TOPICS)
        if name not in self.life.topics or self._chance(0.2):
            self.life.make(name, self._below(PARTITIONS_MAX) + 1)
            self.seen["made"] += 1
        elif self._chance(0.2):
            del self.life.topics[name]
        elif self.life.topics[name].partitions < PARTITIONS_MAX:
            self.life.grow(name, 1 + self._below(PARTITIONS_MAX - self.life.topics[name].partitions))
            self.seen["grown"] += 1
        if self._chance(0.7):
            self.life.happen(TopicsChanged(dict(self.life.topics)), heard=False)
        for places in self._places.values():
            for at in [at for at in places if at.topic == name]:
                del places[at]

    def _crash(self) -> None:
        self.life.crash(self._below(4))
        self.seen["crashed"] += 1
        self._handed.clear()

    def _everybody(self) -> None:
        self._silent.clear()
        self.life.everybody_polls()
        self._handed.clear()
        for name, client in self.life.clients.items():
            self._places[name] = {}
            for at in client.held:
                self._begin(name, at)
        self.seen["balanced"] += 1
