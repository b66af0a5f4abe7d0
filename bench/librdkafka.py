"""Kafka through librdkafka, run by the peers' own Python: `librdkafka.py BOOTSTRAP VERB TOPIC COUNT [RACK]`.

`topic` makes the topic anew, `flushed` one in which Kafka flushes each message set; `produce`, `keyed`,
`ragged` and `consume` print records a second and microseconds of the processor a record: 100-byte texts, with
`keyed` keys of 10 bytes, acks=all; with `ragged` keys and texts of many lengths, 100 bytes on average. RACK
is the `client.rack` of `consume`.
`transact`, `in-transactions` and `beside` measure transactions.
`lone` sends records one by one, each when the one before is acknowledged, and prints the median and the 99th
percentile in milliseconds.
`rebalance` shares COUNT partitions among three consumers of a classic group (cooperative-sticky), adds one,
and prints the seconds until it has its share; and of partitions that stay where they are, to which records
come ten times a second, the longest pause in ms, meanwhile and before. `rebalance-consumer` does so in a
group of KIP-848.
`send` sends a record every 10 ms and prints when each offset was acknowledged, microseconds since 1970.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from threading import Event, Thread
from time import perf_counter, process_time, sleep, time_ns  # stands alone, outside the project's packages
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 4
TRANSACTION_RECORDS, LARGE_TRANSACTION_RECORDS = 100, 10_000
TRANSACTIONAL, TRANSACTION_EVERY_S = 10, 1.0
FED_PARTITIONS, FED_EVERY_S = 12, 0.1
"""Partitions that get records during a rebalance, and how often."""

WORDS = [f"{word:05x}" for word in range(4096)]


def flushed(bootstrap: str, name: str, partitions: int) -> None:
    topic(bootstrap, name, partitions, {"flush.messages": "1"})


def topic(bootstrap: str, name: str, partitions: int, config: dict[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    if name in admin.list_topics(timeout=10).topics:
        admin.delete_topics([name])[name].result()
    for _ in range(100):
        try:
            admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result()
            return
        except KafkaException:  # the deletion is not through yet
            sleep(0.1)
    raise RuntimeError(f"topic {name} could not be made")


def produce(
    bootstrap: str, name: str, count: int, keys: Sequence[bytes | None] = (None,), spread: int = 0
) -> None:
    draw = random.Random(1)
    texts = [
        " ".join(draw.choices(WORDS, k=34))[: 100 + draw.randint(-spread, spread)].encode()
        for _ in range(10_000)
    ]
    options = {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}
    producer = Producer(
        {**options, "queue.buffering.max.messages": 200_000, "queue.buffering.max.kbytes": 262_144}
    )
    failed = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(error)

    begin, used = perf_counter(), process_time()
    for index in range(count):
        while True:
            try:
                text, key = texts[index % 10_000], keys[index % len(keys)]
                producer.produce(name, text, key, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.05)
        if not index & 1023:
            producer.poll(0)
    producer.flush(120)
    if failed:
        raise RuntimeError(f"{len(failed)} records failed: {failed[0]}")
    report(count, begin, used)


def keyed(bootstrap: str, name: str, count: int) -> None:
    produce(bootstrap, name, count, [b"key%07d" % number for number in range(9_973)])


def ragged(bootstrap: str, name: str, count: int) -> None:
    produce(bootstrap, name, count, [b"key%d" % number for number in range(9_973)], 80)


def report(count: int, begin: float, used: float) -> None:
    print(count / (perf_counter() - begin), (process_time() - used) / count * 1e6)


def send(bootstrap: str, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    text = " ".join(WORDS[:17])[:100].encode()
    acknowledged: dict[int, int] = {}

    def delivered(error: object, message: Any) -> None:
        if error is None:
            acknowledged[message.offset()] = time_ns() // 1000

    begin = perf_counter()
    for index in range(count):
        while (left := begin + index / 100 - perf_counter()) > 0:
            producer.poll(left)
        producer.produce(name, text, on_delivery=delivered)
    producer.flush(60)
    if len(acknowledged) < count:
        raise RuntimeError(f"{count - len(acknowledged)} of {count} records were not acknowledged")
    print(json.dumps(acknowledged))


def lone(bootstrap: str, name: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    text = " ".join(WORDS[:17])[:100].encode()
    taken = []
    for _ in range(count):
        begin = perf_counter()
        producer.produce(name, text)
        producer.flush(10)
        taken.append((perf_counter() - begin) * 1000)
    taken.sort()
    print(taken[count // 2], taken[count * 99 // 100])


def transact(bootstrap: str, name: str, count: int) -> None:
    """Print transactions a second of TRANSACTION_RECORDS over all partitions, one after the other, and the
    median and the 99th percentile of how long each took, in ms.
    """
    producer, text = _transactional(bootstrap, **{"linger.ms": 0}), " ".join(WORDS[:17])[:100].encode()
    taken = []
    begun = perf_counter()
    for _ in range(count):
        begin = perf_counter()
        producer.begin_transaction()
        for number in range(TRANSACTION_RECORDS):
            producer.produce(name, text, partition=number % PARTITIONS)
        producer.commit_transaction(30)
        taken.append((perf_counter() - begin) * 1000)
    seconds = perf_counter() - begun
    taken.sort()
    print(count / seconds, taken[count // 2], taken[count * 99 // 100])


def in_transactions(bootstrap: str, name: str, count: int) -> None:
    """Print records a second in transactions of LARGE_TRANSACTION_RECORDS, and of the same without."""
    text, rates = " ".join(WORDS[:17])[:100].encode(), []
    roomy = {"linger.ms": 5, "queue.buffering.max.messages": 2_000_000}
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **roomy})
    for producer, transacts in ((_transactional(bootstrap, **roomy), True), (plain, False)):
        begin = perf_counter()
        for _ in range(count // LARGE_TRANSACTION_RECORDS):
            if transacts:
                producer.begin_transaction()
            for number in range(LARGE_TRANSACTION_RECORDS):
                producer.produce(name, text, partition=number % PARTITIONS)
            if transacts:
                producer.commit_transaction(60)
            else:
                producer.poll(0)
        producer.flush(60)
        rates.append(
            count // LARGE_TRANSACTION_RECORDS * LARGE_TRANSACTION_RECORDS / (perf_counter() - begin)
        )
    print(*rates)


def beside(bootstrap: str, name: str, count: int) -> None:
    """Print records a second of a producer without transactions, and of it beside TRANSACTIONAL producers,
    each of which commits TRANSACTION_RECORDS every TRANSACTION_EVERY_S.
    """
    rates = []
    for transactional in (0, TRANSACTIONAL):
        end = Event()
        threads = [
            Thread(target=_transact_until, args=(bootstrap, name, n, end)) for n in range(transactional)
        ]
        for thread in threads:
            thread.start()
        sleep(2)
        rates.append(_produced(bootstrap, name, count))
        end.set()
        for thread in threads:
            thread.join()
    print(*rates)


def _produced(bootstrap: str, name: str, count: int) -> float:
    producer, text = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5}), b"x" * 100
    begin = perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(name, text, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush(60)
    return count / (perf_counter() - begin)


def _transact_until(bootstrap: str, name: str, number: int, end: Event) -> None:
    producer = _transactional(bootstrap, **{"transactional.id": f"beside-{number}"})
    while not end.wait(TRANSACTION_EVERY_S):
        producer.begin_transaction()
        for record in range(TRANSACTION_RECORDS):
            producer.produce(name, b"y" * 100, partition=record % PARTITIONS)
        producer.commit_transaction(60)


def _transactional(bootstrap: str, **options: object) -> Any:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "bench", **options})
    producer.init_transactions(60)
    return producer


def rebalance(bootstrap: str, name: str, count: int) -> None:
    Rebalance(bootstrap, name, count, {"partition.assignment.strategy": "cooperative-sticky"}).measure()


def rebalance_consumer(bootstrap: str, name: str, count: int) -> None:
    Rebalance(bootstrap, name, count, {"group.protocol": "consumer"}).measure()


class Rebalance:
    """Consumers of one group and of one topic; FED_PARTITIONS of its `count` partitions get records."""

    def __init__(self, bootstrap: str, topic: str, count: int, options: dict[str, str]) -> None:
        self._topic, self._count = topic, count
        self._options = {**options, "bootstrap.servers": bootstrap, "group.id": topic}
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._fed, self._fed_at = range(0, count, count // FED_PARTITIONS), 0.0
        self._consumers: list[Any] = []
        self._came: dict[int, list[float]] = {partition: [] for partition in self._fed}

    def measure(self) -> None:
        for _ in range(3):
            self._join()
        self._turn_until(self._is_shared, 120)
        self._rest(3)
        before, begin = self._owners(), perf_counter()
        self._join()
        self._turn_until(self._is_shared, 120)
        end = perf_counter()
        self._rest(2)
        after = self._owners()
        stayed = [partition for partition in self._fed if before[partition] == after[partition]]
        print(end - begin, self._pause_ms(stayed, begin, end + 2), self._pause_ms(stayed, begin - 3, begin))
        for consumer in self._consumers:
            consumer.close()

    def _join(self) -> None:
        consumer = Consumer({**self._options, "enable.auto.commit": False})
        consumer.subscribe([self._topic])
        self._consumers.append(consumer)

    def _owners(self) -> dict[int, int]:
        return {
            at.partition: index
            for index, consumer in enumerate(self._consumers)
            for at in consumer.assignment()
        }

    def _is_shared(self) -> bool:
        shares = [len(consumer.assignment()) for consumer in self._consumers]
        return sum(shares) == self._count and min(shares) >= self._count // len(shares)

    def _rest(self, seconds: float) -> None:
        end = perf_counter() + seconds
        self._turn_until(lambda: perf_counter() > end, 2 * seconds)

    def _turn_until(self, is_over: Callable[[], bool], within_s: float) -> None:
        """Let records come and be consumed until then."""
        end = perf_counter() + within_s
        while not is_over():
            if perf_counter() > end:
                shares = [len(consumer.assignment()) for consumer in self._consumers]
                raise RuntimeError(f"{self._count} partitions were not shared: {shares}")
            if perf_counter() - self._fed_at > FED_EVERY_S:
                self._fed_at = perf_counter()
                for partition in self._fed:
                    self._producer.produce(self._topic, b"x", partition=partition)
            self._producer.poll(0)
            for consumer in self._consumers:
                for message in consumer.consume(100, 0.005):
                    if message.error() is None:
                        self._came[message.partition()].append(perf_counter())

    def _pause_ms(self, partitions: Sequence[int], begin: float, end: float) -> float:
        """The longest time from one record to the next one of a partition."""
        within = [[at for at in self._came[each] if begin - 0.5 < at < end] for each in partitions]
        return 1e3 * max(after - at for times in within for at, after in pairwise(times))


def consume(bootstrap: str, name: str, count: int, rack: str = "") -> None:
    options = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    options |= {"client.rack": rack, "queued.max.messages.kbytes": 65536, "fetch.queue.backoff.ms": 5}
    consumer = Consumer(options)
    consumer.assign([TopicPartition(name, index, 0) for index in range(PARTITIONS)])
    got = 0
    begin, used = perf_counter(), process_time()
    while got < count:
        got += sum(message.error() is None for message in consumer.consume(10_000, 1.0))
    report(count, begin, used)
    consumer.close()


if __name__ == "__main__":
    verbs: dict[str, Callable[..., None]] = {
        "topic": topic,
        "flushed": flushed,
        "lone": lone,
        "transact": transact,
        "in-transactions": in_transactions,
        "beside": beside,
        "rebalance": rebalance,
        "rebalance-consumer": rebalance_consumer,
        "produce": produce,
        "keyed": keyed,
        "ragged": ragged,
        "consume": consume,
        "send": send,
    }
    bootstrap, verb, topic_name, number, *more = sys.argv[1:]
    verbs[verb](bootstrap, topic_name, int(number), *more)
