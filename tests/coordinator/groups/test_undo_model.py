"""Resets, deletions and undos of a group against a plain model, through crashes and compactions."""

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from coordinator.groups.events import Delete, OffsetAndMetadata, Reset, TopicsChanged, TopicState, Undo
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import Key, Records, Value
from log_tables.limits import UNDO_ACTS_MAX
from log_tables.topic_partition import TopicPartition

PARTITIONS = [TopicPartition(topic, number) for topic in "ab" for number in range(2)]
Place = tuple[str, int]
"""A topic's id and an offset."""

some = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(0, 9), min_size=1)


class UndoMachine(RuleBasedStateMachine):
    """`offsets` are those that must be committed, `acts` the offsets before each act, the newest first."""

    def __init__(self) -> None:
        super().__init__()
        self.ids = {"a": 0, "b": 0}
        self.group, self.now_ms = Group("g"), 1
        self.log: Records = []
        self.offsets: dict[TopicPartition, Place] = {}
        self.acts: list[dict[TopicPartition, Place | None]] = []
        self.follow()

    def happen(self, event: Reset | Delete | Undo | TopicsChanged) -> None:
        self.group, records = step(self.group, event, 0)
        self.log += records

    def follow(self) -> None:
        topics = {name: TopicState(f"{name}-{number}", 2) for name, number in self.ids.items()}
        self.happen(TopicsChanged(topics))

    def note(self, partitions: set[TopicPartition]) -> None:
        before = {at: self.offsets.get(at) for at in partitions}
        self.acts = [before, *self.acts][:UNDO_ACTS_MAX]
        self.now_ms += 1

    def id_of(self, at: TopicPartition) -> str:
        return f"{at.topic}-{self.ids[at.topic]}"

    @rule(places=some, is_act=st.booleans())
    def set_offsets(self, places: dict[TopicPartition, int], is_act: bool) -> None:
        if is_act:
            self.note({*places})
        every = frozenset(places) if is_act else frozenset[TopicPartition]()
        wanted = {at: OffsetAndMetadata(offset) for at, offset in places.items()}
        self.happen(Reset(wanted, self.now_ms, every=every))
        self.offsets |= {at: (self.id_of(at), offset) for at, offset in places.items()}

    @rule()
    def delete(self) -> None:
        if self.offsets:
            self.note({*self.offsets})
        self.happen(Delete(at_ms=self.now_ms))
        self.offsets = {}

    @precondition(lambda self: self.acts)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.acts)))
        wanted: dict[TopicPartition, Place | None] = {}
        for before in self.acts[:count]:
            wanted |= before
        possible = {at: to for at, to in wanted.items() if to is None or to[0] == self.id_of(at)}
        changes = {at: to for at, to in possible.items() if self.offsets.get(at) != to}
        if changes:
            self.note({*changes})
        self.happen(Undo(count, self.now_ms, 0))
        self.offsets |= {at: to for at, to in changes.items() if to is not None}
        self.offsets = {at: to for at, to in self.offsets.items() if changes.get(at, to) is not None}

    @rule(topic=st.sampled_from("ab"))
    def make_anew(self, topic: str) -> None:
        self.ids[topic] += 1
        self.offsets = {at: place for at, place in self.offsets.items() if at.topic != topic}
        self.follow()

    @rule(topic=st.sampled_from("ab"))
    def undelete(self, topic: str) -> None:
        """The topic of before is there again, under its id."""
        self.ids[topic] = max(0, self.ids[topic] - 1)
        self.offsets = {at: to for at, to in self.offsets.items() if to[0] == self.id_of(at)}
        self.follow()

    @rule(compacts=st.booleans())
    def take_over(self, compacts: bool) -> None:
        """Another coordinator reads the log, of which a cleaner may have left only the newest of each key."""
        if compacts:
            newest: dict[Key, Value | None] = {}
            for key, value in self.log:
                newest.pop(key, None)
                newest[key] = value
            self.log = [(key, value) for key, value in newest.items() if value is not None]
        self.group = restore(self.log, 0).get("g", Group("g"))
        self.follow()

    @invariant()
    def all_is_as_it_must_be(self) -> None:
        found = {at: (value.topic_id, value.offset) for at, value in self.group.offsets.items()}
        assert found == self.offsets
        assert len(self.group.acts) == len(self.acts)


TestUndo = UndoMachine.TestCase
