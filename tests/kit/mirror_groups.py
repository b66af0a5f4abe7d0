"""Groups of a mirror: what they have committed at a real Kafka, and through a gateway on this root."""

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from jobs.mirror.groups import GroupSync
from jobs.mirror.source import Source
from lakelog.cli.mirror_gateway import GatewayOffsets
from log_tables.cluster.cluster import Cluster
from tests.kit.kafka import librdkafka_producer
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME
from tests.kit.support import WAIT_S, wait_until

Offsets = Mapping[int, int]
"""The offsets of one topic, by partition."""


def produce(kafka: Broker, topic: str, count: int, partitions: int = 1) -> None:
    """Add so many records to each partition of a topic."""
    producer = librdkafka_producer(kafka.bootstrap)
    for number in range(count):
        for partition in range(partitions):
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(WAIT_S) == 0


def commit(kafka: Broker, topic: str, offsets: Offsets, *groups: str, metadata: str = "") -> None:
    """Have groups without members commit offsets at the source."""
    places = [TopicPartition(topic, number, at, metadata) for number, at in offsets.items()]
    left = [*groups]

    def are_committed() -> bool:
        asked = [
            kafka.admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
            for group in left
        ]
        left[:] = [name for each in asked for name, done in each.items() if not _is_done(done)]
        return not left

    wait_until(are_committed, f"{groups} have committed")  # the coordinator may be loading


def _is_done(asked: Future[Any]) -> bool:
    try:
        return all(at.error is None for at in asked.result(WAIT_S).topic_partitions)
    except KafkaException:
        return False


def committed(bootstrap: str, group: str) -> dict[tuple[str, int], tuple[int, str]]:
    """The offsets of a group with their notes, as a client of Kafka sees them."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (asked,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    found = asked.result(WAIT_S).topic_partitions
    return {(each.topic, each.partition): (each.offset, each.metadata or "") for each in found}


@contextmanager
def group_sync(cluster: Cluster, kafka: Broker, url: str | None = None) -> Iterator[GroupSync]:
    """It brings the groups of the mirror NAME over, by the gateway at `url` or any of the root."""
    with GatewayOffsets(cluster, url) as set_offsets:
        yield GroupSync(cluster, NAME, Source(kafka.bootstrap), set_offsets)


def states(sync: GroupSync, group: str) -> dict[int, tuple[int | None, int | None, str]]:
    """The offset of the source, the one here, and the state of each partition of a group, now."""
    return {each.partition: (each.source, each.here, each.state.value) for each in sync.look([group])}


@contextmanager
def member(bootstrap: str, group: str, topic: str, **config: Any) -> Iterator[Consumer]:
    """A consumer that has an assignment, and leaves in the end."""
    own = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "error"}
    consumer = Consumer({**own, "enable.auto.commit": False, **config})
    assigned: list[TopicPartition] = []
    consumer.subscribe([topic], on_assign=lambda _, given: assigned.extend(given))
    with closing(consumer):
        while not assigned:
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:  # it came at once
                consumer.seek(TopicPartition(topic, message.partition() or 0, message.offset() or 0))
        yield consumer
