"""A disk that is full: records are refused with the reason, and all that makes room goes on."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from log_tables.error_codes import RETRIABLE
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, Sent, kafka_gateway, librdkafka_producer, produce, read_all
from tests.kit.small_disk import fill, small_disk
from tests.kit.support import WAIT_S, wait_until

DISK_BYTES = 24 << 20
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK_BYTES) as path:
        yield path


def status(client: httpx.Client) -> str:
    return str(client.get("/ready").json()["status"])


def post(client: httpx.Client, topic: str) -> httpx.Response:
    return client.post(f"/topics/{topic}", json={"records": [{"value": 1}]}, headers=JSON)


def lakelog(*words: object, **options: Any) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "lakelog", *map(str, words)]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=WAIT_S, **options)


def consume(here: KafkaGateway, topic: str, records: int) -> None:
    """Read `records` as a group, and commit where it is."""
    own = {"bootstrap.servers": here.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    with closing(Consumer({**own, "enable.auto.commit": False})) as consumer:
        consumer.subscribe([topic])
        for _ in range(records):
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.error() is None
        assert consumer.commit(asynchronous=False)[0].offset == records


@pytest.mark.torture
def test_all_but_records_goes_on_when_the_disk_is_full(disk: Path) -> None:
    data, filling = disk / "root", disk / "filling"
    with kafka_gateway(data) as here:
        client, url = here.running.client, here.running.url
        for topic in ("kept", "gone"):
            here.create_topic(topic)
            produce(here.bootstrap, topic, [b"%d" % number for number in range(10)])
        wait_until(lambda: len([*(data / ".tmp-reserve").glob(".tmp-*")]) == 64, "there is a reserve")
        fill(filling)
        wait_until(lambda: status(client) == "full", "the gateway is full")

        refused = post(client, "kept")
        assert (refused.status_code, refused.json()["error_code"]) == (503, RETRIABLE)
        assert refused.json()["error"] == "store_full"
        assert "the disk of the root is full" in refused.json()["message"]
        sent, producer = Sent(), librdkafka_producer(here.bootstrap)
        producer.produce("kept", b"late", partition=0, on_delivery=sent.note)
        producer.poll(1)
        waiting = subprocess.Popen(
            [sys.executable, "-m", "lakelog", "produce", "kept", "--url", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert waiting.stdin is not None
        waiting.stdin.write(b"later\n")
        waiting.stdin.close()

        consume(here, "kept", 10)
        place = TopicPartition("kept", 0, 5)
        admin = AdminClient({"bootstrap.servers": here.bootstrap})
        assert admin.delete_records([place])[place].result(WAIT_S).low_watermark == 5
        for words in (
            ("topic", "alter", "kept", "--config", "retention.ms=1", "--url", url),
            ("topic", "delete", "gone", "--url", url),
            ("maintain", "--once", "--data", data),
        ):
            done = lakelog(*words)
            assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert status(client) == "full"
        assert not sent.placed
        assert "lakelog_disk_full 1.0" in client.get("/metrics").text

        assert waiting.stderr is not None
        assert b"lakelog: records of topic kept wait" in waiting.stderr.readline()
        filling.unlink()
        assert producer.flush(WAIT_S) == 0
        assert not sent.failed
        assert waiting.wait(WAIT_S) == 0
        wait_until(lambda: status(client) == "ready", "the gateway is ready")
        assert post(client, "kept").status_code == 200
        assert [each.value for each in read_all(here.bootstrap, "kept", start=10)][:2] in (
            [b"late", b"later"],
            [b"later", b"late"],
        )
        assert len([*(data / ".tmp-reserve").glob(".tmp-*")]) == 64
    assert check(open_store(str(data))).problems == []
