"""`kill -9` of gateways under idempotent producers of Kafka's clients: what was acknowledged is there once,
and the values of each key are in the order in which they were sent.
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.limits import BRIEF_PRODUCER_MAX_MS
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import LEADER_TIMEOUT_MS
from tests.kit.kafka import Sent, balanced, kafka_gateway, librdkafka_producer, read_all
from tests.kit.kafka_load import JavaLoad, LibrdkafkaLoad, Load, check_log, survive
from tests.kit.kafka_programs import tool_command
from tests.kit.support import WAIT_S, wait_until

TOPIC, PARTITIONS = "ledger", 3

Begin = Callable[[str, Path], Load]

PRODUCERS: dict[str, Begin] = {
    "librdkafka": lambda bootstrap, _: LibrdkafkaLoad(bootstrap, TOPIC),
    "java": lambda bootstrap, directory: JavaLoad(bootstrap, TOPIC, directory),
}


def survive_kills(directory: Path, producer: str, seed: int, kills: int) -> None:
    """One gateway, which is killed and started again."""
    draw, root = ManualClock(seed=seed), directory / "root"
    with kafka_gateway(root, linger_ms=1) as gateway:
        gateway.create_topic(TOPIC, PARTITIONS)

        def strike(_: int) -> None:
            gateway.kill()
            gateway.start()

        load = PRODUCERS[producer](gateway.bootstrap, directory)
        sent = survive(load, kills, strike, lambda: int(draw.random() * 1_000))
        check_log(sent, read_all(gateway.bootstrap, TOPIC, PARTITIONS))
    assert check(open_store(root)).problems == []


def survive_hand_overs(directory: Path, producer: str, seed: int, times: int) -> None:
    """Two gateways behind one address: one of them is killed, or ends in order, and comes back."""
    draw, root = ManualClock(seed=seed), directory / "root"
    with balanced(root, leader_timeout_ms=LEADER_TIMEOUT_MS) as pair:
        pair.gateways[0].create_topic(TOPIC, PARTITIONS)

        def strike(number: int) -> None:
            gateway = pair.gateways[number % 2]
            if draw.random() < 0.5:
                gateway.kill()
            else:
                gateway.close()
            gateway.start()

        load = PRODUCERS[producer](pair.bootstrap, directory)
        sent = survive(load, times, strike, lambda: int(draw.random() * 1_000))
        check_log(sent, read_all(pair.bootstrap, TOPIC, PARTITIONS))
    assert check(open_store(root)).problems == []


def forget_producers(root: Path) -> None:
    """Write the checkpoints that a gateway would write when the producers have been idle for half an hour."""
    later = ManualClock(SystemClock().now_ms() + BRIEF_PRODUCER_MAX_MS)
    partition = Cluster.open(open_store(root), later).topic(TOPIC).partition(0)
    assert partition.snapshot.producer_ids()
    partition.checkpoint()
    assert not partition.snapshot.producer_ids()


def known_epochs(root: Path) -> set[int]:
    """The epochs of all producers in the log."""
    snapshot = Cluster.open(open_store(root)).topic(TOPIC).partition(0).snapshot
    states = [snapshot.producer(each) for each in snapshot.producer_ids()]
    return {state.epoch for state in states if state is not None}


Send = Callable[[list[bytes]], None]


@contextmanager
def java_sender(bootstrap: str) -> Iterator[Send]:
    """A program in Java that sends the lines that it is given."""
    command = tool_command("ConsoleProducer", "--bootstrap-server", bootstrap, "--topic", TOPIC)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        lines = process.stdin
        assert lines is not None

        def send(values: list[bytes]) -> None:
            lines.write(b"".join(value + b"\n" for value in values))
            lines.flush()

        yield send
        lines.close()
        assert process.wait(WAIT_S) == 0


@contextmanager
def librdkafka_sender(bootstrap: str) -> Iterator[Send]:
    noted = Sent()
    producer = librdkafka_producer(bootstrap, **{"enable.idempotence": True})

    def send(values: list[bytes]) -> None:
        for value in values:
            producer.produce(TOPIC, value, on_delivery=noted.note)
        assert producer.flush(WAIT_S) == 0

    yield send
    assert noted.failed == []


@pytest.mark.torture
@pytest.mark.parametrize("sender", [librdkafka_sender, java_sender])
def test_a_producer_that_was_forgotten_goes_on_with_a_higher_epoch(
    tmp_path: Path, sender: Callable[[str], AbstractContextManager[Send]]
) -> None:
    """By the log the producer was idle for half an hour: nothing is lost, nothing is doubled."""
    root = tmp_path / "root"
    values = [b"%d" % number for number in range(100)]
    with kafka_gateway(root) as gateway:
        gateway.create_topic(TOPIC)
        with sender(gateway.bootstrap) as send:
            send(values[:50])
            wait_until(lambda: len(read_all(gateway.bootstrap, TOPIC)) == 50, "the first half is there")
            gateway.close()
            forget_producers(root)
            gateway.start()
            send(values[50:])
        assert [each.value for each in read_all(gateway.bootstrap, TOPIC)] == values
    assert known_epochs(root) == {1}


def test_what_librdkafka_has_sent_survives_kills_once(tmp_path: Path, seed: int) -> None:
    survive_kills(tmp_path, "librdkafka", seed, kills=2)


def test_what_java_has_sent_survives_a_kill_once(tmp_path: Path, seed: int) -> None:
    survive_kills(tmp_path, "java", seed, kills=1)


def test_what_librdkafka_has_sent_survives_hand_overs_once(tmp_path: Path, seed: int) -> None:
    survive_hand_overs(tmp_path, "librdkafka", seed, times=2)


@pytest.mark.torture
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("round", range(10))
def test_what_was_sent_survives_many_kills_once(
    tmp_path: Path,
    seed: int,
    round: int,  # noqa: A002
    producer: str,
) -> None:
    survive_kills(tmp_path, producer, seed + round, kills=10)


@pytest.mark.torture
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("round", range(2))
def test_what_was_sent_survives_many_hand_overs_once(
    tmp_path: Path,
    seed: int,
    round: int,  # noqa: A002
    producer: str,
) -> None:
    survive_hand_overs(tmp_path, producer, seed + round, times=10)
