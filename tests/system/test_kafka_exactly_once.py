"""Programs that copy a topic exactly once, one by each client that has transactions, at the Kafka listener:
each record is copied once, in order, and no version of any table has what they wrote and aborted.
"""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import LEADER_TIMEOUT_MS
from tests.kit.kafka import UNKNOWN_OFFSET, KafkaGateway, librdkafka_producer, read_all
from tests.kit.kafka_copier import ABORTED
from tests.kit.kafka_programs import GO_CLIENTS
from tests.kit.kafka_versions import values_of_all_versions
from tests.kit.programs import NODE_MODULES, SOURCES, Program, caught_up, java_program, needed
from tests.kit.support import WAIT_S, free_port

SOURCE, TARGET, PARTITIONS = "source", "target", 2
COUNT = 200


class Offsets(Enum):
    """How a client gives the offset of a record while its transaction is open."""

    UNKNOWN = auto()
    COUNTED = auto()
    """-1 of the first record of a batch, 0 of the next one, and so on."""

    UNSAID = auto()


@dataclass(frozen=True, slots=True)
class Copier:
    """`command` is followed by the bootstrap addresses, both topics, the group, `how` and an id. `requests`
    are those of its transactions, if it tells of them.
    """

    command: Callable[[], Sequence[str]]
    how: Sequence[str] = ()
    offsets: Offsets = Offsets.UNKNOWN
    requests: Collection[str] = ()
    kills: int = 10

    def started(self, bootstrap: str, directory: Path, source: str, target: str) -> Program:
        """Running."""
        told = bootstrap, source, target, group_of(source), *self.how, f"id-{source}"
        return Program([*self.command(), *told], directory)


def group_of(source: str) -> str:
    """The group that reads a topic."""
    return f"copiers-of-{source}"


def node(name: str) -> Sequence[str]:
    needed(NODE_MODULES)
    return ["node", str(SOURCES / "node" / name)]


def python(name: str) -> Sequence[str]:
    return [sys.executable, str(SOURCES / "python" / f"{name}.py")]


def binary(name: str) -> Sequence[str]:
    return [str(needed(GO_CLIENTS / name))]


VERSION_1 = "AddPartitionsToTxn v3", "Produce v11", "AddOffsetsToTxn v4", "TxnOffsetCommit v4", "EndTxn v4"
VERSION_2 = "Produce v13", "TxnOffsetCommit v5", "EndTxn v5"
"""The requests of a transaction, by the version that the two sides agree on (KIP-890)."""

COPIERS = {
    "aiokafka": Copier(partial(python, "by_aiokafka_once"), offsets=Offsets.COUNTED),
    "kafkajs": Copier(partial(node, "kafkajs_once.js")),
    "sarama": Copier(partial(binary, "kafka-sarama-once"), offsets=Offsets.COUNTED),
    "franz": Copier(partial(binary, "kafka-franz-once"), ["2"], requests=VERSION_2),
    "franz-as-of-3.9": Copier(partial(binary, "kafka-franz-once"), ["1"], requests=VERSION_1),
    "java": Copier(partial(java_program, "Once", ["kafka"]), ["classic"]),
    "java-by-KIP-848": Copier(partial(java_program, "Once", ["kafka"]), ["consumer"]),
    "spring": Copier(partial(java_program, "Spring", ["spring"]), ["classic"], kills=4),
    "spring-by-KIP-848": Copier(partial(java_program, "Spring", ["spring"]), ["consumer"], kills=4),
    "flink": Copier(partial(java_program, "Flink", ["flink"]), ["INCREMENTING"], Offsets.UNSAID),
    "flink-pooling": Copier(partial(java_program, "Flink", ["flink"]), ["POOLING"], Offsets.UNSAID),
}
SLOW = ("java-by-KIP-848", "spring", "spring-by-KIP-848", "flink", "flink-pooling")


def records(first: int, count: int) -> list[tuple[int, bytes]]:
    """Partition and value of each record."""
    return [(number % PARTITIONS, b"number %d" % number) for number in range(first, first + count)]


def sent(bootstrap: str, topic: str, first: int, count: int) -> None:
    producer = librdkafka_producer(bootstrap, **{"enable.idempotence": True})
    for partition, value in records(first, count):
        producer.produce(topic, value, value, partition=partition)
    assert producer.flush(WAIT_S) == 0


def copied(bootstrap: str, topic: str) -> list[tuple[int, bytes]]:
    """Partition and value of each record of a target, by partition and offset."""
    return [(each.partition, each.value or b"") for each in read_all(bootstrap, topic, PARTITIONS)]


def has(bootstrap: str, topic: str, count: int) -> bool:
    return len(copied(bootstrap, topic)) >= count


def expected(count: int) -> list[tuple[int, bytes]]:
    return sorted(
        ((partition, value.upper()) for partition, value in records(0, count)), key=lambda each: each[0]
    )


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    with closing(KafkaGateway(tmp_path_factory.mktemp("root"), {"linger_ms": 0})) as gateway:
        yield gateway


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.torture] * (each in SLOW)) for each in COPIERS]
)
def test_each_record_is_copied_once(door: KafkaGateway, tmp_path: Path, name: str) -> None:
    copier, source, target = COPIERS[name], f"source-{name}", f"target-{name}"
    for topic in (source, target):
        door.create_topic(topic, PARTITIONS)
    sent(door.bootstrap, source, 0, COUNT)
    with copier.started(door.bootstrap, tmp_path, source, target) as program:
        program.until(partial(has, door.bootstrap, target, COUNT), "it has copied all")
        done = partial(caught_up, door.bootstrap, group_of(source), source)
        program.until(done, "it has committed the end")
    assert copied(door.bootstrap, target) == expected(COUNT)
    assert ABORTED not in {*values_of_all_versions(Path(door.data), target)}
    said = [line.split(" ", 1) for line in program.said().splitlines() if " " in line]
    offsets = {int(last) for first, last in said if first == "offset"}
    if copier.offsets is Offsets.UNSAID:
        assert not offsets
    else:
        assert min(offsets) == UNKNOWN_OFFSET
        assert (len(offsets) > 1) == (copier.offsets is Offsets.COUNTED)
    assert not copier.requests or {last for first, last in said if first == "wrote"} == {*copier.requests}


def survive(directory: Path, copier: Copier, seed: int) -> None:
    """Three gateways and a program, one of which is killed, again and again. Each coordinates some ids."""
    draw, root, kills = ManualClock(seed=seed), directory / "root", copier.kills
    settings: dict[str, object] = {
        "linger_ms": 1,
        "leader_timeout_ms": LEADER_TIMEOUT_MS,
        "offsets_topic_num_partitions": 12,
    }
    with ExitStack() as open_:
        gateways = [
            open_.enter_context(closing(KafkaGateway(root, settings, http_port=free_port())))
            for _ in range(3)
        ]
        bootstrap = ",".join(each.bootstrap for each in gateways)
        for topic in (SOURCE, TARGET):
            gateways[0].create_topic(topic, PARTITIONS)
        program = open_.enter_context(copier.started(bootstrap, directory / "copier", SOURCE, TARGET))
        for number in range(kills):
            sent(bootstrap, SOURCE, number * COUNT, COUNT)
            program.until(partial(has, bootstrap, TARGET, number * COUNT + 1), "it has copied some of them")
            struck = int(draw.random() * 4)
            victim = program if struck == 3 else gateways[struck]
            victim.kill()
            victim.start()
        sent(bootstrap, SOURCE, kills * COUNT, COUNT)
        most = (kills + 1) * COUNT
        program.until(partial(has, bootstrap, TARGET, most), "it has copied all of them")
        program.until(partial(caught_up, bootstrap, group_of(SOURCE), SOURCE), "it has committed the end")
        assert copied(bootstrap, TARGET) == expected(most)
    assert check(open_store(root)).problems == []
    assert ABORTED not in {*values_of_all_versions(root, TARGET)}


@pytest.mark.torture
@pytest.mark.parametrize("name", COPIERS)
def test_each_record_is_copied_once_through_kills(tmp_path: Path, name: str) -> None:
    survive(tmp_path, COPIERS[name], seed=len(name))


@pytest.mark.torture
def test_each_record_is_copied_once_through_a_hundred_kills(tmp_path: Path) -> None:
    survive(tmp_path, replace(COPIERS["java"], kills=100), seed=100)
