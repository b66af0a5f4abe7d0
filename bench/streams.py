"""Kafka Streams counts words exactly once, at a gateway and at Kafka: the same application."""

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.cells import Figures, scratch
from bench.contest import OURS, Contest, Results, Scale
from bench.gateway import kafka_gateway, wait_until
from bench.peers import Peers
from log_tables.clock import timer
from tests.kit.programs import Program, java_program

PARTITIONS = 2
GROUP = "streams-count"
WORDS = [f"word-{number}" for number in range(1_000)]
COMMIT_INTERVAL_MS = 100
WITHIN_S = 600


def exactly_once(peers: Peers | None, scale: Scale) -> Results:
    """Lines of one word, which are there before the application starts, until it has committed them all; the
    store is in memory.
    """
    records = scale.seconds * 100_000
    with scratch() as directory, kafka_gateway(directory / "data") as (bootstrap, _):
        results = {OURS: _counted(bootstrap, records, directory / "ours")}
    if peers is not None:
        with scratch() as directory:
            results["Kafka"] = _counted(peers.bootstrap, records, directory / "kafka")
    return results


def _counted(bootstrap: str, records: int, directory: Path) -> Figures:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _made_anew(admin, "lines", "counts", f"{GROUP}-words-repartition", f"{GROUP}-counts-changelog")
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2 * records}
    )
    for number in range(records):
        producer.produce("lines", WORDS[number % len(WORDS)], str(number), partition=number % PARTITIONS)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    arguments = "count", bootstrap, str(directory / "state"), "memory", "exactly_once_v2"
    command = java_program("Streams", ["kafka", "kafka-streams"], *arguments, str(COMMIT_INTERVAL_MS))
    begin = timer()
    with Program(command, directory):
        wait_until(_has_committed(bootstrap, "lines"), "the lines are read", WITHIN_S)
        wait_until(_has_committed(bootstrap, f"{GROUP}-words-repartition"), "the words are counted", WITHIN_S)
        seconds = timer() - begin
    return {"records/s": records / seconds, "s": seconds}


def _made_anew(admin: AdminClient, *topics: str) -> None:
    there = admin.list_topics(timeout=10).topics
    for done in admin.delete_topics([each for each in topics if each in there] or ["none"]).values():
        done.exception()

    def is_made() -> bool:
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in topics[:2]])
        return all(done.exception() is None or "EXISTS" in str(done.exception()) for done in made.values())

    wait_until(is_made, "the topics are made")


def _has_committed(bootstrap: str, topic: str) -> Callable[[], bool]:
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})

    def has_committed() -> bool:
        try:
            found = reader.committed([TopicPartition(topic, number) for number in range(PARTITIONS)], 10)
            ends = [reader.get_watermark_offsets(each, 10)[1] for each in found]
        except KafkaException:
            return False
        # Behind the last record of Kafka's are markers of transactions.
        return all(0 < end <= each.offset + 2 for each, end in zip(found, ends, strict=True))

    return has_committed


CELLS: dict[str, Contest] = {"Kafka Streams: exactly once": Contest(exactly_once, needs_broker=True)}
