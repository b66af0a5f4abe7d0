"""Clients of Kafka that go on at a promoted standby, which lacks the last records that they have read.

The new log has grown past their offset when they ask again: by its epoch they hear that it is another one.
"""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.root.promote import promote
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, kafka_gateway, librdkafka_reader, produce
from tests.kit.kafka_programs import start_tool
from tests.kit.partitions import append_each
from tests.kit.standby import follow
from tests.kit.support import WAIT_S, wait_until

OLD = [b"old-%d" % number for number in range(3)]
LOST = [b"lost-%d" % number for number in range(4)]
NEW = [b"new-%d" % number for number in range(9)]


@dataclass
class Scene:
    """A gateway at an address that the one of the promoted standby takes over."""

    directory: Path
    gateway: KafkaGateway

    def promote(self) -> None:
        """The root is lost, and its standby is promoted, which lacks LOST and gets NEW."""
        self.gateway.kill()
        store, clock = open_store(str(self.directory / "b")), SystemClock()
        promote(store, clock)
        cluster = Cluster.open(store, clock, create=False)
        append_each(cluster.claim(cluster.topic("t"), 0), NEW)
        self.gateway.data = self.directory / "b"
        self.gateway.start()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with kafka_gateway(tmp_path / "a") as gateway:
        gateway.create_topic("t")
        produce(gateway.bootstrap, "t", OLD)
        follow(open_store(str(tmp_path / "a")), open_store(str(tmp_path / "b")))
        produce(gateway.bootstrap, "t", LOST)
        yield Scene(tmp_path, gateway)


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """The values of the next records, past errors that pass."""
    found: list[bytes | None] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None
        if message.error() is None:
            found.append(message.value())
    return found


def test_librdkafka_goes_back_to_where_both_are_alike(scene: Scene) -> None:
    settings = {"auto.offset.reset": "earliest", "enable.partition.eof": False}
    with closing(librdkafka_reader(scene.gateway.bootstrap, **settings)) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert read(consumer, 7) == OLD + LOST
        scene.promote()
        assert read(consumer, len(NEW)) == NEW


def test_librdkafka_tells_its_program_if_it_is_to(scene: Scene) -> None:
    with closing(librdkafka_reader(scene.gateway.bootstrap, **{"enable.partition.eof": False})) as consumer:
        consumer.assign([TopicPartition("t", 0, 0)])
        assert read(consumer, 7) == OLD + LOST
        scene.promote()
        message = consumer.poll(WAIT_S)
        error = None if message is None else message.error()
        assert error is not None
        assert error.name() == "_AUTO_OFFSET_RESET"
        assert "truncation" in error.str()


@dataclass
class JavaReader:
    """Java's consumer, which prints what it reads of `t`."""

    said: Path
    process: "subprocess.Popen[bytes]"

    def values(self) -> list[bytes]:
        return self.said.read_bytes().split()


@contextmanager
def java_reader(scene: Scene, *arguments: str, options: Sequence[str] = ()) -> Iterator[JavaReader]:
    """One that has read OLD and LOST, with more arguments, in a JVM with these options."""
    said = scene.directory / "said.txt"
    told = ("--bootstrap-server", scene.gateway.bootstrap, "--topic", "t", "--partition", "0", *arguments)
    with said.open("wb") as output:
        process = start_tool("consumer.ConsoleConsumer", *told, output=output, options=options)
        try:
            reader = JavaReader(said, process)
            wait_until(lambda: reader.values() == OLD + LOST, "it has read all")
            yield reader
        finally:
            process.kill()
            process.wait()


def test_java_goes_back_to_where_both_are_alike(scene: Scene) -> None:
    with java_reader(scene, "--offset", "earliest") as reader:
        scene.promote()
        wait_until(lambda: len(reader.values()) >= 7 + len(NEW), "it has read on")
        assert reader.values() == OLD + LOST + NEW


def test_java_tells_its_program_if_it_is_to(scene: Scene) -> None:
    """The console's consumer ends by any error; the JVM notes what was thrown."""
    thrown = scene.directory / "thrown.txt"
    log, told = f"-Xlog:exceptions=info:file={thrown}", ("--command-property", "auto.offset.reset=none")
    with java_reader(scene, "--offset", "0", *told, options=[log]) as reader:
        scene.promote()
        reader.process.wait(WAIT_S)
        assert reader.values() == OLD + LOST
    text = thrown.read_text()
    assert "LogTruncationException" in text
    assert "divergent offsets {t-0=OffsetAndMetadata{offset=3, leaderEpoch=0" in text
