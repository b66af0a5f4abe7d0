"""Quotas of principals whose requests come over Kafka's protocol: answered at once, and silent afterwards."""

from collections.abc import Iterator

import pytest

from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.acl import ResourceType
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_asking import Asker, asker
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.secured import Secured, bearer, everything
from tests.kit.support import WAIT_S, wait_until

RATE = 1_000.0
"""Bytes a second: what is sent here is a debt of minutes."""

SILENT_S = 0.3
FREE = ("admin", "slow")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    return Secured(tmp_path_factory.mktemp("root"))


@pytest.fixture(scope="module")
def keys(secured: Secured) -> dict[str, str]:
    quotas = {
        "writer": Quota(producer_byte_rate=RATE),
        "silent": Quota(producer_byte_rate=RATE),
        "reader": Quota(consumer_byte_rate=RATE),
        "asker": Quota(request_rate=0.01),
        "namer": Quota(request_rate=100),
    }
    records_of_quotas = [quota_record(f"User:{name}", quota) for name, quota in quotas.items()]
    secured.cluster.metadata_log.change_access(lambda _: records_of_quotas)
    for name in (*quotas, "slow"):
        secured.allow(*everything(f"User:{name}", [ResourceType.TOPIC]))
    return {name: secured.key(f"User:{name}") for name in (*quotas, *FREE)}


@pytest.fixture(scope="module")
def gateway(secured: Secured, keys: dict[str, str]) -> Iterator[KafkaGateway]:
    given = {"authentication_methods": "api-key", "principal_requests_max": 1}
    with kafka_gateway(secured.cluster.store.url, **given) as running:
        running.running.client.headers.update(bearer(keys["admin"]))
        running.create_topic("t")
        running.running.produce("t", "x" * 100_000)
        running.create_topic("empty")
        yield running


def records(size: int, acks: int = -1, topic: str = "t") -> ProduceRequest:
    batch = kafka_python_batch([Sent(None, b"x" * size, 1)])
    part = PartitionProduceData(index=0, records=batch)
    topics = [TopicProduceData(name=topic, partition_data=[part])]
    return ProduceRequest(transactional_id=None, acks=acks, timeout_ms=10_000, topic_data=topics)


def fetch(topic: str = "t", wait_ms: int = 0) -> FetchRequest:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[part])]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def is_silent(client: Asker) -> bool:
    """Send a request, and say whether no answer comes within SILENT_S."""
    client.send(MetadataRequest(topics=[]), 13)
    client.socket.settimeout(SILENT_S)
    try:
        client.answer(MetadataRequest, 13)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(WAIT_S)
    return False


def test_a_producer_is_answered_at_once_and_not_read_until_its_debt_is_paid(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    with asker(gateway.port) as client, asker(gateway.port) as other, asker(gateway.port) as again:
        client.key(keys["writer"])
        answer = client.ask(records(50_000), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        assert 40_000 < answer.throttle_time_ms <= 51_000
        assert is_silent(client)
        other.key(keys["slow"])
        assert other.ask(records(50_000), 9).throttle_time_ms == 0
        again.key(keys["writer"])
        again.send(records(50_000), 9)
        assert is_silent(again)


def test_a_producer_without_answers_is_not_read_either(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    with asker(gateway.port) as client:
        client.key(keys["silent"])
        client.send(records(50_000, acks=0), 9)
        assert is_silent(client)


def test_a_reader_gets_seconds_of_its_quota_and_then_nothing(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    with asker(gateway.port) as client, asker(gateway.port) as again:
        client.key(keys["reader"])
        answer = client.ask(fetch(), 12)
        assert len(answer.responses[0].partitions[0].records) > 100_000  # one record, which comes whole
        assert answer.throttle_time_ms > 50_000
        assert is_silent(client)
        again.key(keys["reader"])
        answer = again.ask(fetch(), 12)
        assert answer.responses == []
        assert answer.throttle_time_ms > 50_000


def test_requests_are_counted(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    with asker(gateway.port) as client:
        client.key(keys["asker"])
        assert client.ask(MetadataRequest(topics=[])).throttle_time_ms > 50_000
        assert is_silent(client)


def test_a_request_too_many_waits_for_its_turn(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    with asker(gateway.port) as waiting, asker(gateway.port) as client:
        waiting.key(keys["slow"])
        client.key(keys["slow"])
        waiting.send(fetch("empty", int(WAIT_S * 1_000)), 12)
        wait_until(lambda: is_silent(client), "the fetch is under way")
        waiting.close()
        assert client.answer(MetadataRequest, 13).cluster_id


def test_a_batch_that_waits_for_its_turn_is_appended_when_its_client_has_left(
    gateway: KafkaGateway, keys: dict[str, str]
) -> None:
    """With acks=0 the client has no reason to repeat the batch."""
    http = gateway.running.client

    def connected() -> int:
        name = "lakelog_kafka_connections "
        return int(float(http.get("/metrics").text.split(f"\n{name}")[1].split("\n")[0]))

    gateway.create_topic("left")
    with asker(gateway.port) as waiting:
        waiting.key(keys["slow"])
        waiting.send(fetch("empty", int(WAIT_S * 1_000)), 12)
        with asker(gateway.port) as client:
            client.key(keys["slow"])
            before = connected()
            client.send(records(1, acks=0, topic="left"), 9)
            client.send(records(1, acks=0, topic="left"), 9)
        wait_until(lambda: connected() < before, "the client has left")
    end = "/topics/left/partitions/0/offsets"
    wait_until(lambda: http.get(end).json()["end_offset"] == 2, "both are appended")


def test_a_request_counts_as_one_for_each_name_in_it(gateway: KafkaGateway, keys: dict[str, str]) -> None:
    names = [MetadataRequestTopic(name=f"absent-{number}") for number in range(300)]
    with asker(gateway.port) as client:
        client.key(keys["namer"])
        client.ask(MetadataRequest(topics=names[:50], allow_auto_topic_creation=False), 9)
        assert not is_silent(client)
        owed = client.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
        assert owed.throttle_time_ms > 1_000
