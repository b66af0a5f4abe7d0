"""Groups of Kafka's clients over several gateways: behind a load balancer, and through kills."""

from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer

from tests.kit.kafka import KafkaGateway, balanced
from tests.kit.support import wait_until

COUNT = 200


def fill(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(COUNT):
        producer.produce(topic, str(number), str(number))
    assert producer.flush(30) == 0


def member(stack: ExitStack, bootstrap: str, topic: str, group: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 20_000,
            "heartbeat.interval.ms": 200,
        }
    )
    stack.callback(consumer.close)
    consumer.subscribe([topic])
    return consumer


def polled(seen: set[bytes], *consumers: Consumer) -> None:
    for consumer in consumers:
        for message in consumer.consume(100, 0.1):
            if message.error() is None:
                value = message.value()
                assert value is not None
                seen.add(value)


def reads_all(reader: Consumer) -> Callable[[], bool]:
    """A condition that polls `reader`, and holds when it has read every record."""
    seen: set[bytes] = set()

    def whole() -> bool:
        polled(seen, reader)
        return len(seen) == COUNT

    return whole


def share(*consumers: Consumer) -> Callable[[], bool]:
    """A condition that polls `consumers`, and holds when all own the same number of partitions."""

    def evenly() -> bool:
        polled(set(), *consumers)
        return {len(consumer.assignment()) for consumer in consumers} == {4 // len(consumers)}

    return evenly


def test_a_group_behind_a_load_balancer_reads_everything_once(tmp_path: Path) -> None:
    with balanced(tmp_path, group_initial_rebalance_delay_ms=0) as both, ExitStack() as stack:
        topic = both.gateways[0].create_topic("t", 4)
        fill(both.bootstrap, topic)
        for number in range(3):  # some of these connections lead to the gateway that coordinates, others not
            reader = member(stack, both.bootstrap, topic, f"group-{number}")
            wait_until(reads_all(reader), "all records are read")
            reader.commit(asynchronous=False)
        readers = [member(stack, both.bootstrap, topic, "shared") for _ in range(2)]
        wait_until(share(*readers), "two members share the partitions")


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.torture)])
def test_members_stay_in_their_generation_when_the_coordinator_is_killed(tmp_path: Path, kills: int) -> None:
    settings: dict[str, object] = {
        "linger_ms": 0,
        "leader_timeout_ms": 1_000,
        "group_initial_rebalance_delay_ms": 0,
    }
    with ExitStack() as stack:
        gateways = [stack.enter_context(closing(KafkaGateway(tmp_path, settings))) for _ in range(2)]
        topic = gateways[0].create_topic("t", 4)
        bootstrap = ",".join(each.bootstrap for each in gateways)
        fill(bootstrap, topic)
        readers = [member(stack, bootstrap, topic, "g") for _ in range(2)]
        wait_until(share(*readers), "two members share the partitions")
        for number in range(kills):
            victim = gateways[number % 2]
            before = [sorted((at.topic, at.partition) for at in each.assignment()) for each in readers]
            victim.kill()
            wait_until(lambda: all(map(commits, readers)), "members commit at the other coordinator")
            after = [sorted((at.topic, at.partition) for at in each.assignment()) for each in readers]
            assert after == before, "nobody had to join again"
            victim.start()


def commits(reader: Consumer) -> bool:
    polled(set(), reader)
    try:
        reader.commit(offsets=reader.position(reader.assignment()), asynchronous=False)
    except KafkaException:
        return False
    return True
