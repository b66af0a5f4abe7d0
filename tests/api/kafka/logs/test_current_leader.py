"""The leader of a partition in the answers of a gateway that is another one (KIP-951)."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import httpx
import pytest
from confluent_kafka import Producer

from api.kafka.clients.errors import ErrorCode
from api.kafka.logs.list_offsets import OffsetSpec
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from api.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.kit.gateway import NEVER_MS
from tests.kit.kafka import KafkaGateway, Sent, kafka_gateway, librdkafka_producer
from tests.kit.kafka_asking import Asker, asker
from tests.kit.record_batches import Sent as SentRecord
from tests.kit.record_batches import kafka_python_batch
from tests.kit.several import leaders
from tests.kit.support import WAIT_S, wait_until

TOPIC, PARTITIONS = "moved", 4

_PRODUCER = {"topic.metadata.refresh.interval.ms": -1, "enable.idempotence": True, "linger.ms": 0}


@dataclass
class Late:
    """Two gateways of one root: `one`, and `two` that came later and took over half of a topic's partitions.

    A producer had written before, and never asks for metadata again.
    """

    one: KafkaGateway
    two: KafkaGateway
    producer: Producer
    sent: Sent

    @property
    def leads(self) -> list[int]:
        """Who leads each partition."""
        return leaders(self.one.running.url, TOPIC)


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Late]:
    root, own = tmp_path_factory.mktemp("late"), {"leader_timeout_ms": NEVER_MS}
    with ExitStack() as stack:
        one = stack.enter_context(kafka_gateway(root, **own))
        one.create_topic(TOPIC, PARTITIONS)
        sent, producer = Sent(), librdkafka_producer(one.bootstrap, **_PRODUCER)
        send(producer, sent)
        late = Late(one, stack.enter_context(kafka_gateway(root, broker_rack="b", **own)), producer, sent)
        wait_until(lambda: sorted(late.leads) == [1, 1, 2, 2], "both lead")
        yield late


def send(producer: Producer, sent: Sent) -> None:
    """Send a record to each partition, and wait for the answers."""
    value = len(sent.placed) // PARTITIONS
    for number in range(PARTITIONS):
        producer.produce(TOPIC, b"%d-%d" % (number, value), partition=number, on_delivery=sent.note)
    assert producer.flush(WAIT_S) == 0


def produced(gateway: KafkaGateway) -> ProduceResponse:
    """The answer to a batch for each partition."""
    parts = [
        PartitionProduceData(index=each, records=kafka_python_batch([SentRecord(None, b"v", 1)]))
        for each in range(PARTITIONS)
    ]
    asked = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=parts)]
    )
    with asker(gateway.port) as asking:
        answer: ProduceResponse = asking.ask(asked, 12)
    return answer


def fetched(gateway: KafkaGateway, version: int, rack: str = "") -> FetchResponse:
    """The answer to a fetch of each partition by a client in a rack."""
    parts = [FetchPartition(partition=each, partition_max_bytes=1_000) for each in range(PARTITIONS)]
    with asker(gateway.port) as asking:
        known = asking.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])).topics[0]
        asked = FetchTopic(topic_id=known.topic_id, partitions=parts)
        answer: FetchResponse = asking.ask(FetchRequest(topics=[asked], rack_id=rack), version)
    return answer


def forwarded(gateway: KafkaGateway) -> float:
    """How many requests a gateway has sent on."""
    lines = httpx.get(f"{gateway.running.url}/metrics").text.splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("lakelog_forwarded_total"))


def named(parts: Sequence[PartitionData | PartitionProduceResponse]) -> list[int | None]:
    """The leader that an answer names for each partition."""
    return [None if each.current_leader is None else each.current_leader.leader_id for each in parts]


def test_librdkafka_goes_to_the_leaders(late: Late) -> None:
    """It loses nothing and doubles nothing on its way."""

    def is_there() -> bool:
        before = forwarded(late.one)
        send(late.producer, late.sent)
        return forwarded(late.one) == before

    wait_until(is_there, "nothing of the producer is forwarded")
    assert late.sent.failed == []
    for number in range(PARTITIONS):
        offsets = [offset for at, offset in late.sent.placed.values() if at == number]
        assert offsets == [*range(len(offsets))]


def test_the_leader_is_named_beside_the_success(late: Late) -> None:
    theirs = [None if leader == 1 else leader for leader in late.leads]
    endpoint = (2, "127.0.0.1", late.two.port, "b")
    made = produced(late.one)
    parts = made.responses[0].partition_responses
    assert all(part.error_code == ErrorCode.NONE and part.base_offset >= 1 for part in parts)
    assert named(parts) == theirs
    read = fetched(late.one, 16)
    assert all(part.records for part in read.responses[0].partitions)
    assert named(read.responses[0].partitions) == theirs
    for answer in (made, read):
        assert [(e.node_id, e.host, e.port, e.rack) for e in answer.node_endpoints] == [endpoint]
    ours = [None if leader == 2 else leader for leader in late.leads]
    assert named(produced(late.two).responses[0].partition_responses) == ours


def test_who_reads_in_its_rack_hears_of_no_leader(late: Late) -> None:
    """It would go there, be sent back, and so on."""
    assert named(fetched(late.two, 16, "b").responses[0].partitions) == [None] * PARTITIONS


def test_every_gateway_knows_the_end_of_what_was_acknowledged(late: Late) -> None:
    """The leader tells it from memory, the other one looks."""
    with asker(late.one.port) as one, asker(late.two.port) as two:
        for _ in range(10):
            made = produced(late.one).responses[0].partition_responses
            ends = [each.base_offset + 1 for each in made]
            assert [told(one, OffsetSpec.LATEST), told(two, OffsetSpec.LATEST)] == [ends, ends]
        assert told(one, OffsetSpec.EARLIEST) == told(two, OffsetSpec.EARLIEST) == [0] * PARTITIONS


def told(asking: Asker, spec: OffsetSpec) -> list[int]:
    """The offset that a gateway tells of each partition."""
    parts = [ListOffsetsPartition(partition_index=each, timestamp=spec) for each in range(PARTITIONS)]
    answer = asking.ask(ListOffsetsRequest(topics=[ListOffsetsTopic(TOPIC, parts)]))
    return [
        each.offset for each in sorted(answer.topics[0].partitions, key=lambda each: each.partition_index)
    ]
