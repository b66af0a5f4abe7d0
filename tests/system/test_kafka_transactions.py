"""Transactions of Kafka's clients through deaths of gateways and of clients: each record is copied once, in
order, and no version of any table has a record of an aborted transaction.
"""

import sys
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import LEADER_TIMEOUT_MS
from tests.kit.kafka import KafkaGateway, librdkafka_producer, read_all
from tests.kit.kafka_copier import ABORTED
from tests.kit.kafka_versions import values_of_all_versions
from tests.kit.programs import Program
from tests.kit.support import WAIT_S, free_port

SOURCE, TARGET, PARTITIONS = "source", "target", 3
RECORDS = 600


def copier(bootstrap: str, directory: Path, seed: int) -> Program:
    """A process that copies, and begins again where it was when it is started again."""
    command = [sys.executable, "-m", "tests.kit.kafka_copier", bootstrap, SOURCE, TARGET, "copier", str(seed)]
    return Program(command, directory)


def copied(bootstrap: str) -> dict[int, list[bytes]]:
    """The values of the target, by partition."""
    found: dict[int, list[bytes]] = {partition: [] for partition in range(PARTITIONS)}
    for read in read_all(bootstrap, TARGET, PARTITIONS):
        found[read.partition].append(read.value or b"")
    return found


def sent(bootstrap: str, first: int, count: int) -> None:
    """Write numbered records to the source, to one partition after the other."""
    producer = librdkafka_producer(bootstrap, **{"enable.idempotence": True})
    for number in range(first, first + count):
        producer.produce(SOURCE, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def survive(directory: Path, seed: int, kills: int) -> None:
    """Two gateways and a copier, one of which is killed, again and again."""
    draw, root = ManualClock(seed=seed), directory / "root"
    settings: dict[str, object] = {"linger_ms": 1, "leader_timeout_ms": LEADER_TIMEOUT_MS}
    with ExitStack() as open_:
        gateways = [
            open_.enter_context(closing(KafkaGateway(root, settings, http_port=free_port())))
            for _ in range(2)
        ]
        bootstrap = ",".join(each.bootstrap for each in gateways)
        for topic in (SOURCE, TARGET):
            gateways[0].create_topic(topic, PARTITIONS)
        program = open_.enter_context(copier(bootstrap, directory / "copier", seed))
        each = RECORDS // (kills + 1)
        for number in range(kills):
            sent(bootstrap, number * each, each)
            program.until(partial(has, bootstrap, number * each + 1), "it has copied some of them")
            struck = int(draw.random() * 3)
            victim = program if struck == 2 else gateways[struck]
            victim.kill()
            victim.start()
        sent(bootstrap, kills * each, each)
        most = (kills + 1) * each
        program.until(partial(has, bootstrap, most), "it has copied all of them")
        expected = {
            partition: [b"%d" % number for number in range(most) if number % PARTITIONS == partition]
            for partition in range(PARTITIONS)
        }
        assert copied(bootstrap) == expected
    assert check(open_store(root)).problems == []
    assert not [value for value in values_of_all_versions(root, TARGET) if value == ABORTED]


def has(bootstrap: str, count: int) -> bool:
    """Whether the target has so many records."""
    return len(read_all(bootstrap, TARGET, PARTITIONS)) >= count


def test_ten_deaths(tmp_path: Path) -> None:
    survive(tmp_path, seed=1, kills=10)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(10))
def test_a_hundred_deaths(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, seed, kills=10)
