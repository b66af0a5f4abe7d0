"""Batch queries, whose cases are those of tests/lakelog/spark/source/test_batch.py."""

from pathlib import Path

import pytest

from log_tables.record import Record
from tests.kit.kafka_spark import ALL, KafkaTopics, refused
from tests.kit.partitions import thin_out
from tests.kit.spark import NOW_MS

pytestmark = [pytest.mark.spark, pytest.mark.torture]

QUICK_POLLS = {"kafkaConsumer.pollTimeoutMs": "5000"}
"""How long a task waits for records that are not there; two minutes by default."""


def test_a_batch_reads_from_earliest_to_latest(topics: KafkaTopics) -> None:
    assert topics.batch() == ALL
    assert topics.batch(startingOffsets="earliest", endingOffsets="latest") == ALL
    assert topics.batch(**{"kafka.isolation.level": "read_committed"}) == ALL
    assert topics.frame().count() == 30


def test_an_empty_topic_gives_no_rows(topics: KafkaTopics) -> None:
    topics.create("empty", 2)
    assert topics.batch(subscribe="empty") == {}
    assert topics.batch(subscribe="empty", startingOffsets={"empty": {"0": 0, "1": -2}}) == {}
    assert topics.batch(subscribe="empty,t").keys() == {"t-0", "t-1"}


def test_topics_are_chosen_by_name_pattern_and_partition(topics: KafkaTopics) -> None:
    for name in ("orders-1", "orders-22", "my-orders-1"):
        topics.create(name)
        topics.append(name, 0, 1)
    assert topics.batch(subscribe="orders-1, t").keys() == {"t-0", "t-1", "orders-1-0"}
    assert topics.batch(subscribePattern=r"^orders-\d+").keys() == {"orders-1-0", "orders-22-0"}
    assert topics.batch(subscribePattern="nothing.*") == {}
    assert topics.batch(assign={"t": [1, 2]}).keys() == {"t-1"}
    refused(lambda: topics.batch(subscribe="t,missing"), "This server does not host this topic-partition")


def test_offsets_by_partition(topics: KafkaTopics) -> None:
    starting, ending = {"t": {"0": 4, "1": -2, "2": 0}}, {"t": {"0": -1, "1": 3, "2": -1}}
    found = topics.batch(startingOffsets=starting, endingOffsets=ending)
    assert found == {"t-0": [*range(4, 10)], "t-1": [0, 1, 2]}
    one = topics.batch(assign={"t": [1]}, startingOffsets={"t": {"1": 9}}, endingOffsets={"t": {"1": 12}})
    assert one == {"t-1": [9, 10, 11]}
    same = {"t": {"1": 7}}
    assert topics.batch(assign={"t": [1]}, startingOffsets=same, endingOffsets=same) == {}


def test_a_timestamp_stands_for_the_first_record_that_is_not_older(topics: KafkaTopics) -> None:
    assigned = {"t": [1]}
    for at_ms, first in ((1, 0), (NOW_MS, 0), (NOW_MS + 1, 10), (NOW_MS + 1000, 10)):
        assert topics.batch(assign=assigned, startingTimestamp=str(at_ms)) == {"t-1": [*range(first, 20)]}
        by_partition = {"t": {"1": at_ms}}
        assert topics.batch(assign=assigned, startingOffsetsByTimestamp=by_partition)["t-1"][0] == first
        ended = topics.batch(assign=assigned, endingTimestamp=str(at_ms))
        assert ended == ({"t-1": [*range(first)]} if first else {})
        assert ended == topics.batch(assign=assigned, endingOffsetsByTimestamp=by_partition)


def test_a_timestamp_without_a_record_is_an_error_or_the_end(topics: KafkaTopics) -> None:
    late = str(NOW_MS + 500)
    refused(lambda: topics.batch(startingTimestamp=late), "No offset matched")
    assert topics.batch(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == {
        "t-1": [*range(10, 20)]
    }
    later = {"t": {"0": NOW_MS + 1, "1": NOW_MS + 1, "2": 0}}
    assert topics.batch(endingOffsetsByTimestamp=later) == {"t-0": [*range(10)], "t-1": [*range(10)]}


def test_an_offset_beyond_the_end_is_lost_data(topics: KafkaTopics) -> None:
    assigned: dict[str, object] = {"assign": {"t": [0]}, **QUICK_POLLS}
    start, end = {"startingOffsets": {"t": {"0": 15}}}, {"endingOffsets": {"t": {"0": 17}}}
    for options, found in ((end, {"t-0": [*range(10)]}), (start | end, {})):
        refused(lambda: topics.batch(**assigned, **options), "out of range")  # noqa: B023
        assert topics.batch(**assigned, **options, failOnDataLoss="false") == found
    refused(lambda: topics.batch(**assigned, **start), "start offset 15 is greater than the resolved end")


def test_offsets_that_were_deleted_are_lost_data(topics: KafkaTopics) -> None:
    topics.partition("t", 1).truncate(13)
    assert topics.batch()["t-1"] == [*range(13, 20)]
    for start in (5, 12):
        named = {"assign": {"t": [1]}, "startingOffsets": {"t": {"1": start}}}
        refused(lambda: topics.batch(**named), "out of range")  # noqa: B023
        assert topics.batch(**named, failOnDataLoss="false") == {"t-1": [*range(13, 20)]}
    assert topics.batch(assign={"t": [1]}, startingOffsets={"t": {"1": 13}}) == {"t-1": [*range(13, 20)]}


def test_a_gap_in_a_compacted_topic_is_no_loss(topics: KafkaTopics) -> None:
    partition = topics.partition("t", 1)
    thin_out(partition, partition.snapshot.segments, keep=lambda offset: offset in (0, 5, 6, 19))
    assert topics.batch(assign={"t": [1]}) == {"t-1": [0, 5, 6, 19]}
    for start, end, found in ((1, 6, [5]), (5, 7, [5, 6]), (7, 19, []), (2, 20, [5, 6, 19])):
        part = topics.batch(
            assign={"t": [1]}, startingOffsets={"t": {"1": start}}, endingOffsets={"t": {"1": end}}
        )
        assert part == ({"t-1": found} if found else {})
    assert topics.batch(assign={"t": [1]}, maxRecordsPerPartition="1") == {"t-1": [0, 5, 6, 19]}


def test_a_gap_at_the_end_of_a_compacted_topic_is_no_loss(topics: KafkaTopics, checkpoint: Path) -> None:
    partition = topics.partition("t", 1)
    thin_out(partition, partition.snapshot.segments, keep=lambda offset: offset in (3, 4))
    assert topics.batch(assign={"t": [1]}) == {"t-1": [3, 4]}
    assert topics.batch(assign={"t": [1]}, startingOffsets={"t": {"1": 8}}) == {}
    assert topics.stream(checkpoint, assign={"t": [1]}).offsets() == {"t-1": [3, 4]}
    thin_out(partition, partition.snapshot.segments, keep=lambda _: False)
    assert topics.batch(assign={"t": [1]}) == {}
    topics.append("t", 1, 1)
    assert topics.batch(assign={"t": [1]}) == {"t-1": [20]}


def test_min_partitions_cuts_the_tasks(topics: KafkaTopics) -> None:
    assert topics.frame().rdd.getNumPartitions() == 3
    assert topics.frame(minPartitions="6").rdd.getNumPartitions() == 6
    for options in ({"minPartitions": "6"}, {"maxRecordsPerPartition": "5"}):
        assert topics.batch(**options) == ALL


def test_rows_have_what_the_records_had(empty: KafkaTopics) -> None:
    empty.create("u")
    headers = [("a", b"1"), ("a", None), ("", b"")]
    empty.put("u", 0, Record(b"v", b"k", headers), Record(None, b"k"), Record(b"", b""), Record(None))
    frame = empty.frame(subscribe="u", includeHeaders="true")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    found = frame.selectExpr("*", "unix_millis(timestamp) AS time_ms").collect()
    assert [(row.key, row.value) for row in found] == [(b"k", b"v"), (b"k", None), (b"", b""), (None, None)]
    assert [tuple(header) for header in found[0].headers] == headers
    assert found[1].headers is None
    assert {(row.time_ms, row.timestampType) for row in found} == {(NOW_MS, 0)}


def test_timestamp_type_says_who_set_the_time(empty: KafkaTopics) -> None:
    empty.create("u", message_timestamp_type="LogAppendTime")
    empty.put("u", 0, Record(b"v", timestamp_us=1))
    (row,) = (
        empty.frame(subscribe="u").selectExpr("timestampType", "unix_millis(timestamp) AS time_ms").collect()
    )
    assert row.timestampType == 1
    assert row.time_ms > NOW_MS - 1


def test_large_records_and_many_of_them(empty: KafkaTopics) -> None:
    """A record that is larger than a fetch asks for still comes, and a task reads on over many answers."""
    empty.create("u")
    sizes = [1, 900_000, 7, 1_000_000, 3] * 20
    for size in sizes:
        empty.put("u", 0, Record(b"x" * size))
    limits = {"kafka.max.partition.fetch.bytes": "1000", "kafka.fetch.max.bytes": "5000"}
    frame = (
        empty.frame(subscribe="u", **limits).selectExpr("offset", "length(value) AS size").orderBy("offset")
    )
    assert [(row.offset, row.size) for row in frame.collect()] == [*enumerate(sizes)]
