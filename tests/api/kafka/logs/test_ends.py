"""The ends of logs that a gateway tells from memory: they never lack what another one has acknowledged."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from api.kafka.logs.list_offsets import OffsetSpec
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from api.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import broker_path
from log_tables.partition.partition import Partition
from log_tables.store.store import Store, open_store
from log_tables.testing import FaultyStore, HoldingStore
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.partitions import append
from tests.kit.record_batches import Sent, kafka_python_batch
from tests.kit.support import wait_until

ASKED = 50
TIMEOUT_MS = 1_000


@dataclass
class Scene:
    """A gateway that gives no sign of life while `signs` holds, and another writer of its root."""

    served: KafkaServed
    client: Asker
    calls: FaultyStore
    signs: HoldingStore
    other: Cluster

    def end(self) -> int:
        """The end of the log, as the gateway tells it."""
        part = ListOffsetsPartition(partition_index=0, timestamp=OffsetSpec.LATEST)
        answer = self.client.ask(ListOffsetsRequest(topics=[ListOffsetsTopic("t", [part])]))
        (found,) = answer.topics[0].partitions
        assert found.error_code == 0
        return int(found.offset)

    def produce(self) -> None:
        """Let the gateway append a record, which it leads for."""
        part = PartitionProduceData(index=0, records=kafka_python_batch([Sent(None, b"v", 1)]))
        topics = [TopicProduceData(name="t", partition_data=[part])]
        answer = self.client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics), 9)
        assert answer.responses[0].partition_responses[0].error_code == 0

    def take_over(self) -> Partition:
        """Claim the partition for another gateway."""
        self.other.refresh()
        return self.other.claim(self.other.topic("t"), 0, broker=99)

    def looks(self) -> int:
        """How often the gateway has looked for a newer version of the partition."""
        return sum(each.operation == "get" and "topics/t" in each.path for each in [*self.calls.calls])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """With two gateways on its list, of which it is one."""
    other = Cluster.open(open_store(str(tmp_path)), SystemClock(), "http://other")
    create_topic(other, "t", 1)
    stores: list[FaultyStore] = []
    signs: list[HoldingStore] = []

    def wrap(inner: Store) -> Store:
        stores.append(FaultyStore(inner))
        signs.append(HoldingStore(stores[-1], broker_path(1), {"put"}))
        return signs[-1]

    with kafka_served(tmp_path, wrap=wrap, leader_timeout_ms=TIMEOUT_MS) as served:
        assert served.gateway.brokers.id == 1
        other.metadata_log.register_broker("http://other")
        with asker(served.port) as client:
            yield Scene(served, client, stores[0], signs[0], other)


def test_a_leader_that_gives_signs_of_life_tells_it_from_memory(scene: Scene) -> None:
    scene.produce()
    wait_until(lambda: scene.served.gateway.brokers.is_seen, "it has given a sign of life")
    scene.end()
    before = scene.looks()
    assert [scene.end() for _ in range(ASKED)] == [1] * ASKED
    assert scene.looks() - before < ASKED // 2


def test_a_leader_that_may_count_as_dead_looks(scene: Scene) -> None:
    """Another one may lead in its place, and be known here only at the next commit."""
    scene.produce()
    scene.signs.hold()
    try:
        wait_until(lambda: not scene.served.gateway.brokers.is_seen, "its last sign of life is old")
        assert scene.end() == 1
        log = scene.take_over()
        for number in range(ASKED):
            append(log, b"v")
            assert scene.end() == number + 2
    finally:
        scene.signs.let_go()


def test_a_gateway_that_would_lead_looks(scene: Scene) -> None:
    assert scene.end() == 0
    log = scene.take_over()
    for number in range(ASKED):
        append(log, b"v")
        assert scene.end() == number + 1


def test_a_gateway_that_is_alone_is_seen_by_one_that_comes(tmp_path: Path) -> None:
    """It gives no signs of life before it knows of others, and they wait for some."""
    with kafka_served(tmp_path) as served:
        brokers = served.gateway.brokers
        assert brokers._others() == []
        assert brokers.is_seen
