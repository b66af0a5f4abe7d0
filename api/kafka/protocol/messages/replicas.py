"""Replicas, as Kafka's tools ask about them: reassignments, elections, the quorum of the metadata log."""

from typing import Annotated

from api.kafka.protocol.notation import (
    ZERO_UUID,
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Struct,
    UInt16,
    Uuid,
    Versions,
)


class ListPartitionReassignmentsTopics(Struct):
    name: str = ""
    partition_indexes: list[Int32] = []


class ListPartitionReassignmentsRequest(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    timeout_ms: Int32 = 60_000
    topics: list[ListPartitionReassignmentsTopics] | None = None


class OngoingPartitionReassignment(Struct):
    partition_index: Int32 = 0
    replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    removing_replicas: list[Int32] = []


class OngoingTopicReassignment(Struct):
    name: str = ""
    partitions: list[OngoingPartitionReassignment] = []


class ListPartitionReassignmentsResponse(Message):
    versions = Versions(0, 0)
    first_flexible = 0

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    topics: list[OngoingTopicReassignment] = []


class TopicPartitions(Struct):
    topic: str = ""
    partitions: list[Int32] = []


class ElectLeadersRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    election_type: Annotated[Int8, Versions(1)] = 0
    topic_partitions: list[TopicPartitions] | None = []
    timeout_ms: Int32 = 60_000


class PartitionResult(Struct):
    partition_id: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""


class ReplicaElectionResult(Struct):
    topic: str = ""
    partition_result: list[PartitionResult] = []


class ElectLeadersResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 2

    throttle_time_ms: Int32 = 0
    error_code: Annotated[Int16, Versions(1)] = 0
    replica_election_results: list[ReplicaElectionResult] = []


class QuorumPartition(Struct):
    partition_index: Int32 = 0


class QuorumTopic(Struct):
    topic_name: str = ""
    partitions: list[QuorumPartition] = []


class DescribeQuorumRequest(Message):
    versions = Versions(0, 2)
    first_flexible = 0

    topics: list[QuorumTopic] = []


class QuorumReplica(Struct):
    replica_id: Int32 = 0
    replica_directory_id: Annotated[Uuid, Versions(2)] = ZERO_UUID
    log_end_offset: Int64 = 0
    last_fetch_timestamp: Annotated[Int64, Versions(1)] = -1
    last_caught_up_timestamp: Annotated[Int64, Versions(1)] = -1


class DescribedQuorumPartition(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, Versions(2)] = ""
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    high_watermark: Int64 = 0
    current_voters: list[QuorumReplica] = []
    observers: list[QuorumReplica] = []


class DescribedQuorumTopic(Struct):
    topic_name: str = ""
    partitions: list[DescribedQuorumPartition] = []


class QuorumListener(Struct):
    name: str = ""
    host: str = ""
    port: UInt16 = 0


class QuorumNode(Struct):
    node_id: Int32 = 0
    listeners: list[QuorumListener] = []


class DescribeQuorumResponse(Message):
    versions = Versions(0, 2)
    first_flexible = 0

    error_code: Int16 = 0
    error_message: Annotated[str | None, Versions(2)] = ""
    topics: list[DescribedQuorumTopic] = []
    nodes: Annotated[list[QuorumNode], Versions(2)] = []
