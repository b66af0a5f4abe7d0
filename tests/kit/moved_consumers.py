"""Consumers that move from a real Kafka to a gateway under a producer's load: one setting changes."""

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from jobs.mirror.groups_moved import await_groups
from log_tables.cluster.cluster import Cluster
from tests.kit.kafka import KafkaGateway, librdkafka_producer
from tests.kit.kafka_broker import Broker
from tests.kit.mirror_groups import group_sync
from tests.kit.support import WAIT_S, wait_until

MOVERS = 4
"""Consumers that move at once."""


class Load:
    """A producer of a few records at a time, in turn to all partitions of a topic."""

    def __init__(self, kafka: Broker, topic: str, partitions: int, pause_s: float) -> None:
        self._producer = librdkafka_producer(kafka.bootstrap, **{"linger.ms": 0})
        self._topic, self.partitions, self._pause_s = topic, partitions, pause_s
        self._stopping, self.rounds = threading.Event(), 0
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            for partition in range(self.partitions):
                self._producer.produce(self._topic, b"%d" % self.rounds, partition=partition)
            self._producer.poll(0)
            self.rounds += 1

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def stop(self) -> None:
        """Send no more; all that was sent is at the source then."""
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0

    def __exit__(self, *_: object) -> None:
        self.stop()


class Moving:
    """A consumer that notes each record as done, and commits: now and then, and when it is stopped."""

    def __init__(self, group: str, topic: str, terms: Mapping[str, Any]) -> None:
        self.group = group
        self._topic, self._terms = topic, terms
        self.done: list[tuple[int, int]] = []
        self._stack = ExitStack()

    def start(self, bootstrap: str) -> None:
        """Consume at `bootstrap`: nothing else changes."""
        self._stopping = threading.Event()
        self._pool = self._stack.enter_context(ThreadPoolExecutor(1))
        self._running = self._pool.submit(self._run, bootstrap)

    def leave(self) -> None:
        """Begin to leave the group."""
        self._stopping.set()

    def stop(self) -> None:
        """Leave the group, with all committed that is done."""
        self.leave()
        self._running.result(WAIT_S)
        self._stack.close()

    def _run(self, bootstrap: str) -> None:
        own = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        with closing(Consumer({"bootstrap.servers": bootstrap, **own, **self._terms})) as consumer:
            consumer.subscribe([self._topic], on_revoke=_commit_of)
            while not self._stopping.is_set():
                message = consumer.poll(0.2)
                if message is None:
                    continue
                assert message.error() is None, str(message.error())
                self.done.append((message.partition() or 0, message.offset() or 0))
                if len(self.done) % 50 == 0:
                    _commit_of(consumer, consumer.assignment())
            _commit_of(consumer, consumer.assignment())


def _commit_of(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    """Commit all that is done of these partitions: somebody else goes on there."""
    positions = [each for each in consumer.position(partitions) if each.offset >= 0] if partitions else []
    if positions:
        wait_until(lambda: _is_committed(consumer, positions), "the commit is taken")


def _is_committed(consumer: Consumer, positions: list[TopicPartition]) -> bool:
    """A commit amid a change of the assignment is refused, and repeated (KIP-848)."""
    try:
        return all(each.error is None for each in consumer.commit(offsets=positions, asynchronous=False))
    except KafkaException as error:
        if error.args[0].code() != KafkaError.STALE_MEMBER_EPOCH:
            raise
        return False


@contextmanager
def consuming(kafka: Broker, members: list[Moving]) -> Iterator[None]:
    """The consumers run at the source, and are stopped in the end, wherever they are."""
    with ExitStack() as stack:
        stack.callback(stop_all, members)
        for each in members:
            each.start(kafka.bootstrap)
        yield


def stop_all(members: list[Moving]) -> None:
    """Have all of them leave at once: each that leaves alone has the others share anew."""
    for each in members:
        each.leave()
    for each in members:
        each.stop()


def move(cluster: Cluster, kafka: Broker, gateway: KafkaGateway, members: list[Moving]) -> None:
    """Move the members of one group: stop them, have its offsets brought over, and start them here."""
    stop_all(members)
    with group_sync(cluster, kafka) as sync:
        await_groups(sync, [members[0].group], WAIT_S, cluster.clock)
    for each in members:
        each.start(gateway.bootstrap)


def move_all(
    cluster: Cluster, kafka: Broker, gateway: KafkaGateway, groups: list[list[Moving]], load: Load
) -> None:
    """Move these groups one after the other, a few at once, and wait until all records are done."""
    members = [each for group in groups for each in group]
    with consuming(kafka, members):
        wait_until(lambda: all(each.done for each in members), "each consumer has begun at the source")
        with ThreadPoolExecutor(MOVERS) as pool:
            for moved in [pool.submit(move, cluster, kafka, gateway, group) for group in groups]:
                moved.result()
        before = [len(each.done) for each in members]
        wait_until(
            lambda: all(len(each.done) > had for each, had in zip(members, before, strict=True)),
            "each consumer goes on here",
        )
        load.stop()
        wait_until(lambda: all(_is_through(group, load) for group in groups), "all is consumed")


def _is_through(group: list[Moving], load: Load) -> bool:
    last = {(partition, load.rounds - 1) for partition in range(load.partitions)}
    return last <= {at for each in group for at in each.done}


def check_once(group: list[Moving], load: Load) -> None:
    """Check that a group has done each record once."""
    done = sorted(at for each in group for at in each.done)
    assert done == [(p, at) for p in range(load.partitions) for at in range(load.rounds)]
