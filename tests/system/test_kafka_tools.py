"""Kafka's own tools for consoles and operators: those that run, and those that end with an error that names
the missing feature.
"""

from collections.abc import Iterator

import pytest

from tests.kit.kafka import KafkaGateway, kafka_gateway, produce
from tests.kit.kafka_programs import kafka_tool, refused_tool

pytestmark = pytest.mark.torture

GROUPS, CONFIGS = "consumer.group.ConsumerGroupCommand", "kafka.admin.ConfigCommand"

PERFORMANCE = "--topic t --num-records 9 --record-size 9 --throughput -1 --transactional-id x"

RUN = [
    ("TopicCommand", "--describe --topic t", "PartitionCount: 2"),
    ("TopicCommand", "--describe --under-replicated-partitions", ""),
    (CONFIGS, "--describe --entity-type brokers", "Dynamic configs for broker 1 are"),
    (CONFIGS, "--describe --entity-type brokers --entity-name 1 --all", "num.partitions=1"),
    ("LogDirsCommand", "--describe", '"partition":"t-1"'),
    (GROUPS, "--list --state", "Empty"),
    (GROUPS, "--describe --all-groups", "readers"),
    (GROUPS, "--describe --state --all-groups", "Empty"),
    (GROUPS, "--describe --members --verbose --all-groups", ""),
    ("GroupsCommand", "--list", "Classic"),
    ("consumer.group.ShareGroupCommand", "--list", ""),
    ("GetOffsetShell", "--topic t --time latest", "t:0:10"),
    ("GetOffsetShell", "--topic t --time max-timestamp", "t:0:"),
    ("GetOffsetShell", "--topic t --time earliest-local", "t:0:0"),
    ("GetOffsetShell", "--topic t --time 0", "t:0:0"),
    ("ClusterTool", "cluster-id", "Cluster ID"),
    ("ClusterTool", "list-endpoints", "unfenced"),
    ("ClusterTool", "unregister --id 5", "does not support the broker unregistration API"),
    ("BrokerApiVersionsCommand", "", "EndTxn(26): 0 to 5"),
    ("reassign.ReassignPartitionsCommand", "--list", "No partition reassignments found"),
    ("MetadataQuorumCommand", "describe --status", "LeaderId:"),
    ("MetadataQuorumCommand", "describe --replication", "Leader"),
    ("LeaderElectionCommand", "--election-type preferred --all-topic-partitions", ""),
    ("LeaderElectionCommand", "--election-type unclean --topic t --partition 1", "already elected"),
    ("FeatureCommand", "describe", ""),
    ("AclCommand", "--list", ""),
    (CONFIGS, "--describe --entity-type users", ""),
    (CONFIGS, "--describe --entity-type ips", ""),
    ("ClientMetricsCommand", "--list", ""),
    ("ProducerPerformance", PERFORMANCE, "9 records sent"),
    ("TransactionsCommand", "list", "CompleteCommit"),
    ("TransactionsCommand", "list --transactional-id-pattern x.*", "CompleteCommit"),
    ("TransactionsCommand", "describe --transactional-id x", "CompleteCommit"),
    ("TransactionsCommand", "find-hanging --broker-id 1", "Duration(min)"),
    ("TransactionsCommand", "forceTerminateTransaction --transactionalId x", ""),
    ("TransactionsCommand", "describe-producers --topic t --partition 0", "CurrentTransactionStartOffset"),
]
"""A tool, what it is told, and what it says."""

REFUSED = [
    ("TransactionsCommand", "describe --transactional-id none", "the ID could not be found"),
    (
        "TransactionsCommand",
        "abort --topic t --partition 0 --start-offset 5",
        "Could not find any open transactions",
    ),
    (CONFIGS, "--describe --entity-type broker-loggers --entity-name 1", "have no settings here"),
    (
        CONFIGS,
        "--alter --entity-type brokers --entity-name 1 --add-config log.cleaner.threads=2",
        "set them where it is started",
    ),
]
"""The same of tools that fail."""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    """A gateway with a topic of ten records, which a group has read."""
    with kafka_gateway(tmp_path_factory.mktemp("root")) as gateway:
        gateway.create_topic("t", 2)
        produce(gateway.bootstrap, "t", [b"%d" % number for number in range(10)])
        kafka_tool(
            "consumer.ConsoleConsumer",
            *("--bootstrap-server", gateway.bootstrap, "--topic", "t", "--group", "readers"),
            *("--from-beginning", "--max-messages", "10"),
        )
        yield gateway


def told(door: KafkaGateway, name: str, words: str) -> list[str]:
    """The arguments of a tool; the actions of some stand before the address."""
    given, server = words.split(), ["--bootstrap-server", door.bootstrap]
    return [given[0], *server, *given[1:]] if name == "ClusterTool" else [*server, *given]


@pytest.mark.parametrize(("name", "words", "says"), RUN)
def test_a_tool_runs(door: KafkaGateway, name: str, words: str, says: str) -> None:
    assert says in kafka_tool(name, *told(door, name, words))


@pytest.mark.parametrize(("name", "words", "says"), REFUSED)
def test_a_tool_says_what_is_not_offered(door: KafkaGateway, name: str, words: str, says: str) -> None:
    assert says in refused_tool(name, *told(door, name, words))
