"""lakelog.Consumer through lost answers and deaths of its gateway: nothing twice, nothing skipped."""

from collections import Counter
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lakelog import Client, Consumer
from tests.kit.consuming import Losing, Make, committed, offsets
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import free_port, wait_until


@pytest.mark.parametrize("way", ["topics", "partitions"])
@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_what_was_lost_on_the_way_comes_again_and_nothing_else(
    gateway: RunningGateway, client: Client, make: Make, topic: str, way: str, reset: str
) -> None:
    losing = Losing()
    chosen = {"partitions": [(topic, 0), (topic, 1)]} if way == "partitions" else {}
    options = {"transport": losing, "auto_offset_reset": reset, "auto_commit_interval_ms": 0, **chosen}
    with make(**options) as consumer:
        consumer.poll(0)
        found: list[tuple[int, int]] = []
        for number in range(6):
            losing.lost = {losing.count + 1, losing.count + 3}
            gateway.produce(topic, number, partition=number % 2)
            record = next(consumer)
            found.append((record.partition, record.offset))
            begin = {at.partition: offset for at, offset in consumer.committed().items()}
            assert begin.get(number % 2, 0) <= number // 2
        consumer.commit()
    assert found == [(number % 2, number // 2) for number in range(6)]
    assert committed(client, topic) == {0: 3, 1: 3}


@pytest.mark.parametrize("kind", ["/subscription", "/assignments", "/offsets", "/positions", "consumers"])
def test_any_other_answer_may_be_lost_too(
    gateway: RunningGateway, client: Client, make: Make, topic: str, kind: str
) -> None:
    losing = Losing()
    losing.kind = f"/consumers/{topic}" if kind == "consumers" else kind
    losing.lost = {1, 3}
    gateway.produce(topic, *range(3), partition=0)
    with make(transport=losing) as consumer:
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
        consumer.seek(topic, 0, 1)
        assert [record.offset for record in islice(consumer, 2)] == [1, 2]
        consumer.commit()
    assert losing.count >= 2
    assert committed(client, topic) == {0: 3}
    assert client.group(topic)["members"] == []


def test_leaving_at_the_second_attempt_commits_nothing_that_is_not_processed(
    gateway: RunningGateway, client: Client, make: Make, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    losing = Losing()
    losing.kind = "/positions"
    with make(transport=losing) as consumer:
        assert [record.offset for record in islice(consumer, 3)] == [0, 1, 2]
        losing.cut = 1
    assert committed(client, topic) == {0: 3}


def test_through_deaths_of_the_gateway_every_record_comes_once(tmp_path: Path) -> None:
    port, rounds = free_port(), 4
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    gateway.create_topic("t", 3)
    found: Counter[tuple[int, int]] = Counter()
    consumer = Consumer(gateway.url, "g", "t", auto_offset_reset="earliest", auto_commit_interval_ms=100)

    def consume() -> None:
        for record in consumer:
            found[record.partition, record.offset] += 1

    thread = Thread(target=consume)
    thread.start()
    for number in range(rounds):
        for partition in range(3):
            for _ in range(5):
                gateway.produce("t", *range(20), partition=partition)
        # At any moment: in the middle of an answer, or of a wait.
        wait_until(lambda n=number: len(found) > 300 * n, "some of them")  # type: ignore[misc]
        gateway.kill()
        gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    wait_until(lambda: len(found) == 300 * rounds, "all records")
    consumer.stop()
    thread.join()
    consumer.close()
    assert set(found.values()) == {1}
    assert committed(Client(gateway.url), "g") == dict.fromkeys(range(3), 100 * rounds)
    gateway.stop()


def test_when_one_of_two_dies_with_the_gateway_nothing_is_skipped(tmp_path: Path) -> None:
    port = free_port()
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    gateway.create_topic("t", 4)
    for partition in range(4):
        gateway.produce("t", *range(50), partition=partition)
    found: Counter[tuple[int, int]] = Counter()

    def take(consumer: Consumer) -> bool:
        for partition, listed in offsets(consumer.poll(50)).items():
            found.update((partition, offset) for offset in listed)
        return True

    options: dict[str, Any] = {"auto_offset_reset": "earliest", "session_timeout_ms": 1_000}
    first, second = (Consumer(gateway.url, "g", "t", **options) for _ in range(2))
    wait_until(lambda: take(first) and take(second) and len(second.assignment) == 2, "they share")
    second._heart.stop()  # it is heard of no more
    gateway.kill()
    gateway = start_gateway(tmp_path, "--port", str(port), linger_ms=0)
    for partition in range(4):
        gateway.produce("t", *range(50), partition=partition)
    wait_until(lambda: take(first) and len(first.assignment) == 4 and len(found) == 400, "one has all")
    second.stop()
    first.close()
    second.close()
    gateway.stop()


def test_the_error_that_ended_a_block_tells_that_its_offsets_are_not_committed(tmp_path: Path) -> None:
    gateway = start_gateway(tmp_path, linger_ms=0)
    gateway.create_topic("t")
    gateway.produce("t", 1)

    def fail_without_a_gateway() -> None:
        with Consumer(gateway.url, "g", "t", auto_offset_reset="earliest") as consumer:
            next(consumer)
            gateway.kill()
            assert 1 / 0

    with pytest.raises(ZeroDivisionError) as ended:
        fail_without_a_gateway()
    (note,) = ended.value.__notes__
    assert note.startswith("lakelog.Consumer: it did not leave its group in order: no gateway answers")
