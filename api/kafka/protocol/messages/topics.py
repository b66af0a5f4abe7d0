"""Topics: creating and deleting them, adding partitions, deleting records."""

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
    Tagged,
    Uuid,
    Versions,
)


class CreatableReplicaAssignment(Struct):
    partition_index: Int32 = 0
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Struct):
    name: str = ""
    value: str | None = ""


class CreatableTopic(Struct):
    name: str = ""
    num_partitions: Int32 = 0
    replication_factor: Int16 = 0
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreateTopicsRequest(Message):
    versions = Versions(2, 7)
    first_flexible = 5

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: bool = False


class CreatableTopicConfigs(Struct):
    name: str = ""
    value: str | None = ""
    read_only: bool = False
    config_source: Int8 = -1
    is_sensitive: bool = False


class CreatableTopicResult(Struct):
    name: str = ""
    topic_id: Annotated[Uuid, Versions(7)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: str | None = ""
    topic_config_error_code: Annotated[Int16, Versions(5), Tagged(0)] = 0
    num_partitions: Annotated[Int32, Versions(5)] = -1
    replication_factor: Annotated[Int16, Versions(5)] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, Versions(5)] = []


class CreateTopicsResponse(Message):
    versions = Versions(2, 7)
    first_flexible = 5

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult] = []


class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: Uuid = ZERO_UUID


class DeleteTopicsRequest(Message):
    versions = Versions(1, 6)
    first_flexible = 4

    topics: Annotated[list[DeleteTopicState], Versions(6)] = []
    topic_names: Annotated[list[str], Versions(0, 5)] = []
    timeout_ms: Int32 = 0


class DeletableTopicResult(Struct):
    name: Annotated[str | None, Nullable(6)] = ""
    topic_id: Annotated[Uuid, Versions(6)] = ZERO_UUID
    error_code: Int16 = 0
    error_message: Annotated[str | None, Versions(5)] = None


class DeleteTopicsResponse(Message):
    versions = Versions(1, 6)
    first_flexible = 4

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = []


class CreatePartitionsAssignment(Struct):
    broker_ids: list[Int32] = []


class CreatePartitionsTopic(Struct):
    name: str = ""
    count: Int32 = 0
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsRequest(Message):
    versions = Versions(0, 3)
    first_flexible = 2

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32 = 0
    validate_only: bool = False


class CreatePartitionsTopicResult(Struct):
    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None


class CreatePartitionsResponse(Message):
    versions = Versions(0, 3)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class DeleteRecordsPartition(Struct):
    partition_index: Int32 = 0
    offset: Int64 = 0


class DeleteRecordsTopic(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartition] = []


class DeleteRecordsRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    topics: list[DeleteRecordsTopic] = []
    timeout_ms: Int32 = 0


class DeleteRecordsPartitionResult(Struct):
    partition_index: Int32 = 0
    low_watermark: Int64 = 0
    error_code: Int16 = 0


class DeleteRecordsTopicResult(Struct):
    name: str = ""
    partitions: list[DeleteRecordsPartitionResult] = []


class DeleteRecordsResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult] = []
