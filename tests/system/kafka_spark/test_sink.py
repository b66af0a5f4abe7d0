"""Batches and streams into topics. One of them, which reads, too, is in `make test`."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kit.kafka import read_all
from tests.kit.kafka_spark import KafkaTopics
from tests.kit.queries import run_to_end

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import Row

pytestmark = pytest.mark.spark


def rows_of(topics: KafkaTopics, topic: str) -> list["Row"]:
    return topics.frame(subscribe=topic, includeHeaders="true").orderBy("partition", "offset").collect()


def save(topics: KafkaTopics, frame: "DataFrame", **options: str) -> None:
    servers = topics.options()["kafka.bootstrap.servers"]
    frame.write.format("kafka").option("kafka.bootstrap.servers", servers).options(**options).save()


@pytest.mark.torture
def test_a_batch_writes_every_column(spark: "SparkSession", empty: KafkaTopics) -> None:
    empty.door.create_topic("t", 2)
    rows = spark.sql(
        "SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 't' AS topic, 1 AS partition, "
        "array(named_struct('key', 'a', 'value', CAST('1' AS BINARY)), "
        "named_struct('key', 'a', 'value', CAST(NULL AS BINARY))) AS headers "
        "UNION ALL SELECT NULL, NULL, 't', 1, NULL"
    ).coalesce(1)
    save(empty, rows)
    first, second = rows_of(empty, "t")
    assert (first.partition, first.offset, first.key, first.value) == (1, 0, b"k", b"v")
    assert [tuple(header) for header in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.partition, second.offset, second.key, second.value) == (1, 1, None, None)
    assert second.headers is None
    here = read_all(empty.door.bootstrap, "t", 2)
    assert [(each.key, each.value) for each in here] == [(b"k", b"v"), (None, None)]


@pytest.mark.torture
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_key_has_its_partition_and_order(spark: "SparkSession", empty: KafkaTopics, codec: str) -> None:
    empty.door.create_topic("t", 4)
    frame = spark.range(20_000).selectExpr("CAST(id % 100 AS STRING) AS key", "CAST(id AS STRING) AS value")
    save(empty, frame.coalesce(1), topic="t", **{"kafka.compression.type": codec, "kafka.linger.ms": "5"})
    found: dict[bytes, set[int]] = {}
    values: dict[bytes, list[int]] = {}
    for row in rows_of(empty, "t"):
        found.setdefault(row.key, set()).add(row.partition)
        values.setdefault(row.key, []).append(int(row.value))
    assert {len(partitions) for partitions in found.values()} == {1}
    assert values == {b"%d" % key: [*range(key, 20_000, 100)] for key in range(100)}


@pytest.mark.torture
def test_a_topic_that_is_not_there_is_made(spark: "SparkSession", empty: KafkaTopics) -> None:
    save(empty, spark.range(3).selectExpr("CAST(id AS STRING) AS value"), topic="made")
    assert {row.value for row in rows_of(empty, "made")} == {b"0", b"1", b"2"}


def test_a_stream_writes_from_topic_to_topic(topics: KafkaTopics, checkpoint: Path) -> None:
    """Kafka's sink promises at least once; without failures each record is there exactly once."""
    topics.door.create_topic("copy", 3)

    def copy() -> None:
        stream = topics.spark.readStream.format("kafka").options(
            **topics.options(startingOffsets="earliest", maxOffsetsPerTrigger="7", includeHeaders="true")
        )
        kept = stream.load().selectExpr(
            "key", "concat(string(partition), '-', string(offset)) AS value", "partition", "headers"
        )
        writer = kept.writeStream.format("kafka").option("checkpointLocation", str(checkpoint))
        servers = topics.options()["kafka.bootstrap.servers"]
        run_to_end(
            writer.option("kafka.bootstrap.servers", servers)
            .option("topic", "copy")
            .trigger(availableNow=True)
        )

    copy()
    topics.append("t", 2, 3)
    copy()
    expected = {"0": 10, "1": 20, "2": 3}
    found = [(row.partition, row.value.decode()) for row in rows_of(topics, "copy")]
    assert sorted(found) == sorted(
        (int(partition), f"{partition}-{offset}")
        for partition, count in expected.items()
        for offset in range(count)
    )
