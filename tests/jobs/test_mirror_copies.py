"""Topics of a real Kafka, copied at their offsets: what each kind of log has is here, and nothing else."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka.cimpl import NewPartitions
from msgspec.structs import replace

from jobs.mirror.promotion import promote
from jobs.mirror.source import Source
from log_tables.clock import ManualClock
from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, MirroredTopic, TopicExists
from log_tables.store.store import open_store
from tests.kit.kafka import librdkafka_producer, produce, read_all
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import (
    NAME,
    cluster,
    delete_before,
    equal,
    here,
    level,
    name,
    note,
    running,
    sound,
    transactions,
)
from tests.kit.partitions import append
from tests.kit.support import WAIT_S, wait_until

__all__ = ["cluster", "name"]


def test_records_are_copied_whole_and_new_ones_follow(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name, 3)
    producer = librdkafka_producer(kafka.bootstrap)

    def send(first: int) -> None:
        odd: list[tuple[bytes | None, bytes | None]] = [(b"", b""), (None, b"k"), (b"v", None), (None, None)]
        for value, key in odd:
            producer.produce(name, value, key, partition=1)
        for number in range(first, first + 3_000):
            headers: Any = [("a", b"1"), ("a", None), ("é", b"")][: number % 4]
            producer.produce(
                name, b"%d" % number, b"%d" % (number % 7), headers=headers, timestamp=1 + number
            )
        producer.produce(name, b"x" * 900_000, partition=2)
        assert producer.flush(WAIT_S) == 0

    send(0)
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
        send(3_000)
        level(cluster, kafka, name)
    equal(cluster, kafka, name, 2 * 3_005)
    sound(cluster)


def test_aborted_records_and_markers_are_gaps_and_an_open_transaction_is_awaited(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    transactions(kafka, name, 0, "caa")
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
        log = cluster.topic(name).partition(0)
        assert log.high_watermark == 9
        opened = transactions(kafka, name, 1, "o")
        transactions(kafka, name, 2, "c")
        level(cluster, kafka, name)
        assert log.refresh().high_watermark == 9
        opened.abort_transaction()
        wait_until(lambda: log.refresh().high_watermark == 15, "the end behind the last marker is here")
    assert [(each.offset, each.value) for each in equal(cluster, kafka, name)] == [
        *((0, b"c0"), (1, b"c1")),
        *((11, b"c0"), (12, b"c1")),
    ]
    sound(cluster)


def test_a_compacted_topic_has_its_gaps_also_while_its_tail_is_rewritten(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    config: dict[str, Any] = {"segment_ms": 100, "min_cleanable_dirty_ratio": 0.01}
    kafka.create_topic(name, 1, cleanup_policy="compact", **config)
    numbers = count()

    def send(records: int) -> int:
        """Send records, of ten keys in turn; returns how many were sent until now."""
        values = [next(numbers) for _ in range(records)]
        producer = librdkafka_producer(kafka.bootstrap)
        for each in values:
            producer.produce(name, b"%d" % each, b"%d" % (each % 10))
        assert producer.flush(WAIT_S) == 0
        return values[-1] + 1

    def is_compacted() -> bool:
        """Whether records of the source are gone. A segment ends with the first record after its time."""
        return send(1) > len(read_all(kafka.bootstrap, name))

    send(500)
    note(cluster, kafka, name)
    wait_until(is_compacted, "the source is compacted")
    with running(cluster):
        level(cluster, kafka, name)
        send(500)
        wait_until(is_compacted, "it is compacted again")
        level(cluster, kafka, name)
    there = read_all(kafka.bootstrap, name)
    assert {*there} <= {*here(cluster, name)}
    assert cluster.topic(name).config["cleanup.policy"] == "compact"
    sound(cluster)


def test_times_of_the_append_at_the_source_are_kept(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name, message_timestamp_type="LogAppendTime")
    produce(kafka.bootstrap, name, [b"%d" % number for number in range(20)])
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
    equal(cluster, kafka, name, 20)


def test_the_log_start_is_that_of_the_source(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name)
    produce(kafka.bootstrap, name, [b"%d" % number for number in range(20)])
    delete_before(kafka, name, 7)
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
        log = cluster.topic(name).partition(0)
        assert (log.log_start, log.high_watermark) == (7, 20)
        delete_before(kafka, name, 15)
        wait_until(lambda: log.refresh().log_start == 15, "the log start is that of the source")
    equal(cluster, kafka, name, 5)
    sound(cluster)


def test_new_topics_and_partitions_are_copied_from_their_first_record(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    note(cluster, kafka, f"^{name}-.*")
    with running(cluster):
        kafka.create_topic(f"{name}-new")
        produce(kafka.bootstrap, f"{name}-new", [b"0"])
        level(cluster, kafka, f"{name}-new")
        kafka.admin.create_partitions([NewPartitions(f"{name}-new", 3)])[f"{name}-new"].result(WAIT_S)
        producer = librdkafka_producer(kafka.bootstrap)
        for partition in range(3):
            producer.produce(f"{name}-new", b"%d" % partition, partition=partition)
        assert producer.flush(WAIT_S) == 0
        wait_until(lambda: cluster.topic(f"{name}-new").partition_count == 3, "the partitions are here")
        level(cluster, kafka, f"{name}-new")
    equal(cluster, kafka, f"{name}-new", 4)


def test_nothing_is_committed_where_nothing_comes(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-quiet", 5)
    note(cluster, kafka, f"^{name}.*")

    def versions() -> list[int]:
        return [log.refresh().version for log in cluster.topic(f"{name}-quiet").partitions()]

    with running(cluster):
        level(cluster, kafka, name, f"{name}-quiet")
        wait_until(lambda: versions() == [1] * 5, "all partitions are claimed")
        for number in range(5):
            produce(kafka.bootstrap, name, [b"%d" % number])
            level(cluster, kafka, name)
        assert versions() == [1] * 5


@pytest.fixture
def promoted(kafka: Broker, cluster: Cluster, name: str) -> Iterator[str]:
    """A topic that was copied, with an aborted transaction at its end, and promoted while the mirror runs."""
    kafka.create_topic(name)
    transactions(kafka, name, 0, "ca")
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
        assert promote(cluster, NAME, [], Source(kafka.bootstrap), WAIT_S) == [name]
        yield name


def test_after_promotion_the_next_append_stands_at_the_end_of_the_source(
    kafka: Broker, cluster: Cluster, promoted: str
) -> None:
    topic = cluster.topic(promoted)
    topic.check_own()
    log = topic.partition(0)
    log.claim("http://gateway")
    assert append(log, b"ours") == 6
    produce(kafka.bootstrap, promoted, [b"theirs"])
    again = Cluster.open(cluster.store).topic(promoted).partition(0)
    assert [each.value for each in here(cluster, promoted)] == [b"c0", b"c1", b"ours"]
    assert again.high_watermark == 7
    mirror_admin.delete_mirror(cluster, NAME)
    sound(cluster)


def test_what_is_here_already_is_no_copy_and_a_copy_has_one_mirror(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name)
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
    with pytest.raises(MirroredTopic, match=f"mirror promote {NAME} --topic {name}"):
        cluster.topic(name).check_own()
    other = mirror_admin.mirror_named(cluster, NAME)
    with pytest.raises(InvalidArgument, match=f"there is a mirror {NAME} already"):
        mirror_admin.create_mirror(cluster, other, [])
    with pytest.raises(TopicExists, match=f"{name} here already, which the mirror {NAME} copies"):
        mirror_admin.create_mirror(cluster, replace(other, name="second"), [name])
    with pytest.raises(InvalidArgument, match=f"mirror promote {NAME}"):
        mirror_admin.delete_mirror(cluster, NAME)


def test_settings_of_the_source_are_followed_and_others_are_not(
    kafka: Broker, cluster: Cluster, name: str, seed: int
) -> None:
    kafka.create_topic(name, retention_ms=3_600_000)
    note(cluster, kafka, name)
    clock, defaults = ManualClock(seed=seed), {"retention.ms": "604800000"}  # Kafka's, not ours
    with running(Cluster.open(open_store(cluster.store.url), clock)):
        level(cluster, kafka, name)
        assert cluster.topic(name).config.overrides == {"retention.ms": "3600000"}
        kafka.alter_topic(name, retention_bytes=1_000_000, segment_ms=1_000)
        kafka.alter_topic(name, retention_ms=None)

        def are_followed() -> bool:
            clock.advance(1_000)
            cluster.refresh()
            return cluster.topic(name).config.overrides == {**defaults, "retention.bytes": "1000000"}

        wait_until(are_followed, "the copy has the settings of its source")
