"""The future of a record: who is told that it failed, and what a callback may do."""

import gc
import subprocess
import sys
from collections.abc import Callable
from queue import Queue
from threading import enumerate as enumerate_threads
from weakref import ref

import pytest

from lakelog import Client, Producer
from lakelog.client.producer.delivery import (
    REMEMBERED_MAX,
    BatchResult,
    Delivery,
    RecordMetadata,
    Undelivered,
)
from log_tables import errors
from tests.kit.faces import Face
from tests.kit.gateway import RunningGateway
from tests.kit.producing import Refusing, values
from tests.kit.run_credential import is_secured
from tests.kit.support import wait_until


@pytest.fixture
def refused(face: Face, gateway: RunningGateway) -> Producer:
    return face.producer(gateway.url, linger_ms=0, transport=Refusing())


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
    face: Face, gateway: RunningGateway, topic: str, linger_ms: float
) -> None:
    producer = face.producer(gateway.url, linger_ms=linger_ms, transport=Refusing())
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


def test_the_futures_of_others_in_the_batch_are_still_to_be_told(
    face: Face, gateway: RunningGateway, topic: str
) -> None:
    producer = face.producer(gateway.url, linger_ms=60_000, transport=Refusing())
    sent = [producer.send(topic, b"no", partition=0) for _ in range(3)]
    for _ in range(2):
        sent[1].add_done_callback(lambda _: None)
    with pytest.raises(errors.InvalidRecord, match="2 records were not delivered") as told:
        producer.close()
    assert told.value.details["records"] == 2


def test_who_stops_waiting_for_a_future_has_not_taken_it(
    face: Face, gateway: RunningGateway, topic: str
) -> None:
    producer = face.producer(gateway.url, linger_ms=60_000, transport=Refusing())
    with pytest.raises(TimeoutError):
        producer.send(topic, b"no", partition=0).result(timeout_s=0)
    with pytest.raises(errors.InvalidRecord):
        producer.flush()
    producer.close()


def test_the_error_that_ended_the_block_is_kept_and_has_a_note(refused: Producer, topic: str) -> None:
    refused.send(topic, b"no", partition=0)
    with pytest.raises(ZeroDivisionError) as ended, refused:
        refused.send(topic, b"%d" % (1 // 0), partition=0)
    (note,) = ended.value.__notes__
    assert note.endswith("Producer: 1 record was not delivered; the first: no; say yes")


def test_a_producer_that_is_dropped_sends_what_it_has_and_says_so(
    gateway: RunningGateway, client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(gateway.url, linger_ms=60_000)
    sent = producer.send(topic, b"waits", partition=0)
    gone = ref(producer)
    with pytest.warns(ResourceWarning, match="was not closed"):
        del producer
    assert gone() is None
    assert "1 record in it may be lost" in caplog.text
    assert sent.result().offset == 0
    wait_until(lambda: not any(t.name == "lakelog-producer" for t in enumerate_threads()), "its threads end")
    assert values(client, topic, 0) == [b"waits"]


def test_a_program_that_ends_without_closing_says_what_may_be_lost(
    gateway: RunningGateway, topic: str
) -> None:
    key = ", credential=Credential.api_key(os.environ['LAKELOG_API_KEY'])" if is_secured() else ""
    program = (
        "import os\n"
        "from lakelog import Credential, Producer\n"
        f"producer = Producer({gateway.url!r}, linger_ms=60_000{key})\n"
        f"producer.send({topic!r}, b'1')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "a producer was not closed, and 1 record in it may be lost" in done.stderr
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
    assert told.message == f"{2 * REMEMBERED_MAX:,} records were not delivered; the first: number 0"
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
    logged = f"topic {topic} did not get 1 record: no; say yes"
    wait_until(lambda: bool(gc.collect() or True) and logged in caplog.text, "it is logged")
