"""Spark reads a tiered topic as if it had one tier, in its source and in SQL, whatever moves meanwhile."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.slices import DataLost, Slice
from lakelog.spark.worker import store_at
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import alter_topic
from log_tables.cluster.topic_fold import fold
from log_tables.errors import CorruptSegment, StoreUnavailable
from log_tables.store.store import open_store
from tests.kit.spark import NOW_MS, Topics, loaded, read
from tests.kit.tiers import move_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = [*range(6)]


@pytest.fixture
def topics(tmp_path: Path) -> Topics:
    """A tiered topic `t` of two partitions, of six segments of one record each, a second apart."""
    store_at.cache_clear()  # a root that another test had at the same place
    made = Topics(open_store(tmp_path / "here"))
    set_remote_root(made.cluster, tmp_path / "away")
    made.create("t", 2)
    alter_topic(made.cluster, "t", {"remote.storage.enable": "true"})
    for number in ALL:
        made.append("t", 0, 1, at_ms=NOW_MS + 1000 * number)
        made.append("t", 1, 1, at_ms=NOW_MS + 1000 * number)
    return made


def test_a_batch_reads_across_the_border(topics: Topics) -> None:
    for counts in ([0, 0], [2, 0], [0, 5], [3, 0]):
        move_topic(topics.cluster, "t", counts)
        assert topics.batch() == {"t-0": ALL, "t-1": ALL}
    assert topics.batch(minPartitions=12) == {"t-0": ALL, "t-1": ALL}
    assert topics.batch(startingOffsets={"t": {"0": 1, "1": 3}}, endingOffsets={"t": {"0": 5, "1": -1}}) == {
        "t-0": [1, 2, 3, 4],
        "t-1": [3, 4, 5],
    }
    assert topics.batch(startingTimestamp=NOW_MS + 2000) == {"t-0": [2, 3, 4, 5], "t-1": [2, 3, 4, 5]}


def test_slices_planned_before_a_move_find_what_has_moved(topics: Topics) -> None:
    reader = BatchReader(topics.options())
    slices = reader.partitions()
    before = [part.segments for part in slices if isinstance(part, Slice)]
    move_topic(topics.cluster, "t", [4, 2])
    for directory, segments in zip(("topics/t/partition=0", "topics/t/partition=1"), before, strict=True):
        for segment in segments[:4]:
            topics.cluster.store.delete(f"{directory}/{segment.path}")  # as a vacuum does
    with pytest.raises(CorruptSegment, match="is missing"):
        read(reader, slices[1:])  # two of these four were still here
    assert read(reader, slices[:1]) == {"t-0": ALL}


def test_slices_of_what_was_deleted_in_the_remote_root_are_told_as_lost(topics: Topics) -> None:
    move_topic(topics.cluster, "t", [4, 4])
    reader = BatchReader(topics.options())
    slices = reader.partitions()
    assert topics.cluster.remote is not None
    for part in slices:
        assert isinstance(part, Slice)
        topics.cluster.topic("t").partition(part.partition).truncate(2)
        for segment in part.segments[:2]:
            topics.cluster.remote.store.delete(f"{part.directory}/{segment.path}")
    with pytest.raises(DataLost, match="offsets 0 to 1 of t-0 were removed"):
        read(reader, slices)
    kept = BatchReader(topics.options(failOnDataLoss="false"))
    assert read(kept, slices) == {"t-0": [2, 3, 4, 5], "t-1": [2, 3, 4, 5]}


def test_a_stream_goes_on_over_the_border(topics: Topics) -> None:
    query = topics.query(maxOffsetsPerTrigger=4)
    found: dict[str, list[int]] = {}
    for counts in ([1, 0], [1, 2], [3, 1], [0, 0]):
        move_topic(topics.cluster, "t", counts)
        for name, offsets in (query.trigger() or {}).items():
            found.setdefault(name, []).extend(offsets)
    assert found == {"t-0": ALL, "t-1": ALL}


def test_without_the_remote_root_only_what_is_here_is_read(topics: Topics, tmp_path: Path) -> None:
    move_topic(topics.cluster, "t", [3, 3])
    (tmp_path / "away").rename(tmp_path / "gone")
    store_at.cache_clear()
    assert topics.batch(startingOffsets={"t": {"0": 3, "1": 4}}) == {"t-0": [3, 4, 5], "t-1": [4, 5]}
    with pytest.raises(StoreUnavailable, match="the remote root is missing"):
        topics.batch()


@pytest.mark.spark
def test_executors_read_both_tiers(spark: "SparkSession", topics: Topics) -> None:
    move_topic(topics.cluster, "t", [3, 5])
    frame = loaded(spark, topics.options())
    assert sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect()) == [
        (index, offset) for index in range(2) for offset in ALL
    ]


@pytest.mark.spark
def test_a_view_follows_the_border(spark: "SparkSession", topics: Topics) -> None:
    """Views registered before a move show every record once after it."""
    from lakelog.spark.sql.views import topics as register

    def shown() -> list[tuple[int, int]]:
        found = spark.sql("select partition, offset from t").collect()
        return sorted((row.partition, row.offset) for row in found)

    every = [(index, offset) for index in range(2) for offset in ALL]
    register(spark, topics.cluster.store.url)
    assert shown() == every
    for counts in ([2, 0], [1, 5]):
        move_topic(topics.cluster, "t", counts)
        assert shown() == every
    (count,) = spark.sql("select count(*) from t where offset >= 2 and partition = 0").collect()
    assert count[0] == 4
    for partition in topics.cluster.topic("t").partitions():
        partition.truncate(6)
    register(spark, topics.cluster.store.url)
    assert shown() == []
    topics.append("t", 0, 1)
    assert shown() == [(0, 6)]


@pytest.mark.spark
def test_delta_reads_both_tables_over_the_topic_and_joins_them_by_the_border(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    """As in docs/recipes.md, where DuckDB does: the border is the lowest offset in the first table."""
    move_topic(topics.cluster, "t", [3, 1])
    fold(topics.cluster.topic("t"))
    for name, side in (("first", "here"), ("remote", "away")):
        spark.read.format("delta").load(str(tmp_path / side / "topics/t")).createOrReplaceTempView(name)
    counts = {name: spark.table(name).groupBy("partition").count().collect() for name in ("first", "remote")}
    assert {name: {row[0]: row[1] for row in rows} for name, rows in counts.items()} == {
        "first": {0: 3, 1: 5},
        "remote": {0: 3, 1: 1},
    }
    found = spark.sql("""
        WITH borders AS (SELECT partition, min(offset) AS border FROM first GROUP BY 1)
        SELECT partition, offset FROM first
        UNION ALL SELECT remote.partition, offset FROM remote JOIN borders USING (partition)
        WHERE offset < border
    """).collect()
    assert sorted((row.partition, row.offset) for row in found) == [(n, at) for n in (0, 1) for at in ALL]
