"""`kill -9` of a mirror, of the broker that it copies and of the gateway that serves the copies, under
producers and readers: the copy is equal, and nobody has read anything else.
"""

import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import KafkaException, Producer

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from tests.kit.forked import ForkedLakelog
from tests.kit.gateway import start_gateway
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME, cluster, equal, level, note, sound
from tests.kit.support import WAIT_S, exit_code, wait_until

__all__ = ["cluster"]

TOPICS, PARTITIONS, EACH = ("plain", "transactional"), 3, 20


class Load:
    """Records of an idempotent producer, and transactions of which every third is aborted."""

    def __init__(self, kafka: Broker) -> None:
        self._kafka, self._stopping, self.sent = kafka, threading.Event(), 0

    def _producer(self, **config: Any) -> Producer:
        own = {"bootstrap.servers": self._kafka.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        return Producer({**own, **config})

    def _transactional(self) -> Producer:
        producer = self._producer(**{"transactional.id": "load"})
        producer.init_transactions(WAIT_S)
        return producer

    def _run(self) -> None:
        plain, transactional = self._producer(**{"enable.idempotence": True}), self._transactional()
        while not self._stopping.is_set():
            numbers = range(self.sent, self.sent + EACH)
            for number in numbers:
                plain.produce("plain", b"%d" % number, b"%d" % (number % 50))
            try:
                self._transact(transactional, numbers)
            except KafkaException:  # the broker was killed amid its end, and the producer is done for
                transactional = self._transactional()
            plain.poll(0)
            self.sent += EACH
        assert plain.flush(WAIT_S) == 0

    def _transact(self, producer: Producer, numbers: range) -> None:
        producer.begin_transaction()
        for number in numbers:
            producer.produce("transactional", b"%d" % number, b"%d" % (number % 50))
        try:
            if self.sent % (3 * EACH) == 0:
                producer.abort_transaction(WAIT_S)
            else:
                producer.commit_transaction(WAIT_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(WAIT_S)

    def __enter__(self) -> "Load":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


class Reads:
    """The answers of a gateway of the copies to a reader of each partition that goes on from its last
    record, through every death of the gateway.
    """

    def __init__(self, data: str) -> None:
        self._data, self._stopping = data, threading.Event()
        self.found: dict[tuple[str, int], list[tuple[int, str]]] = {
            (topic, number): [] for topic in TOPICS for number in range(PARTITIONS)
        }
        self.refused: list[str] = []
        self.start()

    def start(self) -> None:
        self._gateway = start_gateway(self._data)

    def kill(self) -> None:
        self._gateway.kill()

    def _run(self) -> None:
        ends = dict.fromkeys(self.found, 0)
        while not self._stopping.wait(0.01):
            for (topic, number), end in ends.items():
                path = f"{self._gateway.url}/topics/{topic}/partitions/{number}/records"
                with suppress(httpx.TransportError):
                    answer = httpx.get(path, params={"offset": end}, timeout=30)
                    if answer.status_code == 200:
                        read = [(each["offset"], f"{each['value']}") for each in answer.json()]
                        self.found[topic, number] += read
                        ends[topic, number] = int(answer.headers["Next-Offset"])
                    elif answer.status_code not in (404, 503):  # before the topic is made, and at the end
                        self.refused.append(answer.text)

    def __enter__(self) -> "Reads":
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._gateway.stop()


class Mirror:
    """The process that copies."""

    def __init__(self, data: str, log: Path) -> None:
        self._words, self._log = ["mirror", "run", NAME, "--data", data], log
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as said:
            self._process = ForkedLakelog(
                self._words, {**os.environ, "LAKELOG_LOG_LEVEL": "info"}, said.fileno()
            )

    def kill(self) -> None:
        """End it at once. Had it ended before, that fails."""
        assert self._process.poll() is None, self._log.read_text()
        self._process.kill()
        exit_code(self._process)

    def stop(self) -> int:
        """End it in order; returns its exit code."""
        self._process.terminate()
        return exit_code(self._process)


def survive(kafka: Broker, cluster: Cluster, directory: Path, seed: int, kills: int) -> None:
    """Kill the mirror, the gateway and the broker in turn, while records come and are read."""
    draw, data = ManualClock(seed=seed), cluster.store.url
    for topic in TOPICS:
        kafka.create_topic(topic, PARTITIONS)
    note(cluster, kafka, *TOPICS)
    mirror = Mirror(data, directory / "mirror.txt")
    with Reads(data) as reads:
        with Load(kafka) as load:
            level(cluster, kafka)
            for number in range(kills):
                due = load.sent + EACH + int(draw.random() * 40 * EACH)
                wait_until(lambda due=due: load.sent >= due, "more was sent")  # type: ignore[misc]
                victim = (mirror, reads, mirror, kafka.program)[number % 4]
                victim.kill()
                victim.start()
                if victim is kafka.program:
                    kafka.await_ready()
        level(cluster, kafka, *TOPICS)
        sources = {topic: equal(cluster, kafka, topic) for topic in TOPICS}
        there: dict[tuple[str, int], list[tuple[int, str]]] = {place: [] for place in reads.found}
        for topic, records in sources.items():
            for each in records:
                there[topic, each.partition].append((each.offset, (each.value or b"").decode()))
        wait_until(lambda: reads.found == there or bool(reads.refused), "the reader has read all, once")
    assert reads.refused == []
    assert mirror.stop() == 0
    assert len(sources["plain"]) == load.sent
    assert 0 < len(sources["transactional"]) < load.sent
    sound(cluster)


def test_nothing_is_lost_doubled_or_reordered(
    kafka: Broker, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    survive(kafka, cluster, tmp_path, seed, 20)


@pytest.mark.torture
def test_nothing_is_lost_doubled_or_reordered_in_100_kills(
    kafka: Broker, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    survive(kafka, cluster, tmp_path, seed, 100)
