"""A partition with too many unmerged segments: at each door its producers hear backpressure until a merge."""

import re
from pathlib import Path

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.kafka_asking import asker
from tests.kit.kafka_served import kafka_served
from tests.kit.maintenance import errors, run
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.support import wait_until

FILES = 5
SETTINGS = {"linger_ms": 0, "unmerged_segments_max": FILES - 1}


def merge(data: Path) -> None:
    cluster = Cluster.open(open_store(data), SystemClock(), create=False)
    assert errors(run(cluster)) == {}


def end(gateway: RunningGateway) -> int:
    end: int = gateway.client.get("/topics/t/partitions/0/offsets").json()["end_offset"]
    return end


def test_over_http_it_is_429_until_somebody_merges(tmp_path: Path) -> None:
    with running_gateway(tmp_path, **SETTINGS) as gateway:
        gateway.create_topic("t", partitions=2, merge_min_age_ms="0")
        for number in range(FILES):
            assert gateway.produce("t", number, partition=0).status_code == 200
        wait_until(lambda: gateway.produce("t", "x", partition=0).status_code == 429, "it is refused")
        before = end(gateway)
        for acks in ("0", "1", "all"):
            answer = gateway.produce("t", "x", partition=0, acks=acks)
            assert (answer.status_code, answer.json()["error_code"]) == (429, 42901)
            assert answer.headers["retry-after"] == "1"
            said = re.fullmatch(
                r"partition 0 of topic 't' has (\d+) unmerged segments, and unmerged_segments_max is "
                rf"{FILES - 1}; run `lakelog maintain`, then repeat the request",
                answer.json()["message"],
            )
            assert said is not None
            files = int(said[1])
            assert FILES - 1 <= files < before  # some may have come while they were counted
        assert end(gateway) == before
        assert gateway.produce("t", "x", partition=1).status_code == 200
        metrics = gateway.client.get("/metrics").text
        assert f'lakelog_unmerged_segments{{topic="t"}} {files}.0' in metrics
        merge(tmp_path)
        wait_until(lambda: gateway.produce("t", "x", partition=0).status_code == 200, "it is taken again")


def asked(port: int) -> int:
    """The error that a Kafka client hears that would wait for an hour."""
    batch = PartitionProduceData(index=0, records=kafka_python_batch([Sent(None, b"x", 1)]))
    topics = [TopicProduceData(name="t", partition_data=[batch])]
    with asker(port) as client:
        answer = client.ask(ProduceRequest(acks=-1, timeout_ms=3_600_000, topic_data=topics), 9)
        return int(answer.responses[0].partition_responses[0].error_code)


def test_a_kafka_client_hears_at_once_to_come_again(tmp_path: Path) -> None:
    with kafka_served(tmp_path, **SETTINGS) as here:
        cluster, debt = here.gateway.cluster, here.gateway.writer.debt
        topic = create_topic(cluster, "t", 1, {"merge.min.age.ms": "0"})
        for _ in range(FILES):
            assert asked(here.port) == ErrorCode.NONE
        wait_until(lambda: debt.refuses, "it is refused")
        assert asked(here.port) == ErrorCode.REQUEST_TIMED_OUT  # what waited would hold the room of others
        assert here.gateway.buffer.used == 0
        assert topic.partition(0).high_watermark == FILES
        merge(tmp_path)
        wait_until(lambda: asked(here.port) == ErrorCode.NONE, "it is taken again")
