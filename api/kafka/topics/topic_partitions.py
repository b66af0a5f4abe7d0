"""DescribeTopicPartitions: the partitions of topics, so many in an answer (KIP-966)."""

import asyncio
from collections.abc import Mapping
from functools import partial

from api.client_topics import TopicDescription, describe_named, describe_topics
from api.kafka.clients.authorized_operations import authorized_operations
from api.kafka.clients.client import Client
from api.kafka.clients.door import NO_LEADER_EPOCH, Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import is_internal
from log_tables.layout import AUDIT
from log_tables.limits import KAFKA_INLINE_ELEMENTS

PARTITIONS_PER_ANSWER = 2_000
"""As Kafka's max.request.partition.size.limit."""


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
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=bytes.fromhex(topic.topic_id),
        is_internal=is_internal(topic.name),
        topic_authorized_operations=authorized_operations(client, ResourceType.TOPIC, topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=leaders[number],
                leader_epoch=NO_LEADER_EPOCH,
                replica_nodes=[leaders[number]],
                isr_nodes=[leaders[number]],
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for number in shown
        ],
    )
