"""Records as large as they may be at the source, or larger than any table holds."""

import pytest
from confluent_kafka import Producer

from log_tables.cluster.cluster import Cluster
from log_tables.limits import BATCH_MAX_BYTES, MIB, RECORD_HARD_MAX_BYTES
from tests.kit.kafka import produce
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import cluster, equal, here, level, name, note, running, sound, stopped
from tests.kit.support import WAIT_S

__all__ = ["cluster", "name"]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def send(kafka: Broker, topic: str, values: list[bytes], codec: str = "none") -> None:
    """Send values, a batch for each codec."""
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "compression.type": codec,
            "message.max.bytes": 2 * RECORD_HARD_MAX_BYTES,
            "batch.size": 2 * RECORD_HARD_MAX_BYTES,
            "log_level": 0,
        }
    )
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(WAIT_S) == 0


def test_records_of_no_bytes_and_of_as_many_as_the_source_takes(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    kafka.create_topic(name, max_message_bytes=8 * MIB)
    for codec in CODECS:
        send(kafka, name, [b"", b"x" * (8 * MIB - 100), b""], codec)
    note(cluster, kafka, name)
    with running(cluster):
        level(cluster, kafka, name)
    assert cluster.topic(name).config["max.message.bytes"] == str(8 * MIB)
    equal(cluster, kafka, name, 3 * len(CODECS))


@pytest.mark.torture
def test_a_record_of_more_than_librdkafka_takes_by_default(
    kafka: Broker, cluster: Cluster, name: str
) -> None:
    value = b"x" * 100_000_000
    kafka.create_topic(name, max_message_bytes=101 * MIB)
    note(cluster, kafka, name)
    send(kafka, name, [value])
    with running(cluster):
        level(cluster, kafka, name)
    assert [each.value for each in here(cluster, name)] == [value]


@pytest.mark.torture
def test_what_was_compressed_is_as_large_as_it_is(kafka: Broker, cluster: Cluster, name: str) -> None:
    kafka.create_topic(name)
    kafka.create_topic(f"{name}-other")
    values = [bytes([number]) * (20 * MIB) for number in range(10)]
    send(kafka, name, values, "zstd")
    note(cluster, kafka, f"^{name}.*")
    with running(cluster):
        level(cluster, kafka, name)
        log = cluster.topic(name).partition(0)
        log.refresh()
        ends = [*(each.base_offset for each in log.snapshot.segments[1:]), log.high_watermark]
        counts = [end - each.base_offset for each, end in zip(log.snapshot.segments, ends, strict=True)]
        assert max(counts) <= BATCH_MAX_BYTES // (20 * MIB)
        assert [each.value for each in here(cluster, name)] == values
        send(kafka, name, [b"x" * (RECORD_HARD_MAX_BYTES + 1)], "zstd")
        assert f"the record at offset 10 has {RECORD_HARD_MAX_BYTES + 1} bytes" in stopped(cluster, name)
        produce(kafka.bootstrap, f"{name}-other", [b"on"])
        level(cluster, kafka, f"{name}-other")
    assert [each.value for each in here(cluster, name)] == values
    sound(cluster)
