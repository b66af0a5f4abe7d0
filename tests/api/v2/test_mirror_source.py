"""A mirror of a real Kafka over HTTP: created, watched while it is copied, and promoted at its end."""

from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.gateway import running_gateway
from tests.kit.kafka import librdkafka_producer
from tests.kit.kafka_broker import Broker
from tests.kit.mirrors import NAME, running
from tests.kit.support import WAIT_S, wait_until


def test_it_is_created_watched_and_promoted(kafka: Broker, tmp_path: Path) -> None:
    kafka.create_topic("doors-orders", 2, retention_ms=60_000_000)
    producer = librdkafka_producer(kafka.bootstrap)
    for value in (b"one", b"two", b"three"):
        producer.produce("doors-orders", value, b"key", partition=0)
    assert producer.flush(WAIT_S) == 0
    reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "doors-readers"})
    reader.commit(offsets=[TopicPartition("doors-orders", 0, 2)], asynchronous=False)
    reader.close()
    with running_gateway(tmp_path, linger_ms=0) as gateway:
        client = gateway.client
        page = client.get(
            "/console/new-mirror", params={"name": NAME, "source": kafka.bootstrap, "topics": "doors-orders"}
        )
        assert "a copy of 2 partitions, retention.ms=60000000" in page.text
        new = {"mirror": NAME, "source": kafka.bootstrap, "topics": ["doors-orders", "doors-later"]}
        made = client.post("/mirrors", json=new)
        assert made.status_code == 201, made.text
        copied = {"topic": "doors-orders", "partitions": 2, "configs": {"retention.ms": "60000000"}}
        assert (made.json()["topics"], made.json()["missing"]) == ([copied], ["doors-later"])

        cluster = Cluster.open(open_store(gateway.data))
        assert cluster.metadata_log.mirrors[NAME].groups == ("^.*",)
        assert cluster.metadata_log.mirrors[NAME].cluster_id == made.json()["cluster_id"] != ""

        def described() -> dict[str, Any]:
            found: dict[str, Any] = client.get(f"/mirrors/{NAME}").json()
            return found

        with running(cluster):
            wait_until(lambda: described()["lag"] == 0, "the gateway sees the copy at its end")
            [process] = described()["processes"]
            assert process["partitions"] == 2
            ends = [(each["position"], each["source_end"]) for each in described()["partitions"]]
            assert ends == [(3, 3), (0, 0)]
            producer.produce("doors-orders", b"four", b"key", partition=1)
            assert producer.flush(WAIT_S) == 0
        producer.produce("doors-orders", b"five", b"key", partition=1)
        assert producer.flush(WAIT_S) == 0
        promotion = {"topics": ["doors-orders"], "wait_ms": 0}
        refused = client.post(f"/mirrors/{NAME}/promote", json=promotion)
        assert (refused.status_code, refused.json()["error_code"]) == (503, 50003)
        assert "see that `lakelog mirror run copy` runs" in refused.json()["message"]
        assert gateway.produce("doors-orders", "x", partition=0).status_code == 409
        verified = client.post(f"/mirrors/{NAME}/verify", json={})
        assert verified.json()["equal"], verified.text
        assert {each["topic"] for each in verified.json()["partitions"]} == {"doors-orders"}
        assert "&#34;equal&#34;: true" in client.get(f"/console/mirrors/{NAME}/verify").text
        with running(cluster):
            promoted = client.post(f"/mirrors/{NAME}/promote", json={"topics": ["doors-orders"]})
        assert promoted.json() == {"mirror": NAME, "promoted": ["doors-orders"], "groups": []}
        offsets = client.get("/consumers/doors-readers/offsets").json()["offsets"]
        assert [(each["partition"], each["offset"]) for each in offsets] == [(0, 2)]
        answer = gateway.produce("doors-orders", "x", partition=1)
        assert answer.json()["offsets"][0]["offset"] == 2
        assert described()["partitions"] == []
        wait_until(lambda: described()["processes"] == [], "no process is there any more")
