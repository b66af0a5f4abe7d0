"""Producers of Kafka's clients that write through deaths of gateways, and a look at what they left."""

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryFile
from typing import Protocol

from tests.kit.kafka import Read, Sent, librdkafka_producer
from tests.kit.kafka_programs import start_tool
from tests.kit.support import WAIT_S, wait_until

KEYS = 7

ENDED_AMID_SEND = (
    "Producer closed while send in progress",
    "Cannot perform operation after producer has been closed",
)
"""What Java says of the one value whose sending its own end interrupts: it was never sent."""


class Load(Protocol):
    """An idempotent producer that sends numbered values until it is ended."""

    def answered(self) -> int:
        """How many values are acknowledged so far."""

    def end(self) -> Sent:
        """Send nothing more, wait for the answers; what they say."""


class LibrdkafkaLoad:
    """librdkafka, in a thread: values of KEYS keys, numbered in the order in which they are sent."""

    def __init__(self, bootstrap: str, topic: str, **config: object) -> None:
        self._sent, self._topic = Sent(), topic
        own = {"enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 50}
        self._producer = librdkafka_producer(bootstrap, **{**own, **config})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            key = b"key%d" % (number % KEYS)
            try:
                self._producer.produce(self._topic, b"%d" % number, key, on_delivery=self._sent.note)
            except BufferError:
                self._producer.poll(0.1)
                continue
            number += 1
            self._producer.poll(0 if number % 20 else 0.001)
            if len(self._producer) > 2_000:
                self._producer.poll(0.01)

    def answered(self) -> int:
        return len(self._sent.placed)

    def end(self) -> Sent:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0
        return self._sent


class JavaLoad:
    """Kafka's VerifiableProducer: idempotent by default, numbered values without keys or of KEYS keys."""

    def __init__(self, bootstrap: str, topic: str, directory: Path, throughput: int = 2_000) -> None:
        config = directory / "producer.properties"
        config.write_text(
            "enable.idempotence=true\nretries=2147483647\nretry.backoff.ms=10\nreconnect.backoff.ms=10\n"
            f"reconnect.backoff.max.ms=100\nlinger.ms=1\ndelivery.timeout.ms={int(WAIT_S * 1_000)}\n"
        )
        # It writes to the end, wherever this process reads.
        self._output = TemporaryFile("a+b")  # noqa: SIM115 -- it is closed in the end
        self._process = start_tool(
            "VerifiableProducer",
            "--bootstrap-server",
            bootstrap,
            "--topic",
            topic,
            "--command-config",
            str(config),
            "--throughput",
            str(throughput),
            "--repeating-keys",
            str(KEYS),
            "--acks",
            "-1",
            output=self._output,
        )

    def _lines(self) -> list[str]:
        self._output.seek(0)
        return self._output.read().decode().splitlines()

    def answered(self) -> int:
        assert self._process.poll() is None, f"it has ended: {self._lines()[-3:]}"
        return sum('"producer_send_success"' in line for line in self._lines())

    def end(self) -> Sent:
        self._process.terminate()
        self._process.wait(WAIT_S)
        sent = Sent()
        for line in self._lines():
            if not line.startswith("{"):
                continue
            said = json.loads(line)
            if said["name"] == "producer_send_success":
                sent.placed[said["value"].encode()] = (said["partition"], said["offset"])
            elif said["name"] == "producer_send_error" and said["message"] not in ENDED_AMID_SEND:
                sent.failed.append(f"{said['exception']}: {said['message']}")
        self._output.close()
        return sent


def survive(load: Load, times: int, strike: Callable[[int], None], between: Callable[[], int]) -> Sent:
    """Strike so many times, each time after `between()` more answers; returns all answers."""
    for number in range(times):
        _wait_for(load, between() + 1)
        strike(number)
    _wait_for(load, 50)
    return load.end()


def _wait_for(load: Load, more: int) -> None:
    goal = load.answered() + more
    wait_until(lambda: load.answered() >= goal, f"{more} more answers")


def check_log(sent: Sent, found: list[Read]) -> None:
    """Nothing acknowledged is lost or elsewhere, nothing doubled, each key's values are in their order."""
    assert sent.failed == [], f"these failed: {Counter(sent.failed)}"
    values = [each.value for each in found]
    assert [value for value, times in Counter(values).items() if times > 1] == []
    there = {(each.partition, each.offset): each.value for each in found}
    elsewhere = {value: place for value, place in sent.placed.items() if there.get(place) != value}
    # A repeat whose offset is forgotten is acknowledged without one (DUPLICATE_SEQUENCE_NUMBER).
    wrong = [each for each in elsewhere.items() if each[1][1] >= 0 or each[0] not in values]
    assert wrong == [], f"{len(wrong)} of {len(values)} are lost or elsewhere, such as {wrong[:20]}"
    numbers = defaultdict[bytes | None, list[int]](list)
    for each in found:
        numbers[each.key].append(int(each.value or b"-1"))
    assert [key for key, sequence in numbers.items() if sequence != sorted(sequence)] == []
