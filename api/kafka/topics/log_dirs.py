"""DescribeLogDirs: how large partitions are (KIP-113, KIP-827)."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from api.client_topics import TopicDescription, describe_named, describe_topics
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import AuthorizationFailed, Damaged, InvalidArgument
from log_tables.layout import TOPICS


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
            return [*_of_topics(door, describe_topics(door.here), None)]
        asked: dict[str, set[int]] = {}
        for each in request.topics:
            asked.setdefault(each.topic, set()).update(each.partitions)
        return [*_of_topics(door, describe_named(door.here, asked).values(), asked)]

    result = DescribeLogDirsResult(log_dir=_directory(door), topics=await asyncio.to_thread(describe))
    return DescribeLogDirsResponse(results=[result])


def _of_topics(
    door: Door, topics: Iterable[TopicDescription], asked: Mapping[str, set[int]] | None
) -> Iterator[DescribeLogDirsTopic]:
    """The topics with partitions on this gateway, each with the partitions asked for, or all."""
    for topic, leaders in door.leaders(topics):
        parts, numbers = [], None if asked is None else asked[topic.name]
        for number, leader in enumerate(leaders):
            if leader == door.here.brokers.id and (numbers is None or number in numbers):
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
