"""Delta's streams over the table of a topic that is deleted, made again, and swept under them."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from tests.kit.delta_streams import DELETED, FILE_GONE, IGNORE, MODES, PLAIN, SKIP, DeltaStreams
from tests.kit.support import wait_until
from tests.kit.topic_in_use import HOUR_MS, PARTITIONS, TopicInUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark


@pytest.fixture
def world(tmp_path: Path, seed: int) -> TopicInUse:
    world = TopicInUse(tmp_path / "root", seed)
    load(world)
    return world


def load(world: TopicInUse) -> None:
    """New records of all partitions, which are folded."""
    for number in range(PARTITIONS):
        world.append(number, 2)
    world.fold()


def make_again(world: TopicInUse) -> None:
    """The topic is deleted and made again, and the new one gets records."""
    delete_topic(world.cluster, "t")
    create_topic(world.cluster, "t", PARTITIONS)
    world.lead()
    world.appended.clear()
    load(world)


def has_passed(query: "StreamingQuery", version: int) -> bool:
    """Whether a query has read all versions before `version`."""
    progress = query.lastProgress
    end = "null" if progress is None else progress["sources"][0]["endOffset"]
    found = json.loads(end)
    return found is not None and found["reservoirVersion"] >= version


def test_a_running_stream_sees_the_topic_end_and_nothing_of_the_next_one(
    spark: "SparkSession", tmp_path: Path, world: TopicInUse
) -> None:
    streams = DeltaStreams(spark, world.location, tmp_path / "old")
    queries = {mode: streams.started(mode, every="10 milliseconds") for mode in MODES}
    for query in queries.values():
        wait_until(lambda: has_passed(query, 1), "it has read the table")  # noqa: B023
    before = sorted(world.appended)
    make_again(world)
    wait_until(lambda: not queries[PLAIN].isActive, "the plain stream ends")
    assert DELETED in str(queries[PLAIN].exception())
    lasting = [queries[mode] for mode in (SKIP, IGNORE)]
    for query in lasting:
        wait_until(lambda: has_passed(query, 2), "it has passed the end of the topic")  # noqa: B023
        assert query.exception() is None
    new = DeltaStreams(spark, world.location, tmp_path / "new")
    new.go_on()
    assert world.location.endswith("/topics/t~2")
    assert new.refused == {}
    world.hours_pass(2)
    assert sweep(world.cluster) == ["topics/t"]
    for query in lasting:
        wait_until(lambda: not query.isActive, "it ends without the log")  # noqa: B023
        assert "topics/t/_delta_log does not exist" in str(query.exception())
    for mode in MODES:
        assert streams.rows(mode) == before
        assert new.rows(mode) == sorted(world.appended)


@pytest.mark.torture
def test_a_stream_that_was_behind_reads_the_rest_until_the_files_are_swept(
    spark: "SparkSession", tmp_path: Path, world: TopicInUse
) -> None:
    first, second = (DeltaStreams(spark, world.location, tmp_path / name) for name in ("first", "second"))
    first.go_on()
    second.go_on()
    before = sorted(world.appended)
    load(world)
    everything = sorted(world.appended)
    make_again(world)
    first.go_on()
    assert first.refused == {PLAIN: DELETED}
    assert [first.rows(mode) for mode in MODES] == [before, everything, everything]
    world.clock.advance(HOUR_MS)
    assert sweep(world.cluster) == []
    second.go_on()
    assert second.refused == {PLAIN: DELETED, SKIP: FILE_GONE, IGNORE: FILE_GONE}
    assert [second.rows(mode) for mode in MODES] == [before] * len(MODES)


@pytest.mark.parametrize("looks", [True, False])
def test_a_stream_goes_on_across_an_undelete(
    spark: "SparkSession", tmp_path: Path, world: TopicInUse, looks: bool
) -> None:
    """It has each record once, whether or not it has seen the end of the topic."""
    alter_topic(world.cluster, "t", {"topic.delete.delay.ms": str(HOUR_MS)})
    streams = DeltaStreams(spark, world.location, tmp_path / "streams")
    streams.go_on()
    before = sorted(world.appended)
    delete_topic(world.cluster, "t")
    if looks:
        streams.go_on()
    undelete_topic(world.cluster, "t")
    world.lead()
    load(world)
    assert world.location.endswith("/topics/t")
    streams.go_on()
    assert streams.refused == {PLAIN: DELETED}
    everything = sorted(world.appended)
    assert [streams.rows(mode) for mode in MODES] == [before, everything, everything]
