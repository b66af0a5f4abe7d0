"""A member of a group whose partitions the coordinator assigns, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from coordinator.access.principal import RequestContext
from log_tables.cluster.group_log import KafkaClient, MemberConfig
from log_tables.topic_partition import TopicPartition

Partitions = frozenset[TopicPartition]

NOTHING: Partitions = frozenset()


@dataclass(frozen=True, slots=True)
class Member:
    """A member: its subscription and its partitions. Times in milliseconds of the caller's clock.

    `epoch` is the generation of the last change that it must know of. A `dormant` member has not polled
    for too long: it stays a member, and gets no partitions until it polls. `starting` are the topics whose
    log ends are still to be noted as its start at `latest`; None: all of its topics, for a member of a
    version that did not note them. `context` is whoever made it, or has subscribed it last; None where nobody
    was authenticated.

    `kafka` is a Kafka client, None an instance of the HTTP API. Such a client was told at `asked_ms` to let
    go of `revoking`, which are among `owned` until it has; or, by the classic protocol, to join again. Its
    `epoch` is the newest that it was given, `previous_epoch` the one before. `has_news`: it may not know its
    assignment. A static member that is `away` has left for a while (KIP-345).
    """

    id: str
    config: MemberConfig
    seen_ms: float
    polled_ms: float
    topics: frozenset[str] = frozenset()
    pattern: str = ""
    assigned: bool = False
    owned: Partitions = NOTHING
    epoch: int = 0
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    dormant: bool = False
    starting: frozenset[str] | None = None
    context: RequestContext | None = None
    kafka: KafkaClient | None = None
    revoking: Partitions = NOTHING
    previous_epoch: int = 0
    away: bool = False
    asked_ms: float | None = None
    has_news: bool = False

    @property
    def assignment(self) -> Partitions:
        """The partitions that its client may read: it has let go of the others, or is to."""
        return self.owned - self.revoking

    @property
    def is_classic(self) -> bool:
        """Whether it is a Kafka client that speaks the classic protocol."""
        return self.kafka is not None and bool(self.kafka.protocols)

    @property
    def client(self) -> KafkaClient:
        """Its client, as administrators see it."""
        return self.kafka or KafkaClient(self.id, "" if self.context is None else self.context.host)

    @property
    def instance_id(self) -> str | None:
        """The group instance id of a static member; an instance of the HTTP API has its name."""
        return self.id if self.kafka is None else self.kafka.instance_id

    @property
    def asked_until_ms(self) -> float | None:
        """When it has not let go in time of what it was to; None while it is asked for nothing."""
        return None if self.asked_ms is None else self.asked_ms + self.config.max_poll_interval_ms

    @property
    def latest(self) -> bool:
        """Whether it begins at the log end of a partition in which nothing else says where."""
        return self.config.auto_offset_reset != "earliest"

    @property
    def subscribed(self) -> bool:
        """Whether it is subscribed to topics, by name or by pattern."""
        return bool(self.topics or self.pattern)

    @property
    def deadline_ms(self) -> float:
        """When a Tick finds it too late, unless it is heard of before."""
        session = self.seen_ms + self.config.session_timeout_ms
        if self.kafka is not None:
            return session if self.asked_until_ms is None else min(session, self.asked_until_ms)
        if self.subscribed and not self.dormant:
            return min(session, self.polled_ms + self.config.max_poll_interval_ms)
        return session


class GroupMember(NamedTuple):
    """A member of either kind, as others may see it. `owned` is None where its assignment cannot be read."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    owned: Partitions | None
    context: RequestContext | None
