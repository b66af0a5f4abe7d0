"""A producer by Kafka's protocol at a pace, which notes when each record was acknowledged."""

import threading
from typing import Any, Self

from confluent_kafka import Producer

from log_tables.clock import timer


class Paced:
    """`pace` records of 100 bytes a second, over all partitions in turn, for `seconds` in a thread.

    `acknowledged` says by partition and offset when, by `timer`.
    """

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, pace: int, seconds: float, linger_ms: float = 0
    ) -> None:
        self.acknowledged: dict[tuple[int, int], float] = {}
        self._settings = {"bootstrap.servers": bootstrap, "linger.ms": linger_ms, "acks": "all"}
        self._topic, self._partitions, self._pace, self._seconds = topic, partitions, pace, seconds
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def runs(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        def note(_: object, message: Any) -> None:
            self.acknowledged[message.partition(), message.offset()] = timer()

        producer = Producer(self._settings)  # gone with this thread, before the broker is
        begin, sent = timer(), 0
        while (now := timer() - begin) < self._seconds:
            while sent < now * self._pace:
                producer.produce(self._topic, b"x" * 100, partition=sent % self._partitions, on_delivery=note)
                sent += 1
            producer.poll(0.001)
        producer.flush()
