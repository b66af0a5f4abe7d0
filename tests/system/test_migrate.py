"""docs/migrate.md, from its first command to its last, at a real Kafka and a gateway of its own."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from jobs.mirror.source import Source
from log_tables.cluster.admin.mirror_admin import copies_of
from log_tables.cluster.admin.mirror_progress import places_of, progress
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.house.test_docs import code_blocks
from tests.kit.connect import JARS
from tests.kit.kafka import librdkafka_producer, read_all
from tests.kit.kafka_broker import Broker, broker
from tests.kit.kafka_programs import kcat, tool_command
from tests.kit.programs import java_class_path, java_command
from tests.kit.support import ROOT, WAIT_S, free_port, wait_until

PAGE = (ROOT / "docs" / "migrate.md").read_text()
COMMANDS = [block for block in code_blocks(PAGE, "sh") if "connect-mirror-maker" not in block]
(BACK,) = (block for block in code_blocks(PAGE, "sh") if "connect-mirror-maker" in block)
(BACK_PROPERTIES,) = code_blocks(PAGE, "properties")

KAFKA, LISTENER = "kafka1:9092", "127.0.0.1:9092"
AMOUNT_SCHEMA = {"type": "record", "name": "Payment", "fields": [{"name": "amount", "type": "long"}]}
PAID = (5, 6)
READ, WRITTEN = (3, 2), (6, 4)
"""Of each partition of the orders: how many records the group has read at Kafka, and how many there are."""


class Shell:
    """A bash that runs blocks of the page, one after the other, in `directory`."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._said, self._blocks = directory / "said.txt", 0
        with self._said.open("wb") as said, (directory / "errors.txt").open("wb") as errors:
            self._process = subprocess.Popen(
                ["bash", "-e"],
                cwd=directory,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=said,
                stderr=errors,
                start_new_session=True,
            )
        self._errors = directory / "errors.txt"

    def run(self, block: str) -> str:
        """Run a block to its end; returns what it printed. Fails if a command does."""
        assert self._process.stdin is not None
        self._blocks += 1
        mark = f"end of block {self._blocks}"
        before = len(self._said.read_text())
        self._process.stdin.write(f"{block}\necho {mark}\n".encode())
        self._process.stdin.flush()
        wait_until(lambda: mark in self._said.read_text()[before:] or self._process.poll() is not None, block)
        said = self._said.read_text()[before:]
        assert mark in said, f"{block}\n{said}\n{self._errors.read_text()}"
        return said.removesuffix(f"{mark}\n")

    def kill(self) -> None:
        """End it, and all that it has started."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextmanager
def shell(directory: Path, kafka: Broker, listener: str) -> Iterator[Callable[[str], str]]:
    """Run blocks of the page, with their programs, at these addresses."""
    programs = directory / "bin"
    programs.mkdir()
    commands = {
        "lakelog": [sys.executable, "-m", "lakelog"],
        "kafka-acls": tool_command("AclCommand"),
        "kafka-consumer-groups": tool_command("consumer.group.ConsumerGroupCommand"),
    }
    if (ROOT / ".tools" / JARS[-1]).exists():
        mirror_maker = "org.apache.kafka.connect.mirror.MirrorMaker"
        class_path = f"{_logging_jars()}:{java_class_path(*JARS)}"
        java, *arguments = java_command(class_path, mirror_maker)
        commands["connect-mirror-maker"] = [java, "-Dlog4j2.level=INFO", *arguments]
    for name, command in commands.items():
        words = " ".join(f"'{word}'" for word in command)
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    port = free_port()
    others = {name: text for name, text in os.environ.items() if not name.startswith("LAKELOG_")}
    environment = {
        **others,
        "PYTHONPATH": str(ROOT),
        "PATH": f"{programs}:{os.environ['PATH']}",
        "LAKELOG_PORT": str(port),
        "LAKELOG_URL": f"http://127.0.0.1:{port}",
    }
    running = Shell(directory, environment)

    def run(block: str) -> str:
        return running.run(at_addresses(block, kafka, listener))

    try:
        yield run
    finally:
        running.kill()


def _logging_jars() -> str:
    """Jars of Spark by which Kafka's programs log: ours of Kafka have none."""
    jars = Path(pyspark.__file__).parent / "jars"
    names = ("slf4j-api", "log4j-api", "log4j-core", "log4j-slf4j2-impl")
    return ":".join(str(jar) for name in names for jar in sorted(jars.glob(f"{name}-*.jar")))


def at_addresses(text: str, kafka: Broker, listener: str) -> str:
    """A text of the page, with the addresses that are really there."""
    text = text.replace(LISTENER, listener).replace(KAFKA, kafka.bootstrap)
    return text.replace("--kafka-port 9092", f"--kafka-port {listener.rpartition(':')[2]}")


def order(partition: int, number: int) -> str:
    return json.dumps({"partition": partition, "number": number})


def fill(kafka: Broker) -> None:
    """Make what the page moves: orders in JSON, payments in Avro and their schemas, a group, an ACL."""
    for name, partitions, config in (
        ("orders", len(WRITTEN), {}),
        ("shop.payments", 1, {}),
        ("_schemas", 1, {"cleanup_policy": "compact"}),
    ):
        kafka.create_topic(name, partitions, **config)
    producer = librdkafka_producer(kafka.bootstrap)
    for partition, count in enumerate(WRITTEN):
        for number in range(count):
            producer.produce("orders", order(partition, number), f"key {number}", partition=partition)
    known = {"subject": "shop.payments-value", "version": 1}
    schema = {**known, "id": 1, "schema": json.dumps(AMOUNT_SCHEMA), "deleted": False}
    producer.produce("_schemas", json.dumps(schema), json.dumps({"keytype": "SCHEMA", **known, "magic": 1}))
    for amount in PAID:
        producer.produce("shop.payments", b"\0\0\0\0\1" + bytes([2 * amount]))  # as Avro writes small longs
    assert producer.flush(WAIT_S) == 0
    committed(kafka.bootstrap, READ)
    acl = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:billing",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    (made,) = kafka.admin.create_acls([acl]).values()
    made.result(WAIT_S)


def committed(bootstrap: str, offsets: Sequence[int] = ()) -> list[int]:
    """The offsets of the group at a cluster, after these were committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing"})
    if offsets:
        named = [TopicPartition("orders", number, offset) for number, offset in enumerate(offsets)]
        consumer.commit(offsets=named, asynchronous=False)
    asked = [TopicPartition("orders", number) for number in range(len(WRITTEN))]
    found = [each.offset for each in consumer.committed(asked, WAIT_S)]
    consumer.close()
    return found


def wait_for_copies(root: Path, kafka: Broker) -> None:
    """Wait until all topics are here, and at the ends of their sources."""
    source = Source(kafka.bootstrap)

    def level() -> bool:
        if not root.exists():
            return False
        cluster = Cluster.open(open_store(root), create=False)
        copies = copies_of(cluster, "shop")
        found = progress(cluster, "shop", source.ranges(places_of(copies)))
        return len(copies) == 3 and all(each.lag == 0 for each in found)

    wait_until(level, "the copies are at the ends of their sources")


def start_back(run: Callable[[str], str], directory: Path, kafka: Broker, listener: str) -> None:
    """Start MirrorMaker as the page says, and wait for what it says."""
    (directory / "back.properties").write_text(at_addresses(BACK_PROPERTIES, kafka, listener))
    run(BACK)
    log = directory / "back.log"
    wait_until(
        lambda: all(
            f"Resetting offset for partition orders-{number} to position" in log.read_text()
            for number in range(len(WRITTEN))
        ),
        "MirrorMaker begins at the ends",
    )


@pytest.mark.parametrize(
    "back", [False, pytest.param(True, marks=pytest.mark.torture)], ids=["there", "and back"]
)
def test_the_page_leads_from_kafka_to_lakelog(tmp_path: Path, back: bool) -> None:
    kcat("-V")
    if back:
        java_class_path(*JARS)
    listener, root = f"127.0.0.1:{free_port()}", tmp_path / "lakelog-data"
    with (
        broker(tmp_path / "kafka", super_users="User:ANONYMOUS") as kafka,
        shell(tmp_path, kafka, listener) as run,
    ):
        fill(kafka)
        said: dict[str, str] = {}
        for block in COMMANDS:
            said[block] = run(block)
            if "lakelog mirror run" in block:
                wait_for_copies(root, kafka)
            if "lakelog mirror promote shop --topic orders\n" in block and back:
                start_back(run, tmp_path, kafka, listener)

        def shown(command: str) -> str:
            (found,) = (text for block, text in said.items() if command in block)
            return found

        rows = re.findall(r"^ +(\d) +(\d+)", shown('max(\\"offset\\")'), re.MULTILINE)
        assert [int(count) for _, count in rows] == [*WRITTEN]
        assert re.search(r"TOPIC +orders +LITERAL +User:billing +\* +READ +ALLOW", shown("lakelog acl list"))
        rest = [order(each, number) for each in range(2) for number in range(READ[each], WRITTEN[each])]
        assert sorted(shown("kcat -b 127.0.0.1:9092 -G").splitlines()) == sorted(rest)
        assert re.search(rf"^ +{sum(PAID)}$", shown("shop.payments_json"), re.MULTILINE)
        assert committed(kafka.bootstrap) == [*WRITTEN]
        new = [each for each in read_all(listener, "orders", 2) if each.value == b'{"amount": 7}']
        assert [(each.partition, each.offset) for each in new] == [(0, WRITTEN[0])]
        if back:
            ours = read_all(listener, "orders", 2)
            wait_until(lambda: read_all(kafka.bootstrap, "orders", 2) == ours, "Kafka has what is here")
        run("kill %1\nwait %1 || test $? -eq 143\nwait %2")
    assert check(open_store(root)).problems == []
