"""`kill -9` of a mirror, and of the broker that it copies, under producers: the copy is equal."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer

from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME, cluster, equal, level, note, sound
from tests.kit.programs import Program
from tests.kit.support import WAIT_S

__all__ = ["cluster"]

TOPICS, PARTITIONS, EACH = ("plain", "transactional"), 3, 20


class Load:
    """Records of an idempotent producer, and transactions of which every third is aborted."""

    def __init__(self, kafka: Broker) -> None:
        self._kafka, self._stopping, self.sent = kafka, threading.Event(), 0

    def _run(self) -> None:
        own = {"bootstrap.servers": self._kafka.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200}
        plain = Producer({**own, "enable.idempotence": True})
        transactional = Producer({**own, "transactional.id": "load"})
        transactional.init_transactions(WAIT_S)
        while not self._stopping.is_set():
            with self._in_transaction(transactional):
                for number in range(self.sent, self.sent + EACH):
                    for producer, topic in ((plain, "plain"), (transactional, "transactional")):
                        producer.produce(topic, b"%d" % number, b"%d" % (number % 50))
            plain.poll(0)
            self.sent += EACH
        assert plain.flush(WAIT_S) == 0

    @contextmanager
    def _in_transaction(self, producer: Producer) -> Iterator[None]:
        producer.begin_transaction()
        yield
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


def survive(kafka: Broker, cluster: Cluster, directory: Path, seed: int, kills: int) -> None:
    """Kill the mirror again and again, every third time the broker, while records come."""
    draw = ManualClock(seed=seed)
    for topic in TOPICS:
        kafka.create_topic(topic, PARTITIONS)
    note(cluster, kafka, *TOPICS)
    command = [sys.executable, "-m", "lakelog", "mirror", "run", NAME, "--data", cluster.store.url]
    with Program(command, directory / "mirror") as mirror, Load(kafka) as load:
        for number in range(kills):
            due = load.sent + EACH + int(draw.random() * 40 * EACH)
            mirror.until(lambda due=due: load.sent >= due, "more was sent")  # type: ignore[misc]
            victim = kafka.program if number % 3 == 2 else mirror
            victim.kill()
            victim.start()
            if victim is not mirror:
                kafka.await_ready()
    with Program(command, directory / "last") as mirror:
        level(cluster, kafka, *TOPICS)
        mirror.stop()
    assert len(equal(cluster, kafka, "plain")) == load.sent
    assert 0 < len(equal(cluster, kafka, "transactional")) < load.sent
    sound(cluster)


def test_nothing_is_lost_doubled_or_reordered(
    kafka: Broker, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    survive(kafka, cluster, tmp_path, seed, 3)


@pytest.mark.torture
def test_nothing_is_lost_doubled_or_reordered_in_100_kills(
    kafka: Broker, cluster: Cluster, tmp_path: Path, seed: int
) -> None:
    survive(kafka, cluster, tmp_path, seed, 100)
