"""Tasks of the source `lakelog` whose files were replaced before they read them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.slices import DataLost, Slice
from log_tables.errors import CorruptSegment
from log_tables.store.store import open_store
from tests.kit.partitions import thin_out
from tests.kit.spark import NOW_MS, Topics, loaded, read

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


def test_records_deleted_after_planning_are_lost_data(topics: Topics) -> None:
    """Kafka: the executor finds its offset out of range, and failOnDataLoss decides there too."""
    readers = {fail: BatchReader(topics.options(failOnDataLoss=fail)) for fail in ("true", "false")}
    slices = readers["true"].partitions()
    partition = topics.partition("t", 1)
    partition.truncate(13)
    planned = slices[1]
    assert isinstance(planned, Slice)
    topics.remove(partition, [item.path for item in planned.segments if item.last_offset < 13])
    with pytest.raises(DataLost, match="offsets 0 to 12 of t-1 were removed while they were read"):
        read(readers["true"], slices)
    assert read(readers["false"], slices) == {"t-0": [*range(10)], "t-1": [*range(13, 20)]}


def test_a_topic_deleted_after_planning_is_lost_data(topics: Topics) -> None:
    """Kafka: as above. Until the files go, a task reads what was planned."""
    readers = {fail: BatchReader(topics.options(failOnDataLoss=fail)) for fail in ("true", "false")}
    slices = readers["true"].partitions()
    directory = topics.cluster.topic("t").directory
    topics.recreate("t", 3)
    topics.append("t", 0, 3)
    assert read(readers["true"], slices) == {"t-0": [*range(10)], "t-1": [*range(20)]}
    topics.sweep_data(directory)
    with pytest.raises(DataLost, match="topic t was deleted while t-0 was read"):
        read(readers["true"], slices)
    assert read(readers["false"], slices) == {}


def test_segments_merged_and_removed_after_planning_change_nothing(topics: Topics) -> None:
    reader = BatchReader(
        topics.options(assign={"t": [1]}, startingOffsets={"t": {"1": 7}}, minPartitions="3")
    )
    slices = reader.partitions()
    assert len(slices) == 3
    topics.merge("t", 1)
    assert read(reader, slices) == {"t-1": [*range(7, 20)]}
    topics.append("t", 1, 5)
    topics.merge("t", 1)
    assert read(reader, slices) == {"t-1": [*range(7, 20)]}


def test_compaction_after_planning_is_no_loss(topics: Topics) -> None:
    reader = BatchReader(topics.options(assign={"t": [1]}))
    slices = reader.partitions()
    partition = topics.partition("t", 1)
    inputs = partition.snapshot.segments
    thin_out(partition, inputs, keep=lambda offset: offset > 15)
    topics.remove(partition, [item.path for item in inputs])
    assert read(reader, slices) == {"t-1": [*range(16, 20)]}


@pytest.fixture
def long(topics: Topics) -> Iterator[pa.RecordBatch]:
    """The rows of four segments of `long`, of which a task has handed over the first and read the second."""
    topics.create("long")
    for _ in range(4):
        topics.append("long", 0, 40_000)
    reader = BatchReader(topics.options(subscribe="long", columns="offset"))
    (part,) = reader.partitions()
    batches = reader.read(part)
    assert next(batches).num_rows == 40_000
    return batches


def test_segments_merged_and_removed_under_a_task_change_nothing(
    topics: Topics, long: Iterator[pa.RecordBatch]
) -> None:
    topics.merge("long")
    rest = [offset for batch in long for offset in batch.column("offset").to_pylist()]
    assert rest == [*range(40_000, 160_000)]


def test_records_deleted_under_a_task_are_lost_data(topics: Topics, long: Iterator[pa.RecordBatch]) -> None:
    partition = topics.partition("long")
    paths = [item.path for item in partition.snapshot.segments]
    partition.truncate(150_000)
    topics.remove(partition, paths[:3])
    with pytest.raises(DataLost, match="offsets 80000 to 149999 of long-0 were removed"):
        list(long)


def broken(topics: Topics) -> str:
    """Spoil one segment in its middle; returns its name."""
    partition = topics.partition("t", 1)
    segment = partition.snapshot.segments[1]
    path = f"{partition.directory}/{segment.path}"
    data = topics.store.get(path)
    topics.store.put(path, data[: len(data) // 2])
    return segment.path


def test_a_corrupt_segment_fails_the_query_whatever_the_options(topics: Topics) -> None:
    """Corruption is not data loss: a person must look at it."""
    path = broken(topics)
    for fail in ("true", "false"):
        with pytest.raises(CorruptSegment, match=path):
            topics.batch(failOnDataLoss=fail)
    assert topics.batch(endingOffsets={"t": {"0": -1, "1": 10, "2": -1}})["t-1"] == [*range(10)]


@pytest.mark.spark
def test_a_corrupt_segment_fails_sparks_query(spark: "SparkSession", topics: Topics) -> None:
    from pyspark.errors import PySparkException

    path = broken(topics)
    with pytest.raises(PySparkException) as caught:
        loaded(spark, topics.options()).collect()
    assert "CorruptSegment" in str(caught.value)
    assert path in str(caught.value)
