"""lakelog.Producer against a real gateway: batches, order, and exactly once through its deaths."""

import gc
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from threading import enumerate as enumerate_threads
from typing import Any
from weakref import ref

import httpx
import pytest

from lakelog import Client, Producer
from lakelog.client.delivery import REMEMBERED_MAX, BatchResult, Delivery, RecordMetadata, Undelivered
from log_tables import errors
from log_tables.clock import ManualClock
from log_tables.errors import Unreachable
from log_tables.topic_partition import partition_for_key
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import free_port, wait_until


@pytest.fixture
def producer(gateway: RunningGateway) -> Iterator[Producer]:
    with Producer(gateway.url, linger_ms=0) as running:
        yield running


@pytest.fixture(scope="module")
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as running:
        yield running


class Counting(httpx.HTTPTransport):
    """The network, with a count of the produce requests that went through it."""

    def __init__(self) -> None:
        super().__init__()
        self.posts = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.posts += request.method == "POST"
        return super().handle_request(request)


def values(client: Client, topic: str, partition: int) -> list[bytes | None]:
    return [record.value for record in client.read(topic, partition)]


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
    assert [each.partition for each in placed] == [partition_for_key(key, 2) for key in keys]
    for partition in range(2):
        expected = [b"%d" % n for n, each in enumerate(placed) if each.partition == partition]
        assert values(client, topic, partition) == expected
        assert [each.offset for each in placed if each.partition == partition] == list(range(len(expected)))


def test_records_go_in_batches_and_those_without_a_key_move_on(gateway: RunningGateway, topic: str) -> None:
    counting = Counting()
    with Producer(gateway.url, linger_ms=60_000, batch_size=6_400, transport=counting) as producer:
        futures = [producer.send(topic, b"x" * 128) for _ in range(500)]
        producer.flush()
        partitions = [future.result().partition for future in futures]
    assert counting.posts == 10
    assert partitions == ([partitions[0]] * 50 + [1 - partitions[0]] * 50) * 5


def test_what_lingers_is_sent_by_flush_and_by_close(
    gateway: RunningGateway, client: Client, topic: str
) -> None:
    producer = Producer(gateway.url, linger_ms=60_000)
    first = producer.send(topic, b"1", partition=0)
    assert not first.done()
    producer.flush()
    assert first.done()
    second = producer.send(topic, b"2", partition=0)
    producer.close()
    assert second.result().offset == 1
    producer.close()
    assert values(client, topic, 0) == [b"1", b"2"]


def test_a_closed_producer_takes_nothing(gateway: RunningGateway, client: Client, topic: str) -> None:
    producer = Producer(gateway.url)
    producer.send(topic, b"1", partition=0).result()
    producer.close()
    for name in (topic, "never-asked-for"):
        with pytest.raises(errors.InvalidArgument, match="closed"):
            producer.send(name, b"2", partition=0)
    assert values(client, topic, 0) == [b"1"]


@pytest.mark.parametrize(("acks", "offset"), [("0", None), ("1", 0), ("all", 0)])
def test_every_acks_level_delivers(
    gateway: RunningGateway, client: Client, topic: str, acks: str, offset: int | None
) -> None:
    with Producer(gateway.url, acks=acks, linger_ms=0) as producer:
        assert producer.send(topic, b"1", partition=0).result().offset == offset
        producer.send(topic, b"2", partition=0).result()
    with Producer(gateway.url) as producer:
        assert producer.send(topic, b"3", partition=0).result().offset == 2
    assert values(client, topic, 0) == [b"1", b"2", b"3"]


def test_what_cannot_be_sent_says_why(producer: Producer, client: Client, gateway: RunningGateway) -> None:
    gateway.create_topic("tight", max_message_bytes="100")
    with pytest.raises(errors.UnknownTopic, match="nowhere"):
        producer.send("nowhere", b"1")
    with pytest.raises(errors.UnknownPartition, match="no partition 1; it has 0 to 0"):
        producer.send("tight", b"1", partition=1)
    with pytest.raises(errors.InvalidArgument, match="'2'"):
        Producer(gateway.url, acks="2")
    with pytest.raises(errors.RecordTooLarge, match="takes 100"):
        producer.send("tight", b"x" * 200)
    # The refused record took no place and no sequence.
    assert producer.send("tight", b"fits").result().offset == 0
    assert values(client, "tight", 0) == [b"fits"]


def test_a_bad_record_fails_alone_and_the_others_of_its_batch_keep_their_order(
    gateway: RunningGateway, client: Client
) -> None:
    gateway.create_topic("mixed", max_message_bytes="100")
    good, futures = [b"%d" % number for number in range(20)], []
    with Producer(gateway.url, linger_ms=60_000) as producer:
        for number, value in enumerate(good):
            futures.append(producer.send("mixed", value))
            with pytest.raises(errors.RecordTooLarge if number % 2 else errors.InvalidRecord):
                producer.send(
                    "mixed", b"x" * (200 if number % 2 else 1), timestamp_ms=10**15 * (1 - number % 2)
                )
        producer.flush()
        assert [future.result().offset for future in futures] == list(range(len(good)))
    assert values(client, "mixed", 0) == good


def test_a_small_buffer_only_slows_the_sender(gateway: RunningGateway, client: Client, topic: str) -> None:
    with Producer(gateway.url, linger_ms=0, batch_size=300, buffer_memory=1_000) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(200)]
        assert [future.result().offset for future in futures] == list(range(200))
    assert values(client, topic, 0) == [b"%d" % number for number in range(200)]


def revive(data: Path, port: int) -> RunningGateway:
    return start_gateway(data, "--port", str(port), linger_ms=0)


class Careless(httpx.HTTPTransport):
    """The network, which loses the answers to produce requests that `loses` says."""

    def __init__(self, loses: Callable[[int], bool]) -> None:
        super().__init__()
        self._loses = loses
        self.requests: list[tuple[dict[str, str], bytes]] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        if request.method == "POST":
            stamp = {name: value for name, value in request.headers.items() if name.startswith("producer-")}
            self.requests.append((stamp, request.read()))
            if self._loses(len(self.requests)):
                answer.close()
                raise httpx.ReadError("the connection was lost", request=request)
        return answer


def deliver_through_deaths(data: Path, deaths: int, transport: httpx.BaseTransport | None = None) -> None:
    """Send numbers while the gateway dies again and again: each is there once, those of a key in order."""
    port, count = free_port(), 200
    gateway = revive(data, port)
    gateway.create_topic("t", partitions=2)
    with Producer(gateway.url, linger_ms=0, batch_size=200, transport=transport) as producer:
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


def test_every_record_is_there_once_however_often_the_gateway_dies(tmp_path: Path) -> None:
    deliver_through_deaths(tmp_path, deaths=2)


@pytest.mark.torture
def test_every_record_is_there_once_through_many_deaths_and_lost_answers(tmp_path: Path, seed: int) -> None:
    draw = ManualClock(seed=seed)
    deliver_through_deaths(tmp_path, 20, Careless(lambda _: draw.random() < 0.1))


def test_what_is_not_delivered_in_time_fails_and_later_records_are_delivered(tmp_path: Path) -> None:
    port = free_port()
    gateway = revive(tmp_path, port)
    gateway.create_topic("t")
    with Producer(gateway.url, linger_ms=0, delivery_timeout_ms=5_000) as producer:
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


def every_second(number: int) -> bool:
    return number % 2 == 1


def test_a_lost_answer_is_asked_for_again_by_the_very_same_request(
    gateway: RunningGateway, client: Client, topic: str
) -> None:
    careless = Careless(every_second)
    with Producer(gateway.url, linger_ms=0, batch_size=20, transport=careless) as producer:
        futures = [producer.send(topic, b"%d" % number, partition=0) for number in range(50)]
        assert [future.result().offset for future in futures] == list(range(50))
    assert values(client, topic, 0) == [b"%d" % number for number in range(50)]
    assert careless.requests[0::2] == careless.requests[1::2]
    sequences = [int(stamp["producer-seq"]) for stamp, _ in careless.requests[0::2]]
    assert sequences == sorted(set(sequences))
    assert {stamp["producer-epoch"] for stamp, _ in careless.requests} == {"0"}


def test_without_sequences_a_lost_answer_is_told_and_nothing_is_repeated(
    gateway: RunningGateway, client: Client, topic: str
) -> None:
    with Producer(gateway.url, acks="0", linger_ms=0, transport=Careless(every_second)) as producer:
        with pytest.raises(errors.OutcomeUnknown, match="may be in the log or not"):
            producer.send(topic, b"1", partition=0).result()
        assert producer.send(topic, b"2", partition=0).result().offset is None
    wait_until(lambda: client.offsets(topic, 0).end == 2, "both are written")


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
    gateway: RunningGateway, client: Client
) -> None:
    gateway.create_topic("shrunk", partitions=8)
    with Producer(gateway.url, linger_ms=0) as producer:
        while producer.send("shrunk", b"1").result().partition != 3:
            pass
        client.delete_topic("shrunk")
        gateway.create_topic("shrunk")
        with pytest.raises(errors.UnknownPartition, match="no partition 4"):
            producer.send("shrunk", b"2").result()
        assert producer.send("shrunk", b"3").result().partition == 0


def test_a_full_buffer_says_so_when_nothing_leaves_it(tmp_path: Path) -> None:
    gateway = revive(tmp_path, free_port())
    gateway.create_topic("t")
    gateway.produce("t", 0)
    producer = Producer(gateway.url, buffer_memory=1_000, max_block_ms=1, delivery_timeout_ms=3_000)
    producer.send("t", b"1").result()
    gateway.kill()
    for number in range(3):
        producer.send("t", b"%d" % number).add_done_callback(lambda _: None)
    with pytest.raises(errors.BufferFull, match="of 1000 bytes wait"):
        producer.send("t", b"3")
    producer.close()


def test_what_no_gateway_tells_about_is_unreachable() -> None:
    producer = Producer(f"http://127.0.0.1:{free_port()}", max_block_ms=1)
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


class Refusing(httpx.HTTPTransport):
    """The network, with a gateway at its end that refuses every record whose value begins with `no`."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST" and b"no" in request.read():
            return httpx.Response(422, json={"error_code": 42206, "message": "no; say yes"})
        return super().handle_request(request)


@pytest.fixture
def refused(gateway: RunningGateway) -> Producer:
    return Producer(gateway.url, linger_ms=0, transport=Refusing())


def test_flush_raises_for_what_was_not_delivered_once(refused: Producer, client: Client, topic: str) -> None:
    with refused:
        refused.send(topic, b"no", partition=0)
        refused.send(topic, b"no", partition=1)
        refused.send(topic, b"yes", partition=1)
        with pytest.raises(errors.InvalidRecord, match=r"not delivered; the first: no") as told:
            refused.flush()
        assert told.value.details["records"] in {2, 3}  # the last may share a batch with the one before
        refused.flush()
        refused.send(topic, b"yes", partition=0)
    assert values(client, topic, 0) == [b"yes"]


@pytest.mark.parametrize("linger_ms", [0, 60_000])
def test_leaving_the_block_raises_for_what_was_not_delivered(
    gateway: RunningGateway, topic: str, linger_ms: float
) -> None:
    producer = Producer(gateway.url, linger_ms=linger_ms, transport=Refusing())
    with pytest.raises(errors.InvalidRecord, match="1 record was not delivered; the first: no"), producer:
        producer.send(topic, b"no", partition=0)
    producer.close()  # a second time has nothing to say


@pytest.mark.parametrize("taken", ["result", "exception", "callback"])
def test_whoever_took_the_future_is_not_told_again(refused: Producer, topic: str, taken: str) -> None:
    with refused:
        sent = refused.send(topic, b"no", partition=0)
        if taken == "result":
            with pytest.raises(errors.InvalidRecord):
                sent.result()
        elif taken == "exception":
            assert isinstance(sent.exception(), errors.InvalidRecord)
        else:
            sent.add_done_callback(lambda _: None)


def test_the_futures_of_others_in_the_batch_are_still_to_be_told(gateway: RunningGateway, topic: str) -> None:
    producer = Producer(gateway.url, linger_ms=60_000, transport=Refusing())
    sent = [producer.send(topic, b"no", partition=0) for _ in range(3)]
    for _ in range(2):
        sent[1].add_done_callback(lambda _: None)
    with pytest.raises(errors.InvalidRecord, match="2 records were not delivered") as told:
        producer.close()
    assert told.value.details["records"] == 2


def test_who_stops_waiting_for_a_future_has_not_taken_it(gateway: RunningGateway, topic: str) -> None:
    producer = Producer(gateway.url, linger_ms=60_000, transport=Refusing())
    with pytest.raises(TimeoutError):
        producer.send(topic, b"no", partition=0).result(timeout_s=0)
    with pytest.raises(errors.InvalidRecord):
        producer.flush()
    producer.close()


def test_the_error_that_ended_the_block_is_kept_and_has_a_note(refused: Producer, topic: str) -> None:
    refused.send(topic, b"no", partition=0)
    with pytest.raises(ZeroDivisionError) as ended, refused:
        refused.send(topic, b"%d" % (1 // 0), partition=0)
    assert ended.value.__notes__ == ["lakelog.Producer: 1 record was not delivered; the first: no; say yes"]


def test_a_producer_that_is_dropped_sends_what_it_has_and_says_so(
    gateway: RunningGateway, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(gateway.url, linger_ms=60_000)
    sent = producer.send(topic, b"waits", partition=0)
    gone = ref(producer)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del producer
    assert gone() is None
    assert "1 records that wait in it may be lost" in caplog.text
    assert sent.result().offset == 0
    wait_until(lambda: not any(t.name == "lakelog-producer" for t in enumerate_threads()), "its threads end")
    assert values(client, topic, 0) == [b"waits"]


def test_a_program_that_ends_without_closing_says_what_may_be_lost(
    gateway: RunningGateway, topic: str
) -> None:
    program = (
        "from lakelog import Producer\n"
        f"producer = Producer({gateway.url!r}, linger_ms=60_000)\n"
        f"producer.send({topic!r}, b'1')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a producer was not closed, and 1 records that wait in it may be lost" in done.stderr
    closing = subprocess.run(
        [sys.executable, "-c", program + "import atexit; atexit.register(producer.close)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert closing.stderr == ""


def test_of_very_many_failures_the_first_is_kept_and_all_are_counted() -> None:
    undelivered, held = Undelivered(), []
    for number in range(2 * REMEMBERED_MAX):
        outcome = BatchResult("t", 0)
        outcome.join()
        undelivered.add(outcome, errors.InvalidRecord(f"number {number}"))
        held.append(outcome)
    told = undelivered.pop()
    assert isinstance(told, errors.InvalidRecord)
    assert told.message == f"{2 * REMEMBERED_MAX} records were not delivered; the first: number 0"
    assert undelivered.pop() is None


def test_a_failure_that_is_no_error_of_ours_is_told_too() -> None:
    undelivered, outcome = Undelivered(), BatchResult("t", 0)
    outcome.join()
    undelivered.add(outcome, MemoryError("no room"))
    told = undelivered.pop()
    assert isinstance(told, errors.LakelogError)
    assert isinstance(told.__cause__, MemoryError)


def test_callbacks_hear_of_every_record_and_do_no_harm(producer: Producer, topic: str) -> None:
    heard: Queue[RecordMetadata] = Queue()

    def tell(delivery: Delivery) -> None:
        heard.put(delivery.result())
        raise ValueError("a mistake in a callback")

    sent = producer.send(topic, b"1", partition=0)
    sent.add_done_callback(tell)
    assert heard.get(timeout=30) == RecordMetadata(topic, 0, 0)
    sent.add_done_callback(tell)
    assert heard.get(timeout=30) == RecordMetadata(topic, 0, 0)
    assert producer.send(topic, b"2", partition=0).result().offset == 1


WAITS: list[Callable[[Producer, Delivery], object]] = [
    lambda producer, _: producer.flush(),
    lambda producer, _: producer.close(),
    lambda _, more: more.result(),
    lambda _, more: more.exception(timeout_s=60),
]


@pytest.mark.parametrize("wait", WAITS, ids=["flush", "close", "result", "exception"])
def test_a_callback_may_send_more_and_is_told_that_it_cannot_wait_for_it(
    gateway: RunningGateway, topic: str, wait: Callable[[Producer, Delivery], object]
) -> None:
    told: Queue[Exception] = Queue()
    producer = Producer(gateway.url, linger_ms=0, buffer_memory=1, max_block_ms=5_000)

    def send_more(_: Delivery) -> None:
        more = producer.send(topic, b"2", partition=0)
        try:
            wait(producer, more)
        except errors.InvalidArgument as error:
            told.put(error)

    with producer:
        producer.send(topic, b"1", partition=0).add_done_callback(send_more)
        assert "cannot wait for its own producer" in str(told.get(timeout=30))
        producer.flush()
        assert producer.send(topic, b"3", partition=0).result().offset == 2


def test_a_callback_may_wait_for_another_producer(gateway: RunningGateway, topic: str) -> None:
    heard: Queue[RecordMetadata] = Queue()
    with Producer(gateway.url, linger_ms=0) as first, Producer(gateway.url, linger_ms=0) as other:

        def pass_on(_: Delivery) -> None:
            heard.put(other.send(topic, b"2", partition=0).result())

        first.send(topic, b"1", partition=0).add_done_callback(pass_on)
        assert heard.get(timeout=30) == RecordMetadata(topic, 0, 1)


def test_an_error_that_nobody_can_ask_for_any_more_is_logged(
    gateway: RunningGateway, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(gateway.url, linger_ms=60_000, transport=Refusing())
    producer.send(topic, b"no", partition=0)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del producer
    logged = f"1 records for topic {topic} are not delivered: no; say yes"
    wait_until(lambda: bool(gc.collect() or True) and logged in caplog.text, "it is logged")
