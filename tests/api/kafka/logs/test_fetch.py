"""Fetch."""

from pathlib import Path

import pytest

from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from api.kafka.records.compression import Compression
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway, kafka_gateway, read_all
from tests.kit.kafka_asking import Asker, asker
from tests.kit.partitions import thin_out
from tests.kit.support import WAIT_S


@pytest.fixture
def compacted(kafka: KafkaGateway, request: pytest.FixtureRequest) -> str:
    """A topic with the offsets 0 to 10; of the first ten, compaction has left the records 3 and 4."""
    name = kafka.create_topic(request.node.name)
    assert kafka.running.produce(name, *range(10), partition=0).is_success
    assert kafka.running.produce(name, 10, partition=0).is_success
    partition = Cluster.open(open_store(kafka.data)).topic(name).partition(0)
    thin_out(partition, partition.snapshot.segments[:1], keep=lambda offset: offset in (3, 4))
    return name


def fetched(asking: Asker, topic: str, offset: int, wait_s: float = 0.0) -> PartitionData:
    """The answer to a fetch that waits for one byte."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    asked = FetchTopic(topic=topic, partitions=[part])
    (answer,) = asking.ask(
        FetchRequest(topics=[asked], min_bytes=1, max_wait_ms=int(wait_s * 1_000)), 12
    ).responses
    found: PartitionData = answer.partitions[0]
    return found


def test_a_consumer_gets_beyond_records_that_compaction_dropped(
    kafka: KafkaGateway, asking: Asker, compacted: str
) -> None:
    """An answer without records would keep it where it is for ever."""
    assert [each.offset for each in read_all(kafka.bootstrap, compacted)] == [3, 4, 10]
    assert [each.offset for each in read_all(kafka.bootstrap, compacted, start=6)] == [10]
    behind = fetched(asking, compacted, 6, WAIT_S).records
    assert behind is not None
    batch = bytes(behind)
    assert (int.from_bytes(batch[:8]), int.from_bytes(batch[23:27])) == (10, 0)
    assert not fetched(asking, compacted, 11).records


def test_an_answer_has_a_little_of_each_of_many_partitions(kafka: KafkaGateway, asking: Asker) -> None:
    """A batch of one record is mostly header, which counts."""
    topic = kafka.create_topic("little-of-many", 20)
    for number in range(20):
        assert kafka.running.produce(topic, "x", partition=number).is_success
    parts = [FetchPartition(partition=number, partition_max_bytes=1_000) for number in range(20)]
    (answer,) = asking.ask(FetchRequest(topics=[FetchTopic(topic=topic, partitions=parts)]), 12).responses
    assert [each.partition_index for each in answer.partitions if not each.records] == []


@pytest.mark.parametrize(
    "codec",
    ["zstd", *(pytest.param(each, marks=pytest.mark.torture) for each in ("gzip", "snappy", "lz4", "none"))],
)
def test_answers_are_packed_as_the_gateway_is_set(tmp_path: Path, codec: str) -> None:
    """A client that knows no zstd gets what it can read."""
    values = [{"number": number} for number in range(2_000)]
    with kafka_gateway(tmp_path, kafka_compression_type=codec) as packing, asker(packing.port) as asking:
        topic = packing.create_topic("packed")
        assert packing.running.produce(topic, *values, partition=0).is_success
        read = [each.value for each in read_all(packing.bootstrap, topic)]
        assert read == [b'{"number":%d}' % number for number in range(2_000)]
        part = FetchPartition(partition=0, partition_max_bytes=1_000_000)
        request = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[part])])
        codecs = {}
        for version in (9, 12):
            (answer,) = asking.ask(request, version).responses
            codecs[version] = bytes(answer.partitions[0].records)[22] & 7
        known = Compression[codec.upper()]
        assert codecs == {9: Compression.NONE if codec == "zstd" else known, 12: known}
