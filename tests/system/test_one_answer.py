"""One question has one answer, whichever door is asked: where a key goes, which time a value names, how large
a record may be, where a log ends, and where a group begins.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition as KafkaPartition
from deltalake import DeltaTable
from typer.testing import CliRunner

from lakelog.cli import app
from lakelog.client.client import Client
from lakelog.client.consumer.consumer import Consumer
from lakelog.client.producer.producer import Producer
from lakelog.spark.sink.task import route
from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidRequest, RecordTooLarge
from log_tables.key_hash import KEY_HASHES, MURMUR2, partition_for_key
from log_tables.layout import partition_directory, topic_directory
from log_tables.record import Record, input_batch
from log_tables.sql.query import query
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, kafka_gateway, librdkafka_producer, librdkafka_reader
from tests.kit.support import WAIT_S, wait_until
from tests.log_tables.test_key_hash import MURMUR2_OF

BINARY = "application/vnd.kafka.binary.v2+json"
ARROW = "application/vnd.apache.arrow.stream"
PARTITIONS = 7
KEYS = [*MURMUR2_OF, b"a", b"ab", b"a key of words", b"k" * 300]

Pairs = Sequence[tuple[bytes, bytes]]
"""The key and the value of each record."""

Answer = str | None
"""Why the records were not taken; None: they were."""


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    with kafka_gateway(tmp_path_factory.mktemp("root"), refresh_interval_ms=50) as gateway:
        yield gateway


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def by_v2(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    body = {"records": [{"key": text(key), "value": text(value)} for key, value in pairs]}
    answer = door.running.client.post(f"/topics/{topic}", json=body, headers={"Content-Type": BINARY})
    return None if answer.is_success else answer.text


def by_arrow(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    batch = input_batch([Record(value, key) for key, value in pairs], SystemClock().now_us())
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    content, kind = sink.getvalue().to_pybytes(), {"Content-Type": ARROW}
    answer = door.running.client.post(f"/topics/{topic}", content=content, headers=kind)
    return None if answer.is_success else answer.text


def by_v3(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    for pair in pairs:
        key, value = ({"type": "BINARY", "data": text(data)} for data in pair)
        path = f"{door.running.cluster}/topics/{topic}/records"
        answer = door.running.client.post(path, json={"key": key, "value": value})
        if not answer.is_success:
            return answer.text
    return None


def by_values(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    for key, value in pairs:
        answer = door.running.client.post(
            f"/topics/{topic}/values",
            params={"key_header": "X-Key"},
            content=value,
            headers={"Content-Type": "application/octet-stream", "X-Key": key.decode()},
        )
        if not answer.is_success:
            return answer.text
    return None


def by_transaction(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    records = [{"topic": topic, "key": text(key), "value": text(value)} for key, value in pairs]
    answer = door.running.client.post(
        f"/consumers/of-{topic}/transactions", json={"records": records}, headers={"Content-Type": BINARY}
    )
    return None if answer.is_success else answer.text


def by_client(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    with Producer(door.running.url) as producer:
        try:
            sent = [producer.send(topic, value, key) for key, value in pairs]
            for each in sent:
                each.result()
        except (RecordTooLarge, InvalidRequest) as error:
            return str(error)
    return None


def by_command(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    lines = b"".join(key + b"|" + value + b"\n" for key, value in pairs)
    words = ["produce", topic, "-", "--key-separator", "|", "--url", door.running.url]
    done = CliRunner().invoke(app, words, input=lines)
    return None if done.exit_code == 0 else done.output


def by_kafka(door: KafkaGateway, topic: str, pairs: Pairs) -> Answer:
    """Produce by a client that hashes as Java's clients do; returns its first error."""
    producer, failed = librdkafka_producer(door.bootstrap, partitioner="murmur2_random"), []
    for key, value in pairs:
        producer.produce(topic, value, key, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(WAIT_S) == 0
    return next((str(error) for error in failed if error is not None), None)


Door = Callable[[KafkaGateway, str, Pairs], Answer]
OURS: Mapping[str, Door] = {
    each.__name__.removeprefix("by_"): each
    for each in (by_v2, by_arrow, by_v3, by_values, by_transaction, by_client, by_command)
}
DOORS = {**OURS, "kafka": by_kafka}


def cluster_of(door: KafkaGateway) -> Cluster:
    return Cluster.open(open_store(door.running.data), create=False)


def asked(door: KafkaGateway, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in query(cluster_of(door), sql).to_pylist()]


@pytest.mark.parametrize("key_hash", KEY_HASHES)
def test_a_key_has_one_partition(door: KafkaGateway, key_hash: str) -> None:
    expected = {key: partition_for_key(key, PARTITIONS, key_hash) for key in KEYS}
    assert len(set(expected.values())) > 2
    if key_hash == MURMUR2:
        java = {key: (hashed & 0x7FFFFFFF) % PARTITIONS for key, hashed in MURMUR2_OF.items()}
        assert java.items() <= expected.items()
    topic = door.create_topic(f"keys-{key_hash}", PARTITIONS, partitioner_hash=key_hash)
    for name, send in (DOORS if key_hash == MURMUR2 else OURS).items():
        assert send(door, topic, [(key, name.encode()) for key in KEYS]) is None
    wrong = [
        (value, key, partition)
        for value, key, partition in asked(door, f'select value, key, partition from "{topic}"')
        if partition != expected[key]
    ]
    assert wrong == []
    assert asked(door, f'select count(*) from "{topic}"') == [
        (len(KEYS) * (len(OURS) + (key_hash == MURMUR2)),)
    ]
    rows = pa.RecordBatch.from_pydict({"key": pa.array(KEYS), "value": pa.array(KEYS)})
    cluster = cluster_of(door)
    for each in route(rows, topic, cluster.topic, 0.0, 0):
        assert {expected[key] for key in each.records.column("key").to_pylist()} == {each.partition}
    with Client(door.running.url) as client:
        found = client.topic(topic)
    assert (found["partitioner_hash"], found["configs"]["partitioner.hash"]) == (key_hash, key_hash)


def test_an_altered_hash_is_that_of_every_door(door: KafkaGateway) -> None:
    topic = door.create_topic("rehashed", PARTITIONS)
    door.running.alter_topic(topic, partitioner_hash=MURMUR2)
    for name, send in DOORS.items():
        assert send(door, topic, [(b"foobar", name.encode())]) is None
    places = asked(door, f'select distinct partition from "{topic}"')
    assert places == [(partition_for_key(b"foobar", PARTITIONS, MURMUR2),)]


def test_a_time_is_one_instant(door: KafkaGateway) -> None:
    topic = door.create_topic("times", value_columns="at timestamp FROM '/when'")
    values = (b'{"when":"2026-03-29T03:30:00+02:00"}', b'{"when":"2026-03-29 01:30"}')
    for send in DOORS.values():
        assert send(door, topic, [(b"k", value) for value in values]) is None
    stamp = pa.timestamp("us", "UTC")
    answers = {
        name: query(cluster_of(door), f"select {column} as at from {view}")["at"]
        for name, column, view in (("declared", "at", topic), ("json", '"when"', f"{topic}_json"))
    }
    directory = partition_directory(topic_directory(topic), 0)
    table = DeltaTable(f"{door.running.data}/{directory}").to_pyarrow_table(columns=["at"])
    answers["delta"] = table["at"]
    for name, found in answers.items():
        assert (name, found.type) == (name, stamp)
        assert found.to_pylist() == [datetime(2026, 3, 29, 1, 30, tzinfo=UTC)] * len(found)
        assert len(found) == 2 * len(DOORS)
    local = {
        str(when)
        for column, view in (("at", topic), ('"when"', f"{topic}_json"))
        for (when,) in asked(door, f"select {column} at time zone 'Europe/Berlin' from {view}")
    }
    assert local == {"2026-03-29 03:30:00+02:00"}


def test_a_record_has_one_size(door: KafkaGateway) -> None:
    limit, key = 200, b"k" * 50
    for name, send in DOORS.items():
        topic = door.create_topic(f"sizes-{name}", max_message_bytes=str(limit))
        assert send(door, topic, [(key, b"v" * (limit - len(key)))]) is None, name
        refused = send(door, topic, [(key, b"v" * (limit - len(key) + 1))])
        assert refused is not None, name
        assert "201 bytes" in refused or "too large" in refused, (name, refused)
        assert asked(door, f'select count(*) from "{topic}"') == [(1,)]


def test_a_log_has_one_end(door: KafkaGateway) -> None:
    topic = door.create_topic("ends")
    for sent, send in enumerate(DOORS.values()):
        assert send(door, topic, [(b"k", b"v")]) is None
        found = ends(door, topic)
        assert found == dict.fromkeys(found, sent + 1)
    # An answer to acks=1 comes before the commit; the log ends behind the record as soon as it is there.
    producer = librdkafka_producer(door.bootstrap, acks="1")
    producer.produce(topic, b"v")
    assert producer.flush(WAIT_S) == 0
    wait_until(lambda: {*ends(door, topic).values()} == {len(DOORS) + 1}, "each door has the record")


def ends(door: KafkaGateway, topic: str) -> dict[str, int]:
    """The end of the log of partition 0, by each door."""
    path = f"/topics/{topic}/partitions/0"
    fetched = door.running.client.get(f"{path}/records", params={"offset": "0"}, headers={"Accept": BINARY})
    described = CliRunner().invoke(app, ["topic", "describe", topic, "--json", "--url", door.running.url])
    with Client(door.running.url) as client, closing(librdkafka_reader(door.bootstrap)) as reader:
        return {
            "v2": door.running.client.get(f"{path}/offsets").json()["end_offset"],
            "fetch": int(fetched.headers["Next-Offset"]),
            "client": client.offsets(topic, 0).end,
            "kafka": reader.get_watermark_offsets(KafkaPartition(topic, 0), WAIT_S)[1],
            "command": int(described.stdout.split('"high_watermark":')[1].split("}")[0].split(",")[0]),
            "sql": asked(door, f'select max("offset") + 1 from "{topic}"')[0][0],
        }


def test_a_group_begins_where_it_subscribed(door: KafkaGateway) -> None:
    """At `latest` it gets all that comes after its subscription, in partitions that come later, too."""
    topic = door.create_topic("starts")
    assert by_v2(door, topic, [(b"k", b"before")]) is None
    instance = v2_instance(door, "starts-v2", topic)
    with Consumer(door.running.url, "starts-client", topic) as consumer:
        assert consumer.poll(0).num_rows == 0
        with Client(door.running.url) as client:
            client.add_partitions(topic, 3)
        for number in range(3):
            assert door.running.produce(topic, number, partition=number).is_success
        of_client: set[bytes] = set()

        def heard() -> bool:
            of_client.update(consumer.poll(100)["value"].to_pylist())
            return len(of_client) >= 3

        wait_until(heard, "the client has the records")
    of_v2: set[bytes] = set()

    def polled() -> bool:
        answer = door.running.client.get(f"{instance}/records", params={"timeout": 100})
        of_v2.update(base64.b64decode(each["value"]) for each in answer.json())
        return len(of_v2) >= 3

    wait_until(polled, "the instance has the records")
    assert of_v2 == of_client == {b"0", b"1", b"2"}


def v2_instance(door: KafkaGateway, group: str, topic: str) -> str:
    """The path of a member of `group` that has subscribed to `topic`, at its end."""
    body = {"name": "one", "format": "binary", "auto.offset.reset": "latest"}
    kind = {"Content-Type": "application/vnd.kafka.v2+json"}
    client = door.running.client
    assert client.post(f"/consumers/{group}", json=body, headers=kind).is_success
    path = f"/consumers/{group}/instances/one"
    answer = client.post(f"{path}/subscription", json={"topics": [topic]}, headers=kind)
    assert answer.is_success, answer.text
    return path
