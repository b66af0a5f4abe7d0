"""Kafka through librdkafka, run by the peers' own Python: `librdkafka.py BOOTSTRAP VERB TOPIC COUNT`.

`topic` makes the topic anew, `flushed` one in which Kafka flushes each message set; `produce`, `keyed`,
`ragged` and `consume` print records a second and microseconds of the processor a record: 100-byte texts, with
`keyed` keys of 10 bytes, acks=all; with `ragged` keys and texts of many lengths, 100 bytes on average.
`lone` sends records one by one, each when the one before is acknowledged, and prints the median and the 99th
percentile in milliseconds.
`rebalance` shares COUNT partitions among three consumers of a group (classic, cooperative-sticky), adds one,
and prints the seconds until it has its share.
`send` sends a record every 10 ms and prints when each offset was acknowledged, microseconds since 1970.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from time import perf_counter, process_time, sleep, time_ns  # stands alone, outside the project's packages
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 4
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


def rebalance(bootstrap: str, name: str, count: int) -> None:
    options = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": False}
    consumers: list[Any] = []

    def joined() -> None:
        consumer = Consumer({**options, "partition.assignment.strategy": "cooperative-sticky"})
        consumer.subscribe([name])
        consumers.append(consumer)

    def until_shared() -> None:
        end = perf_counter() + 120
        while perf_counter() < end:
            for consumer in consumers:
                consumer.poll(0.005)
            shares = [len(consumer.assignment()) for consumer in consumers]
            if sum(shares) == count and min(shares) >= count // len(consumers):
                return
        raise RuntimeError(f"{count} partitions were not shared: {shares}")

    for _ in range(3):
        joined()
    until_shared()
    begin = perf_counter()
    joined()
    until_shared()
    print(perf_counter() - begin)
    for consumer in consumers:
        consumer.close()


def consume(bootstrap: str, name: str, count: int) -> None:
    options = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**options, "queued.max.messages.kbytes": 65536, "fetch.queue.backoff.ms": 5})
    consumer.assign([TopicPartition(name, index, 0) for index in range(PARTITIONS)])
    got = 0
    begin, used = perf_counter(), process_time()
    while got < count:
        got += sum(message.error() is None for message in consumer.consume(10_000, 1.0))
    report(count, begin, used)
    consumer.close()


if __name__ == "__main__":
    verbs: dict[str, Callable[[str, str, int], None]] = {
        "topic": topic,
        "flushed": flushed,
        "lone": lone,
        "rebalance": rebalance,
        "produce": produce,
        "keyed": keyed,
        "ragged": ragged,
        "consume": consume,
        "send": send,
    }
    verbs[sys.argv[2]](sys.argv[1], sys.argv[3], int(sys.argv[4]))
