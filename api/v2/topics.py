"""Version 2: topics, partitions, their offsets, deleting records, brokers."""

from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from api import topic_changes
from api.client_topics import TopicDescription, describe_topic, describe_topics, with_partition
from api.errors import error_responses
from api.requests import new_topic
from api.requests.access import Asked
from api.requests.envelope import V2Response
from api.requests.new_topic import NewTopic
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.scalars import microseconds
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import InvalidArgument
from log_tables.partition.reader import PartitionReader

router = APIRouter(tags=["v2 topics"], default_response_class=V2Response, route_class=StrictRoute)

TopicName = Annotated[str, Path(examples=["flights"])]
TopicId = Annotated[
    str | None, Query(alias="id", description="Only the topic with this id, and no newer one of the name.")
]
PartitionId = Annotated[int, Path(description="The number of the partition, from 0.", examples=[0])]


class Replica(BaseModel):
    broker: int
    leader: bool
    in_sync: bool


class PartitionView(BaseModel):
    partition: int
    leader: int
    replicas: list[Replica]


class TopicView(BaseModel):
    name: str
    configs: dict[str, str] = Field(description="Every setting with its effective value.")
    partitioner_hash: str = Field(
        description="The hash of a key that chooses its partition: the setting, for all who may describe it."
    )
    partitions: list[PartitionView]
    mirror: str | None = Field(
        description="The mirror that makes the topic's records, at the offsets of its source; null of a "
        "topic that is written here."
    )
    location: str | None = Field(
        description="Where other programs read the topic as one Delta table, about a second behind."
    )
    remote_location: str | None = Field(
        description="Where they read what has moved to the remote root; null if nothing has, nor will."
    )


class Offsets(BaseModel):
    beginning_offset: int = Field(description="The log start offset: the first that can be read.")
    end_offset: int = Field(description="The high watermark: the offset of the next record.")


class OffsetsAt(Offsets):
    offset: int | None = Field(
        description="The earliest offset whose timestamp is at or after the requested one, null if there is "
        "none; or where the newest records begin."
    )


class LogStart(BaseModel):
    log_start_offset: int


class Brokers(BaseModel):
    brokers: list[int] = Field(description="The ids of the gateways that are alive.")


@router.get("/topics", summary="List topics", responses=error_responses(503))
def list_topics(here: Here, asked: Asked) -> list[str]:
    """The names of all topics that the caller may describe, but internal ones."""
    return [topic.name for topic in describe_topics(here) if asked.describes(topic.name)]


@router.post(
    "/topics",
    status_code=201,
    summary="Create a topic",
    responses=error_responses(400, 413, 422, 429, 503),
)
def create_topic(here: Here, asked: Asked, new: NewTopic) -> TopicView:
    """The body is that of version 3, the answer that of `GET /topics/{topic}`.

    400 with 40002 if the topic exists, or if its name or a setting is invalid.
    """
    return _topic(new_topic.create_topic(here, asked, new), configs=True)


@router.get("/topics/{topic}", summary="Describe a topic", responses=error_responses(404, 503))
def get_topic(here: Here, asked: Asked, topic: TopicName) -> TopicView:
    """The effective values of all settings, and the partitions with their leaders. A caller that may not
    DESCRIBE_CONFIGS gets no settings.
    """
    configs = asked.allows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic)
    return _topic(describe_topic(here, topic), configs)


@router.delete(
    "/topics/{topic}",
    status_code=204,
    summary="Delete a topic",
    responses=error_responses(400, 404, 409, 503),
)
def delete_topic(here: Here, asked: Asked, topic: TopicName, topic_id: TopicId = None) -> None:
    """The topic is gone at once. Its files are removed after the topic's `file.delete.delay.ms`."""
    topic_changes.delete_topic(here, asked, topic, topic_id)


@router.get("/topics/{topic}/partitions", summary="List partitions", responses=error_responses(404))
def list_partitions(here: Here, topic: TopicName) -> list[PartitionView]:
    return _partitions(describe_topic(here, topic))


@router.get(
    "/topics/{topic}/partitions/{partition}",
    summary="Describe a partition",
    responses=error_responses(400, 404),
)
def get_partition(here: Here, topic: TopicName, partition: PartitionId) -> PartitionView:
    found = describe_topic(here, topic)
    found.check(partition)
    return _partition(found, partition)


@router.get(
    "/topics/{topic}/partitions/{partition}/offsets",
    summary="Get the first and the next offset, or look up a time or the newest records",
    responses=error_responses(400, 404, 503),
)
def get_offsets(
    here: Here,
    topic: TopicName,
    partition: PartitionId,
    timestamp: Annotated[
        str | None,
        Query(description="Milliseconds since 1970 UTC, or ISO 8601 (UTC if it names no zone)."),
    ] = None,
    newest: Annotated[int | None, Query(ge=0, description="How many of the newest records.")] = None,
) -> OffsetsAt | Offsets:
    """With `timestamp` the answer has `offset` as well: the earliest at or after that time, null if there is
    none. With `newest` it is the offset from which on there are so many records, or all.
    """
    if timestamp is not None and newest is not None:
        raise InvalidArgument("timestamp and newest both say which offset is wanted; use one of them")
    time_us = None if timestamp is None else microseconds(timestamp)
    return with_partition(here, topic, partition, lambda found: _offsets(found, time_us, newest))


def _offsets(found: PartitionReader, time_us: int | None, newest: int | None) -> OffsetsAt | Offsets:
    start, end = found.log_start, found.high_watermark
    if time_us is None and newest is None:
        return Offsets(beginning_offset=start, end_offset=end)
    offset = found.newest(newest)[0] if newest is not None else found.position(time_us or 0)
    return OffsetsAt(beginning_offset=start, end_offset=end, offset=offset)


@router.delete(
    "/topics/{topic}/partitions/{partition}/records",
    summary="Delete records before an offset",
    responses=error_responses(400, 404, 409, 416, 503),
)
def delete_records(
    here: Here,
    asked: Asked,
    topic: TopicName,
    partition: PartitionId,
    before: Annotated[int, Query(description="The first offset that is kept.")],
) -> LogStart:
    """Answers the new log start offset, which never moves back. This is Kafka's DeleteRecords."""
    with asked.changing("DeleteRecords", ResourceType.TOPIC, topic, partition=partition, before=before):
        start = with_partition(here, topic, partition, lambda found: found.truncate(before), changes=True)
    return LogStart(log_start_offset=start)


@router.get("/brokers", summary="List brokers", responses=error_responses(503))
def list_brokers(here: Here) -> Brokers:
    """The ids of the gateways that are alive. `/v3/clusters/{cluster_id}/brokers` has the details."""
    here.cluster.refresh()
    return Brokers(brokers=[*here.brokers.living()])


def _topic(topic: TopicDescription, configs: bool) -> TopicView:
    return TopicView(
        name=topic.name,
        configs=topic.config.as_dict() if configs else {},
        partitioner_hash=topic.config.key_hash,
        partitions=_partitions(topic),
        mirror=topic.mirror or None,
        location=topic.location,
        remote_location=topic.remote_location,
    )


def _partitions(topic: TopicDescription) -> list[PartitionView]:
    return [_partition(topic, partition) for partition in range(topic.partition_count)]


def _partition(topic: TopicDescription, partition: int) -> PartitionView:
    """The store keeps the copies: the only replica that a client sees is the leader."""
    leader = topic.leader(partition)
    return PartitionView(
        partition=partition, leader=leader, replicas=[Replica(broker=leader, leader=True, in_sync=True)]
    )
