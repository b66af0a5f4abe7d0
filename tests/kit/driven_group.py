"""One group, driven event by event."""

import pytest

from coordinator.groups.events import (
    Event,
    Join,
    Poll,
    Subscribe,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.state.group import Group
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.member import Member, Partitions
from coordinator.groups.state.step import step
from log_tables.cluster.group_log import (
    MemberConfig,
    Records,
)
from log_tables.errors import (
    LakelogError,
)
from log_tables.topic_partition import TopicPartition

TWO = {"t": TopicState("id-t", 2)}

T = frozenset({"t"})


def at(*partitions: int, topic: str = "t") -> Partitions:
    return frozenset(TopicPartition(topic, partition) for partition in partitions)


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Driven:
    """A group, the time in milliseconds, and all that was made durable."""

    def __init__(self, topics: dict[str, TopicState] = TWO) -> None:
        self.now_ms = 0
        self.records: Records = []
        self.group = Group("g")
        self.happen(TopicsChanged(topics))

    def happen(self, *events: Event) -> Records:
        """Apply `events`; returns the records of the last."""
        records: Records = []
        for event in events:
            self.group, records = step(self.group, event, self.now_ms)
            self.records += records
        return records

    def joined(self, *names: str, **config: object) -> "Driven":
        """Members that share topic t."""
        for name in names:
            self.happen(Join(name, MemberConfig(**config)), Subscribe(name, T))  # type: ignore[arg-type]
        return self

    def stable(self) -> "Driven":
        """After everybody has polled, until nothing changes."""
        while not self.group.is_stable:
            self.happen(*(Poll(name) for name in self.group.members))
        return self

    def refuse(self, event: Event, error: type[LakelogError], says: str) -> None:
        with pytest.raises(error, match=says):
            step(self.group, event, self.now_ms)

    def owned(self, name: str) -> Partitions:
        return self.member(name).owned

    def member(self, name: str) -> Member:
        return self.group.members[name]

    def restored(self, topics: dict[str, TopicState] = TWO) -> "Driven":
        """The group as another coordinator takes it over."""
        other = Driven(topics)
        other.now_ms, other.records = self.now_ms, [*self.records]
        other.group = restore(self.records, self.now_ms)["g"]
        other.happen(TopicsChanged(topics))
        return other
