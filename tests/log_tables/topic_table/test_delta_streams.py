"""Delta's streaming source over the table over a topic, beside all that happens to it: each record once.

A stream with `skipChangeCommits` stands everything. Without options it ends at the first commit that takes
records out; with `ignoreDeletes` at the first that writes some of them anew, as a compaction by key does.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from log_tables.cluster.admin.topic_admin import alter_topic
from log_tables.table.commit import Commit, read_commit
from log_tables.topic_table.fold import Kind
from log_tables.topic_table.topic_table import refold
from tests.kit.delta_streams import (
    DELETED,
    FILE_GONE,
    IGNORE,
    LOG_GONE,
    MODES,
    PLAIN,
    REFOLDED,
    SCHEMA_CHANGED,
    SKIP,
    UPDATED,
    DeltaStreams,
)
from tests.kit.support import wait_until
from tests.kit.topic_in_use import HOUR_MS, PARTITIONS, TopicInUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY_MS = 24 * HOUR_MS


class Streamed:
    """A topic in use, and streams over its table which are as far as version `at`."""

    def __init__(
        self,
        spark: "SparkSession",
        directory: Path,
        seed: int,
        policy: str,
        delay_ms: int = HOUR_MS,
        files_max: int = 1_000,
    ) -> None:
        self.topic = TopicInUse(directory / "root", seed, policy, delay_ms)
        self.delay_ms = delay_ms
        for number in range(PARTITIONS):
            self.topic.append(number)
        self.topic.fold()
        self.streams = DeltaStreams(spark, self.topic.location, directory / "streams", files_max)
        self.at = self.topic.table().version
        self.refused: dict[str, str] = {}
        self.kinds = set[str]()
        self.streams.go_on()

    def go_on(self) -> None:
        """The streams read on, and end where the documents say."""
        directory, end = self.topic.topic.directory, self.topic.table().version
        for version in range(self.at + 1, end + 1):
            commit = read_commit(self.topic.cluster.store, directory, version)
            assert commit is not None
            self.kinds.add(commit.info.operation)
            for mode, condition in refusals(commit).items():
                self.refused.setdefault(mode, condition)
        self.streams.go_on()
        self.at = end
        for mode, condition in self.streams.refused.items():
            if condition == FILE_GONE and self.delay_ms < DAY_MS:
                self.refused[mode] = condition
        assert self.streams.refused == self.refused

    def check(self) -> None:
        """After a last fold every stream that did not end has had each record once."""
        self.topic.check()
        self.go_on()
        for mode in MODES:
            found = self.streams.rows(mode)
            assert len(found) == len({*found}), f"{mode}: some came twice"
            assert {*found} <= self.topic.appended
            if mode not in self.refused:
                assert self.topic.appended - self.topic.unseen <= {*found}, mode


def refusals(commit: Commit) -> dict[str, str]:
    """The streams that refuse `commit`, each with its error."""
    if commit.info.operation != Kind.CHANGE.value or not commit.removes:
        return {}
    if commit.adds:
        return {PLAIN: UPDATED, IGNORE: UPDATED}
    return {PLAIN: DELETED}


def stop_the_fold(topic: TopicInUse) -> None:
    """Let hours pass without a fold, while records come and go and the partitions' logs are cleaned."""
    for _ in range(3):
        for number in range(PARTITIONS):
            topic.append(number, 5)
        topic.hours_pass(1)
    topic.delete_records(0, 5)
    topic.hours_pass(1, asleep=True)
    topic.append(1)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_streams_have_each_record_once_beside_the_jobs_and_after_a_fold_that_stood_still(
    spark: "SparkSession", tmp_path: Path, seed: int, policy: str
) -> None:
    world = Streamed(spark, tmp_path, seed, policy)
    stop_the_fold(world.topic)
    world.topic.fold()
    for _ in range(2):
        world.topic.maintain()
        world.topic.append(0, 8)
    world.topic.maintain()
    world.check()
    assert PLAIN in world.refused
    assert SKIP not in world.refused
    assert (IGNORE in world.refused) == (policy != "delete")
    assert policy != "delete" or world.kinds == {kind.value for kind in Kind} - {Kind.RESTORE.value}


def test_a_retype_is_a_change_which_a_stream_skips_or_ends_at(
    spark: "SparkSession", tmp_path: Path, seed: int
) -> None:
    world = Streamed(spark, tmp_path, seed, "delete")
    for _ in range(2):
        world.topic.declare()
        world.topic.maintain()
        world.topic.append(0)
        world.topic.maintain()
        world.go_on()
    world.check()
    assert world.refused == {PLAIN: UPDATED, IGNORE: UPDATED}


def test_a_stream_stops_once_when_a_column_is_declared_and_goes_on_after_a_restart(
    spark: "SparkSession", tmp_path: Path, seed: int
) -> None:
    world = Streamed(spark, tmp_path, seed, "delete")
    topic = world.topic
    queries = [world.streams.started(mode, every="10 milliseconds") for mode in MODES]
    for query in queries:
        wait_until(lambda: query.lastProgress is not None, "it runs")  # noqa: B023
    topic.append(0)
    alter_topic(topic.cluster, "t", {"value.columns": "n bigint, s string, later double"})
    topic.append(0)
    topic.append(1)
    topic.fold()
    for query in queries:
        wait_until(lambda: not query.isActive, "it stops")  # noqa: B023
        assert SCHEMA_CHANGED in str(query.exception())
    queries = [world.streams.started(mode, every="10 milliseconds") for mode in MODES]
    topic.append(1)
    topic.fold()
    for mode, query in zip(MODES, queries, strict=True):
        wait_until(lambda: world.streams.rows(mode) == sorted(topic.appended), "it has each once")  # noqa: B023
        assert query.exception() is None
        query.stop()


def rest_for_hours(topic: TopicInUse) -> None:
    """Long enough for a vacuum to delete what a merge has replaced."""
    for number in range(PARTITIONS):
        topic.append(number, 8)
    topic.fold()
    for _ in range(2):
        topic.maintain()
        topic.hours_pass(1)


def rest_for_days(topic: TopicInUse) -> None:
    """Long enough for the table's own log to be cleaned."""
    for _ in range(9):
        stop_the_fold(topic)
        topic.fold()


@pytest.mark.torture
@pytest.mark.parametrize(("rest", "condition"), [(rest_for_hours, FILE_GONE), (rest_for_days, LOG_GONE)])
def test_a_stream_that_rests_for_too_long_ends_with_an_error(
    spark: "SparkSession", tmp_path: Path, seed: int, rest: Callable[[TopicInUse], None], condition: str
) -> None:
    world = Streamed(spark, tmp_path, seed, "delete")
    before = [world.streams.rows(mode) for mode in MODES]
    rest(world.topic)
    world.streams.go_on()
    assert world.streams.refused == dict.fromkeys(MODES, condition)
    assert [world.streams.rows(mode) for mode in MODES] == before


def test_a_stream_ends_when_the_table_is_begun_again_and_a_new_one_has_everything(
    spark: "SparkSession", tmp_path: Path, seed: int
) -> None:
    world = Streamed(spark, tmp_path, seed, "delete")
    topic = world.topic
    before = [world.streams.rows(mode) for mode in MODES]
    queries = [world.streams.started(mode, every="10 milliseconds") for mode in MODES]
    for query in queries:
        wait_until(lambda: query.lastProgress is not None, "it runs")  # noqa: B023
    refold(topic.cluster.store, topic.topic.directory, topic.clock)
    for query in queries:
        wait_until(lambda: not query.isActive, "it ends, also before a fold")  # noqa: B023
        assert REFOLDED in str(query.exception())
    topic.wake()
    topic.append(0)
    topic.fold()
    world.streams.go_on()
    assert world.streams.refused == dict.fromkeys(MODES, REFOLDED)
    assert [world.streams.rows(mode) for mode in MODES] == before
    new = DeltaStreams(spark, topic.location, tmp_path / "new")
    new.go_on()
    assert [new.rows(mode) for mode in MODES] == [sorted(topic.appended)] * len(MODES)


@pytest.mark.torture
@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
@pytest.mark.parametrize("delay_ms", [HOUR_MS, 2 * DAY_MS])
@pytest.mark.parametrize("part", range(3))
def test_streams_have_each_record_once_for_long(
    spark: "SparkSession", tmp_path: Path, seed: int, part: int, policy: str, delay_ms: int
) -> None:
    """With the default delay, a stream that pauses for more than an hour may have to begin again."""
    world = Streamed(spark, tmp_path, seed + part, policy, delay_ms, files_max=(1_000, 20, 5)[part])
    for _ in range(12):
        for _ in range(8):
            world.topic.act()
        world.go_on()
    world.check()
