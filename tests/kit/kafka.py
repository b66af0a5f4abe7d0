"""Gateways with a door for Kafka's clients, on a port that they keep, and what librdkafka finds there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.kit.gateway import NEVER_MS, RunningGateway, start_gateway
from tests.kit.proxy import Proxy
from tests.kit.several import brokers
from tests.kit.support import WAIT_S, free_port, wait_until

LOOPBACK = "127.0.0.1"

UNKNOWN_OFFSET = -1
"""Of a repeat that is acknowledged without its offset, which the log has forgotten."""

OPEN = {"authentication_methods": ""}
"""Also in a run with --secured: Kafka's clients have no credential there, unless a test gives them one."""


@dataclass
class KafkaGateway:
    """A gateway that Kafka's clients reach at `bootstrap`, also after it was started again.

    With `advertised` it tells clients to come there. With `http_port` it is the same broker then.
    """

    data: str | Path
    settings: dict[str, object] = field(default_factory=dict)
    port: int = field(default_factory=free_port)
    advertised: str = ""
    http_port: int = 0

    def __post_init__(self) -> None:
        self.start()

    @property
    def bootstrap(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self) -> None:
        """Start it, again where it was."""
        own = {"kafka_listener": self.bootstrap, "kafka_advertised_listener": self.advertised}
        flags, settings = ("--port", str(self.http_port)), {**OPEN, **self.settings, **own}
        self.running: RunningGateway = start_gateway(self.data, *flags, **settings)

    def kill(self) -> None:
        """End it at once."""
        self.running.kill()

    def close(self) -> None:
        """End it in order."""
        self.running.stop()

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        """As RunningGateway.create_topic."""
        return self.running.create_topic(name, partitions, **configs)


@contextmanager
def kafka_gateway(data: str | Path, **settings: object) -> Iterator[KafkaGateway]:
    """A gateway with a Kafka listener, which is stopped in order at the end."""
    with closing(KafkaGateway(data, {"linger_ms": 0, **settings})) as gateway:
        yield gateway


@dataclass
class Balanced:
    """Gateways of one root behind one address, which leads each connection to the next of them."""

    gateways: list[KafkaGateway]
    bootstrap: str


@contextmanager
def balanced(data: str | Path, count: int = 2, **settings: object) -> Iterator[Balanced]:
    """Gateways that tell clients only the address of a load balancer: whoever is asked was picked by it."""
    settings = {"linger_ms": 0, "leader_timeout_ms": NEVER_MS, **settings}
    ports = [free_port() for _ in range(count)]
    with ExitStack() as open_:
        proxy = open_.enter_context(closing(Proxy(*ports)))
        bootstrap = proxy.url.removeprefix("http://")
        gateways = [
            open_.enter_context(closing(KafkaGateway(data, settings, port, bootstrap))) for port in ports
        ]
        for gateway in gateways:
            wait_until(partial(_sees, gateway, count), f"each of {count} gateways sees the others")
        yield Balanced(gateways, bootstrap)


def _sees(gateway: KafkaGateway, count: int) -> bool:
    return len([each for each in brokers(gateway.running.url) if each["alive"]]) == count


class Read(NamedTuple):
    """A record as a client finds it; the time in milliseconds with its kind, Kafka's number for it."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time: tuple[int, int] = (0, 0)


def read_of(message: Message) -> Read:
    """A record of librdkafka's."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    headers: Any = message.headers() or ()
    key: Any = message.key()
    value: Any = message.value()
    return Read(partition, offset, key, value, tuple(headers), message.timestamp())


def librdkafka_reader(bootstrap: str, **config: Any) -> Consumer:
    """A consumer that is told its partitions, and remembers nothing."""
    own = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    return Consumer({**own, "auto.offset.reset": "error", "enable.partition.eof": True, **config})


def read_all(bootstrap: str, topic: str, partitions: int = 1, start: int = 0, **config: Any) -> list[Read]:
    """All records of a topic from offset `start` on, by partition and offset, as librdkafka reads them."""
    consumer, found, left = librdkafka_reader(bootstrap, **config), [], partitions
    consumer.assign([TopicPartition(topic, number, start) for number in range(partitions)])
    with closing(consumer):
        while left:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"after {WAIT_S:g} s {topic} has not been read to its end"
            error = message.error()
            if error is None:
                found.append(read_of(message))
            elif error.name() == "_PARTITION_EOF":
                left -= 1
            elif not error.retriable() and error.name() not in _PASSING:
                raise KafkaException(error)
    return sorted(found, key=lambda each: each[:2])


_PASSING = ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE")
"""Errors that librdkafka tells of and goes on after."""


class Sent:
    """The answers to a producer: (partition, offset) of each value, and the errors."""

    def __init__(self) -> None:
        self.placed: dict[bytes, tuple[int, int]] = {}
        self.failed: list[str] = []

    def note(self, error: Any, message: Message) -> None:
        """Called for each record."""
        if error is not None:
            self.failed.append(error.name())
            return
        value: Any = message.value()
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        self.placed[value] = (partition, UNKNOWN_OFFSET if offset is None else offset)


def librdkafka_producer(bootstrap: str, **config: Any) -> Producer:
    """A producer of librdkafka that repeats failed batches as long as a test runs."""
    own = {"bootstrap.servers": bootstrap, "reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100}
    patient = {"message.timeout.ms": int(WAIT_S * 1_000), "retry.backoff.ms": 10}
    return Producer({**own, **patient, **config})


def produce(bootstrap: str, topic: str, values: Sequence[bytes], **config: Any) -> Sent:
    """Send values to partition 0 of a topic by librdkafka, and wait for all answers."""
    sent, producer = Sent(), librdkafka_producer(bootstrap, **config)
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=sent.note)
    assert producer.flush(WAIT_S) == 0
    return sent


def lines_of(said: str) -> list[Mapping[str, Any]]:
    """The JSON objects that one of Kafka's verifiable tools prints, a line for each."""
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]
