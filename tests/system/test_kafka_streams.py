"""Kafka Streams, exactly once and at least once, at the Kafka listener: counts, windows and a join are exact
after the gateway and the application were killed, and the application's state was lost.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree

import pytest

from log_tables.clock import ManualClock
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, kafka_gateway, librdkafka_producer
from tests.kit.programs import Program, Target, caught_up, java_program, target
from tests.kit.support import WAIT_S

WORDS = ["a", "rose", "is", "a", "rose", "is", "a", "rose", "and", "so", "on"]
LINES = [" ".join(WORDS[: 1 + number % len(WORDS)]) for number in range(300)]
WINDOW_MS = 10_000
KILLS = 100
GUARANTEES = ("exactly_once_v2", "at_least_once")

Record = tuple[str, str, int]
"""Key, value, and time in milliseconds."""


@dataclass
class Application:
    """A running application, whose state is in `state`, what it writes, and its gateway."""

    gateway: KafkaGateway
    program: Program
    written: Target
    state: Path

    def feed(self, topic: str, records: Iterable[Record], *, killed: bool = False) -> None:
        """Write records to a topic; `killed` ends the gateway when half of them are on their way."""
        config = {"partitioner": "murmur2_random", "enable.idempotence": True, "batch.num.messages": 10}
        producer, records = librdkafka_producer(self.gateway.bootstrap, **config), [*records]
        for number, (key, value, time) in enumerate(records):
            if killed and number == len(records) // 2:
                producer.poll(0.1)
                self.gateway.kill()
            producer.produce(topic, value, key, timestamp=time)
        if killed:
            self.gateway.start()
        assert producer.flush(WAIT_S) == 0

    def expect(self, expected: dict[str, str]) -> None:
        """Wait until the last value of each key is the expected one."""
        wanted: dict[bytes | None, bytes | None]
        wanted = {key.encode(): value.encode() for key, value in expected.items()}
        try:
            self.program.until(lambda: self.written.latest() == wanted, "it has written what is expected")
        except AssertionError as error:
            found = self.written.latest()
            wrong = {key: value for key, value in found.items() if value != wanted.get(key)}
            raise AssertionError(f"{wrong}, and no {wanted.keys() - found.keys()}: {error}") from None

    def has_more_than(self, latest: dict[bytes | None, bytes | None]) -> bool:
        """Whether values have come since these were the last of each key."""
        return self.written.latest() != latest

    def lose(self, *topics: str) -> None:
        """Kill the application when it has committed what it read of `topics`, and remove its state."""
        group = f"streams-{self.state.name}"
        for topic in topics:
            done = partial(caught_up, self.gateway.bootstrap, group, topic)
            self.program.until(done, f"{group} has committed {topic}")
        self.program.kill()
        rmtree(self.state, ignore_errors=True)  # a store in memory makes none


@contextmanager
def application(
    directory: Path, name: str, output: str, store: str = "rocksdb", guarantee: str = GUARANTEES[0]
) -> Iterator[Application]:
    """An application with its topics, each of two partitions."""
    jars = ["kafka", "kafka-streams"] + ["rocksdb"] * (store == "rocksdb")
    with kafka_gateway(directory / "root") as gateway:
        for topic in ("lines", "names", "orders", output):
            gateway.create_topic(topic, 2)
        state = directory / name
        command = java_program("Streams", jars, name, gateway.bootstrap, str(state), store, guarantee)
        with (
            target(gateway.bootstrap, output) as written,
            Program(command, directory / "program") as program,
        ):
            yield Application(gateway, program, written, state)


def lines() -> list[Record]:
    """All lines, in both partitions."""
    return [(str(number), line, 1_000) for number, line in enumerate(LINES)]


def lines_in_order(first: int = 0) -> list[Record]:
    """All lines, a second apart after `first`, in one partition: a window that has closed counts no more."""
    return [("all", line, (first + number) * 1_000) for number, line in enumerate(LINES, 1)]


@pytest.mark.parametrize(
    ("store", "guarantee"),
    [
        ("memory", "exactly_once_v2"),
        pytest.param("rocksdb", "exactly_once_v2", marks=pytest.mark.torture),
        pytest.param("rocksdb", "at_least_once", marks=pytest.mark.torture),
    ],
)
def test_words_are_counted_once(tmp_path: Path, store: str, guarantee: str) -> None:
    counts = Counter(" ".join(LINES).split())
    with application(tmp_path, "count", "counts", store, guarantee) as running:
        running.feed("lines", lines())
        running.expect({word: str(count) for word, count in counts.items()})
        running.feed("lines", lines(), killed=True)
        running.expect({word: str(2 * count) for word, count in counts.items()})
        running.lose("lines", "streams-count-words-repartition")
        running.feed("lines", lines())
        running.program.start()
        running.expect({word: str(3 * count) for word, count in counts.items()})


@pytest.mark.torture
def test_words_are_counted_once_through_a_hundred_kills(tmp_path: Path, seed: int) -> None:
    """Each word's counts go up by what was written, and none is there again."""
    draw, sent = ManualClock(seed=seed), Counter[str]()
    with application(tmp_path, "count", "counts", "memory") as running:
        for number in range(KILLS):
            some = lines()[number % 10 :: 10]
            begun = running.written.latest()
            running.feed("lines", some)
            sent += Counter(" ".join(line for _, line, _ in some).split())
            running.program.until(partial(running.has_more_than, begun), "it goes on")
            victim = running.gateway if draw.random() < 0.5 else running.program
            victim.kill()
            victim.start()
        running.expect({word: str(count) for word, count in sent.items()})
        counts: dict[bytes | None, list[int]] = {}
        for each in running.written.look():
            counts.setdefault(each.key, []).append(int(each.value or 0))
    assert all(found == sorted({*found}) for found in counts.values())
    assert check(open_store(tmp_path / "root")).problems == []


@pytest.mark.torture
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_windows_are_whole_when_they_close(tmp_path: Path, guarantee: str) -> None:
    def closed(*records: Record) -> dict[str, str]:
        found = Counter(
            f"{word}@{time // WINDOW_MS * WINDOW_MS}" for _, line, time in records for word in line.split()
        )
        return {window: str(count) for window, count in found.items()}

    first, second, far = lines_in_order(), lines_in_order(len(LINES)), 4 * len(LINES) * 1_000
    with application(tmp_path, "windows", "windows", guarantee=guarantee) as running:
        running.feed("lines", first, killed=True)
        running.lose("lines", "streams-windows-words-repartition")
        running.program.start()
        running.feed("lines", [*second, ("all", " ".join(WORDS), far)])
        running.expect(closed(*first, *second))


@pytest.mark.torture
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_stream_is_joined_with_a_table(tmp_path: Path, guarantee: str) -> None:
    people = {f"key {number}": f"name {number}" for number in range(100)}
    with application(tmp_path, "join", "joined", guarantee=guarantee) as running:
        running.feed("names", [(key, name, 1_000) for key, name in people.items()])
        running.feed("orders", [(key, "first", 2_000) for key in people], killed=True)
        running.expect({key: f"first by {name}" for key, name in people.items()})
        running.lose("names", "orders")
        running.feed("names", [(key, name.upper(), 3_000) for key, name in people.items()])
        running.feed("orders", [(key, "second", 4_000) for key in people])
        running.program.start()
        running.expect({key: f"second by {name.upper()}" for key, name in people.items()})
