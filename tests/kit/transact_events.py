"""Transactions as events of a group, and the topics that they name."""

from coordinator.groups.events import OffsetAndMetadata, TopicState, Transact
from log_tables.cluster.group_log import MemberConfig
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.topic_partition import TopicPartition

TOPICS = {"in": TopicState("id-in", 2), "out": TopicState("id-out", 2), "__lakelog_x": TopicState("id-x", 1)}
IN0, IN1 = TopicPartition("in", 0), TopicPartition("in", 1)
PRODUCER = KEPT_PRODUCER_ID_MIN + 7
AT_MS = 1_000
MANUAL = MemberConfig(auto_commit=False)


def staged(name: str = "a", topic: str = "out", topic_id: str = "id-out", partition: int = 0) -> StagedFile:
    path = f"staging/{name.encode().hex():0>32}-{0:0>16}.arrow"
    return StagedFile(path, (StagedRun(topic, topic_id, partition, 0, 10, 2),))


def transact(
    member: str | None = None,
    *files: StagedFile,
    offsets: dict[TopicPartition, int] | None = None,
    generation: int | None = None,
    key: str = "",
    digest: str = "d",
    forget: tuple[str, ...] = (),
    producer_id: int = PRODUCER,
    at_ms: int = AT_MS,
) -> Transact:
    places = {at: OffsetAndMetadata(offset) for at, offset in (offsets or {}).items()}
    return Transact(
        member_id=member,
        generation=generation,
        offsets=places,
        staged=files,
        key=key,
        digest=digest,
        forget=forget,
        producer_id=producer_id,
        at_ms=at_ms,
    )
