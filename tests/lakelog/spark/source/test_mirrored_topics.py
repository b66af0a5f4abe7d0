"""The source and the sink `lakelog` on a topic that a mirror makes: gaps are no lost data, and nothing is
written. In this process; a task is what Spark would run.
"""

import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from lakelog.spark.sink.options import parse_sink
from lakelog.spark.sink.task import BATCH_GROUP, stage_rows
from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.slices import DataLost
from lakelog.spark.sql.json_fields import inferred_schema
from log_tables.cluster.topic import Topic
from log_tables.errors import MirroredTopic
from log_tables.schemas.decoded import JSON
from log_tables.schemas.schema import NO_SCHEMAS
from log_tables.store.store import open_store
from tests.kit.mirrored import END, OFFSETS, copy, mirrored_topic, promote
from tests.kit.partitions import append
from tests.kit.spark import Query, Topics, joined, read

ALL = {"t-0": [*OFFSETS], "t-1": [*OFFSETS]}


@pytest.fixture
def topics(store_root: Path) -> Topics:
    return Topics(open_store(store_root))


@pytest.fixture
def topic(topics: Topics) -> Topic:
    return mirrored_topic(topics.cluster, "t", 2)


@pytest.mark.usefixtures("topic")
@pytest.mark.parametrize("start", range(END + 1))
def test_a_batch_reads_it_from_anywhere(topics: Topics, start: int) -> None:
    place = {"t": {"0": start, "1": start}}
    expected = [offset for offset in OFFSETS if offset >= start]
    found = topics.batch(startingOffsets=place)
    assert found == ({"t-0": expected, "t-1": expected} if expected else {})
    before = topics.batch(startingOffsets="earliest", endingOffsets=place)
    assert joined(before, found) == ALL


@pytest.mark.usefixtures("topic")
def test_many_small_tasks_read_each_record_once(topics: Topics) -> None:
    for options in ({"minPartitions": 30}, {"maxRecordsPerPartition": 1}):
        reader = BatchReader(topics.options(**options))
        slices = reader.partitions()
        assert len(slices) >= 30
        assert read(reader, pickle.loads(pickle.dumps(slices))) == ALL


def ends(query: Query) -> list[int]:
    assert query.offset is not None
    return [query.offset["t"][number] for number in ("0", "1")]


def test_a_stream_goes_on_over_gaps_and_behind_the_promotion(topics: Topics, topic: Topic) -> None:
    query = topics.query()
    assert query.trigger() == ALL
    assert ends(query) == [END, END]
    assert query.trigger() is None
    copy(topics.cluster, topic, 0, [], 30)  # nothing visible came, and the offset is there
    assert not query.trigger()
    assert ends(query) == [30, END]
    copy(topics.cluster, topic, 0, [35], 40)
    assert query.restart().trigger() == {"t-0": [35]}
    promote(topics.cluster, "t")
    append(topics.cluster.claim(topic, 1), b"ours")
    assert query.restart().trigger() == {"t-0": [35], "t-1": [END]}


@pytest.mark.usefixtures("topic")
def test_a_limited_stream_gets_on_in_gaps(topics: Topics) -> None:
    batches = topics.query(maxOffsetsPerTrigger="3").available_now()
    assert joined(*batches) == ALL
    assert len(batches) > END // 3


def test_records_that_were_truncated_at_the_source_are_reported(topics: Topics, topic: Topic) -> None:
    query = topics.query(maxOffsetsPerTrigger="16")
    assert query.trigger() == {"t-0": [7], "t-1": [7]}
    topic.partition(0).truncate(18)
    with pytest.raises(DataLost, match=r"offsets 8 to 1\d of t-0 are gone, its log starts at 18"):
        query.restart().trigger()


@pytest.mark.usefixtures("topic")
def test_merged_segments_are_found_again(topics: Topics) -> None:
    planned = []
    for start in (0, 8, 10, 14, 17):
        reader = BatchReader(topics.options(assign={"t": [0]}, startingOffsets={"t": {"0": start}}))
        planned.append((start, reader, reader.partitions()))
    topics.merge()
    for start, reader, slices in planned:
        expected = [offset for offset in OFFSETS if offset >= start]
        assert read(reader, slices) == ({"t-0": expected} if expected else {})


def test_columns_are_inferred_from_its_newest_records(topics: Topics, topic: Topic) -> None:
    copy(topics.cluster, topic, 0, [], 10_000)
    with ThreadPoolExecutor(1) as pool:
        found = inferred_schema(topic.partitions(), 4, pool, JSON, NO_SCHEMAS)
        none = inferred_schema(topic.partitions()[:1], 1, pool, JSON, NO_SCHEMAS)
    assert found == none == StructType([StructField("n", LongType())])


@pytest.mark.usefixtures("topic")
def test_nothing_is_staged_for_it(topics: Topics) -> None:
    options = parse_sink({"path": topics.store.url, "topic": "t"})
    rows = pa.record_batch({"value": pa.array(["x"])})
    with pytest.raises(MirroredTopic, match="and read-only"):
        stage_rows(iter([rows]), options, BATCH_GROUP)
    assert [*topics.store.list("staging/")] == []
    promote(topics.cluster, "t")
    assert stage_rows(iter([rows]), options, BATCH_GROUP).staged
