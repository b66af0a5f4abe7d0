"""Replicas, as tools ask about them: which move, which of them leads, who votes (KIP-455, KIP-460, KIP-595).

The truth is short: the store keeps the copies. A partition has one replica, its leader; gateways share the
partitions among them by themselves; the metadata log is a table, which any gateway appends to.
"""

import asyncio
from collections.abc import Mapping

from api.client_topics import TopicDescription, describe_named
from api.kafka.clients.client import Client
from api.kafka.clients.door import NO_LEADER_EPOCH, Door
from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.replicas import (
    DescribedQuorumPartition,
    DescribedQuorumTopic,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    PartitionResult,
    QuorumListener,
    QuorumNode,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
    ReplicaElectionResult,
    TopicPartitions,
)
from coordinator.access.host import host_and_port
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.layout import CLUSTER_METADATA

LISTENER = "KAFKA"
"""The name of the one endpoint of a gateway; Kafka's tools print it before the address."""

_DENIED = "the principal may not do this to the cluster"


async def list_partition_reassignments(
    _door: Door, client: Client, _request: ListPartitionReassignmentsRequest, _version: int
) -> ListPartitionReassignmentsResponse:
    """None is under way, ever. Tools look for that before they change a topic."""
    if not client.caller.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ListPartitionReassignmentsResponse(error_code=code, error_message=_DENIED)
    return ListPartitionReassignmentsResponse(error_message=None)


async def elect_leaders(
    door: Door, client: Client, request: ElectLeadersRequest, version: int
) -> ElectLeadersResponse:
    """No election is ever needed. Asked for all partitions, Kafka names those that needed one: none."""
    if not client.caller.may(Operation.ALTER, ResourceType.CLUSTER):
        if version == 0:  # it has no code for the whole
            return ElectLeadersResponse()
        return ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    asked = request.topic_partitions or []
    found = await asyncio.to_thread(describe_named, door.here, {each.topic for each in asked})
    return ElectLeadersResponse(
        replica_election_results=[
            await _elected(door, each, found) async for each in door.here.loop_share.each(asked)
        ]
    )


async def _elected(
    door: Door, asked: TopicPartitions, found: Mapping[str, TopicDescription]
) -> ReplicaElectionResult:
    topic = found.get(asked.topic)
    count = 0 if topic is None else topic.partition_count
    return ReplicaElectionResult(
        topic=asked.topic,
        partition_result=[
            _outcome(number, 0 <= number < count)
            async for number in door.here.loop_share.each(asked.partitions)
        ],
    )


def _outcome(number: int, exists: bool) -> PartitionResult:
    if not exists:
        code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"
    else:
        code, why = ErrorCode.ELECTION_NOT_NEEDED, "its one replica leads; gateways share the partitions"
    return PartitionResult(partition_id=number, error_code=code, error_message=why)


async def describe_quorum(
    door: Door, client: Client, request: DescribeQuorumRequest, version: int
) -> DescribeQuorumResponse:
    """The metadata log, with the gateway that is asked as its one voter: no gateway waits for another one to
    append to it. As in Metadata, whoever is asked is the controller.
    """
    if not client.caller.may(Operation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return DescribeQuorumResponse(error_code=code, error_message=_DENIED)
    topics = [
        DescribedQuorumTopic(
            topic_name=topic.topic_name,
            partitions=[
                _quorum(door, topic, part) async for part in door.here.loop_share.each(topic.partitions)
            ],
        )
        async for topic in door.here.loop_share.each(request.topics)
    ]
    return DescribeQuorumResponse(error_message=None, topics=topics, nodes=_voters(door))


def _quorum(door: Door, topic: QuorumTopic, asked: QuorumPartition) -> DescribedQuorumPartition:
    number = asked.partition_index
    if (topic.topic_name, number) != (CLUSTER_METADATA, 0):
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        why = f"only {CLUSTER_METADATA}-0 has a quorum"
        return DescribedQuorumPartition(partition_index=number, error_code=code, error_message=why)
    own, end = door.node_id, door.here.cluster.metadata_log.partition.high_watermark
    now_ms = door.here.clock.now_ms()
    return DescribedQuorumPartition(
        partition_index=number,
        error_message=None,
        leader_id=own,
        leader_epoch=NO_LEADER_EPOCH,
        high_watermark=end,
        current_voters=[QuorumReplica(replica_id=own, log_end_offset=end, last_caught_up_timestamp=now_ms)],
    )


def _voters(door: Door) -> list[QuorumNode]:
    own = door.here.brokers.all().get(door.here.brokers.id)
    if own is None:
        return []
    host, port = host_and_port(own.kafka)
    return [QuorumNode(node_id=door.node_id, listeners=[QuorumListener(name=LISTENER, host=host, port=port)])]
