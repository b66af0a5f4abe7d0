"""The paths and the bodies of the consumer routes, v2."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from api.client_topics import PublicName
from api.errors import explain
from api.media import Format
from api.requests.strict import Listed, StrictBody
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.topic_filter import check_subscribed
from ingest.settings import Settings
from log_tables.cluster.group_log import MemberConfig, check_member_name
from log_tables.cluster.topic import check_topic_name
from log_tables.errors import InvalidConsumer, InvalidRecord
from log_tables.spelling import meant
from log_tables.topic_partition import TopicPartition

FORMATS = {form.name.lower(): form for form in Format}
"""The embedded formats, by their names in a consumer's configuration."""

GroupName = Annotated[str, Path(examples=["readers"])]
InstanceName = Annotated[str, Path(examples=["reader-1"])]

_Offset = Annotated[int, Field(ge=0, lt=2**63)]
_Milliseconds = Annotated[int, Field(ge=0, lt=2**31)]


def _lower(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


WITHOUT_EFFECT = frozenset(
    [
        *("allow.auto.create.topics", "check.crcs", "client.dns.lookup", "client.id", "client.rack"),
        *(
            "connections.max.idle.ms",
            "default.api.timeout.ms",
            "enable.metrics.push",
            "exclude.internal.topics",
        ),
        *("fetch.max.bytes", "fetch.max.wait.ms", "group.instance.id", "group.protocol"),
        *("group.remote.assignor", "heartbeat.interval.ms", "key.deserializer", "max.partition.fetch.bytes"),
        *("max.poll.records", "metadata.max.age.ms", "metadata.recovery.strategy", "metric.reporters"),
        *("metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms"),
        *("receive.buffer.bytes", "reconnect.backoff.max.ms", "reconnect.backoff.ms", "request.timeout.ms"),
        *("retry.backoff.max.ms", "retry.backoff.ms", "send.buffer.bytes"),
        *("socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms"),
        *("value.deserializer",),
    ]
)
"""Properties of Kafka's consumers that mean nothing for an instance: connections, threads, buffers."""


class NewConsumer(BaseModel):
    """A consumer instance to create. Numbers and booleans may be strings, as in the REST Proxy."""

    model_config = ConfigDict(extra="allow")  # `parse_consumer` looks whether it is one WITHOUT_EFFECT

    name: str | None = Field(None, description="Its name in URLs; generated if absent.")
    id: str | None = Field(None, description="The same; takes precedence over `name`.")
    format: Annotated[str, BeforeValidator(_lower)] = Field(
        "binary",
        description="The format of keys and values: binary, json, text, arrow, avro, protobuf or jsonschema.",
    )
    reset: Annotated[str, BeforeValidator(_lower)] = Field(
        "latest",
        alias="auto.offset.reset",
        pattern="^(earliest|latest)$",
        description="Where to begin in a partition without a committed offset, or if it is out of range.",
    )
    auto_commit: bool | None = Field(
        None,
        alias="auto.commit.enable",
        description="Whether a poll commits the offsets of the records of earlier polls. Default true.",
    )
    enable_auto_commit: bool | None = Field(
        None, alias="enable.auto.commit", description="The same, under its name in Kafka."
    )
    auto_commit_interval_ms: _Milliseconds = Field(5_000, alias="auto.commit.interval.ms")
    fetch_min_bytes: int = Field(
        1,
        alias="fetch.min.bytes",
        ge=-1,
        lt=2**31,
        description="A poll waits for this many bytes of records, or for its timeout; -1: for its timeout.",
    )
    request_timeout_ms: _Milliseconds | None = Field(
        None, alias="consumer.request.timeout.ms", description="How long a poll waits if it names no timeout."
    )
    session_timeout_ms: int | None = Field(
        None,
        alias="session.timeout.ms",
        ge=1,
        lt=2**31,
        description="After this long without any request the instance is deleted, and others take over.",
    )
    max_poll_interval_ms: int | None = Field(
        None,
        alias="max.poll.interval.ms",
        ge=100,
        lt=2**31,
        description="After this long without a poll others take over its partitions, until it polls again.",
    )
    strategy: str = Field(
        "",
        alias="partition.assignment.strategy",
        description="How the group assigns partitions: sticky (default), range or roundrobin.",
    )
    isolation_level: str = Field(
        "read_committed",
        alias="isolation.level",
        pattern="^read_(un)?committed$",
        description="Accepted and without effect: only committed records can be read.",
    )

    def chosen_name(self) -> str | None:
        """The name that the client has chosen. Raises InvalidConsumer."""
        name = self.id if self.id is not None else self.name
        if name is not None:
            check_member_name(name)
        return name

    def config(self, settings: Settings) -> MemberConfig:
        """The configuration that the group stores. Raises InvalidConsumer."""
        if self.format not in FORMATS:
            raise InvalidConsumer(
                f"format={self.format[:40]!r} is not known; use one of {', '.join(FORMATS)}"
            )
        given = [flag for flag in (self.auto_commit, self.enable_auto_commit) if flag is not None]
        if len({*given}) > 1:
            raise InvalidConsumer("auto.commit.enable and enable.auto.commit differ; send one of them")
        asked_ms, settled_ms = self.request_timeout_ms, settings.consumer_request_timeout_ms
        session_ms = self.session_timeout_ms or settings.consumer_instance_timeout_ms
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not low <= session_ms <= high:
            raise InvalidConsumer(
                f"session.timeout.ms={session_ms} is not from {low} to {high} (group_min_session_timeout_ms, "
                "group_max_session_timeout_ms); choose a value in this range, and send heartbeats"
            )
        return MemberConfig(
            format=self.format,
            auto_offset_reset=self.reset,
            auto_commit=given[0] if given else True,
            auto_commit_interval_ms=self.auto_commit_interval_ms,
            fetch_min_bytes=self.fetch_min_bytes if self.fetch_min_bytes >= 0 else 2**31,
            request_timeout_ms=settled_ms if asked_ms is None else asked_ms,
            session_timeout_ms=session_ms,
            max_poll_interval_ms=self.max_poll_interval_ms or max(session_ms, 300_000),
            strategy=self.strategy,
        )


def parse_consumer(body: bytes) -> NewConsumer:
    """The consumer that a body describes; an empty body means the defaults. Raises InvalidConsumer."""
    known = [field.alias or name for name, field in NewConsumer.model_fields.items()]
    try:
        wanted = NewConsumer.model_validate_json(body or b"{}")
    except ValidationError as error:
        problems = "; ".join(explain(problem) for problem in error.errors())
        raise InvalidConsumer(f"{problems}; known are {', '.join(known)}") from None
    for name in (wanted.model_extra or {}).keys() - WITHOUT_EFFECT:
        hint = f"{meant(name, [*known, *WITHOUT_EFFECT])} ".lstrip()
        raise InvalidConsumer(f"the property {name[:100]!r} is not known; {hint}Known are {', '.join(known)}")
    return wanted


class CreatedConsumer(BaseModel):
    instance_id: str
    base_uri: str = Field(description="The URL of the instance.")


class SubscriptionBody(StrictBody):
    """Topics by name, or a regular expression (RE2 syntax) that matches whole names."""

    topics: Listed[PublicName] | None = None
    topic_pattern: str | None = None

    def names(self) -> frozenset[str]:
        """Each topic once. Raises InvalidSubscription, InvalidTopicName."""
        found = frozenset(self.topics or ())
        check_subscribed(found)
        for name in found:
            check_topic_name(name)
        return found


class Topics(BaseModel):
    topics: list[str]


class PartitionName(StrictBody):
    topic: PublicName
    partition: Annotated[int, Field(ge=0, lt=2**31)]

    def counted_by(self) -> object:
        return self.topic

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class Partitions(StrictBody):
    partitions: Listed[PartitionName]
    _topic_partitions: list[TopicPartition] = PrivateAttr(default_factory=list)

    def model_post_init(self, _: object) -> None:
        """Find the partitions where the body is checked: in a thread, if there are many."""
        self._topic_partitions = [*dict.fromkeys(each.topic_partition for each in self.partitions)]

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        """Each partition once."""
        return self._topic_partitions


class PartitionOffset(PartitionName):
    offset: _Offset
    metadata: str | None = Field(None, description="Ignored, as in the REST Proxy.")


class ProcessedOffset(PartitionName):
    offset: Annotated[
        int,
        Field(
            ge=-1, le=2**63 - 2, description="The offset of the last record that was processed; -1 for none."
        ),
    ]
    metadata: str | None = Field(None, max_length=4_096, description="A note that is stored with the offset.")

    @staticmethod
    def to_commit(offsets: Sequence["ProcessedOffset"], step: int) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit: `offsets`, plus `step`. Raises InvalidRecord if one partition is named
        twice.
        """
        found = {
            each.topic_partition: OffsetAndMetadata(each.offset + step, each.metadata or "")
            for each in offsets
        }
        if len(found) < len(offsets):
            raise InvalidRecord("the offsets name a partition twice; name each partition once")
        return found


class GroupOffset(ProcessedOffset):
    before: int | None = Field(
        None, ge=0, lt=2**63, description="Of a mirror: the group's offset that it has seen; absent for none."
    )


class CommitBody(StrictBody):
    """One offset for each partition."""

    offsets: Listed[GroupOffset]


class MemberCommitBody(StrictBody):
    """The offset of the last record that was processed, for each partition. Absent: all received records."""

    offsets: Listed[ProcessedOffset] | None = None


class CommittedOffset(BaseModel):
    topic: str
    partition: int
    offset: int = Field(description="The offset of the next record to read.")
    metadata: str


class CommittedOffsets(BaseModel):
    offsets: list[CommittedOffset]


class ActView(BaseModel):
    done: str = Field(description="delete, reset, delete-offsets or undo.")
    at_ms: int = Field(description="Milliseconds since 1970 UTC.")
    principal: str = Field(description="User:NAME; empty where nobody is authenticated.")
    offsets: int = Field(description="The partitions whose offsets it may have changed.")


class UndoneOffset(BaseModel):
    topic: str
    partition: int
    old: int | None = Field(description="The committed offset without the undo; null for none.")
    new: int | None = Field(description="The one by the undo; null for none.")


class OffsetLeft(BaseModel):
    topic: str
    partition: int
    reason: str


class UndoView(BaseModel):
    group: str
    acts: list[ActView] = Field(description="The acts that can be undone, or are, the newest first.")
    offsets: list[UndoneOffset] = Field(description="The offsets that change.")
    left: list[OffsetLeft] = Field(description="Offsets that stay, as their topics are gone, and why.")


class PartitionTime(PartitionName):
    timestamp: str | int = Field(description="Milliseconds since 1970 UTC, or ISO 8601.")
    metadata: str | None = Field(None, description="Ignored, as in the REST Proxy.")


class SeekBody(StrictBody):
    """Offsets, and times whose offsets are looked up."""

    offsets: Listed[PartitionOffset] = Field(default_factory=list)
    timestamps: Listed[PartitionTime] = Field(default_factory=list)
