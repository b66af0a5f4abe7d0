"""The committed offsets of groups. ListOffsets: the offset of a timestamp, or of one end of a partition.
OffsetForLeaderEpoch: the offset at which a leader epoch ends (KIP-101, KIP-320).
"""

from typing import Annotated

from api.kafka.protocol.notation import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Nullable,
    Struct,
    Uuid,
    Versions,
)


class OffsetCommitRequestPartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions(6)] = -1
    committed_metadata: str | None = ""


class OffsetCommitRequestTopic(Struct):
    name: Annotated[str, Versions(0, 9)] = ""
    topic_id: Annotated[Uuid, Versions(10)] = ZERO_UUID
    partitions: list[OffsetCommitRequestPartition] = []


class OffsetCommitRequest(Message):
    versions = Versions(2, 10)
    first_flexible = 8

    group_id: str = ""
    generation_id_or_member_epoch: Int32 = -1
    member_id: str = ""
    group_instance_id: Annotated[str | None, Versions(7)] = None
    retention_time_ms: Annotated[Int64, Versions(0, 4)] = -1
    topics: list[OffsetCommitRequestTopic] = []


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetCommitResponseTopic(Struct):
    name: Annotated[str, Versions(0, 9)] = ""
    topic_id: Annotated[Uuid, Versions(10)] = ZERO_UUID
    partitions: list[OffsetCommitResponsePartition] = []


class OffsetCommitResponse(Message):
    versions = Versions(2, 10)
    first_flexible = 8

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    topics: list[OffsetCommitResponseTopic] = []


class OffsetFetchRequestTopic(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class OffsetFetchRequestTopics(Struct):
    name: Annotated[str, Versions(0, 9)] = ""
    topic_id: Annotated[Uuid, Versions(10)] = ZERO_UUID
    partition_indexes: list[Int32] = []


class OffsetFetchRequestGroup(Struct):
    group_id: str = ""
    member_id: Annotated[str | None, Versions(9)] = None
    member_epoch: Annotated[Int32, Versions(9)] = -1
    topics: list[OffsetFetchRequestTopics] | None = []


class OffsetFetchRequest(Message):
    versions = Versions(1, 10)
    first_flexible = 6

    group_id: Annotated[str, Versions(0, 7)] = ""
    topics: Annotated[list[OffsetFetchRequestTopic] | None, Versions(0, 7), Nullable(2, 7)] = []
    groups: Annotated[list[OffsetFetchRequestGroup], Versions(8)] = []
    require_stable: Annotated[bool, Versions(7)] = False


class OffsetFetchResponsePartition(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Annotated[Int32, Versions(5)] = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = []


class OffsetFetchResponsePartitions(Struct):
    partition_index: Int32 = 0
    committed_offset: Int64 = 0
    committed_leader_epoch: Int32 = -1
    metadata: str | None = ""
    error_code: Int16 = 0


class OffsetFetchResponseTopics(Struct):
    name: Annotated[str, Versions(0, 9)] = ""
    topic_id: Annotated[Uuid, Versions(10)] = ZERO_UUID
    partitions: list[OffsetFetchResponsePartitions] = []


class OffsetFetchResponseGroup(Struct):
    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = []
    error_code: Int16 = 0


class OffsetFetchResponse(Message):
    versions = Versions(1, 10)
    first_flexible = 6

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    topics: Annotated[list[OffsetFetchResponseTopic], Versions(0, 7)] = []
    error_code: Annotated[Int16, Versions(2, 7)] = 0
    groups: Annotated[list[OffsetFetchResponseGroup], Versions(8)] = []


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = 0


class OffsetDeleteRequestTopic(Struct):
    name: str = ""
    partitions: list[OffsetDeleteRequestPartition] = []


class OffsetDeleteRequest(Message):
    versions = Versions(0, 0)

    group_id: str = ""
    topics: list[OffsetDeleteRequestTopic] = []


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class OffsetDeleteResponseTopic(Struct):
    name: str = ""
    partitions: list[OffsetDeleteResponsePartition] = []


class OffsetDeleteResponse(Message):
    versions = Versions(0, 0)

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = []


class ListOffsetsPartition(Struct):
    partition_index: Int32 = 0
    current_leader_epoch: Annotated[Int32, Versions(4)] = -1
    timestamp: Int64 = 0


class ListOffsetsTopic(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartition] = []


class ListOffsetsRequest(Message):
    versions = Versions(1, 11)
    first_flexible = 6

    replica_id: Int32 = 0
    isolation_level: Annotated[Int8, Versions(2)] = 0
    topics: list[ListOffsetsTopic] = []
    timeout_ms: Annotated[Int32, Versions(10)] = 0


class ListOffsetsPartitionResponse(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Annotated[Int32, Versions(4)] = -1


class ListOffsetsTopicResponse(Struct):
    name: str = ""
    partitions: list[ListOffsetsPartitionResponse] = []


class ListOffsetsResponse(Message):
    versions = Versions(1, 11)
    first_flexible = 6

    throttle_time_ms: Annotated[Int32, Versions(2)] = 0
    topics: list[ListOffsetsTopicResponse] = []


class OffsetForLeaderPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32 = 0


class OffsetForLeaderTopic(Struct):
    topic: str = ""
    partitions: list[OffsetForLeaderPartition] = []


class OffsetForLeaderEpochRequest(Message):
    versions = Versions(2, 4)
    first_flexible = 4

    replica_id: Annotated[Int32, Versions(3)] = -2
    topics: list[OffsetForLeaderTopic] = []


class EpochEndOffset(Struct):
    error_code: Int16 = 0
    partition: Int32 = 0
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


class OffsetForLeaderTopicResult(Struct):
    topic: str = ""
    partitions: list[EpochEndOffset] = []


class OffsetForLeaderEpochResponse(Message):
    versions = Versions(2, 4)
    first_flexible = 4

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult] = []
