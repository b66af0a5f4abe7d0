"""How much a micro-batch reads: limits and triggers, compared with those of Spark's Kafka source."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import add_partitions
from log_tables.store.store import open_store
from tests.kit.spark import Query, Topics, joined, ranges, run, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def filled(store_root: Path) -> Topics:
    """Three partitions of `t` with 10, 20 and no records."""
    made = Topics(open_store(store_root))
    made.create("t", 3)
    made.append("t", 0, 10)
    made.append("t", 1, 20)
    return made


ALL = {"t-0": [*range(10)], "t-1": [*range(20)]}


def test_max_offsets_per_trigger_is_shared_out_in_proportion(filled: Topics) -> None:
    """Kafka: of 10 and 20 records, with a limit of 6, two and four."""
    query = filled.query(maxOffsetsPerTrigger="6")
    assert query.trigger() == {"t-0": [0, 1], "t-1": [0, 1, 2, 3]}
    batches = []
    while (batch := query.trigger()) is not None:
        batches.append(batch)
        assert sum(map(len, batch.values())) <= 6
    assert joined({"t-0": [0, 1], "t-1": [0, 1, 2, 3]}, *batches) == ALL


def test_a_limit_smaller_than_the_number_of_partitions_gets_on(filled: Topics) -> None:
    """Kafka: each partition with a backlog gets at least one offset."""
    filled.create("u", 5)
    for index in range(5):
        filled.append("u", index, 3)
    query = filled.query(subscribe="u", maxOffsetsPerTrigger="2")
    assert query.trigger() == {f"u-{index}": [0] for index in range(5)}
    assert joined(query.trigger(), query.trigger()) == {f"u-{index}": [1, 2] for index in range(5)}
    assert query.trigger() is None


def test_trigger_once_ignores_the_limits(filled: Topics) -> None:
    """Kafka: Trigger.Once reads all that is there (ReadAllAvailable comes first)."""
    query = filled.query(maxOffsetsPerTrigger="6", minOffsetsPerTrigger="2")
    assert query.trigger(ReadAllAvailable()) == ALL
    query = filled.query(minOffsetsPerTrigger="1000")
    query.trigger()
    filled.append("t", 0, 1)
    assert query.trigger(ReadAllAvailable()) == {"t-0": [10]}


def test_min_offsets_per_trigger_waits_for_enough_or_long_enough(filled: Topics, clock: ManualClock) -> None:
    """Kafka: the first micro-batch at once, the next with enough records or after maxTriggerDelay."""
    options = filled.options(startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="10s")
    query = Query(options, clock=clock)
    assert query.trigger() == ALL
    filled.append("t", 0, 4)
    assert query.trigger() is None
    filled.append("t", 1, 1)
    assert query.trigger() == {"t-0": [10, 11, 12, 13], "t-1": [20]}
    filled.append("t", 2, 1)
    clock.advance(9_999)
    assert query.trigger() is None
    clock.advance(1)
    assert query.trigger() == {"t-2": [0]}


def test_the_least_and_the_most_of_a_trigger_hold_together(filled: Topics) -> None:
    """Kafka: a composite limit."""
    query = filled.query(minOffsetsPerTrigger="4", maxOffsetsPerTrigger="6", maxTriggerDelay="1h")
    sizes = []
    while (batch := query.trigger()) is not None:
        sizes.append(sum(map(len, batch.values())))
    assert max(sizes) <= 6
    assert sum(sizes) > 30 - 4


def test_tasks_are_cut_as_in_a_batch(filled: Topics) -> None:
    query = filled.query(maxRecordsPerPartition="6", maxOffsetsPerTrigger="15")
    assert query.plan()
    assert ranges(query.planned) == [("t-0", 0, 5), ("t-1", 0, 5), ("t-1", 5, 10)]
    query = filled.query(minPartitions="4")
    assert query.plan()
    assert len(query.planned) == 4


@pytest.mark.parametrize(
    "limits", [{}, {"maxOffsetsPerTrigger": "6"}, {"minOffsetsPerTrigger": "7", "maxOffsetsPerTrigger": "7"}]
)
def test_available_now_reads_what_was_there_when_it_began(filled: Topics, limits: dict[str, str]) -> None:
    """Kafka: the end is fixed at the start; records and partitions that come later wait for the next run.

    Kafka leaves what is less than minOffsetsPerTrigger; here the last run must not leave anything.
    """
    query = filled.query(subscribePattern="[tu]", **limits)

    def meanwhile() -> None:
        filled.append("t", 0, 3)
        if filled.cluster.cached_topic("u") is None:
            filled.create("u")
            filled.append("u", 0, 1)
            add_partitions(filled.cluster, "t", 4)
            filled.append("t", 3, 1)

    batches = query.available_now(meanwhile)
    assert (len(batches) > 1) is ("maxOffsetsPerTrigger" in limits)
    assert joined(*batches) == ALL
    later = joined(*query.restart().available_now())
    assert later == {"t-0": [*range(10, 10 + 3 * len(batches))], "t-3": [0], "u-0": [0]}


def test_available_now_ends_where_nothing_is_new(filled: Topics) -> None:
    query = filled.query()
    assert query.available_now() == [ALL]
    assert query.restart().available_now() == []
    assert filled.query(subscribePattern="nothing").available_now() == []


@pytest.mark.spark
def test_available_now_in_spark_ends_while_producers_append(
    spark: "SparkSession", filled: Topics, tmp_path: Path
) -> None:
    options = filled.options(startingOffsets="earliest", minOffsetsPerTrigger="1000")
    _, found = run(spark, options, tmp_path, meanwhile=lambda: filled.append("t", 0, 5))
    assert found.offsets() == ALL
    assert len(found.batches) == 1
    # More records wait than the limit: Trigger.Once takes it all the same.
    limits = {"minOffsetsPerTrigger": "1", "maxOffsetsPerTrigger": "2"}
    _, once = run(spark, {**options, **limits}, tmp_path, once=True)
    assert [sorted(row.offset for row in batch) for batch in once.batches] == [[*range(10, 15)]]


@pytest.mark.spark
def test_spark_waits_for_min_offsets_per_trigger(
    spark: "SparkSession", filled: Topics, tmp_path: Path
) -> None:
    limits = {"minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "1000", "maxTriggerDelay": "1h"}
    query, found = start(spark, filled.options(startingOffsets="earliest", **limits), tmp_path)
    try:
        query.processAllAvailable()
        filled.append("t", 2, 2)
        query.processAllAvailable()
        assert found.offsets() == ALL
        filled.append("t", 2, 1)
        query.processAllAvailable()
        assert found.offsets() == {**ALL, "t-2": [0, 1, 2]}
    finally:
        query.stop()
