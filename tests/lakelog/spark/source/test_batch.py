"""Batch queries, compared with those of Spark's Kafka source."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.slices import DataLost
from log_tables.errors import (
    InvalidArgument,
    UnknownPartition,
    UnknownTopic,
)
from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.partitions import thin_out
from tests.kit.spark import NOW_MS, Topics, loaded, ranges, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topics(store_root: Path) -> Topics:
    """Three partitions of `t` with 10, 20 and no records, ten in a commit, a second apart."""
    made = Topics(open_store(store_root))
    made.create("t", 3)
    made.append("t", 0, 10)
    made.append("t", 1, 10)
    made.append("t", 1, 10, at_ms=NOW_MS + 1000)
    return made


def planned(topics: Topics, **options: object) -> list[tuple[str, int, int]]:
    return ranges(BatchReader(topics.options(**options)).partitions())


def refused(topics: Topics, **options: object) -> str:
    with pytest.raises(InvalidArgument) as caught:
        topics.batch(**options)
    return caught.value.message


def test_a_batch_reads_from_earliest_to_latest(topics: Topics) -> None:
    """Kafka: earliest and latest are a batch's defaults; a task for each partition that has something."""
    assert planned(topics) == [("t-0", 0, 10), ("t-1", 0, 20)]
    assert topics.batch() == {"t-0": [*range(10)], "t-1": [*range(20)]}
    assert topics.batch(startingOffsets="earliest", endingOffsets="latest") == topics.batch()


def test_an_empty_topic_gives_no_rows(topics: Topics) -> None:
    """Kafka: no rows, no error, whatever the offsets."""
    topics.create("empty", 2)
    assert topics.batch(subscribe="empty") == {}
    assert topics.batch(subscribe="empty", startingOffsets={"empty": {"0": 0, "1": -2}}) == {}
    assert topics.batch(subscribe="empty,t").keys() == {"t-0", "t-1"}


def test_subscribe_reads_the_topics_named(topics: Topics) -> None:
    """Kafka: all partitions of each; a topic that is not there is an error."""
    topics.create("u")
    topics.append("u", 0, 1)
    assert topics.batch(subscribe="u, t").keys() == {"t-0", "t-1", "u-0"}
    with pytest.raises(UnknownTopic, match="'missing'"):
        topics.batch(subscribe="u,missing")


def test_subscribe_pattern_reads_the_topics_whose_whole_name_matches(topics: Topics) -> None:
    """Kafka: Java's `matches`, and internal topics are left out; no match is no rows."""
    for name in ("orders-1", "orders-22", "my-orders-1", "orders-1-old"):
        topics.create(name)
        topics.append(name, 0, 1)
    assert topics.batch(subscribePattern=r"orders-\d+").keys() == {"orders-1-0", "orders-22-0"}
    assert topics.batch(subscribePattern="nothing.*") == {}
    assert {name[:2] for name in topics.batch(subscribePattern=".*")} == {"t-", "or", "my"}


def test_assign_reads_the_partitions_named(topics: Topics) -> None:
    """Kafka: those alone; one that is not there is an error."""
    assert topics.batch(assign={"t": [1, 2]}).keys() == {"t-1"}
    with pytest.raises(UnknownPartition, match="partition 3 of topic t"):
        topics.batch(assign={"t": [0, 3]})


def test_offsets_by_partition(topics: Topics) -> None:
    """Kafka: the starting offset is read, the ending offset is not; −2 is earliest, −1 latest."""
    starting, ending = {"t": {"0": 4, "1": -2, "2": 0}}, {"t": {"0": -1, "1": 3, "2": -1}}
    found = topics.batch(startingOffsets=starting, endingOffsets=ending)
    assert found == {"t-0": [*range(4, 10)], "t-1": [0, 1, 2]}
    one = topics.batch(assign={"t": [1]}, startingOffsets={"t": {"1": 9}}, endingOffsets={"t": {"1": 12}})
    assert one == {"t-1": [9, 10, 11]}


@pytest.mark.parametrize("side", ["starting", "ending"])
@pytest.mark.parametrize("kind", ["Offsets", "OffsetsByTimestamp"])
def test_offsets_for_only_some_partitions_are_an_error(topics: Topics, side: str, kind: str) -> None:
    """Kafka: "you must specify all TopicPartitions", and no others."""
    option = side + kind
    assert "misses t-0, t-2" in refused(topics, **{option: {"t": {"1": 0}}})
    named = {"t": {"0": 0, "1": 0, "2": 0, "3": 0}}
    assert "names t-3, which the query does not read" in refused(topics, **{option: named})
    named = {"t": {"0": 0, "1": 0, "2": 0}, "u": {"0": 0}}
    assert "names u-0" in refused(topics, **{option: named})
    assert "names t-0" in refused(topics, assign={"t": [1]}, **{option: {"t": {"0": 0, "1": 0}}})


def test_a_timestamp_stands_for_the_first_record_that_is_not_older(topics: Topics) -> None:
    """Kafka: by partition; the record at an ending timestamp is not read any more."""
    assigned = {"t": [1]}
    for at_ms, first in ((0, 0), (NOW_MS, 0), (NOW_MS + 1, 10), (NOW_MS + 1000, 10)):
        assert topics.batch(assign=assigned, startingTimestamp=str(at_ms)) == {"t-1": [*range(first, 20)]}
        by_partition = {"t": {"1": at_ms}}
        assert topics.batch(assign=assigned, startingOffsetsByTimestamp=by_partition)["t-1"][0] == first
        ended = topics.batch(assign=assigned, endingTimestamp=str(at_ms))
        assert ended == ({"t-1": [*range(first)]} if first else {})
        assert ended == topics.batch(assign=assigned, endingOffsetsByTimestamp=by_partition)


def test_a_timestamp_without_a_record_is_an_error_or_the_end(topics: Topics) -> None:
    """Kafka: startingOffsetsByTimestampStrategy says which. An end is then the end of the log."""
    late = str(NOW_MS + 500)
    message = refused(topics, startingTimestamp=late)
    assert "has no record at or after the timestamp" in message
    assert late in message
    assert topics.batch(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == {
        "t-1": [*range(10, 20)]
    }
    assert "t-0" in refused(topics, startingOffsetsByTimestamp={"t": {"0": NOW_MS + 1, "1": 0, "2": 0}})
    later = {"t": {"0": NOW_MS + 1, "1": NOW_MS + 1, "2": 0}}
    assert topics.batch(endingOffsetsByTimestamp=later) == {"t-0": [*range(10)], "t-1": [*range(10)]}


def test_a_query_that_ends_before_it_begins_is_an_error(topics: Topics) -> None:
    """Kafka: an error, of offsets and of timestamps; earliest and latest are never compared."""
    assigned = {"t": [1]}
    for options in (
        {"startingOffsets": {"t": {"1": 7}}, "endingOffsets": {"t": {"1": 3}}},
        {"startingTimestamp": str(NOW_MS + 1000), "endingTimestamp": str(NOW_MS)},
        {"startingTimestamp": str(NOW_MS + 1000), "endingOffsets": {"t": {"1": 3}}},
    ):
        for lossy in ("true", "false"):
            assert "t-1 ends before it begins" in refused(
                topics, assign=assigned, failOnDataLoss=lossy, **options
            )
    same = {"t": {"1": 7}}
    assert topics.batch(assign=assigned, startingOffsets=same, endingOffsets=same) == {}
    topics.partition("t", 1).truncate(5)
    assert topics.batch(assign=assigned, endingOffsets={"t": {"1": 3}}) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": {"t": {"0": 11}}},
        {"endingOffsets": {"t": {"0": 11}}},
        {"startingOffsets": {"t": {"0": 15}}, "endingOffsets": {"t": {"0": 17}}},
    ],
)
def test_an_offset_beyond_the_end_is_lost_data(topics: Topics, options: dict[str, object]) -> None:
    """Kafka: out of range; an error with failOnDataLoss, else what there is."""
    with pytest.raises(DataLost, match="of t-0 is beyond its end, 10"):
        topics.batch(assign={"t": [0]}, **options)
    found = topics.batch(assign={"t": [0]}, failOnDataLoss="false", **options)
    assert found == ({} if "startingOffsets" in options else {"t-0": [*range(10)]})


def test_offsets_that_were_deleted_are_lost_data(topics: Topics) -> None:
    """Kafka: an offset below the log start is out of range; `earliest` begins where the log does."""
    topics.partition("t", 1).truncate(13)
    assert topics.batch()["t-1"] == [*range(13, 20)]
    for start in (5, 12):
        named = {"assign": {"t": [1]}, "startingOffsets": {"t": {"1": start}}}
        with pytest.raises(DataLost, match=f"offsets {start} to 12 of t-1 are gone"):
            topics.batch(**named)
        assert topics.batch(**named, failOnDataLoss="false") == {"t-1": [*range(13, 20)]}
    assert topics.batch(assign={"t": [1]}, startingOffsets={"t": {"1": 13}}) == {"t-1": [*range(13, 20)]}


def test_a_gap_in_a_compacted_topic_is_no_loss(topics: Topics) -> None:
    """Kafka: offsets that compaction has removed are skipped; a range may begin or end in a gap."""
    partition = topics.partition("t", 1)
    thin_out(partition, partition.snapshot.segments, keep=lambda offset: offset in (0, 5, 6, 19))
    assert topics.batch(assign={"t": [1]}) == {"t-1": [0, 5, 6, 19]}
    for start, end, found in ((1, 6, [5]), (5, 7, [5, 6]), (7, 19, []), (2, 20, [5, 6, 19])):
        part = topics.batch(
            assign={"t": [1]}, startingOffsets={"t": {"1": start}}, endingOffsets={"t": {"1": end}}
        )
        assert part == ({"t-1": found} if found else {})
    assert topics.batch(assign={"t": [1]}, maxRecordsPerPartition="1") == {"t-1": [0, 5, 6, 19]}


def test_min_partitions_and_max_records_per_partition_cut_the_tasks(topics: Topics) -> None:
    """Kafka: one task for each partition unless these ask for more."""
    assert len(planned(topics, minPartitions="2")) == 2
    assert planned(topics, minPartitions="3") == [("t-0", 0, 10), ("t-1", 0, 10), ("t-1", 10, 20)]
    assert planned(topics, maxRecordsPerPartition="10") == planned(topics, minPartitions="3")
    assert len(planned(topics, minPartitions="7", maxRecordsPerPartition="10")) == 7
    assert topics.batch(minPartitions="7") == topics.batch()


def test_a_place_that_a_query_reported_can_be_named(topics: Topics) -> None:
    """Kafka: a progress report's endOffset is JSON that startingOffsets takes. Ours knows the topic, too."""
    query = topics.query()
    query.trigger()
    topics.append("t", 0, 5)
    assert topics.batch(startingOffsets=query.offset) == {"t-0": [*range(10, 15)]}
    assert topics.batch(endingOffsets=query.offset) == {"t-0": [*range(10)], "t-1": [*range(20)]}
    topics.recreate("t", 3)
    for option in ("startingOffsets", "endingOffsets"):
        message = refused(topics, **{option: query.offset})
        assert f"{option} holds offsets of an earlier topic t" in message


def test_rows_have_what_the_records_had(topics: Topics) -> None:
    """Kafka: null keys and values (tombstones) stay null; no headers are null."""
    topics.create("u")
    headers = [("a", b"1"), ("a", None), ("", b"")]
    topics.put("u", 0, Record(b"v", b"k", headers), Record(None, b"k"), Record(b"", b""), Record(None))
    reader = BatchReader(topics.options(subscribe="u", includeHeaders="true"))
    found = rows(reader, reader.partitions())
    assert [(row["key"], row["value"]) for row in found] == [
        (b"k", b"v"),
        (b"k", None),
        (b"", b""),
        (None, None),
    ]
    assert found[0]["headers"] == [{"key": name, "value": value} for name, value in headers]
    assert found[1]["headers"] is None
    assert list(found[0]) == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        "headers",
    ]
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=NOW_MS)
    assert {(row["timestamp"], row["timestampType"]) for row in found} == {(at, 0)}


def test_timestamp_type_says_who_set_the_time(topics: Topics) -> None:
    """Kafka: 0 for CreateTime, 1 for LogAppendTime."""
    topics.create("u", message_timestamp_type="LogAppendTime")
    topics.put("u", 0, Record(b"v", timestamp_us=1))
    reader = BatchReader(topics.options(subscribe="u"))
    (row,) = rows(reader, reader.partitions())
    assert row["timestampType"] == 1
    assert row["timestamp"].year > 2000


def test_only_the_columns_asked_for_are_there(topics: Topics) -> None:
    reader = BatchReader(topics.options(columns="timestampType,offset", assign={"t": [0]}))
    assert rows(reader, reader.partitions())[3] == {"timestampType": 0, "offset": 3}
    reader = BatchReader(topics.options(columns="topic", assign={"t": [0]}))
    assert rows(reader, reader.partitions()) == [{"topic": "t"}] * 10


# From here on Spark itself.


@pytest.mark.spark
def test_spark_reads_rows_in_kafkas_schema(spark: "SparkSession", topics: Topics) -> None:
    topics.create("u")
    topics.put("u", 0, Record(b"v", b"k", [("h", b"1")]), Record(None))
    frame = loaded(spark, topics.options(subscribe="u", INCLUDEHEADERS="true"))
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
    found = frame.selectExpr(
        "string(key)",
        "string(value)",
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp)",
        "timestampType",
        "transform(headers, h -> concat(h.key, '=', string(h.value)))",
    ).collect()
    assert [tuple(row) for row in found] == [
        ("k", "v", "u", 0, 0, NOW_MS, 0, ["h=1"]),
        (None, None, "u", 0, 1, NOW_MS, 0, None),
    ]


@pytest.mark.spark
def test_spark_counts_ranges_and_nothing(spark: "SparkSession", topics: Topics) -> None:
    topics.create("empty")
    empty = spark.read.format("lakelog").option("subscribe", "empty").load(topics.store.url)
    assert empty.count() == 0
    ended = topics.options(endingOffsets={"t": {"0": 4, "1": -1, "2": -1}}, minPartitions="5")
    frame = loaded(spark, ended)
    assert frame.rdd.getNumPartitions() == 5
    assert frame.count() == 24
    assert frame.agg({"offset": "max"}).collect()[0][0] == 19


@pytest.mark.spark
def test_a_topic_is_a_view_in_plain_sql(spark: "SparkSession", topics: Topics) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW plain USING lakelog "
        f"OPTIONS (path '{topics.store.url}', subscribe 't', startingOffsets 'earliest', "
        "columns 'partition,offset')"
    )
    counted = spark.sql("SELECT partition, count(*), max(offset) FROM plain GROUP BY 1 ORDER BY 1").collect()
    assert [tuple(row) for row in counted] == [(0, 10, 9), (1, 20, 19)]
    spark.catalog.dropTempView("plain")


@pytest.fixture(scope="module")
def wrong() -> list[tuple[dict[str, object], str]]:
    """Options that are wrong, and what an error must name of them."""
    return [
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition='many' is not a whole number"),
        ({"subscribePattern": "x.*", "assign": {"t": [0]}}, "there is subscribePattern and assign"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"columns": "offset,nothing"}, "columns names 'nothing'"),
        ({"startingOffsets": {"t": {"0": 1}}}, "misses t-1, t-2"),
        ({"subscribe": "missing"}, "there is no topic 'missing'"),
        ({"path": "/nowhere/lakelog"}, "/nowhere/lakelog"),
    ]


@pytest.mark.spark
def test_sparks_exception_says_what_is_wrong(
    spark: "SparkSession", topics: Topics, wrong: list[tuple[dict[str, object], str]]
) -> None:
    from pyspark.errors import PySparkException

    for options, said in wrong:
        with pytest.raises(PySparkException) as caught:
            loaded(spark, topics.options(**options)).collect()
        assert said in str(caught.value)
    with pytest.raises(PySparkException, match="has its own"):
        spark.read.format("lakelog").options(**topics.options()).schema("offset int").load().collect()
