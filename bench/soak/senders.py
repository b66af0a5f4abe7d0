"""The producers of the soak: HTTP clients and a Kafka client. Each repeats what was not acknowledged."""

import http.client
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec
from confluent_kafka import Producer

from bench import load
from bench.soak.account import ANSWER_WITHIN_S, NO_ANSWER, Attempt, Numbers, Span, Value
from log_tables.clock import timer

USERS = 97
GIVEN_UP_AFTER_S = 120.0
"""When a sender ends, a request that has no answer yet is repeated for so long."""
_REST_S = 0.2
_TICK_S = 0.05
_MESSAGE_TIMEOUT_MS = 300_000
_TEXTS = [text.decode() for text in load.values(1_000)]
_encode = msgspec.json.Encoder().encode


def value(sender: str, number: int) -> bytes:
    """A record's value, some 160 bytes; one key in USERS is its user."""
    return _encode(Value(sender, number, f"user{number % USERS}", _TEXTS[number % len(_TEXTS)]))


class Sender(threading.Thread):
    """Sends records of one name, numbered from 0, at a steady rate until it is told to end."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.acknowledged = Numbers()
        self.failures: Counter[str] = Counter()
        """What was refused for good, by what was said; there should be none."""
        self._ending = threading.Event()

    def end(self) -> None:
        """Send nothing new, and wait until what was sent is acknowledged or given up."""
        self._ending.set()
        self.join()

    @abstractmethod
    def run(self) -> None:
        """Send until it ends."""


class HttpSender(Sender):
    """Bare values with keys, some in a request, each request with an Idempotency-Key.

    A request goes to the gateway that answered last, and to the next one where nothing listens, as it would
    behind a load balancer. Each is due at a fixed time, and sent when the one before it is answered.
    """

    def __init__(self, name: str, addresses: Sequence[str], topic: str, records: int, every_s: float) -> None:
        """Where the gateways listen, the first one first; so many records in a request, and how often."""
        super().__init__(name)
        self._addresses, self._path = [*addresses], f"/topics/{topic}/values?key=/user"
        self._records, self._every_s = records, every_s
        self._connection: http.client.HTTPConnection | None = None
        self.attempts: list[Attempt] = []

    def run(self) -> None:
        due, number = timer(), 0
        while not self._ending.wait(max(0.0, due - timer())):
            numbers = range(number, number + self._records)
            body = b"\n".join(value(self.name, each) for each in numbers)
            if self._delivered(body, f"{self.name}-{number}"):
                for each in numbers:
                    self.acknowledged.note(self.name, each)
            due, number = due + self._every_s, number + self._records
        self._hang_up()

    def _delivered(self, body: bytes, key: str) -> bool:
        """Send `body` until it is acknowledged, as long as the answers permit a repeat. Returns whether it
        was.
        """
        given_up_s = None
        while True:
            begin = timer()
            status = self._status(body, key)
            self.attempts.append(Attempt(Span(begin, timer()), status))
            if 200 <= status < 300:
                return True
            if status not in (NO_ANSWER, 429) and status < 500:
                self.failures[f"HTTP {status}"] += 1
                return False
            if self._ending.is_set():
                given_up_s = given_up_s or timer() + GIVEN_UP_AFTER_S
                if timer() > given_up_s:
                    return False
            threading.Event().wait(_REST_S)

    def _status(self, body: bytes, key: str) -> int:
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        for _ in self._addresses:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(self._addresses[0], timeout=ANSWER_WITHIN_S)
            try:
                self._connection.request("POST", self._path, body, headers)
                answer = self._connection.getresponse()
                answer.read()
            except ConnectionRefusedError:
                self._turn()
            except (OSError, http.client.HTTPException):
                self._turn()
                return NO_ANSWER
            else:
                if answer.status >= 500:
                    self._turn()
                return answer.status
        return NO_ANSWER

    def _turn(self) -> None:
        """The next request goes to the other gateway."""
        self._hang_up()
        self._addresses.append(self._addresses.pop(0))

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class KafkaSender(Sender):
    """librdkafka, idempotent, with keys."""

    def __init__(self, name: str, bootstrap: str, topic: str, records_per_s: float) -> None:
        super().__init__(name)
        self._topic, self._rate = topic, records_per_s
        own = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20}
        patient = {
            "message.timeout.ms": _MESSAGE_TIMEOUT_MS,
            "reconnect.backoff.max.ms": 1_000,
            "log_level": 2,
        }
        self._producer = Producer({**own, **patient})

    def run(self) -> None:
        begin, number = timer(), 0
        while not self._ending.wait(_TICK_S):
            wanted = int((timer() - begin) * self._rate)
            while number < wanted and self._queued(number):
                number += 1
            self._producer.poll(0)
        left = self._producer.flush(GIVEN_UP_AFTER_S)
        if left:
            self.failures["no answer in the end"] += left

    def _queued(self, number: int) -> bool:
        made = value(self.name, number)
        key = _encode(f"user{number % USERS}")
        try:
            self._producer.produce(
                self._topic, made, key, on_delivery=lambda error, _: self._note(error, number)
            )
        except BufferError:  # its queue is full: the gateways are away
            return False
        return True

    def _note(self, error: Any, number: int) -> None:
        if error is None:
            self.acknowledged.note(self.name, number)
        else:
            self.failures[error.name()] += 1
