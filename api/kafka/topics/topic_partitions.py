"""The partitions of topics: their leaders, so many in an answer (DescribeTopicPartitions, KIP-966); how large
they are (DescribeLogDirs, KIP-113, KIP-827); the removal of their first records (DeleteRecords, KIP-107).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count

from api.client_topics import TopicDescription, describe_named, describe_topics, with_partition
from api.kafka.clients.client import Client, authorized_operations
from api.kafka.clients.door import Door, in_thread
from api.kafka.clients.errors import ErrorCode, error_code
from api.kafka.protocol.messages.cluster import (
    Cursor,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from api.kafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import is_internal
from log_tables.errors import AuthorizationFailed, Damaged, InvalidArgument, LakelogError
from log_tables.layout import AUDIT, TOPICS
from log_tables.limits import KAFKA_INLINE_ELEMENTS, KAFKA_RESOURCES_MAX
from log_tables.partition.partition import Partition

PARTITIONS_PER_ANSWER = 2_000
"""As Kafka's max.request.partition.size.limit."""

HIGH_WATERMARK = -1
"""As an offset: all records that are there."""

NO_WATERMARK = -1
"""Nothing was deleted."""


async def describe_topic_partitions(
    door: Door, client: Client, request: DescribeTopicPartitionsRequest, _version: int
) -> DescribeTopicPartitionsResponse:
    """By name and number, from the cursor on: of the topics that are named, else of all."""
    limit, cursor = request.response_partition_limit, request.cursor or Cursor()
    names = sorted({each.name for each in request.topics})
    share = door.here.loop_share
    if limit < 1 or cursor.partition_index < 0:
        wrong = [_refused(name, ErrorCode.INVALID_REQUEST) for name in names or [cursor.topic_name]]
        return DescribeTopicPartitionsResponse(topics=wrong)
    if names:
        found = await asyncio.to_thread(describe_named, door.here, names)
    else:
        topics = await asyncio.to_thread(describe_topics, door.here)
        found = {each.name: each for each in topics}
    answer = DescribeTopicPartitionsResponse()
    left = min(limit, PARTITIONS_PER_ANSWER)
    async for name in share.each(names or found):
        if name < cursor.topic_name:
            continue
        if not names and not client.caller.describes(name):
            continue
        code = _refusal(client, name, found) if names else ErrorCode.NONE
        if code is not ErrorCode.NONE:
            answer.topics.append(_refused(name, code))
            continue
        start = cursor.partition_index if name == cursor.topic_name else 0
        shown = range(start, min(found[name].partition_count, start + left))
        if shown or left > 0:
            describe = partial(_described, door, client, found[name], shown)
            is_wide = found[name].partition_count > KAFKA_INLINE_ELEMENTS
            answer.topics.append(await share.in_thread(describe) if is_wide else describe())
        left -= len(shown)
        if start + len(shown) < found[name].partition_count:
            answer.next_cursor = Cursor(topic_name=name, partition_index=start + len(shown))
            break
    return answer


def _refusal(client: Client, name: str, found: Mapping[str, TopicDescription]) -> ErrorCode:
    if not client.caller.may(Operation.DESCRIBE, ResourceType.TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if is_internal(name) and name != AUDIT:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE if name in found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _refused(name: str, code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _described(
    door: Door, client: Client, topic: TopicDescription, shown: range
) -> DescribeTopicPartitionsResponseTopic:
    ((_, leaders),) = door.leaders([topic])
    epoch = door.leader_epoch
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=bytes.fromhex(topic.topic_id),
        is_internal=is_internal(topic.name),
        topic_authorized_operations=authorized_operations(client, ResourceType.TOPIC, topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=leaders[number],
                leader_epoch=epoch,
                replica_nodes=[leaders[number]],
                isr_nodes=[leaders[number]],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for number in shown
        ],
    )


async def delete_records(
    door: Door, client: Client, request: DeleteRecordsRequest, _version: int
) -> DeleteRecordsResponse:
    """The log start offsets that the partitions have then. KAFKA_RESOURCES_MAX partitions are looked at, and
    no others. Any gateway does it.
    """
    numbers = count()

    def delete() -> list[DeleteRecordsTopicResult]:
        return [_deleted_of_topic(door, client, topic, numbers) for topic in request.topics]

    return DeleteRecordsResponse(topics=await in_thread(door, delete))


def _deleted_of_topic(
    door: Door, client: Client, topic: DeleteRecordsTopic, numbers: Iterator[int]
) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            _deleted(door, client, topic.name, part)
            if next(numbers) < KAFKA_RESOURCES_MAX
            else _not_deleted(part.partition_index, ErrorCode.POLICY_VIOLATION)
            for part in topic.partitions
        ],
    )


def _deleted(
    door: Door, client: Client, topic: str, asked: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    number, before = asked.partition_index, asked.offset

    def delete(partition: Partition) -> int:
        return partition.truncate(partition.high_watermark if before == HIGH_WATERMARK else before)

    try:
        client.caller.check(Operation.DELETE, ResourceType.TOPIC, topic)
        with client.caller.changing(
            "DeleteRecords", ResourceType.TOPIC, topic, partition=number, before=before
        ):
            start = with_partition(door.here, topic, number, delete, changes=True)
    except LakelogError as error:
        return _not_deleted(number, error_code(error))
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=start)


def _not_deleted(partition: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=NO_WATERMARK, error_code=code
    )


async def describe_log_dirs(
    door: Door, client: Client, request: DescribeLogDirsRequest, _version: int
) -> DescribeLogDirsResponse:
    """One directory: that of all topics. A gateway answers for the partitions whose replica it is said to be,
    so that the answers of all gateways together have each partition once.
    """
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    except AuthorizationFailed:
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    def describe() -> list[DescribeLogDirsTopic]:
        if request.topics is None:
            return [*_sizes(door, describe_topics(door.here), None)]
        asked: dict[str, set[int]] = {}
        for each in request.topics:
            asked.setdefault(each.topic, set()).update(each.partitions)
        return [*_sizes(door, describe_named(door.here, asked).values(), asked)]

    result = DescribeLogDirsResult(log_dir=_directory(door), topics=await asyncio.to_thread(describe))
    return DescribeLogDirsResponse(results=[result])


def _sizes(
    door: Door, topics: Iterable[TopicDescription], asked: Mapping[str, set[int]] | None
) -> Iterator[DescribeLogDirsTopic]:
    """The topics with partitions on this gateway, each with the partitions asked for, or all."""
    own = door.node_id
    for topic, leaders in door.leaders(topics):
        parts, numbers = [], None if asked is None else asked[topic.name]
        for number, leader in enumerate(leaders):
            if leader == own and (numbers is None or number in numbers):
                with suppress(Damaged):  # nobody knows how large it is
                    size = topic.size_bytes(number)
                    parts.append(DescribeLogDirsPartition(partition_index=number, partition_size=size))
        if parts:
            yield DescribeLogDirsTopic(name=topic.name, partitions=parts)


def _directory(door: Door) -> str:
    """Where other programs find the topics, by the name that the root was opened with where they cannot."""
    try:
        return door.here.cluster.store.delta_location(TOPICS)[0]
    except InvalidArgument:
        return door.here.settings.data
