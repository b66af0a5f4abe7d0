"""Produce and Fetch by the ids of topics (KIP-516): an id is of one life of a topic, and of no other."""

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.cluster import MetadataRequest
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, kafka_gateway, read_all
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_requests import request_of
from tests.kit.kafka_served import kafka_served
from tests.kit.record_batches import Sent, kafka_python_batch

NOBODY = b"\1" * 16
SLOW_MS = 600_000
"""The gateway does not look by itself whether a topic is another one."""


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    with kafka_gateway(tmp_path_factory.mktemp("slow"), refresh_interval_ms=SLOW_MS) as gateway:
        yield gateway


@pytest.fixture
def client(slow: KafkaGateway) -> Iterator[Asker]:
    with asker(slow.port) as made:
        yield made


@dataclass
class Life:
    """A topic that the gateway knows, and that something else deletes and re-creates."""

    data: str | Path
    name: str

    def ends(self, again: bool = True) -> bytes:
        """The id that it has then."""
        cluster = Cluster.open(open_store(str(self.data)))
        delete_topic(cluster, self.name)
        return bytes.fromhex(create_topic(cluster, self.name, 1, {}).topic_id) if again else NOBODY


def id_of(client: Asker, name: str) -> bytes:
    (topic,) = client.ask(request_of(MetadataRequest, name, ""), 12).topics
    found: bytes = topic.topic_id
    return found


def produced(client: Asker, *ids: bytes, value: bytes = b"x") -> list[tuple[int, int]]:
    """The code and the offset of one record for each topic."""
    data = [PartitionProduceData(index=0, records=kafka_python_batch([Sent(None, value, 1)])) for _ in ids]
    topics = [
        TopicProduceData(topic_id=each, partition_data=[part]) for each, part in zip(ids, data, strict=True)
    ]
    answer = client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 13)
    assert [each.topic_id for each in answer.responses] == [*ids]
    parts = [each.partition_responses[0] for each in answer.responses]
    return [(part.error_code, part.base_offset) for part in parts]


def fetched(client: Asker, ids: Sequence[bytes], version: int) -> list[tuple[int, bool]]:
    """The code of each topic, and whether there are records."""
    topics = [
        FetchTopic(topic_id=each, partitions=[FetchPartition(partition=0, partition_max_bytes=9_999)])
        for each in ids
    ]
    answer = client.ask(FetchRequest(topics=topics, max_wait_ms=0), version)
    assert [each.topic_id for each in answer.responses] == [*ids]
    parts = [each.partitions[0] for each in answer.responses]
    return [(part.error_code, bool(part.records)) for part in parts]


UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, -1)


def test_known_and_unknown_ids_may_be_mixed(slow: KafkaGateway, client: Asker) -> None:
    one, other = (id_of(client, slow.create_topic(name)) for name in ("one", "other"))
    assert produced(client, one, NOBODY, other, bytes(16)) == [(0, 0), UNKNOWN, (0, 0), UNKNOWN]
    for version in range(13, 19):
        assert fetched(client, (NOBODY, one, bytes(16), other), version) == [
            (ErrorCode.UNKNOWN_TOPIC_ID, False), (0, True), (ErrorCode.UNKNOWN_TOPIC_ID, False), (0, True),
        ]  # fmt: skip


def test_a_partition_that_the_topic_does_not_have_is_no_unknown_id(slow: KafkaGateway, client: Asker) -> None:
    topic = id_of(client, slow.create_topic("narrow"))
    part = PartitionProduceData(index=7, records=kafka_python_batch([Sent(None, b"x", 1)]))
    asked = ProduceRequest(acks=-1, topic_data=[TopicProduceData(topic_id=topic, partition_data=[part])])
    (answer,) = client.ask(asked, 13).responses[0].partition_responses
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("again", [False, True])
def test_the_id_of_a_deleted_topic_is_unknown_to_a_gateway_that_has_not_heard_of_it(
    slow: KafkaGateway, client: Asker, again: bool
) -> None:
    life = Life(slow.data, slow.create_topic(f"deleted-{again}"))
    old = id_of(client, life.name)
    assert produced(client, old) == [(0, 0)]
    new = life.ends(again)
    for _ in range(2):
        assert produced(client, old) == [UNKNOWN]
        assert fetched(client, [old], 17) == [(ErrorCode.UNKNOWN_TOPIC_ID, False)]
    if again:
        assert produced(client, old, new, value=b"new") == [UNKNOWN, (0, 0)]
        assert [each.value for each in read_all(slow.bootstrap, life.name)] == [b"new"]


@pytest.mark.parametrize("by", ["produce", "fetch"])
def test_records_for_a_deleted_topic_never_come_to_the_next_of_its_name(
    slow: KafkaGateway, client: Asker, by: str
) -> None:
    """Whichever request is the first by which the gateway hears that there is another one."""
    life = Life(slow.data, slow.create_topic(f"next-{by}"))
    old = id_of(client, life.name)
    assert produced(client, old, value=b"old") == [(0, 0)]
    new = life.ends()
    if by == "fetch":
        assert fetched(client, [new], 17) == [(0, False)]
    assert produced(client, new, old, new, value=b"new") == [(0, 0), UNKNOWN, (0, 1)]
    assert fetched(client, [old, new], 17) == [(ErrorCode.UNKNOWN_TOPIC_ID, False), (0, True)]


def test_a_value_that_the_old_topic_refused_is_not_taken_by_the_new_one(
    slow: KafkaGateway, client: Asker
) -> None:
    """A refusal by the topic as it was known is looked at once more, by its name."""
    life = Life(slow.data, slow.create_topic("refusing", 1, **{"max.message.bytes": "2000"}))
    old = id_of(client, life.name)
    assert produced(client, old, value=b"x" * 3_000) == [(ErrorCode.MESSAGE_TOO_LARGE, -1)]
    new = life.ends()
    assert produced(client, old, value=b"x" * 3_000) == [UNKNOWN]
    assert produced(client, new, value=b"x" * 3_000) == [(0, 0)]


def test_an_unknown_id_leaves_nothing_behind(tmp_path: Path) -> None:
    with kafka_served(tmp_path) as here, asker(here.port) as client:
        for _ in range(5):
            assert fetched(client, [NOBODY], 17) == [(ErrorCode.UNKNOWN_TOPIC_ID, False)]
            assert produced(client, NOBODY) == [UNKNOWN]
        gc.collect()
        left = [each for each in gc.get_objects() if isinstance(each, TracebackType)]
        assert [each for each in left if each.tb_frame.f_globals["__name__"].startswith("api.kafka")] == []
