"""A member of a group of Kafka's clients in a process of its own, which a test kills or halts.

`python -m tests.kit.kafka_member CLIENT BOOTSTRAP TOPIC GROUP` reads until it is ended. It prints what it has
read as `read PARTITION FROM TO` before it commits that, and `committed PARTITION OFFSET` after. Java's is
Kafka's VerifiableConsumer, which says the same in JSON.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException
from kafka import KafkaConsumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.errors import KafkaError

from tests.kit.kafka_programs import start_tool

SESSION_MS, HEARTBEAT_MS = 3_000, 300
MOST = 50
"""So many records are read between two commits."""

Place = tuple[int, int]


def _say(word: str, *numbers: int) -> None:
    sys.stdout.write(f"{' '.join([word, *map(str, numbers)])}\n")
    sys.stdout.flush()


def _note_read(places: Iterable[Place]) -> None:
    ends: dict[int, list[int]] = {}
    for partition, offset in places:
        ends.setdefault(partition, []).append(offset)
    for partition, offsets in ends.items():
        _say("read", partition, min(offsets), max(offsets))


CONSUMER = {"group.protocol": "consumer"}
"""Of a member by KIP-848: its terms are the coordinator's."""


def _classic(strategy: str) -> dict[str, Any]:
    return {
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": HEARTBEAT_MS,
        "partition.assignment.strategy": strategy,
    }


def _librdkafka(bootstrap: str, topic: str, group: str, terms: Mapping[str, Any]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **terms,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 100,
        }
    )
    consumer.subscribe([topic])
    uncommitted = False
    while True:
        found = [each for each in consumer.consume(MOST, 0.1) if each.error() is None]
        _note_read((each.partition() or 0, each.offset() or 0) for each in found)
        uncommitted = uncommitted or bool(found)
        if uncommitted:
            with suppress(KafkaException):
                for at in consumer.commit(asynchronous=False) or ():
                    if at.error is None and at.offset >= 0:
                        _say("committed", at.partition, at.offset)
                uncommitted = False  # else again: partitions are kept through a cooperative rebalance


def _kafka_python(bootstrap: str, topic: str, group: str) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=[RangePartitionAssignor],
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=100,
    )
    while True:
        with suppress(KafkaError):  # poll, too, raises it while no gateway listens
            polled = consumer.poll(100, MOST)
            _note_read((at.partition, each.offset) for at, records in polled.items() for each in records)
            if polled:
                consumer.commit()
                for at, records in polled.items():
                    _say("committed", at.partition, records[-1].offset + 1)


async def _aiokafka(bootstrap: str, topic: str, group: str) -> None:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        partition_assignment_strategy=(AiokafkaRange,),
    )
    await consumer.start()
    while True:
        with suppress(AiokafkaError):
            polled = await consumer.getmany(timeout_ms=100, max_records=MOST)
            _note_read((at.partition, each.offset) for at, records in polled.items() for each in records)
            if polled:
                ends = {at: records[-1].offset + 1 for at, records in polled.items()}
                await consumer.commit(ends)
                for at, end in ends.items():
                    _say("committed", at.partition, end)


def _run_aiokafka(bootstrap: str, topic: str, group: str) -> None:
    asyncio.run(_aiokafka(bootstrap, topic, group))


CLIENTS: dict[str, Callable[[str, str, str], None]] = {
    "librdkafka": partial(_librdkafka, terms=_classic("range")),
    "librdkafka-consumer": partial(_librdkafka, terms=CONSUMER),
    "kafka-python": _kafka_python,
    "aiokafka": _run_aiokafka,
    "librdkafka-cooperative": partial(_librdkafka, terms=_classic("cooperative-sticky")),
}

ASSIGNORS = {
    "java": "org.apache.kafka.clients.consumer.RangeAssignor",
    "java-consumer": "",
    "java-cooperative": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
"""Of the members that are Kafka's VerifiableConsumer; by KIP-848 they have none of their own."""


def _start_java(member: "KafkaMember", directory: Path) -> "subprocess.Popen[bytes]":
    """Start the Java consumer. One that keeps partitions in a rebalance commits by itself, because the tool
    repeats no failed commit.
    """
    config, keeps = directory / f"{member.client}.properties", member.client != "java"
    is_classic = member.client != "java-consumer"
    own = f"heartbeat.interval.ms={HEARTBEAT_MS}\n" if is_classic else ""
    config.write_text(
        f"{own}max.poll.records={MOST}\nauto.commit.interval.ms=200\n"
        "reconnect.backoff.ms=10\nreconnect.backoff.max.ms=100\n"
    )
    terms = ["--group-protocol", "consumer"]
    if is_classic:
        terms = ["--session-timeout", str(SESSION_MS), "--assignment-strategy", ASSIGNORS[member.client]]
    return start_tool(
        "VerifiableConsumer",
        *("--bootstrap-server", member.bootstrap, "--topic", member.topic, "--group-id", member.group),
        *("--reset-policy", "earliest", "--command-config", str(config), *terms),
        *(("--enable-autocommit",) if keeps else ()),
        output=member.output,
    )


def _words(line: str) -> Iterator[list[str]]:
    """Translate a line of Kafka's VerifiableConsumer into the words that other members print."""
    said: dict[str, Any] = json.loads(line) if line.startswith("{") else {"name": ""}
    if said["name"] == "records_consumed":
        for each in said["partitions"]:
            yield ["read", *(str(each[name]) for name in ("partition", "minOffset", "maxOffset"))]
    elif said["name"] == "offsets_committed" and said["success"]:
        for each in said["offsets"]:
            yield ["committed", str(each["partition"]), str(each["offset"])]


@dataclass
class KafkaMember:
    """The process of one, and all that it has said."""

    client: str
    bootstrap: str
    topic: str
    group: str
    directory: Path
    output: IO[bytes] = field(default_factory=lambda: TemporaryFile("a+b"))  # noqa: SIM115 -- as the process
    """Its process writes to the end of it, wherever this one reads."""

    def __post_init__(self) -> None:
        if self.client in ASSIGNORS:
            self.process = _start_java(self, self.directory)
            return
        arguments = (self.client, self.bootstrap, self.topic, self.group)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.kit.kafka_member", *arguments],
            stdout=self.output,
            cwd=Path(__file__).parents[2],
        )

    def said(self) -> Iterator[list[str]]:
        """The words of each line."""
        self.output.seek(0)
        for line in self.output.read().decode().split("\n")[:-1]:
            if self.client in ASSIGNORS:
                yield from _words(line)
            else:
                yield line.split()

    def read(self) -> set[Place]:
        """The partition and offset of each record that it has read."""
        found: set[Place] = set()
        for word, *numbers in self.said():
            if word == "read":
                partition, first, last = map(int, numbers)
                found.update((partition, offset) for offset in range(first, last + 1))
        return found

    def committed(self) -> dict[int, int]:
        """The highest offset of each partition that it knows to have committed."""
        found: dict[int, int] = {}
        for word, *numbers in self.said():
            if word == "committed":
                partition, offset = map(int, numbers)
                found[partition] = max(offset, found.get(partition, 0))
        return found

    def close(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    CLIENTS[sys.argv[1]](*sys.argv[2:])
