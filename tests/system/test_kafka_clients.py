"""Kafka's own clients, unchanged, at the Kafka listener: librdkafka, kcat, one tool of Apache Kafka.

The others are in test_kafka_more_clients.py.
"""

from collections.abc import Iterator

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition

from tests.kit.kafka import (
    KafkaGateway,
    kafka_gateway,
    librdkafka_producer,
    librdkafka_reader,
    lines_of,
    produce,
    read_all,
)
from tests.kit.kafka_programs import kafka_tool, kcat
from tests.kit.support import WAIT_S

HEADERS = [("name", b"value"), ("name", b""), ("none", None)]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    with kafka_gateway(tmp_path_factory.mktemp("root")) as gateway:
        yield gateway


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_reads_what_it_wrote(door: KafkaGateway, codec: str) -> None:
    topic = door.create_topic(f"codec-{codec}")
    values = [b"%d " % number * 100 for number in range(2_000)]
    config = {"compression.type": codec, "enable.idempotence": True}
    sent = produce(door.bootstrap, topic, values, **config)
    assert sent.failed == []
    assert sent.placed == {value: (0, offset) for offset, value in enumerate(values)}
    assert [each.value for each in read_all(door.bootstrap, topic)] == values


def test_keys_values_and_headers_may_be_empty_or_null(door: KafkaGateway) -> None:
    topic, producer = door.create_topic("empty"), librdkafka_producer(door.bootstrap)
    pairs = [(key, value) for key in (None, b"", b"k") for value in (None, b"", b"v")]
    for key, value in pairs:
        producer.produce(topic, value, key, partition=0, headers=list(HEADERS))
    assert producer.flush(WAIT_S) == 0
    found = read_all(door.bootstrap, topic)
    assert [(each.key, each.value) for each in found] == pairs
    assert {each.headers for each in found} == {tuple(HEADERS)}


def test_a_record_has_the_time_that_its_producer_gives_or_that_of_its_append(door: KafkaGateway) -> None:
    created = door.create_topic("created")
    stamped = door.create_topic("stamped", message_timestamp_type="LogAppendTime")
    producer = librdkafka_producer(door.bootstrap)
    for topic in (created, stamped):
        producer.produce(topic, b"v", partition=0, timestamp=1_000)
    assert producer.flush(WAIT_S) == 0
    (here,), (there,) = read_all(door.bootstrap, created), read_all(door.bootstrap, stamped)
    assert here.time == (TIMESTAMP_CREATE_TIME, 1_000)
    assert there.time[0] == TIMESTAMP_LOG_APPEND_TIME
    assert there.time[1] > 1_000


def test_offsets_are_found_by_time(door: KafkaGateway) -> None:
    topic, producer = door.create_topic("times"), librdkafka_producer(door.bootstrap)
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0, timestamp=1_000_000 + 1_000 * number)
        assert producer.flush(WAIT_S) == 0
    reader = librdkafka_reader(door.bootstrap)
    asked = [1_000_000, 1_003_500, 1_009_000, 1_009_001]
    found = [reader.offsets_for_times([TopicPartition(topic, 0, time)])[0].offset for time in asked]
    assert found == [0, 4, 9, -1]
    assert reader.get_watermark_offsets(TopicPartition(topic, 0)) == (0, 10)
    reader.close()


def test_a_first_batch_that_is_refused_keeps_nothing_from_those_that_follow(door: KafkaGateway) -> None:
    """The following batches are already on their way, and the log does not yet know their producer."""
    topic = door.create_topic("refused-first", max_message_bytes="1000")
    large, others = b"x" * 5_000, [b"%d" % number for number in range(20)]
    config = {"enable.idempotence": True, "linger.ms": 0, "batch.num.messages": 1}
    sent = produce(door.bootstrap, topic, [large, *others], **config)
    assert sent.failed == ["MSG_SIZE_TOO_LARGE"]
    assert [each.value for each in read_all(door.bootstrap, topic)] == others


def test_a_topic_is_made_when_a_producer_names_it(door: KafkaGateway) -> None:
    sent = produce(door.bootstrap, "named-first-here", [b"v"])
    assert sent.placed == {b"v": (0, 0)}


@pytest.mark.parametrize("start", [0, 1, 7, 42, 99])
def test_a_fetch_may_begin_inside_a_batch(door: KafkaGateway, start: int) -> None:
    topic = f"inside-{start}"
    produce(door.bootstrap, topic, [b"%d" % number for number in range(100)], **{"linger.ms": 50})
    found = read_all(door.bootstrap, topic, start=start)
    assert [(each.offset, each.value) for each in found] == [
        (number, b"%d" % number) for number in range(start, 100)
    ]


def test_kcat_writes_and_reads(door: KafkaGateway) -> None:
    topic = door.create_topic("cat")
    lines = "".join(f"k{number}:v{number}\n" for number in range(100))
    kcat("-b", door.bootstrap, "-t", topic, "-P", "-p", "0", "-K:", "-z", "snappy", "-H", "a=b", given=lines)
    found = kcat("-b", door.bootstrap, "-t", topic, "-C", "-e", "-q", "-f", "%o:%k:%s:%h\n")
    expected = "".join(f"{number}:k{number}:v{number}:a=b\n" for number in range(100))
    assert found.decode() == expected


def test_kcat_lists_brokers_topics_and_offsets(door: KafkaGateway) -> None:
    topic = door.create_topic("listed", partitions=3)
    produce(door.bootstrap, topic, [b"1", b"2"])
    listed = kcat("-b", door.bootstrap, "-L", "-t", topic).decode()
    assert f"at {door.bootstrap} (controller)" in listed
    assert f'topic "{topic}" with 3 partitions' in listed
    assert "leader -1" not in listed
    assert kcat("-b", door.bootstrap, "-Q", "-t", f"{topic}:0:-1") == b"listed [0] offset 2\n"


def test_kafka_s_verifiable_producer_writes_in_order(door: KafkaGateway) -> None:
    topic = door.create_topic("verifiable")
    arguments = ("--bootstrap-server", door.bootstrap, "--topic", topic, "--max-messages", "500")
    said = lines_of(kafka_tool("VerifiableProducer", *arguments))
    assert said[-1]["acked"] == 500
    acknowledged = {int(each["offset"]): each["value"] for each in said if "offset" in each}
    assert {
        each.offset: (each.value or b"").decode() for each in read_all(door.bootstrap, topic)
    } == acknowledged
