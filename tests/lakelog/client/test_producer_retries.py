"""Both faces of a producer through lost answers and deaths of the gateway: each record once, in order."""

from collections import defaultdict
from pathlib import Path

import httpx
import pytest

from lakelog import Client
from log_tables import errors
from log_tables.clock import ManualClock
from log_tables.errors import Unreachable
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway
from tests.kit.producing import Careless, every_second, revive, values
from tests.kit.support import free_port, wait_until


def deliver_through_deaths(
    face: Face, data: Path, deaths: int, transport: httpx.BaseTransport | None = None
) -> None:
    """Send numbers while the gateway dies again and again: each is stored once, those of a key in order."""
    port, count = free_port(), 200
    gateway = revive(data, port)
    gateway.create_topic("t", partitions=2)
    with face.producer(gateway.url, linger_ms=0, batch_size=200, transport=transport) as producer:
        futures = []
        for number in range(deaths):
            numbers = range(number * count, (number + 1) * count)
            futures += [producer.send("t", b"%d" % each, b"key-%d" % (each % 5)) for each in numbers]
            futures[number * count + 40].result()
            gateway.kill()
            gateway = revive(data, port)
        placed = [future.result() for future in futures]
    found, by_key = {}, defaultdict(list)
    with Client(gateway.url) as client:
        for partition in range(2):
            for record in client.read("t", partition):
                found[partition, record.offset] = record.value
                by_key[record.key].append(int(record.value or b"-1"))
    gateway.stop()
    assert found == {(each.partition, each.offset): b"%d" % n for n, each in enumerate(placed)}
    assert len(found) == deaths * count
    assert all(numbers == sorted(numbers) for numbers in by_key.values())


def test_every_record_is_there_once_however_often_the_gateway_dies(face: Face, tmp_path: Path) -> None:
    deliver_through_deaths(face, tmp_path, deaths=2)


@pytest.mark.torture
def test_every_record_is_there_once_through_many_deaths_and_lost_answers(
    face: Face, tmp_path: Path, seed: int
) -> None:
    draw = ManualClock(seed=seed)
    deliver_through_deaths(face, tmp_path, 20, Careless(lambda _: draw.random() < 0.1))


def test_what_is_not_delivered_in_time_fails_and_later_records_are_delivered(
    face: Face, tmp_path: Path
) -> None:
    port = free_port()
    gateway = revive(tmp_path, port)
    gateway.create_topic("t")
    with face.producer(gateway.url, linger_ms=0, delivery_timeout_ms=5_000) as producer:
        assert producer.send("t", b"before").result().offset == 0
        gateway.kill()
        lost = producer.send("t", b"meanwhile")
        with pytest.raises(Unreachable, match="not delivered in time, and not written: no gateway answers"):
            lost.result()
        gateway = revive(tmp_path, port)
        assert producer.send("t", b"after").result().offset == 1
    with Client(gateway.url) as client:
        assert values(client, "t", 0) == [b"before", b"after"]
    gateway.stop()


def test_a_lost_answer_is_asked_for_again_by_the_very_same_request(
    face: Face, gateway: RunningGateway, client: Client, topic: str
) -> None:
    careless = Careless(every_second)
    with face.producer(gateway.url, linger_ms=0, batch_size=20, transport=careless) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(50)]
        assert [future.result().offset for future in futures] == list(range(50))
    assert values(client, topic, 0) == [b"%d" % number for number in range(50)]
    assert careless.requests[0::2] == careless.requests[1::2]
    sequences = [int(stamp["producer-seq"]) for stamp, _ in careless.requests[0::2]]
    assert sequences == sorted(set(sequences))
    assert {stamp["producer-epoch"] for stamp, _ in careless.requests} == {"0"}


def test_without_sequences_a_lost_answer_is_told_and_nothing_is_repeated(
    face: Face, gateway: RunningGateway, client: Client, topic: str
) -> None:
    with face.producer(gateway.url, acks="0", linger_ms=0, transport=Careless(every_second)) as producer:
        with pytest.raises(errors.OutcomeUnknown, match="may be in the log or not"):
            producer.send(topic, b"1", partition=0).result()
        assert producer.send(topic, b"2", partition=0).result().offset is None
    wait_until(lambda: client.offsets(topic, 0).end == 2, "both are written")


def test_a_full_buffer_says_so_when_nothing_leaves_it(face: Face, tmp_path: Path) -> None:
    gateway = revive(tmp_path, free_port())
    gateway.create_topic("t")
    gateway.produce("t", 0)
    producer = face.producer(gateway.url, buffer_memory=1_000, max_block_ms=1, delivery_timeout_ms=3_000)
    producer.send("t", b"1").result()
    gateway.kill()
    for number in range(3):
        producer.send("t", b"%d" % number).add_done_callback(lambda _: None)
    with pytest.raises(errors.BufferFull, match="of 1000 bytes wait"):
        producer.send("t", b"3")
    producer.close()
