"""Produce: record batches for partitions. Topics have ids from version 13 on (KIP-516).

InitProducerId: the id and the epoch of a producer (KIP-98, KIP-360).
"""

from typing import Annotated

from api.kafka.protocol.notation import (
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    Records,
    Struct,
    Tagged,
    Uuid,
    Versions,
)


class PartitionProduceData(Struct):
    index: Int32 = 0
    records: Records = None


class TopicProduceData(Struct):
    name: Annotated[str, Versions(0, 12)] = ""
    topic_id: Annotated[Uuid, Versions(13)] = ZERO_UUID
    partition_data: list[PartitionProduceData] = []


class ProduceRequest(Message):
    versions = Versions(3, 13)
    first_flexible = 9
    advertised_min = 0  # librdkafka before 2.11.1 does not compress unless it sees it (KAFKA-18659)

    transactional_id: str | None = None
    acks: Int16 = 0
    timeout_ms: Int32 = 0
    topic_data: list[TopicProduceData] = []


class BatchIndexAndErrorMessage(Struct):
    batch_index: Int32 = 0
    batch_index_error_message: str | None = None


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class PartitionProduceResponse(Struct):
    index: Int32 = 0
    error_code: Int16 = 0
    base_offset: Int64 = 0
    log_append_time_ms: Int64 = -1
    log_start_offset: Annotated[Int64, Versions(5)] = -1
    record_errors: Annotated[list[BatchIndexAndErrorMessage], Versions(8)] = []
    error_message: Annotated[str | None, Versions(8)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, Versions(10), Tagged(0)] = None


class TopicProduceResponse(Struct):
    name: Annotated[str, Versions(0, 12)] = ""
    topic_id: Annotated[Uuid, Versions(13)] = ZERO_UUID
    partition_responses: list[PartitionProduceResponse] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class ProduceResponse(Message):
    versions = Versions(3, 13)
    first_flexible = 9

    responses: list[TopicProduceResponse] = []
    throttle_time_ms: Int32 = 0
    node_endpoints: Annotated[list[NodeEndpoint], Versions(10), Tagged(0)] = []


class InitProducerIdRequest(Message):
    versions = Versions(0, 5)
    first_flexible = 2

    transactional_id: str | None = ""
    transaction_timeout_ms: Int32 = 0
    producer_id: Annotated[Int64, Versions(3)] = -1
    producer_epoch: Annotated[Int16, Versions(3)] = -1


class InitProducerIdResponse(Message):
    versions = Versions(0, 5)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
