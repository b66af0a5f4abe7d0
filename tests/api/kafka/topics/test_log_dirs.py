"""DescribeLogDirs: sizes, and which gateway tells them."""

from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient

from api.kafka.protocol.messages.cluster import DescribableLogDirTopic, DescribeLogDirsRequest
from log_tables.clock import SystemClock
from log_tables.layout import partition_directory, topic_directory
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, balanced, kafka_gateway
from tests.kit.kafka_asking import Asker, asker


def sizes(found: Any) -> dict[tuple[str, int], int]:
    """The size of each partition in an answer."""
    (directory,) = found.results
    assert directory.error_code == 0
    return {
        (topic.name, part.partition_index): part.partition_size
        for topic in directory.topics
        for part in topic.partitions
    }


def asked(*topics: tuple[str, list[int]]) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(
        topics=[DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in topics]
    )


def test_a_partition_is_as_large_as_its_segments(kafka: KafkaGateway, asking: Asker) -> None:
    topic = kafka.create_topic("sized", 2)
    assert kafka.running.produce(topic, *range(50), partition=1).is_success
    store = open_store(str(kafka.data))
    partition = Partition(store, partition_directory(topic_directory(topic), 1), SystemClock())
    size = sum(segment.size for segment in partition.snapshot.segments)
    assert size > 0
    for version in range(1, 6):
        found = asking.ask(asked((topic, [0, 1, 7]), ("absent", [0])), version)
        assert sizes(found) == {(topic, 0): 0, (topic, 1): size}
    assert sizes(asking.ask(asked((topic, [1])))) == {(topic, 1): size}
    everything = asking.ask(DescribeLogDirsRequest(topics=None))
    assert sizes(everything)[topic, 1] == size
    assert everything.results[0].log_dir == f"{kafka.data}/topics"


def test_each_partition_is_told_by_whoever_is_asked_behind_one_address(tmp_path: Path) -> None:
    """The gateways there are one broker to clients."""
    with balanced(tmp_path) as gateways:
        first, second = gateways.gateways
        first.create_topic("shared", 9)
        assert first.running.produce("shared", *range(50)).is_success
        for gateway in (first, second):
            with asker(gateway.port) as asking:
                told = set(sizes(asking.ask(asked(("shared", [*range(9)])))))
            assert told == {("shared", number) for number in range(9)}


def test_each_partition_is_told_by_one_of_the_gateways_at_addresses_of_their_own(tmp_path: Path) -> None:
    with kafka_gateway(tmp_path) as first, kafka_gateway(tmp_path) as second:
        first.create_topic("parted", 9)
        told = []
        for gateway in (first, second):
            with asker(gateway.port) as asking:
                told.append(set(sizes(asking.ask(asked(("parted", [*range(9)]))))))
        assert told[0] | told[1] == {("parted", number) for number in range(9)}
        assert not told[0] & told[1]


def test_kafka_python_reads_sizes(kafka: KafkaGateway) -> None:
    kafka.create_topic("weighed")
    admin = KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        assert "weighed" in str(admin.describe_log_dirs())
    finally:
        admin.close()
