"""One group of Kafka clients by KIP-848, driven heartbeat by heartbeat."""

from typing import Any

from coordinator.groups.events import ConsumerHeartbeat, TopicState
from coordinator.groups.state.consumer_step import told
from coordinator.groups.state.member import Partitions
from log_tables.cluster.group_log import KafkaClient
from log_tables.errors import LakelogError
from tests.kit.driven_group import TWO, Driven, T

SESSION_MS, REBALANCE_MS = 45_000, 300_000


class DrivenConsumers(Driven):
    """Its members hear of their assignments, and follow them at once when asked to."""

    def __init__(self, topics: dict[str, TopicState] = TWO) -> None:
        super().__init__(topics)
        self.told: dict[str, Partitions] = {}

    def beat_event(self, name: str, epoch: int | None = None, **said: Any) -> ConsumerHeartbeat:
        instance = said.pop("instance", None)
        if epoch == 0:
            said = {"topics": T, "rebalance_timeout_ms": REBALANCE_MS, "owned": frozenset(), **said}
        return ConsumerHeartbeat(
            member_id=name,
            epoch=self.member(name).epoch if epoch is None else epoch,
            session_timeout_ms=SESSION_MS,
            client=KafkaClient(f"client of {name}", "10.0.0.1", instance),
            **said,
        )

    def beat(self, name: str, epoch: int | None = None, **said: Any) -> Partitions | None:
        """Send a heartbeat; returns the assignment that it is answered with, if there is one."""
        event, before = self.beat_event(name, epoch, **said), self.group
        self.happen(event)
        if event.epoch < 0:
            return None
        assignment = told(before, self.group, event)
        if assignment is not None:
            self.told[name] = assignment
        return assignment

    def join_client(self, name: str, **said: Any) -> Partitions | None:
        return self.beat(name, 0, **said)

    def follow(self) -> "DrivenConsumers":
        """Let all members follow their assignments until nothing changes."""
        for _ in range(10):
            for name in [*self.group.members]:
                self.beat(name, owned=self.told.get(name, frozenset()))
        assert self.group.is_stable
        return self

    def refuse_beat(
        self, name: str, error: type[LakelogError], epoch: int | None = None, **said: Any
    ) -> None:
        self.refuse(self.beat_event(name, epoch, **said), error, name)

    def again(self, topics: dict[str, TopicState] = TWO) -> "DrivenConsumers":
        """The group as another coordinator takes it over."""
        other = DrivenConsumers(topics)
        other.now_ms, other.records, other.told = self.now_ms, [*self.records], {**self.told}
        restored = self.restored(topics)
        other.group, other.records = restored.group, restored.records
        return other
