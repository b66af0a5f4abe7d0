"""ListOffsets: the ends of a log, and the first offset at or after a time (KIP-79, KIP-734, KIP-405)."""

import asyncio
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from api.client_topics import know_names, known_topic_to_read, refreshed_topic, with_topic_to_read
from api.kafka.clients.client import Client
from api.kafka.clients.door import NO_LEADER_EPOCH, Door, epoch_code
from api.kafka.clients.errors import ErrorCode, error_code
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError
from log_tables.partition.partition import Partition


class OffsetSpec(IntEnum):
    """Times that stand for an end of a log."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


_ENDS = frozenset({*OffsetSpec} - {OffsetSpec.MAX_TIMESTAMP})
"""Those that a snapshot of the partition knows."""

ENDS_FRESH_S = 0.2
"""How old a look at a partition may be whose ends are told from memory: jobs delete records meanwhile.
`TailFollower.follow` takes one of half that age."""

NONE = -1
"""No such offset, or no time."""


async def list_offsets(
    door: Door, client: Client, request: ListOffsetsRequest, _version: int
) -> ListOffsetsResponse:
    """Both isolation levels see the same: a transaction is in no log before it is committed."""
    names = (topic.name for topic in request.topics)
    await know_names(door.here, names, partial(client.caller.allows, Operation.DESCRIBE, ResourceType.TOPIC))
    asked: dict[str, dict[tuple[int, int], ListOffsetsPartition]] = {}
    async for name, part in door.here.loop_share.each(
        [(topic.name, part) for topic in request.topics for part in topic.partitions]
    ):
        asked.setdefault(name, {})[part.partition_index, part.timestamp] = part
    topics = [
        ListOffsetsTopicResponse(name=name, partitions=await _of_topic(door, client, name, [*parts.values()]))
        async for name, parts in door.here.loop_share.each([*asked.items()])
    ]
    return ListOffsetsResponse(topics=topics)


async def _of_topic(
    door: Door, client: Client, name: str, asked: Sequence[ListOffsetsPartition]
) -> list[ListOffsetsPartitionResponse]:
    """The answers for one topic: one for each partition and time that is asked for."""
    share = door.here.loop_share
    try:
        client.caller.check(Operation.DESCRIBE, ResourceType.TOPIC, name)
        topic = known_topic_to_read(door.here, name)
        if any(not 0 <= each.partition_index < topic.partition_count for each in asked):
            topic = await refreshed_topic(door.here, topic)  # once for all of them
    except LakelogError as error:
        code = error_code(error)
        return [_failed(each.partition_index, code) async for each in share.each(asked)]

    epoch = door.leader_epoch
    codes = [(each, epoch_code(each.current_leader_epoch, epoch)) async for each in share.each(asked)]
    refused = [_failed(each.partition_index, code) for each, code in codes if code is not ErrorCode.NONE]
    asked = [each for each, code in codes if code is ErrorCode.NONE]

    async def look(each: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        async with door.looks.turn:
            return await _of_partition(door, name, each)

    there = [each for each in asked if 0 <= each.partition_index < topic.partition_count]
    absent = [each for each in asked if not 0 <= each.partition_index < topic.partition_count]
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    found, others = await _ends(door, topic, there)
    found += await door.looks.each(look, others) if others else []
    return refused + found + [_failed(each.partition_index, code) async for each in share.each(absent)]


async def _ends(
    door: Door, topic: Topic, asked: list[ListOffsetsPartition]
) -> tuple[list[ListOffsetsPartitionResponse], list[ListOffsetsPartition]]:
    """The ends of partitions where no other gateway can have acknowledged anything, and the other partitions,
    which have to be looked at. Spark asks for both ends after every poll.
    """
    here, found = door.here, list[ListOffsetsPartitionResponse]()

    def is_own(each: ListOffsetsPartition) -> bool:
        number = each.partition_index
        return each.timestamp in _ENDS and topic.is_open(number) and here.leadership.owns(topic, number)

    own = [each async for each in here.loop_share.each(asked) if is_own(each)]
    logs = [topic.partition(each.partition_index) for each in own]
    if await here.tails.follow(logs, ENDS_FRESH_S) or any(log.snapshot.deleted for log in logs):
        return [], asked
    others: list[ListOffsetsPartition] = []
    async for each in here.loop_share.each(asked):
        if is_own(each):
            place = _found(topic.partition(each.partition_index), each.timestamp)
            found.append(_response(each.partition_index, place))
        else:
            others.append(each)
    # Afterwards: what is told was all of it when it was found.
    return (found, others) if here.brokers.is_seen else ([], asked)


async def _of_partition(door: Door, name: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    def find(topic: Topic) -> _Place:
        partition = topic.partition(asked.partition_index)
        partition.refresh()
        return _found(partition, asked.timestamp)

    try:
        found = await with_topic_to_read(door.here, name, lambda topic: asyncio.to_thread(find, topic))
    except LakelogError as error:
        return _failed(asked.partition_index, error_code(error))
    return _response(asked.partition_index, found)


class _Place(NamedTuple):
    """An offset, the time of its record in milliseconds, and its leader epoch."""

    offset: int
    time_ms: int
    epoch: int


def _found(partition: Partition, wanted: int) -> _Place:
    """The place that is `wanted`. Blocking."""
    offset, time_ms = _offset(partition, wanted)
    epoch = NO_LEADER_EPOCH if offset == NONE else partition.snapshot.log_epochs.at(offset)
    return _Place(offset, time_ms, epoch)


def _offset(  # noqa: PLR0911 -- one for each time that stands for an end
    partition: Partition, wanted: int
) -> tuple[int, int]:
    """The offset that is `wanted`, and the time of its record in milliseconds. Blocking."""
    here = partition.snapshot
    match wanted:
        case OffsetSpec.LATEST:
            return here.high_watermark, NONE
        case OffsetSpec.EARLIEST:
            return here.log_start, NONE
        case OffsetSpec.MAX_TIMESTAMP:
            latest = partition.latest_record()
            return (NONE, NONE) if latest is None else (latest[0], latest[1] // 1_000)
        case OffsetSpec.EARLIEST_LOCAL:
            return max(here.log_start, here.tiered), NONE
        case OffsetSpec.LATEST_TIERED:
            return (here.tiered - 1 if here.tiered > here.log_start else NONE), NONE
    offset = partition.position(wanted * 1_000)
    if offset is None:
        return NONE, NONE
    time_us = partition.timestamp_at(offset)
    return offset, NONE if time_us is None else time_us // 1_000


def _response(partition: int, found: _Place) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition, offset=found.offset, timestamp=found.time_ms, leader_epoch=found.epoch
    )


def _failed(partition: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=partition, error_code=code, offset=NONE, timestamp=NONE, leader_epoch=NO_LEADER_EPOCH
    )
