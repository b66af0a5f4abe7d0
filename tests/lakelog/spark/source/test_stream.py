"""Streaming queries, compared with those of Spark's Kafka source."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakelog.spark.source.offsets import BEGIN
from lakelog.spark.source.slices import DataLost
from lakelog.spark.source.stream import StreamReader
from log_tables.cluster.admin.topic_admin import add_partitions
from log_tables.errors import CorruptSegment, InvalidArgument, UnknownPartition, UnknownTopic
from log_tables.store.store import open_store
from tests.kit.partitions import thin_out
from tests.kit.queries import WAIT_S
from tests.kit.spark import NOW_MS, Offsets, Query, Topics, joined, read, run, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def topics(store_root: Path) -> Topics:
    """An empty root."""
    return Topics(open_store(store_root))


@pytest.fixture
def filled(topics: Topics) -> Topics:
    """Three partitions of `t` with 10, 20 and no records."""
    topics.create("t", 3)
    topics.append("t", 0, 10)
    topics.append("t", 1, 20)
    return topics


ALL = {"t-0": [*range(10)], "t-1": [*range(20)]}


# Where a query starts.


def test_a_new_query_starts_at_latest(filled: Topics) -> None:
    """Kafka: a stream's default is latest."""
    query = Query(filled.options())
    assert query.trigger() is None
    filled.append("t", 2, 2)
    filled.append("t", 0, 1)
    assert query.trigger() == {"t-0": [10], "t-2": [0, 1]}
    assert query.trigger() is None


def test_a_query_starts_where_it_is_told(filled: Topics) -> None:
    """Kafka: earliest, latest, JSON with −2 and −1, timestamps; each for new queries only."""
    assert filled.query().trigger() == ALL
    named = filled.query(startingOffsets={"t": {"0": -1, "1": 17, "2": -2}})
    assert named.trigger() == {"t-1": [17, 18, 19]}
    assert filled.query(startingTimestamp=str(NOW_MS), assign={"t": [0]}).trigger() == {"t-0": ALL["t-0"]}
    with pytest.raises(InvalidArgument, match="no record at or after the timestamp"):
        filled.query(startingTimestamp=str(NOW_MS + 1)).trigger()
    later = {"t": {"0": NOW_MS + 1, "1": 0, "2": 0}}
    strategy = filled.query(startingOffsetsByTimestamp=later, startingOffsetsByTimestampStrategy="latest")
    assert strategy.trigger() == {"t-1": ALL["t-1"]}


def test_starting_offsets_for_only_some_partitions_are_an_error(filled: Topics) -> None:
    """Kafka: "you must specify all TopicPartitions"."""
    with pytest.raises(InvalidArgument, match="it misses t-1, t-2"):
        filled.query(startingOffsets={"t": {"0": 3}}).trigger()


def test_a_start_beyond_the_end_is_lost_data(filled: Topics) -> None:
    """Kafka: "offset was changed from 12 to 10"; else it goes on at the end."""
    options = {"assign": {"t": [0]}, "startingOffsets": {"t": {"0": 12}}}
    with pytest.raises(DataLost, match="offset 12 of t-0 is beyond its end, 10"):
        filled.query(**options).trigger()
    query = filled.query(failOnDataLoss="false", **options)
    assert query.trigger() is None
    filled.append("t", 0, 5)
    assert query.trigger() == {"t-0": [*range(10, 15)]}


def test_topics_that_are_not_there(filled: Topics) -> None:
    """Kafka: an error for what is named, none for a pattern."""
    with pytest.raises(UnknownTopic, match="'missing'"):
        filled.query(subscribe="t,missing").trigger()
    with pytest.raises(UnknownPartition, match="partition 7"):
        filled.query(assign={"t": [7]}).trigger()
    assert filled.query(subscribePattern="nothing.*").trigger() is None


def test_an_empty_topic_waits_for_its_first_record(topics: Topics) -> None:
    topics.create("t", 2)
    query = topics.query()
    assert query.trigger() is None
    topics.append("t", 1, 1)
    assert query.trigger() == {"t-1": [0]}


# Partitions and topics that join a running query.


@pytest.mark.parametrize("first", ["earliest", "latest"])
def test_later_partitions_are_read_from_their_beginning(filled: Topics, first: str) -> None:
    """Kafka: new partitions start at earliest, whatever startingOffsets says."""
    query = filled.query(startingOffsets=first)
    query.trigger()
    add_partitions(filled.cluster, "t", 5)
    assert query.trigger() == {}
    filled.append("t", 4, 3)
    filled.append("t", 0, 1)
    assert query.trigger() == {"t-0": [10], "t-4": [0, 1, 2]}
    assigned = filled.query(assign={"t": [4]}, startingOffsets="latest")
    assert assigned.trigger() is None


def test_later_topics_that_match_join(topics: Topics) -> None:
    """Kafka: a pattern that matches nothing yet waits; new topics start at earliest."""
    query = topics.query(subscribePattern="orders-.*", startingOffsets="latest", maxOffsetsPerTrigger="100")
    assert query.trigger() is None
    for name in ("orders-1", "other", "orders-2"):
        topics.create(name)
        topics.append(name, 0, 2)
    assert query.trigger() == {"orders-1-0": [0, 1], "orders-2-0": [0, 1]}
    topics.create("orders-3")
    topics.append("orders-3", 0, 1)
    again = query.restart()
    assert again.trigger() == {"orders-3-0": [0]}


def test_a_new_partition_that_does_not_begin_at_zero_is_lost_data(filled: Topics) -> None:
    """Kafka: "Added partition t-3 starts from 2 instead of 0"."""
    query = filled.query()
    query.trigger()
    add_partitions(filled.cluster, "t", 4)
    filled.append("t", 3, 5)
    filled.partition("t", 3).truncate(2)
    lenient = query.restart(failOnDataLoss="false")
    with pytest.raises(DataLost, match="t-3 is new to the query and begins at offset 2"):
        query.trigger()
    assert lenient.trigger() == {"t-3": [2, 3, 4]}


# Restarts.


def test_a_restarted_query_goes_on_where_it_was(filled: Topics) -> None:
    """Kafka: the checkpoint counts, startingOffsets does not."""
    query = filled.query(maxOffsetsPerTrigger="6")
    batches = [query.trigger()]
    filled.append("t", 2, 4)
    while (batch := query.restart().trigger()) is not None:
        query = query.restart(startingOffsets="latest")
        assert query.trigger() == batch
        batches.append(batch)
    assert joined(*batches) == {**ALL, "t-2": [0, 1, 2, 3]}


def test_a_micro_batch_that_was_planned_is_the_same_after_a_restart(filled: Topics) -> None:
    """Kafka: Spark plans it again from the offsets in the checkpoint, before it asks for anything new."""
    query = filled.query(maxOffsetsPerTrigger="6")
    query.trigger()
    before = query.offset
    planned = query.trigger()
    filled.append("t", 0, 100)
    filled.merge("t", 0)
    add_partitions(filled.cluster, "t", 5)
    reader = StreamReader(query.options)
    assert before is not None
    assert query.offset is not None
    assert read(reader, reader.partitions(before, query.offset)) == planned


def test_the_ends_of_the_logs_are_reported(filled: Topics) -> None:
    """Kafka: reportLatestOffset tells the ends, however little a trigger reads."""
    query = filled.query(maxOffsetsPerTrigger="6")
    query.trigger()
    begin = {BEGIN: filled.stream_offset(t=[0, 0, 0])}
    assert query.offset == filled.stream_offset(t=[2, 4, 0]) | begin
    assert query.reader.reportLatestOffset() == filled.stream_offset(t=[10, 20, 0])


def test_stopping_lets_go(filled: Topics) -> None:
    StreamReader(filled.options()).stop()
    query = filled.query()
    query.trigger()
    query.reader.stop()


# Maintenance under a running query.


def test_segments_merged_beneath_a_query_change_nothing(filled: Topics) -> None:
    query = filled.query(maxOffsetsPerTrigger="6")
    batches: list[Offsets] = []
    while query.plan():
        if not batches:
            filled.append("t", 0, 1)
        for index in range(2):
            filled.merge("t", index)
        batches.append(read(query.reader, query.planned))
    assert joined(*batches) == {"t-0": [*range(11)], "t-1": ALL["t-1"]}


def test_a_gap_in_a_compacted_topic_is_no_loss(filled: Topics) -> None:
    """Kafka: limits count offsets, gaps too; a micro-batch may be empty."""
    partition = filled.partition("t", 1)
    thin_out(partition, partition.snapshot.segments, keep=lambda offset: offset in (0, 15, 19))
    query = filled.query(assign={"t": [1]}, maxOffsetsPerTrigger="5")
    assert [query.trigger() for _ in range(5)] == [{"t-1": [0]}, {}, {}, {"t-1": [15, 19]}, None]


def test_a_corrupt_segment_fails_the_query(filled: Topics) -> None:
    partition = filled.partition("t", 1)
    path = f"{partition.directory}/{partition.snapshot.segments[0].path}"
    filled.store.put(path, b"PAR1 and nothing more PAR1")
    for fail in ("true", "false"):
        with pytest.raises(CorruptSegment, match=path):
            filled.query(failOnDataLoss=fail).trigger()


# From here on Spark itself.


@pytest.mark.spark
def test_spark_reads_limits_and_goes_on_from_its_checkpoint(
    spark: "SparkSession", filled: Topics, tmp_path: Path
) -> None:
    options = filled.options(startingOffsets="earliest", maxOffsetsPerTrigger="12")
    query, found = run(spark, options, tmp_path)
    assert found.offsets() == ALL
    assert [len(batch) for batch in found.batches] == [12, 12, 6]
    progress = query.recentProgress[0]
    source = progress["sources"][0]
    assert progress["numInputRows"] == 12
    begin = {BEGIN: filled.stream_offset(t=[0, 0, 0])}
    assert json.loads(source["endOffset"]) == filled.stream_offset(t=[4, 8, 0]) | begin
    assert json.loads(source["latestOffset"]) == filled.stream_offset(t=[10, 20, 0])
    assert filled.batch(startingOffsets=source["endOffset"]) == {
        "t-0": [*range(4, 10)],
        "t-1": [*range(8, 20)],
    }
    filled.append("t", 2, 2)
    _, again = run(spark, options, tmp_path)
    assert again.offsets() == {"t-2": [0, 1]}


@pytest.mark.spark
def test_a_micro_batch_that_failed_is_repeated(spark: "SparkSession", filled: Topics, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    def fail() -> None:
        filled.append("t", 0, 5)
        raise RuntimeError("the sink is full")

    options = filled.options(startingOffsets="earliest", maxOffsetsPerTrigger="12")
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        run(spark, options, tmp_path, meanwhile=fail)
    _, found = run(spark, options, tmp_path)
    assert found.offsets() == {**ALL, "t-0": [*range(15)]}
    assert len(found.batches[0]) == 12


@pytest.mark.spark
def test_what_comes_to_a_running_query_and_what_ends_it(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    query, found = start(spark, topics.options(subscribePattern="orders-.*"), tmp_path)
    try:
        query.processAllAvailable()
        assert found.offsets() == {}
        topics.create("orders-1")
        topics.append("orders-1", 0, 2)
        query.processAllAvailable()
        assert found.offsets() == {"orders-1-0": [0, 1]}
        add_partitions(topics.cluster, "orders-1", 2)
        topics.append("orders-1", 1, 1)
        topics.create("orders-2")
        topics.append("orders-2", 0, 1)
        query.processAllAvailable()
        assert found.offsets() == {"orders-1-0": [0, 1], "orders-1-1": [0], "orders-2-0": [0]}
        topics.recreate("orders-2")
        topics.append("orders-2", 0, 5)
        with pytest.raises(StreamingQueryException) as caught:
            query.awaitTermination(WAIT_S)
        assert re.search("orders-2-0 is gone: its topic was (re-created|deleted)", str(caught.value))
    finally:
        query.stop()
    assert len(found.offsets()["orders-2-0"]) == 1


@pytest.mark.spark
def test_sparks_exception_says_what_is_wrong(spark: "SparkSession", filled: Topics, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    wrong: list[tuple[dict[str, object], str]] = [
        ({"maxOffsetsPerTrigger": "-5"}, "maxOffsetsPerTrigger='-5' is not a whole number above 0"),
        ({"endingOffsets": "latest"}, "the option endingOffsets is for batch queries"),
        ({"startingOffsets": {"t": {"0": 3}}}, "it misses t-1, t-2"),
        ({"subscribe": "missing"}, "there is no topic 'missing'"),
        ({"path": "/nowhere/lakelog"}, "/nowhere/lakelog"),
    ]
    for number, (options, said) in enumerate(wrong):
        with pytest.raises(PySparkException) as caught:
            run(spark, filled.options(**options), tmp_path / str(number))
        assert said in str(caught.value)


def repeated_first(topics: Topics, meanwhile: Callable[[], object], **options: object) -> Offsets:
    """The first micro-batch when the process that planned it dies and another one repeats it."""
    query = topics.query(**options)
    start = query.reader.initialOffset()
    end = query.reader.latestOffset(start, query.reader.getDefaultReadLimit())
    meanwhile()
    again = topics.query(**options).reader
    return read(again, again.partitions(again.initialOffset(), end))


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest"},
        {"startingOffsets": {"t": {"0": 0, "1": 0, "2": 0}}},
        {"startingTimestamp": "0", "startingOffsetsByTimestampStrategy": "latest"},
    ],
    ids=str,
)
def test_a_first_micro_batch_that_is_repeated_is_the_same(filled: Topics, options: dict[str, object]) -> None:
    """Kafka: its source keeps the first offsets in the checkpoint. Ours stand in the first end."""

    def meanwhile() -> None:
        filled.append("t", 0, 3)
        add_partitions(filled.cluster, "t", 4)

    expected = {"t-0": [*range(10)], "t-1": [*range(20)]}
    assert repeated_first(filled, meanwhile, **options) == expected


def test_a_first_micro_batch_that_is_repeated_misses_what_was_deleted(filled: Topics) -> None:
    with pytest.raises(DataLost, match="offsets 0 to 5 of t-0 are gone"):
        repeated_first(filled, lambda: filled.partition("t", 0).truncate(6), startingOffsets="earliest")


def test_where_a_query_began_at_latest_is_kept_from_its_first_look_on(filled: Topics) -> None:
    query = filled.query(startingOffsets="latest")
    assert query.trigger() is None
    filled.append("t", 0, 3)
    assert query.restart().trigger() == {"t-0": [10, 11, 12]}


def test_where_a_query_began_is_kept_when_no_topic_was_there(topics: Topics) -> None:
    query = topics.query(subscribePattern="later", startingOffsets="latest")
    assert query.trigger() is None
    topics.create("later")
    topics.append("later", 0, 2)
    assert query.restart().trigger() == {"later-0": [0, 1]}


@pytest.mark.parametrize(
    "offset", [{"t": {"0": 3}}, {"logOffset": 5}, {"t": {"id": "x", "first": 1}}], ids=str
)
def test_a_checkpoint_of_another_source_is_refused(filled: Topics, offset: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="another source wrote; start a new query"):
        Query(filled.options(), offset).trigger()
