"""Fetch: record batches of partitions. Topics have ids from version 13 on (KIP-516)."""

from typing import Annotated

from api.kafka.protocol.notation import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    MadeRecords,
    Message,
    Struct,
    Tagged,
    Uuid,
    Versions,
)


class ReplicaState(Struct):
    replica_id: Int32 = -1
    replica_epoch: Int64 = -1


class FetchPartition(Struct):
    partition: Int32 = 0
    current_leader_epoch: Annotated[Int32, Versions(9)] = -1
    fetch_offset: Int64 = 0
    last_fetched_epoch: Annotated[Int32, Versions(12)] = -1
    log_start_offset: Annotated[Int64, Versions(5)] = -1
    partition_max_bytes: Int32 = 0
    replica_directory_id: Annotated[Uuid, Versions(17), Tagged(0)] = ZERO_UUID
    high_watermark: Annotated[Int64, Versions(18), Tagged(1)] = 2**63 - 1


class FetchTopic(Struct):
    topic: Annotated[str, Versions(0, 12)] = ""
    topic_id: Annotated[Uuid, Versions(13)] = ZERO_UUID
    partitions: list[FetchPartition] = []


class ForgottenTopic(Struct):
    topic: Annotated[str, Versions(0, 12)] = ""
    topic_id: Annotated[Uuid, Versions(13)] = ZERO_UUID
    partitions: list[Int32] = []


class FetchRequest(Message):
    versions = Versions(4, 18)
    first_flexible = 12

    cluster_id: Annotated[str | None, Versions(12), Tagged(0)] = None
    replica_id: Annotated[Int32, Versions(0, 14)] = -1
    replica_state: Annotated[ReplicaState | None, Versions(15), Tagged(1)] = None
    max_wait_ms: Int32 = 0
    min_bytes: Int32 = 0
    max_bytes: Int32 = 2**31 - 1
    isolation_level: Int8 = 0
    session_id: Annotated[Int32, Versions(7)] = 0
    session_epoch: Annotated[Int32, Versions(7)] = -1
    topics: list[FetchTopic] = []
    forgotten_topics_data: Annotated[list[ForgottenTopic], Versions(7)] = []
    rack_id: Annotated[str, Versions(11)] = ""


class EpochEndOffset(Struct):
    epoch: Int32 = -1
    end_offset: Int64 = -1


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1


class SnapshotId(Struct):
    end_offset: Int64 = -1
    epoch: Int32 = -1


class AbortedTransaction(Struct):
    producer_id: Int64 = 0
    first_offset: Int64 = 0


class PartitionData(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    high_watermark: Int64 = 0
    last_stable_offset: Int64 = -1
    log_start_offset: Annotated[Int64, Versions(5)] = -1
    diverging_epoch: Annotated[EpochEndOffset | None, Versions(12), Tagged(0)] = None
    current_leader: Annotated[LeaderIdAndEpoch | None, Versions(12), Tagged(1)] = None
    snapshot_id: Annotated[SnapshotId | None, Versions(12), Tagged(2)] = None
    aborted_transactions: list[AbortedTransaction] | None = []
    preferred_read_replica: Annotated[Int32, Versions(11)] = -1
    records: MadeRecords = None


class FetchableTopicResponse(Struct):
    topic: Annotated[str, Versions(0, 12)] = ""
    topic_id: Annotated[Uuid, Versions(13)] = ZERO_UUID
    partitions: list[PartitionData] = []


class NodeEndpoint(Struct):
    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: str | None = None


class FetchResponse(Message):
    versions = Versions(4, 18)
    first_flexible = 12

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Versions(7)] = 0
    session_id: Annotated[Int32, Versions(7)] = 0
    responses: list[FetchableTopicResponse] = []
    node_endpoints: Annotated[list[NodeEndpoint], Versions(16), Tagged(0)] = []
