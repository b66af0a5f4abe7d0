"""Reassignments, elections and the quorum: of logs without replicas."""

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.replicas import (
    DescribeQuorumRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
    QuorumPartition,
    QuorumTopic,
    TopicPartitions,
)
from log_tables.layout import CLUSTER_METADATA
from tests.kit.kafka import KafkaGateway
from tests.kit.kafka_asking import Asker
from tests.kit.kafka_groups import unique


def test_no_replica_moves(asking: Asker) -> None:
    """Tools that change topics look for that first."""
    answer = asking.ask(ListPartitionReassignmentsRequest())
    assert (answer.error_code, answer.error_message, answer.topics) == (ErrorCode.NONE, None, [])


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(kafka: KafkaGateway, asking: Asker, version: int) -> None:
    name = kafka.create_topic(unique("t"), 2)
    asked = [TopicPartitions(name, [0, 1, 2]), TopicPartitions("absent", [0])]
    answer = asking.ask(ElectLeadersRequest(topic_partitions=asked), version)
    assert answer.error_code == ErrorCode.NONE
    found = {
        (topic.topic, part.partition_id): part.error_code
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }
    there, absent = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found == {(name, 0): there, (name, 1): there, (name, 2): absent, ("absent", 0): absent}
    assert asking.ask(ElectLeadersRequest(topic_partitions=None), version).replica_election_results == []


@pytest.mark.parametrize("version", range(3))
def test_the_gateway_that_is_asked_is_the_only_voter(
    kafka: KafkaGateway, asking: Asker, version: int
) -> None:
    asked = DescribeQuorumRequest(
        topics=[QuorumTopic(CLUSTER_METADATA, [QuorumPartition(0), QuorumPartition(1)]), QuorumTopic("t")]
    )
    answer = asking.ask(asked, version)
    (log, other), none = (each.partitions for each in answer.topics)
    assert none == []
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (log.error_code, log.leader_id, log.leader_epoch) == (ErrorCode.NONE, 1, -1)
    assert [(each.replica_id, each.log_end_offset) for each in log.current_voters] == [
        (1, log.high_watermark)
    ]
    before = log.high_watermark
    kafka.create_topic(unique("t"))
    assert asking.ask(asked, version).topics[0].partitions[0].high_watermark > before
    assert [node.listeners[0].port for node in answer.nodes] == ([kafka.port] if version == 2 else [])
