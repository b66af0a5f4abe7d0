"""DeleteRecords: the records before an offset of a partition go (KIP-107). Any gateway does it."""

from collections.abc import Iterator
from itertools import count

from api.client_topics import with_partition
from api.kafka.clients.changes import in_thread
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, error_code
from api.kafka.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import LakelogError
from log_tables.limits import KAFKA_RESOURCES_MAX
from log_tables.partition.partition import Partition

HIGH_WATERMARK = -1
"""As an offset: all records that are there."""

NO_WATERMARK = -1
"""Nothing was deleted."""


async def delete_records(
    door: Door, client: Client, request: DeleteRecordsRequest, _version: int
) -> DeleteRecordsResponse:
    """The log start offsets that the partitions have then. KAFKA_RESOURCES_MAX partitions are looked at, and
    no others.
    """
    numbers = count()

    def delete() -> list[DeleteRecordsTopicResult]:
        return [_of_topic(door, client, topic, numbers) for topic in request.topics]

    return DeleteRecordsResponse(topics=await in_thread(door, delete))


def _of_topic(
    door: Door, client: Client, topic: DeleteRecordsTopic, numbers: Iterator[int]
) -> DeleteRecordsTopicResult:
    return DeleteRecordsTopicResult(
        name=topic.name,
        partitions=[
            _of_partition(door, client, topic.name, part)
            if next(numbers) < KAFKA_RESOURCES_MAX
            else _refused(part.partition_index, ErrorCode.POLICY_VIOLATION)
            for part in topic.partitions
        ],
    )


def _of_partition(
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
            start = with_partition(door.here, topic, number, delete)
    except LakelogError as error:
        return _refused(number, error_code(error))
    return DeleteRecordsPartitionResult(partition_index=number, low_watermark=start)


def _refused(partition: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=partition, low_watermark=NO_WATERMARK, error_code=code
    )
