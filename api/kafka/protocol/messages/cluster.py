"""The cluster, described: its brokers, its topics, the leaders of their partitions, how large they are."""

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


class MetadataRequestTopic(Struct):
    topic_id: Annotated[Uuid, Versions(10)] = ZERO_UUID
    name: Annotated[str | None, Nullable(10)] = ""


class MetadataRequest(Message):
    versions = Versions(0, 13)
    first_flexible = 9

    topics: Annotated[list[MetadataRequestTopic] | None, Nullable(1)] = []
    allow_auto_topic_creation: Annotated[bool, Versions(4)] = True
    include_cluster_authorized_operations: Annotated[bool, Versions(8, 10)] = False
    include_topic_authorized_operations: Annotated[bool, Versions(8)] = False


class MetadataResponseBroker(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, Versions(1)] = None


class MetadataResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, Versions(7)] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], Versions(5)] = []


class MetadataResponseTopic(Struct):
    error_code: Int16 = 0
    name: Annotated[str | None, Nullable(12)] = ""
    topic_id: Annotated[Uuid, Versions(10)] = ZERO_UUID
    is_internal: Annotated[bool, Versions(1)] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, Versions(8)] = -(2**31)


class MetadataResponse(Message):
    versions = Versions(0, 13)
    first_flexible = 9

    throttle_time_ms: Annotated[Int32, Versions(3)] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, Versions(2)] = None
    controller_id: Annotated[Int32, Versions(1)] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, Versions(8, 10)] = -(2**31)
    error_code: Annotated[Int16, Versions(13)] = 0


class DescribeClusterRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 0

    include_cluster_authorized_operations: bool = False
    endpoint_type: Annotated[Int8, Versions(1)] = 1
    include_fenced_brokers: Annotated[bool, Versions(2)] = False


class DescribeClusterBroker(Struct):
    broker_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None
    is_fenced: Annotated[bool, Versions(2)] = False


class DescribeClusterResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    endpoint_type: Annotated[Int8, Versions(1)] = 1
    cluster_id: str = ""
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: Int32 = -(2**31)


class TopicRequest(Struct):
    name: str = ""


class Cursor(Struct):
    topic_name: str = ""
    partition_index: Int32 = 0


class DescribeTopicPartitionsRequest(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    topics: list[TopicRequest] = []
    response_partition_limit: Int32 = 2000
    cursor: Cursor | None = None


class DescribeTopicPartitionsResponsePartition(Struct):
    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    eligible_leader_replicas: list[Int32] | None = None
    last_known_elr: list[Int32] | None = None
    offline_replicas: list[Int32] = []


class DescribeTopicPartitionsResponseTopic(Struct):
    error_code: Int16 = 0
    name: str | None = ""
    topic_id: Uuid = ZERO_UUID
    is_internal: bool = False
    partitions: list[DescribeTopicPartitionsResponsePartition] = []
    topic_authorized_operations: Int32 = -(2**31)


class DescribeTopicPartitionsResponse(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    next_cursor: Cursor | None = None


class DescribableLogDirTopic(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class DescribeLogDirsRequest(Message):
    versions = Versions(1, 5)
    first_flexible = 2

    topics: list[DescribableLogDirTopic] | None = []


class DescribeLogDirsPartition(Struct):
    partition_index: Int32 = 0
    partition_size: Int64 = 0
    offset_lag: Int64 = 0
    is_future_key: bool = False


class DescribeLogDirsTopic(Struct):
    name: str = ""
    partitions: list[DescribeLogDirsPartition] = []


class DescribeLogDirsResult(Struct):
    error_code: Int16 = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = []
    total_bytes: Annotated[Int64, Versions(4)] = -1
    usable_bytes: Annotated[Int64, Versions(4)] = -1
    is_cordoned: Annotated[bool, Versions(5)] = False


class DescribeLogDirsResponse(Message):
    versions = Versions(1, 5)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Versions(3)] = 0
    results: list[DescribeLogDirsResult] = []
