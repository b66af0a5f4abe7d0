"""A consumer group of the soak: members by librdkafka, which note what they read before they commit it."""

import threading
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException

from bench.soak.account import Numbers

_MOST = 500
_WAIT_S = 0.2


class GroupMember(threading.Thread):
    """A member of `group` that reads the topic from its start on until it is ended."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        super().__init__(name=f"member of {group}")
        self.read = Numbers()
        self._ending = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 1_000,
                "log_level": 2,
            }
        )
        self._consumer.subscribe([topic])

    def run(self) -> None:
        while not self._ending.is_set():
            found = [each for each in self._consumer.consume(_MOST, _WAIT_S) if each.error() is None]
            for message in found:
                value = message.value()
                assert isinstance(value, bytes)
                self.read.note_value(value)
            if found:
                with suppress(KafkaException):  # the next commit says it again, or another member reads again
                    self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join()
