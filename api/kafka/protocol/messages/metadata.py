"""Metadata: brokers, topics, and the leaders of partitions."""

from typing import Annotated

from api.kafka.protocol.notation import ZERO_UUID, Int16, Int32, Message, Nullable, Struct, Uuid, Versions


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
