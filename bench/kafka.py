"""Kafka's own clients against a gateway, and against Kafka: the same program, another address.

Kafka is measured as it comes, where it acknowledges records that are in the page cache, and with a topic in
which it flushes each message set. A gateway acknowledges what is on the disk.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench.cells import PARTITIONS, Figures, scratch
from bench.contest import OURS, Contest, Results, Scale, contest
from bench.gateway import Gateway, cpu_seconds_of, kafka_gateway, wait_until_known
from bench.kafka_crowd import crowd
from bench.kafka_members import Idle
from bench.peers import Peers
from bench.spark import kafka_source

KAFKA = "Kafka"
FLUSHING = "Kafka, flush.messages=1"
TOPIC = "bench"

SHARED = 900
IDLE = 1_000
MEASURED_S = 15
"""How long idle members are measured, at least: some heartbeats of each."""

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


def transactions(clients: Peers, topic: str, seconds: int) -> Figures:
    """100 records over 4 partitions, committed one transaction after the other, by librdkafka."""
    rate, median, most = clients.transact(topic, seconds * 20)
    return {"transactions/s": rate, "p50 ms": median, "p99 ms": most}


def large_transactions(clients: Peers, topic: str, seconds: int) -> Figures:
    """One producer of librdkafka, in transactions of 10,000 records and without."""
    with_, without = clients.in_transactions(topic, seconds * 100_000)
    return {"records/s": with_, "records/s, without": without, "share": with_ / without}


def beside_transactions(clients: Peers, topic: str, seconds: int) -> Figures:
    """A producer without transactions, and beside ten with one each second."""
    alone, beside = clients.beside(topic, seconds * 100_000)
    return {"records/s": beside, "records/s, alone": alone, "share": beside / alone}


def rebalance(verb: str, peers: Peers | None, _scale: Scale) -> Results:
    """900 partitions, shared by three consumers of a group; a fourth is added. `verb` is that of
    `librdkafka.py`, for the protocol.
    """
    if peers is None:
        raise RuntimeError(_NO_CLIENTS)
    with _served() as (bootstrap, _):
        results = {OURS: _rebalanced(peers.at(bootstrap), verb)}
    results[KAFKA] = _rebalanced(peers, verb)
    return results


def _rebalanced(clients: Peers, verb: str) -> Figures:
    seconds, pause, before = clients.rebalance(clients.topic(f"{TOPIC}-{verb}", SHARED), SHARED, verb)
    return {"s": seconds, "longest pause of what stays ms": pause, "before ms": before}


def idle(members: Callable[[], Idle], peers: Peers | None, scale: Scale) -> Results:
    """Members that only send heartbeats, and share 1,000 partitions in each group: the server's processor."""
    with _served() as (bootstrap, gateway):
        gateway.create_topic(TOPIC, IDLE)
        results = {OURS: _beating(members(), bootstrap, lambda: gateway.cpu_seconds, scale)}
    if peers is not None:
        peers.topic(TOPIC, IDLE)
        used = partial(cpu_seconds_of, peers.broker_pid)
        results[KAFKA] = _beating(members(), peers.bootstrap, used, scale)
    return results


def _beating(members: Idle, bootstrap: str, used: Callable[[], float], scale: Scale) -> Figures:
    seconds = max(MEASURED_S, scale.seconds)
    cores = asyncio.run(members.cores(bootstrap, used, seconds))
    beating = {"heartbeats/s": members.heartbeats / seconds} if members.members else {}
    return {"share of a core": cores, **beating}


IDLE_MEMBERS = {
    "nobody": partial(Idle, TOPIC, IDLE, 0, 0),
    "1,000 in a group of KIP-848": partial(Idle, TOPIC, IDLE, 1_000, 1),
    "1,000 in 50 groups of KIP-848": partial(Idle, TOPIC, IDLE, 1_000, 50),
    "1,000 in a classic group": partial(Idle, TOPIC, IDLE, 1_000, 1, is_classic=True),
    "1,000 in 50 classic groups": partial(Idle, TOPIC, IDLE, 1_000, 50, is_classic=True),
}


def racks(peers: Peers | None, scale: Scale) -> Results:
    """Two gateways in two racks: of the answers with records, those that came from the consumer's rack."""
    if peers is None:
        raise RuntimeError(_NO_CLIENTS)
    records = scale.seconds * 100_000
    with ExitStack() as stack:
        directory = stack.enter_context(scratch())
        served = {
            rack: stack.enter_context(kafka_gateway(directory / "data", "--rack", rack)) for rack in "ab"
        }
        wait_until_known([gateway for _, gateway in served.values()], len(served))
        bootstrap, _ = served["a"]
        clients = peers.at(bootstrap)
        clients.librdkafka_keyed(clients.topic(TOPIC, PARTITIONS), records)
        consumers: dict[str, Callable[[str], object]] = {
            "librdkafka": lambda rack: clients.librdkafka_consume(TOPIC, records, rack),
            "Java": lambda rack: clients.java_consume(TOPIC, records, f"client.rack={rack}"),
        }
        return {OURS: {name: _share(served, consume) for name, consume in consumers.items()}}


def _share(served: dict[str, tuple[str, Gateway]], consume: Callable[[str], object]) -> float:
    """Percent of the answers with records that consumers, one in each rack, had from the gateway there."""

    def answers() -> dict[str, float]:
        name = "lakelog_fetch_seconds_count"
        return {rack: gateway.metric(name, topic=TOPIC) for rack, (_, gateway) in served.items()}

    near, everywhere = 0.0, 0.0
    for rack in served:
        before = answers()
        consume(rack)
        more = {each: after - before[each] for each, after in answers().items()}
        near, everywhere = near + more[rack], everywhere + sum(more.values())
    return 100 * near / everywhere


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
    "Kafka's clients: transactions": _contest(transactions),
    "Kafka's clients: transactions, unpaced": _contest(
        transactions,
        "--set",
        "linger_ms=0",
        "--set",
        "commits_per_second_max=0",
        "--set",
        "commits_cores_max=0",
    ),
    "Kafka's clients: large transactions": _contest(large_transactions),
    "Kafka's clients: beside transactions": _contest(beside_transactions),
    "Kafka's clients: librdkafka, keyed, two workers": _contest(keyed, "--workers", "2"),
    "Kafka's clients: rebalance of 900 partitions": Contest(
        partial(rebalance, "rebalance"), needs_broker=True
    ),
    "Kafka's clients: rebalance of 900 partitions, KIP-848": Contest(
        partial(rebalance, "rebalance-consumer"), needs_broker=True
    ),
    "Kafka's clients: fetches in the client's rack, %": Contest(racks, needs_broker=False),
    "Kafka's clients: Spark's Kafka source": Contest(kafka_source, needs_broker=True),
    "Kafka's protocol: 1,000 connections": contest(connections),
    **{
        f"Kafka's protocol: idle members, {name}": Contest(partial(idle, members), needs_broker=True)
        for name, members in IDLE_MEMBERS.items()
    },
}
