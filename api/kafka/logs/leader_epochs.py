"""OffsetForLeaderEpoch: where a leader epoch ends (KIP-320).

A client that has read up to an offset asks where the epoch of its last record ends. If that is before its
offset, the log has gone on from an older state, and the client goes back to there, or tells its program.
"""

import asyncio
from collections.abc import Sequence
from functools import partial

from api.client_topics import know_names, with_topic_to_read
from api.kafka.clients.client import Client
from api.kafka.clients.door import NO_LEADER_EPOCH, Door, epoch_code
from api.kafka.clients.errors import ErrorCode, error_code
from api.kafka.protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError


async def offset_for_leader_epoch(
    door: Door, client: Client, request: OffsetForLeaderEpochRequest, _version: int
) -> OffsetForLeaderEpochResponse:
    """Any gateway answers, from the newest version of each table: an end that is too low would let a client
    read once more what it has read.
    """
    names = (topic.topic for topic in request.topics)
    await know_names(door.here, names, partial(client.caller.allows, Operation.DESCRIBE, ResourceType.TOPIC))
    asked: dict[str, dict[int, OffsetForLeaderPartition]] = {}
    async for name, part in door.here.loop_share.each(
        [(topic.topic, part) for topic in request.topics for part in topic.partitions]
    ):
        asked.setdefault(name, {})[part.partition] = part
    topics = [
        OffsetForLeaderTopicResult(
            topic=name, partitions=await _of_topic(door, client, name, [*parts.values()])
        )
        async for name, parts in door.here.loop_share.each([*asked.items()])
    ]
    return OffsetForLeaderEpochResponse(topics=topics)


async def _of_topic(
    door: Door, client: Client, name: str, asked: Sequence[OffsetForLeaderPartition]
) -> list[EpochEndOffset]:
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
    except LakelogError as error:
        code = error_code(error)
        return [_failed(each, code) async for each in door.here.loop_share.each(asked)]

    async def look(each: OffsetForLeaderPartition) -> EpochEndOffset:
        async with door.looks.turn:
            return await _of_partition(door, name, each)

    return await door.looks.each(look, asked)


async def _of_partition(door: Door, name: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    own = door.leader_epoch
    code = epoch_code(asked.current_leader_epoch, own)
    if code is not ErrorCode.NONE:
        return _failed(asked, code)

    def find(topic: Topic) -> EpochEndOffset:
        partition = topic.partition(asked.partition)
        here = partition.refresh()
        if not NO_LEADER_EPOCH < asked.leader_epoch <= own:
            return EpochEndOffset(partition=asked.partition)  # of another cluster: nothing is known of it
        epoch, end = here.log_epochs.end_of(asked.leader_epoch, here.high_watermark)
        return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)

    try:
        return await with_topic_to_read(door.here, name, lambda topic: asyncio.to_thread(find, topic))
    except LakelogError as error:
        return _failed(asked, error_code(error))


def _failed(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(partition=asked.partition, error_code=code)
