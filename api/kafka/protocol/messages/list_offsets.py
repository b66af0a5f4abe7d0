"""ListOffsets: the offset of a timestamp, or of one end of a partition."""

from typing import Annotated

from api.kafka.protocol.notation import Int8, Int16, Int32, Int64, Message, Struct, Versions


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
