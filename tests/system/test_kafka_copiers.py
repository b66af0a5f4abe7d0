"""Programs that copy a topic, one by each client or framework, at the Kafka listener: they make their topics,
read as members of a group and write, while the gateway is killed and one of two of them is. Each record is
copied, in the order of its key, and the group's offsets end at the end.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from tests.kit.kafka import KafkaGateway, librdkafka_producer, read_all
from tests.kit.programs import (
    BINARIES,
    NODE_MODULES,
    PYTHON,
    SOURCES,
    Program,
    caught_up,
    java_program,
    needed,
    target,
)
from tests.kit.support import WAIT_S, free_port

pytestmark = pytest.mark.torture

COUNT, KEYS = 400, 20
SOURCE, TARGET, GROUP = "source", "target", "copiers"


@dataclass(frozen=True, slots=True)
class Copier:
    """`command` is followed by the bootstrap address, both topics, the group and its protocol. One without
    a group keeps its place itself, and runs once at a time.
    """

    command: Callable[[], Sequence[str]]
    protocol: str = "classic"
    grouped: bool = True


def python(name: str) -> Sequence[str]:
    """A program that has the clients of our own tests."""
    return [sys.executable, str(SOURCES / "python" / f"{name}.py")]


def framework(name: str) -> Sequence[str]:
    """A program whose framework has an environment of its own."""
    return [str(needed(PYTHON)), str(SOURCES / "python" / f"{name}.py")]


def node(name: str) -> Sequence[str]:
    needed(NODE_MODULES)
    return ["node", str(SOURCES / "node" / name)]


def binary(name: str) -> Sequence[str]:
    return [str(needed(BINARIES / name))]


COPIERS = {
    "kafkajs": Copier(partial(node, "kafkajs.js")),
    "platformatic": Copier(partial(node, "platformatic.mjs")),
    "kafka-go": Copier(partial(binary, "kafka-go")),
    "sarama": Copier(partial(binary, "sarama")),
    "franz": Copier(partial(binary, "franz")),
    "confluent": Copier(partial(python, "by_confluent")),
    "aiokafka": Copier(partial(python, "by_aiokafka")),
    "spring": Copier(partial(java_program, "Spring", ["spring"])),
    "flink": Copier(partial(java_program, "Flink", ["flink"]), grouped=False),
    "quix": Copier(partial(framework, "by_quix")),
    "faust": Copier(partial(framework, "by_faust")),
    "bytewax": Copier(partial(framework, "by_bytewax"), grouped=False),
    "rskafka": Copier(partial(binary, "rskafka-copier"), grouped=False),
}
BY_EITHER = ("platformatic", "franz", "confluent", "spring")
"""Those that know the groups of KIP-848, too."""

COPIERS |= {f"{name} by KIP-848": replace(COPIERS[name], protocol="consumer") for name in BY_EITHER}


def records(name: str) -> list[tuple[bytes, bytes]]:
    """Key and value of each record of a part of the test."""
    return [(b"key %d" % (number % KEYS), b"%s %d" % (name.encode(), number)) for number in range(COUNT)]


def feed(gateway: KafkaGateway, name: str, program: Program | None = None) -> None:
    """Write a part of the records; halfway through, kill the gateway, or `program`."""
    producer = librdkafka_producer(gateway.bootstrap, **{"enable.idempotence": True})
    for number, (key, value) in enumerate(records(name)):
        if number == COUNT // 2:
            producer.flush(WAIT_S)
            if program is None:
                gateway.kill()
            else:
                program.kill()
        producer.produce(SOURCE, value, key)
    if program is None:
        gateway.start()
    assert producer.flush(WAIT_S) == 0


@contextmanager
def same_broker(data: Path) -> Iterator[KafkaGateway]:
    """A gateway that is the same broker when it is started again: @platformatic/kafka ends where the group's
    coordinator is one that it has not heard of yet. Topics have two partitions also where a client makes them
    by asking for them, as Faust does.
    """
    settings: dict[str, object] = {
        "linger_ms": 0,
        "num_partitions": 2,
        "group_consumer_session_timeout_ms": 6_000,
    }
    with closing(KafkaGateway(data, settings, http_port=free_port())) as gateway:
        yield gateway


def members(gateway: KafkaGateway) -> int:
    """The members of the group that have partitions."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    described = admin.describe_consumer_groups([GROUP])[GROUP].result()
    return sum(bool(each.assignment.topic_partitions) for each in described.members)


def existing(gateway: KafkaGateway) -> bool:
    """Whether both topics are there, as the program makes them."""
    admin = AdminClient({"bootstrap.servers": gateway.bootstrap})
    found = admin.list_topics(timeout=WAIT_S).topics
    return all(len(found[topic].partitions) == 2 for topic in (SOURCE, TARGET) if topic in found) and (
        {SOURCE, TARGET} <= found.keys()
    )


def is_ordered(
    copied: Sequence[tuple[bytes | None, bytes | None]], expected: Sequence[tuple[bytes, bytes]]
) -> bool:
    """Whether each key has its values in their order, where a value counts when it is first there."""
    return sorted(dict.fromkeys(copied), key=lambda each: each[0] or b"") == sorted(
        expected, key=lambda each: each[0]
    )


@pytest.mark.parametrize("name", COPIERS)
def test_each_record_is_copied_through_kills(tmp_path: Path, name: str) -> None:
    copier, expected = COPIERS[name], [*records("quiet"), *records("gateway"), *records("program")]
    with ExitStack() as open_:
        gateway = open_.enter_context(same_broker(tmp_path / "root"))
        command = [*copier.command(), gateway.bootstrap, SOURCE, TARGET, GROUP, copier.protocol]
        first = open_.enter_context(Program(command, tmp_path / "first"))
        first.until(partial(existing, gateway), "it has made its topics")
        copies = open_.enter_context(target(gateway.bootstrap, TARGET))
        producer = librdkafka_producer(gateway.bootstrap)
        for key, value in records("quiet"):
            producer.produce(SOURCE, value, key)
        assert producer.flush(WAIT_S) == 0
        first.until(lambda: len(copies.values()) >= COUNT, "it has copied all")
        assert sorted(copies.values()) == sorted(value.upper() for _, value in records("quiet"))
        feed(gateway, "gateway")
        first.until(lambda: len({*copies.values()}) == 2 * COUNT, "so it has through a kill of the gateway")
        if copier.grouped:
            last = open_.enter_context(Program(command, tmp_path / "second"))
            last.until(lambda: members(gateway) == 2, "both programs have partitions")
            feed(gateway, "program", first)
        else:
            feed(gateway, "program", first)
            last = first
            last.start()
        last.until(lambda: len({*copies.values()}) == 3 * COUNT, "it has copied all after a kill of its own")
        if copier.grouped:
            last.until(partial(caught_up, gateway.bootstrap, GROUP, SOURCE), "it has committed the end")
        last.stop()
        copied = [(each.key, each.value) for each in read_all(gateway.bootstrap, TARGET, 2)]
    assert is_ordered(copied, [(key, value.upper()) for key, value in expected])
