"""Both faces of a producer against a real gateway: batches, partitions, order, records that it refuses."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from lakelog import Client, Producer
from lakelog.client.producer.delivery import RecordMetadata
from log_tables import errors
from log_tables.errors import Unreachable
from log_tables.key_hash import MURMUR3, partition_for_key
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway
from tests.kit.producing import values
from tests.kit.support import free_port


@pytest.fixture
def producer(face: Face, gateway: RunningGateway) -> Iterator[Producer]:
    with face.producer(gateway.url, linger_ms=0) as running:
        yield running


class Counting(httpx.HTTPTransport):
    """The network, with a count of the produce requests that went through it."""

    def __init__(self) -> None:
        super().__init__()
        self.posts = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.posts += request.method == "POST"
        return super().handle_request(request)


def test_a_record_goes_where_its_future_says(producer: Producer, client: Client, topic: str) -> None:
    headers = [("h", b"\x00"), ("h", None)]
    sent = producer.send(topic, b"\xff", b"key", headers, timestamp_ms=1_234, partition=1)
    assert sent.result() == RecordMetadata(topic, 1, 0)
    (record,) = client.read(topic, 1)
    assert (record.value, record.key, record.offset) == (b"\xff", b"key", 0)
    assert (list(record.headers), record.timestamp_us) == (headers, 1_234_000)
    assert producer.send(topic, None, partition=1).result().offset == 1
    assert values(client, topic, 1) == [b"\xff", None]


def test_records_of_a_key_stay_in_order_on_its_partition(
    producer: Producer, client: Client, topic: str
) -> None:
    keys = [f"key-{number % 7}".encode() for number in range(500)]
    futures = [producer.send(topic, str(number).encode(), key) for number, key in enumerate(keys)]
    producer.flush()
    placed = [future.result() for future in futures]
    assert [each.partition for each in placed] == [partition_for_key(key, 2, MURMUR3) for key in keys]
    for partition in range(2):
        expected = [b"%d" % n for n, each in enumerate(placed) if each.partition == partition]
        assert values(client, topic, partition) == expected
        assert [each.offset for each in placed if each.partition == partition] == list(range(len(expected)))


def test_records_go_in_batches_and_those_without_a_key_move_on(
    face: Face, gateway: RunningGateway, topic: str
) -> None:
    counting = Counting()
    with face.producer(gateway.url, linger_ms=60_000, batch_size=6_400, transport=counting) as producer:
        futures = [producer.send(topic, b"x" * 128) for _ in range(500)]
        producer.flush()
        partitions = [future.result().partition for future in futures]
    assert counting.posts == 10
    assert partitions == ([partitions[0]] * 50 + [1 - partitions[0]] * 50) * 5


def test_what_lingers_is_sent_by_flush_and_by_close(
    face: Face, gateway: RunningGateway, client: Client, topic: str
) -> None:
    producer = face.producer(gateway.url, linger_ms=60_000)
    first = producer.send(topic, b"1", partition=0)
    assert not first.done()
    producer.flush()
    assert first.done()
    second = producer.send(topic, b"2", partition=0)
    producer.close()
    assert second.result().offset == 1
    producer.close()
    assert values(client, topic, 0) == [b"1", b"2"]


def test_a_closed_producer_takes_nothing(
    face: Face, gateway: RunningGateway, client: Client, topic: str
) -> None:
    producer = face.producer(gateway.url)
    producer.send(topic, b"1", partition=0).result()
    producer.close()
    for name in (topic, "never-asked-for"):
        with pytest.raises(errors.InvalidArgument, match="closed"):
            producer.send(name, b"2", partition=0)
    assert values(client, topic, 0) == [b"1"]


@pytest.mark.parametrize(("acks", "offset"), [("0", None), ("1", 0), ("all", 0)])
def test_every_acks_level_delivers(
    face: Face, gateway: RunningGateway, client: Client, topic: str, acks: str, offset: int | None
) -> None:
    with face.producer(gateway.url, acks=acks, linger_ms=0) as producer:
        assert producer.send(topic, b"1", partition=0).result().offset == offset
        producer.send(topic, b"2", partition=0).result()
    with face.producer(gateway.url) as producer:
        assert producer.send(topic, b"3", partition=0).result().offset == 2
    assert values(client, topic, 0) == [b"1", b"2", b"3"]


def test_what_cannot_be_sent_says_why(
    face: Face, producer: Producer, client: Client, gateway: RunningGateway
) -> None:
    name = f"tight-{face.name}"
    gateway.create_topic(name, max_message_bytes="100")
    with pytest.raises(errors.UnknownTopic, match="nowhere"):
        producer.send("nowhere", b"1")
    with pytest.raises(errors.UnknownPartition, match="no partition 1; it has 0 to 0"):
        producer.send(name, b"1", partition=1)
    with pytest.raises(errors.InvalidArgument, match="'2'"):
        face.producer(gateway.url, acks="2")
    with pytest.raises(errors.RecordTooLarge, match="takes 100"):
        producer.send(name, b"x" * 200)
    # The refused record took no place and no sequence.
    assert producer.send(name, b"fits").result().offset == 0
    assert values(client, name, 0) == [b"fits"]


def test_a_bad_record_fails_alone_and_the_others_of_its_batch_keep_their_order(
    face: Face, gateway: RunningGateway, client: Client
) -> None:
    name = f"mixed-{face.name}"
    gateway.create_topic(name, max_message_bytes="100")
    good, futures = [b"%d" % number for number in range(20)], []
    with face.producer(gateway.url, linger_ms=60_000) as producer:
        for number, value in enumerate(good):
            futures.append(producer.send(name, value))
            with pytest.raises(errors.RecordTooLarge if number % 2 else errors.InvalidRecord):
                producer.send(name, b"x" * (200 if number % 2 else 1), timestamp_ms=10**15 * (1 - number % 2))
        producer.flush()
        assert [future.result().offset for future in futures] == list(range(len(good)))
    assert values(client, name, 0) == good


def test_a_small_buffer_only_slows_the_sender(
    face: Face, gateway: RunningGateway, client: Client, topic: str
) -> None:
    with face.producer(gateway.url, linger_ms=0, batch_size=300, buffer_memory=1_000) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(200)]
        assert [future.result().offset for future in futures] == list(range(200))
    assert values(client, topic, 0) == [b"%d" % number for number in range(200)]


def test_a_topic_made_anew_takes_what_was_not_sent_to_the_old_one(
    producer: Producer, client: Client, gateway: RunningGateway, topic: str
) -> None:
    for number in range(3):
        producer.send(topic, b"old %d" % number, partition=0).result()
    client.delete_topic(topic)
    gateway.create_topic(topic)
    assert producer.send(topic, b"new", partition=0).result().offset == 0
    assert values(client, topic, 0) == [b"new"]


def test_a_topic_made_anew_with_fewer_partitions_is_asked_for_again(
    face: Face, gateway: RunningGateway, client: Client
) -> None:
    name = f"shrunk-{face.name}"
    gateway.create_topic(name, partitions=8)
    with face.producer(gateway.url, linger_ms=0) as producer:
        while producer.send(name, b"1").result().partition != 3:
            pass
        client.delete_topic(name)
        gateway.create_topic(name)
        with pytest.raises(errors.UnknownPartition, match="no partition 4"):
            producer.send(name, b"2").result()
        assert producer.send(name, b"3").result().partition == 0


def test_what_no_gateway_tells_about_is_unreachable(face: Face) -> None:
    producer = face.producer(f"http://127.0.0.1:{free_port()}", max_block_ms=1)
    with pytest.raises(Unreachable, match="no gateway answers"):
        producer.send("t", b"1")
    producer.close()


def test_partitions_added_meanwhile_can_be_named(producer: Producer, client: Client, topic: str) -> None:
    producer.send(topic, b"1", partition=1).result()
    client.add_partitions(topic, 3)
    assert producer.send(topic, b"2", partition=2).result() == RecordMetadata(topic, 2, 0)


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"value": {"a": 1}}, TypeError),
        ({"value": "text"}, TypeError),
        ({"value": b"1", "key": 7}, TypeError),
        ({"value": b"1", "headers": [("h", "text")]}, TypeError),
        ({"value": b"1", "partition": "0"}, TypeError),
        ({"value": b"1", "timestamp_ms": 2**60}, errors.InvalidRecord),
    ],
)
def test_a_record_that_cannot_be_is_refused_alone_and_at_once(
    producer: Producer, topic: str, wrong: dict[str, Any], kind: type[Exception]
) -> None:
    fine = producer.send(topic, b"fine", partition=0)
    with pytest.raises(kind):
        producer.send(topic, **{"partition": 0, **wrong})
    assert fine.result().offset == 0
