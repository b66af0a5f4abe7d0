"""Streaming queries, whose cases are those of tests/lakelog/spark/source."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from log_tables.cluster.admin.topic_admin import add_partitions, delete_topic
from tests.kit.kafka_spark import ALL, KafkaTopics, refused
from tests.kit.spark import NOW_MS

pytestmark = [pytest.mark.spark, pytest.mark.torture]


def test_a_new_query_starts_at_latest(topics: KafkaTopics, checkpoint: Path) -> None:
    query, found = topics.started(checkpoint)
    try:
        query.processAllAvailable()
        topics.append("t", 2, 2)
        topics.append("t", 0, 1)
        query.processAllAvailable()
        assert found.offsets() == {"t-0": [10], "t-2": [0, 1]}
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, ALL),
        ({"startingOffsets": {"t": {"0": -1, "1": 17, "2": -2}}}, {"t-1": [17, 18, 19]}),
        ({"startingTimestamp": str(NOW_MS), "assign": {"t": [0]}}, {"t-0": ALL["t-0"]}),
        (
            {
                "startingOffsetsByTimestamp": {"t": {"0": NOW_MS + 1, "1": 1, "2": 1}},
                "startingOffsetsByTimestampStrategy": "latest",
            },
            {"t-1": ALL["t-1"]},
        ),
    ],
    ids=str,
)
def test_a_query_starts_where_it_is_told(
    topics: KafkaTopics, checkpoint: Path, options: dict[str, Any], found: dict[str, list[int]]
) -> None:
    assert topics.stream(checkpoint, **options).offsets() == found


def test_a_start_beyond_the_end_is_lost_data(topics: KafkaTopics, tmp_path: Path) -> None:
    options: dict[str, Any] = {"assign": {"t": [0]}, "startingOffsets": {"t": {"0": 12}}}
    refused(lambda: topics.stream(tmp_path / "strict", **options), "was changed from 12")
    lenient = {**options, "failOnDataLoss": "false"}
    assert topics.stream(tmp_path / "lenient", **lenient).offsets() == {}
    topics.append("t", 0, 5)
    assert topics.stream(tmp_path / "lenient", **lenient).offsets() == {"t-0": [*range(10, 15)]}


def test_max_offsets_per_trigger_is_shared_out_in_proportion(topics: KafkaTopics, checkpoint: Path) -> None:
    query, found = topics.progressed(checkpoint, maxOffsetsPerTrigger="6")
    first = query.recentProgress[0]["sources"][0]
    assert json.loads(first["endOffset"]) == {"t": {"0": 2, "1": 4, "2": 0}}
    assert json.loads(first["latestOffset"]) == {"t": {"0": 10, "1": 20, "2": 0}}
    assert max(map(len, found.batches)) <= 6
    assert found.offsets() == ALL
    assert topics.batch(startingOffsets=first["endOffset"]) == {
        "t-0": [*range(2, 10)],
        "t-1": [*range(4, 20)],
    }


def test_available_now_reads_what_was_there_when_it_began(topics: KafkaTopics, checkpoint: Path) -> None:
    options: dict[str, Any] = {"maxOffsetsPerTrigger": "12"}
    found = topics.stream(checkpoint, lambda: topics.append("t", 0, 5), **options)
    assert found.offsets() == ALL
    assert [len(batch) for batch in found.batches] == [12, 12, 6]
    later = topics.stream(checkpoint, minPartitions="5", **options)
    assert later.offsets() == {"t-0": [*range(10, 25)]}
    assert topics.stream(checkpoint, **options).batches == []


def test_a_micro_batch_that_failed_is_repeated(topics: KafkaTopics, checkpoint: Path) -> None:
    def fail() -> None:
        topics.append("t", 0, 5)
        raise RuntimeError("the sink is full")

    options: dict[str, Any] = {"maxOffsetsPerTrigger": "12"}
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        topics.stream(checkpoint, fail, **options)
    found = topics.stream(checkpoint, **options)
    assert found.offsets() == {**ALL, "t-0": [*range(15)]}
    assert len(found.batches[0]) == 12


def test_segments_merged_beneath_a_query_change_nothing(topics: KafkaTopics, checkpoint: Path) -> None:
    def merge() -> None:
        for index in range(2):
            topics.append("t", index, 1)
            topics.merge("t", index)

    found = topics.stream(checkpoint, merge, maxOffsetsPerTrigger="10")
    assert found.offsets() == ALL


def test_later_partitions_and_topics_are_read_from_their_beginning(
    empty: KafkaTopics, checkpoint: Path
) -> None:
    query, found = empty.started(checkpoint, subscribePattern="orders-.*")
    try:
        query.processAllAvailable()
        for name in ("orders-1", "other"):
            empty.create(name)
            empty.append(name, 0, 2)
        query.processAllAvailable()
        assert found.offsets() == {"orders-1-0": [0, 1]}
        add_partitions(empty.cluster, "orders-1", 2)
        empty.append("orders-1", 1, 1)
        empty.create("orders-2")
        empty.append("orders-2", 0, 1)
        query.processAllAvailable()
        assert found.offsets() == {"orders-1-0": [0, 1], "orders-1-1": [0], "orders-2-0": [0]}
    finally:
        query.stop()


def test_records_deleted_before_a_query_came_to_them(topics: KafkaTopics, tmp_path: Path) -> None:
    strict, lenient = tmp_path / "strict", tmp_path / "lenient"
    for checkpoint in (strict, lenient):
        topics.stream(checkpoint)
    topics.append("t", 0, 10)
    topics.partition("t", 0).truncate(15)
    refused(lambda: topics.stream(strict), "failOnDataLoss")
    assert topics.stream(lenient, failOnDataLoss="false").offsets() == {"t-0": [*range(15, 20)]}


def test_a_topic_deleted_under_a_query_ends_it(topics: KafkaTopics, tmp_path: Path) -> None:
    topics.create("u")
    topics.append("u", 0, 2)
    strict, lenient = tmp_path / "strict", tmp_path / "lenient"
    for checkpoint in (strict, lenient):
        topics.stream(checkpoint, subscribePattern="[tu]")
    delete_topic(topics.cluster, "t")
    topics.append("u", 0, 2)
    refused(lambda: topics.stream(strict, subscribePattern="[tu]"), "have been deleted")
    left = topics.stream(lenient, subscribePattern="[tu]", failOnDataLoss="false")
    assert left.offsets() == {"u-0": [2, 3]}


def test_a_topic_that_was_made_anew_is_read_under_the_old_offsets(
    topics: KafkaTopics, checkpoint: Path
) -> None:
    """Kafka's source knows names alone; the source `lakelog` would refuse this."""
    topics.stream(checkpoint)
    topics.recreate("t", 3)
    topics.append("t", 0, 12)
    topics.append("t", 1, 20)
    assert topics.stream(checkpoint).offsets() == {"t-0": [10, 11]}


def test_ends_are_found_by_a_consumer_group_too(topics: KafkaTopics, checkpoint: Path) -> None:
    """With this setting Spark's driver joins a group to find the ends, and commits nothing."""
    setting = "spark.sql.streaming.kafka.useDeprecatedOffsetFetching"
    topics.spark.conf.set(setting, "true")
    try:
        options: dict[str, Any] = {"subscribePattern": "t", "maxOffsetsPerTrigger": "12"}
        assert topics.stream(checkpoint, **options).offsets() == ALL
        topics.append("t", 2, 2)
        assert topics.stream(checkpoint, **options).offsets() == {"t-2": [0, 1]}
        assert topics.batch(startingTimestamp=str(NOW_MS + 1), assign={"t": [1]}) == {"t-1": [*range(10, 20)]}
    finally:
        topics.spark.conf.unset(setting)
