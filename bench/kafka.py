"""Kafka's own clients against a gateway, and against Kafka: the same program, another address.

Kafka is measured as it comes, where it acknowledges records that are in the page cache, and with a topic in
which it flushes each message set. A gateway acknowledges what is on the disk.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench.cells import PARTITIONS, Figures, scratch
from bench.contest import OURS, Contest, Results, Scale, contest
from bench.gateway import Gateway, kafka_gateway
from bench.kafka_crowd import crowd
from bench.peers import Peers
from bench.spark import kafka_source

KAFKA = "Kafka"
FLUSHING = "Kafka, flush.messages=1"
TOPIC = "bench"

SHARED = 900
_NO_CLIENTS = "Kafka's clients come with the peers; name them by --peers"

MIB = str(1 << 20)

Load = Callable[[Peers, str, int], Figures]
"""Kafka's clients at one server, a topic of 4 partitions there, and about the seconds of the load."""


def keyed(clients: Peers, topic: str, seconds: int) -> Figures:
    """100-byte values with keys of 10, acks=all, by librdkafka."""
    return {"records/s": clients.librdkafka_keyed(topic, seconds * 200_000)[0]}


def ragged(clients: Peers, topic: str, seconds: int) -> Figures:
    """Keys of 4 to 7 bytes, values of 20 to 180: batches whose records have many lengths."""
    return {"records/s": clients.librdkafka_ragged(topic, seconds * 200_000)[0]}


def java_large(clients: Peers, topic: str, seconds: int) -> Figures:
    return {"records/s": clients.java_produce(seconds * 200_000, topic, batch_size=MIB)}


def java_defaults(clients: Peers, topic: str, seconds: int) -> Figures:
    return {"records/s": clients.java_produce(seconds * 100_000, topic)}


def consumed(clients: Peers, topic: str, seconds: int) -> Figures:
    """Consume records that librdkafka wrote, by librdkafka and by Java."""
    records = seconds * 200_000
    clients.librdkafka_keyed(topic, records)
    return {
        "records/s, librdkafka": clients.librdkafka_consume(topic, records)[0],
        "records/s, Java": clients.java_consume(topic, records),
    }


def lone(clients: Peers, topic: str, seconds: int) -> Figures:
    """One record at a time, acks=all; the gateway neither lingers nor bounds commits, as in "one record"."""
    median, most = clients.lone(topic, seconds * 100)
    return {"p50 ms": median, "p99 ms": most}


def rebalance(peers: Peers | None, _scale: Scale) -> Results:
    """900 partitions, shared by a classic group that is cooperative-sticky; a fourth consumer is added."""
    if peers is None:
        raise RuntimeError(_NO_CLIENTS)
    with _served() as (bootstrap, _):
        ours = peers.at(bootstrap)
        results = {OURS: {"s": ours.rebalance(ours.topic(TOPIC, SHARED), SHARED)}}
    results[KAFKA] = {"s": peers.rebalance(peers.topic(TOPIC, SHARED), SHARED)}
    return results


def connections(seconds: int) -> Figures:
    """A thousand connections to 16 partitions, each of which writes ten records and fetches, in turn."""
    with _served() as (bootstrap, gateway):
        gateway.create_topic(TOPIC, 16)
        written = asyncio.run(crowd(bootstrap, TOPIC, 16, 1_000, seconds))
        return {"records/s": written / seconds, "peak MB": gateway.peak_mb}


def _contest(load: Load, *options: str) -> Contest:
    def run(peers: Peers | None, scale: Scale) -> Results:
        if peers is None:
            raise RuntimeError(_NO_CLIENTS)
        with _served(*options) as (bootstrap, _):
            ours = peers.at(bootstrap)
            results = {OURS: load(ours, ours.topic(TOPIC, PARTITIONS), scale.seconds)}
        results[KAFKA] = load(peers, peers.topic(TOPIC, PARTITIONS), scale.seconds)
        results[FLUSHING] = load(peers, peers.flushed_topic(TOPIC, PARTITIONS), scale.seconds)
        return results

    return Contest(run, needs_broker=True)


@contextmanager
def _served(*options: str) -> Iterator[tuple[str, Gateway]]:
    """A gateway on a new root, with the address of its Kafka listener."""
    with scratch() as directory, kafka_gateway(directory / "data", *options) as served:
        yield served


CELLS: dict[str, Contest] = {
    "Kafka's clients: librdkafka, keyed": _contest(keyed),
    "Kafka's clients: librdkafka, keyed, of many lengths": _contest(ragged),
    "Kafka's clients: Java, batch.size=1 MiB": _contest(java_large),
    "Kafka's clients: Java, defaults": _contest(java_defaults),
    "Kafka's clients: Java, defaults, 20 commits/s": _contest(
        java_defaults, "--set", "commits_per_second_max=20"
    ),
    "Kafka's clients: Java, defaults, 40 commits/s": _contest(
        java_defaults, "--set", "commits_per_second_max=40"
    ),
    "Kafka's clients: consume": _contest(consumed),
    "Kafka's clients: one record": _contest(
        lone, "--set", "linger_ms=0", "--set", "commits_per_second_max=0"
    ),
    "Kafka's clients: librdkafka, keyed, two workers": _contest(keyed, "--workers", "2"),
    "Kafka's clients: rebalance of 900 partitions": Contest(rebalance, needs_broker=True),
    "Kafka's clients: Spark's Kafka source": Contest(kafka_source, needs_broker=True),
    "Kafka's protocol: 1,000 connections": contest(connections),
}
