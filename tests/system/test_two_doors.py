"""Two doors, one log: what comes in over HTTP and what comes in over Kafka's protocol is read alike at both,
and in the tables.
"""

import base64
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, TopicPartition

from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.record import Record as LogRecord
from log_tables.record import input_batch
from log_tables.store.store import open_store
from tests.kit.gateway import append_segments, leave_every_tenth
from tests.kit.kafka import (
    KafkaGateway,
    kafka_gateway,
    librdkafka_producer,
    librdkafka_reader,
    produce,
    read_all,
)
from tests.kit.partitions import records
from tests.kit.support import WAIT_S

BINARY = "application/vnd.kafka.binary.v2+json"
ARROW = "application/vnd.apache.arrow.stream"

Shown = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
"""Offset, key, value, headers, and the time in milliseconds."""

SENT: list[Shown] = [
    (number, key, value, headers, 1_000 + number)
    for number, (key, value, headers) in enumerate(
        (key, value, headers)
        for key in (None, b"", b"\xff")
        for value in (None, b"", b"\x00\xff")
        for headers in ((), (("h", b"\xff"), ("h", b""), ("é", None)))
    )
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    with kafka_gateway(tmp_path_factory.mktemp("root")) as gateway:
        yield gateway


def text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def data_of(shown: str | None) -> bytes | None:
    return None if shown is None else base64.b64decode(shown)


def by_v2(door: KafkaGateway, topic: str) -> None:
    sent = [
        {
            "key": text(key),
            "value": text(value),
            "headers": [{"key": name, "value": text(each)} for name, each in headers],
            "timestamp": time,
        }
        for _, key, value, headers, time in SENT
    ]
    path, kind = f"/topics/{topic}/partitions/0", {"Content-Type": BINARY}
    assert door.running.client.post(path, json={"records": sent}, headers=kind).is_success


def by_arrow(door: KafkaGateway, topic: str) -> None:
    batch = input_batch(
        [LogRecord(value, key, headers, 1_000 * time) for _, key, value, headers, time in SENT], 0
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    path, kind = f"/topics/{topic}/partitions/0", {"Content-Type": ARROW}
    answer = door.running.client.post(path, content=sink.getvalue().to_pybytes(), headers=kind)
    assert answer.is_success, answer.text


def by_v3(door: KafkaGateway, topic: str) -> None:
    for _, key, value, headers, time in SENT:
        body: dict[str, Any] = {
            "partition_id": 0,
            "headers": [{"name": name, "value": text(each)} for name, each in headers],
            "timestamp": f"1970-01-01T00:00:01.{time - 1_000:03}Z",
        }
        for part, content in (("key", key), ("value", value)):
            if content is not None:
                body[part] = {"type": "BINARY", "data": text(content)}
        answer = door.running.client.post(f"{door.running.cluster}/topics/{topic}/records", json=body)
        assert answer.is_success, answer.text


def by_kafka(door: KafkaGateway, topic: str) -> None:
    producer = librdkafka_producer(door.bootstrap)
    for _, key, value, headers, time in SENT:
        producer.produce(topic, value, key, partition=0, headers=[*headers], timestamp=time)
    assert producer.flush(WAIT_S) == 0


def at_v2(door: KafkaGateway, topic: str) -> list[Shown]:
    path, query = f"/topics/{topic}/partitions/0/records", {"offset": 0}
    answer = door.running.client.get(path, headers={"Accept": BINARY}, params=query)
    return [
        (
            each["offset"],
            data_of(each["key"]),
            data_of(each["value"]),
            tuple((header["key"], data_of(header["value"])) for header in each["headers"]),
            each["timestamp"],
        )
        for each in answer.json()
    ]


def at_kafka(door: KafkaGateway, topic: str) -> list[Shown]:
    found = read_all(door.bootstrap, topic)
    return [(each.offset, each.key, each.value, each.headers, each.time[1]) for each in found]


def in_tables(door: KafkaGateway, topic: str) -> list[Shown]:
    partition = Cluster.open(open_store(door.data), SystemClock(), create=False).topic(topic).partition(0)
    return [
        (each.offset or 0, each.key, each.value, tuple(each.headers), (each.timestamp_us or 0) // 1_000)
        for each in records(partition, 1 << 20)
    ]


@pytest.mark.parametrize("write", [by_v2, by_arrow, by_v3, by_kafka])
def test_a_record_is_the_same_at_every_door(door: KafkaGateway, write: Any) -> None:
    topic = door.create_topic(f"same-{write.__name__}")
    write(door, topic)
    assert in_tables(door, topic) == SENT
    assert at_v2(door, topic) == SENT
    assert at_kafka(door, topic) == SENT


def test_both_doors_append_to_one_log(door: KafkaGateway) -> None:
    topic = door.create_topic("interleaved")
    for number in range(10):
        if number % 2:
            produce(door.bootstrap, topic, [b'"%d"' % number])
        else:
            assert door.running.produce(topic, str(number), partition=0).is_success
    assert [each[2] for each in at_kafka(door, topic)] == [b'"%d"' % number for number in range(10)]
    assert at_kafka(door, topic) == at_v2(door, topic)


def test_gaps_of_a_compacted_log_are_no_records(door: KafkaGateway) -> None:
    topic = door.create_topic("gaps", cleanup_policy="compact")
    append_segments(door.running, topic, 95)
    leave_every_tenth(door.running, topic)
    for start in (0, 1, 9, 10, 85, 91, 94, 95):
        found = [each.offset for each in read_all(door.bootstrap, topic, start=start)]
        assert found == [offset for offset in (*range(0, 95, 10), 94) if offset >= start]
    assert librdkafka_reader(door.bootstrap).get_watermark_offsets(TopicPartition(topic, 0)) == (0, 95)


def test_a_compacted_topic_takes_no_record_without_a_key_of_a_kafka_client(door: KafkaGateway) -> None:
    topic = door.create_topic("keyed", cleanup_policy="compact")
    assert produce(door.bootstrap, topic, [b"v"]).failed == ["INVALID_RECORD"]
    assert door.running.produce(topic, "v", partition=0).is_success


def test_a_record_may_be_as_large_as_max_message_bytes(door: KafkaGateway) -> None:
    topic = door.create_topic("large", max_message_bytes=str(20 << 20))
    config = {"message.max.bytes": 30 << 20}
    values = [b"x" * (19 << 20), b"small"]
    assert produce(door.bootstrap, topic, values, **config).failed == []
    assert produce(door.bootstrap, topic, [b"x" * (21 << 20)], **config).failed == ["MSG_SIZE_TOO_LARGE"]
    assert sizes(read_all(door.bootstrap, topic)) == sizes_of(values)


def test_a_request_may_be_as_large_as_max_request_bytes(door: KafkaGateway) -> None:
    topic = door.create_topic("requests")
    values = [b"%06d" % number + b"." * 1_000 for number in range(30_000)]
    config = {"message.max.bytes": 32 << 20, "batch.size": 32 << 20, "batch.num.messages": 30_000}
    sent = produce(door.bootstrap, topic, values, **config, **{"linger.ms": 1_000})
    assert sent.failed == []
    assert [each.value for each in read_all(door.bootstrap, topic)] == values


def sizes(found: Sequence[Any]) -> list[int]:
    return [len(each.value) for each in found]


def sizes_of(values: Sequence[bytes]) -> list[int]:
    return [*map(len, values)]


def test_a_topic_is_deleted_and_made_again_under_its_producer(door: KafkaGateway) -> None:
    topic = door.create_topic("again")
    producer = librdkafka_producer(door.bootstrap, **{"topic.metadata.refresh.interval.ms": 100})
    for life in range(3):
        value, answers = b"life %d" % life, list[KafkaError | None]()
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: answers.append(error))  # noqa: B023
        assert producer.flush(WAIT_S) == 0
        if answers == [None]:
            assert [each.value for each in read_all(door.bootstrap, topic)] == [value]
        else:
            assert life, f"{answers}"
        path = f"{door.running.cluster}/topics/{topic}"
        assert door.running.client.delete(path).is_success
        # The producer asks for its topic ten times a second; if it is the first to ask, that makes it.
        made = door.running.client.post(
            f"{door.running.cluster}/topics", json={"topic_name": topic, "partitions_count": 1}
        )
        assert made.is_success or "exists already" in made.text, made.text
    fresh = produce(door.bootstrap, topic, [b"new"])
    assert fresh.placed == {b"new": (0, 0)}
