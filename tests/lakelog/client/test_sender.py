"""lakelog/client/producer/sender.py: one question about a topic serves all that wait for its answer."""

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any

import httpx
import pytest

from lakelog.client.calls import Calls
from lakelog.client.producer.accumulator import Accumulator, ProducerConfig
from lakelog.client.producer.outgoing import TopicMetadata
from lakelog.client.producer.sender import Sender
from lakelog.client.request import Call, Request
from log_tables.clock import ManualClock
from log_tables.errors import UnknownPartition, UnknownTopic, Unreachable

CONFIG = ProducerConfig("all", 0.0, 1_000, 1_000_000, 1.0, 1.0, 1.0)
AGED_S = 301


class Caller:
    """A call, made by hand: what it asks for now, or what it has returned or raised."""

    def __init__(self, call: Call[TopicMetadata]) -> None:
        self._call = call
        self.asks: Any = None
        self.known: TopicMetadata | None = None
        self.error: Exception | None = None
        self._go_on(lambda: next(call))

    @property
    def path(self) -> str:
        assert isinstance(self.asks, Request), f"it has not asked: {self.asks}"
        return self.asks.path

    @property
    def waits(self) -> bool:
        return isinstance(self.asks, Future) and not self.asks.done()

    def hear(self, partitions: int) -> None:
        configs = {"max.message.bytes": "1000"}
        body = {"partitions": [{}] * partitions, "configs": configs, "partitioner_hash": "murmur3"}
        self._go_on(lambda: self._call.send(httpx.Response(200, json=body)))

    def fail(self, error: Exception) -> None:
        self._go_on(lambda: self._call.throw(error))

    def wake(self) -> None:
        assert self.asks.done(), "what it waits for is not over"
        self._go_on(lambda: self._call.send(None))

    def give_up(self) -> None:
        self._call.close()

    def _go_on(self, step: Callable[[], Any]) -> None:
        self.asks = None
        try:
            self.asks = step()
        except StopIteration as end:
            self.known = end.value
        except Exception as error:  # noqa: BLE001 -- it is what tests look at
            self.error = error


@pytest.fixture
def accumulator(clock: ManualClock) -> Accumulator:
    return Accumulator(CONFIG, clock, wake=lambda: None, freed=lambda: None)


@pytest.fixture
def ask(clock: ManualClock, accumulator: Accumulator) -> Callable[..., Caller]:
    sender = Sender(Calls(1.0, clock), accumulator, CONFIG, nullcontext(), clock)

    def asking(name: str = "t", partition: int | None = None) -> Caller:
        return Caller(sender.topic(name, partition))

    return asking


def test_one_asks_and_the_others_take_its_answer(ask: Callable[..., Caller]) -> None:
    first, second, third = ask(), ask(), ask(partition=1)
    assert first.path == "/topics/t"
    assert second.waits
    assert third.waits
    first.hear(partitions=2)
    for other in (second, third):
        other.wake()
        assert other.known is first.known is not None


def test_another_topic_is_asked_about_meanwhile(ask: Callable[..., Caller]) -> None:
    slow, quick = ask("slow"), ask("quick")
    assert quick.path == "/topics/quick"
    quick.hear(partitions=1)
    assert quick.known is not None
    assert slow.path == "/topics/slow"


def test_an_error_counts_for_those_who_came_before_the_question(ask: Callable[..., Caller]) -> None:
    """A topic may be created after a question about it began, and before another caller comes."""
    early, created, other = ask(), ask(), ask()
    early.fail(UnknownTopic("no t"))
    assert isinstance(early.error, UnknownTopic)
    created.wake()
    assert created.path == "/topics/t", "it has asked once more"
    other.wake()
    assert other.waits, "it came before the second question"
    created.fail(UnknownTopic("still no t"))
    other.wake()
    assert other.error is created.error


def test_a_partition_that_was_added_meanwhile_is_asked_for_again(ask: Callable[..., Caller]) -> None:
    first, second, third = ask(), ask(partition=3), ask(partition=4)
    first.hear(partitions=2)
    second.wake()
    third.wake()
    second.hear(partitions=4)
    assert second.known is not None
    third.wake()
    assert isinstance(third.error, UnknownPartition)


def test_a_caller_that_is_cancelled_holds_up_nobody(ask: Callable[..., Caller]) -> None:
    gone, second, third = ask(), ask(), ask()
    gone.give_up()
    second.wake()
    third.wake()
    second.hear(partitions=2)
    third.wake()
    assert third.known is second.known is not None


def test_of_an_old_topic_one_asks_and_nobody_waits(
    ask: Callable[..., Caller], accumulator: Accumulator, clock: ManualClock
) -> None:
    ask().hear(partitions=2)
    clock.advance(AGED_S * 1_000)
    accumulator.add(accumulator.topics["t"], b"1", b"1", (), None, None)
    asking, other = ask(), ask()
    assert asking.path == "/topics/t"
    assert other.known is accumulator.topics["t"]
    enlarged = ask(partition=2)
    assert enlarged.waits
    asking.fail(Unreachable("no gateway"))
    assert asking.known is other.known, "what was true before will do"
    enlarged.wake()
    enlarged.hear(partitions=3)
    assert enlarged.known is not None
