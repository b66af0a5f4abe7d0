"""A query whose root is lost, and that goes on at the promoted standby, which lacks what it has read last.

Kafka's source keeps offsets alone: once the new log has grown past them it skips records without a word.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.spark.source.offsets import LOG_EPOCH
from lakelog.spark.source.slices import DataLost
from log_tables.clock import ManualClock, SystemClock
from log_tables.errors import InvalidArgument
from log_tables.root.promote import promote
from log_tables.store.store import open_store
from tests.kit.spark import Offsets, Query, Topics, run
from tests.kit.standby import follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIKE, LOST = 3, 4
TWO_MINUTES_MS = 120_000


@dataclass
class Scene:
    """A root with ALIKE + LOST records in t-0, and its standby with the first of them; t-1 is whole there."""

    directory: Path
    original: Topics

    def promoted(self, since: int, name: str = "b", later_ms: int = 0) -> Topics:
        """The promoted standby, whose t-0 gets this many records."""
        store = open_store(self.directory / name)
        promote(store, ManualClock(SystemClock().now_ms() + later_ms, seed=later_ms))
        topics = Topics(store)
        if since:
            topics.append("t", 0, since)
        return topics


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    original = Topics(open_store(tmp_path / "a"))
    original.create("t", 2)
    for number in range(2):
        original.append("t", number, ALIKE)
    for name in ("b", "c"):
        follow(original.store, open_store(tmp_path / name))
    original.append("t", 0, LOST)
    return Scene(tmp_path, original)


PARTED = "offset 7 of t-0 was taken in log epoch 0, and the log has gone on from an older state at offset 3"
READ: Offsets = {"t-0": [*range(ALIKE + LOST)], "t-1": [*range(ALIKE)]}


def there(query: Query, topics: Topics, **options: str) -> Query:
    """The query, started again at another root."""
    return query.restart(path=topics.store.url, **options)


@pytest.mark.parametrize("since", [0, LOST - 1, LOST, LOST + 1])
def test_a_query_that_has_read_what_is_lost_ends(scene: Scene, since: int) -> None:
    """However long the new log is by now."""
    query = scene.original.query()
    assert query.trigger() == READ
    topics = scene.promoted(since)
    for again in (there(query, topics), there(query, topics)):
        for _ in range(2):
            with pytest.raises(DataLost, match=PARTED):
                again.trigger()
        with pytest.raises(DataLost, match=PARTED):
            again.available_now()


@pytest.mark.parametrize("since", [LOST - 1, LOST, LOST + 1])
def test_it_may_go_on_from_where_both_are_alike(
    scene: Scene, since: int, caplog: pytest.LogCaptureFixture
) -> None:
    query = scene.original.query()
    query.trigger()
    topics = scene.promoted(since)
    lenient = there(query, topics, failOnDataLoss="false")
    assert lenient.trigger() == {"t-0": [*range(ALIKE, ALIKE + since)]}
    (told,) = caplog.messages
    assert told.startswith(PARTED)
    assert lenient.trigger() is None
    topics.append("t", 1, 1)
    assert lenient.restart(failOnDataLoss="true").trigger() == {"t-1": [ALIKE]}


def test_a_query_that_has_read_nothing_else_hears_nothing(scene: Scene) -> None:
    query = scene.original.query(maxOffsetsPerTrigger="5")
    query.trigger()
    assert query.offset is not None
    assert query.offset["t"]["0"] == ALIKE
    assert LOG_EPOCH not in query.offset["t"]
    topics = scene.promoted(LOST)
    again = there(query, topics, maxOffsetsPerTrigger="100")
    assert again.trigger() == {"t-0": [*range(ALIKE, ALIKE + LOST)], "t-1": [1, 2]}
    assert again.offset is not None
    assert again.offset["t"][LOG_EPOCH] == topics.cluster.log_epochs.newest
    topics.append("t", 0, 1)
    assert again.restart().trigger() == {"t-0": [ALIKE + LOST]}


def test_a_planned_micro_batch_is_not_read_from_other_records(scene: Scene) -> None:
    """After a crash Spark plans the last micro-batch again before it asks for a new one."""
    query = scene.original.query()
    query.plan()
    topics, begin = scene.promoted(LOST + 1), query.reader.initialOffset()
    assert query.offset is not None
    with pytest.raises(DataLost, match=PARTED):
        there(query, topics).reader.partitions(begin, query.offset)
    lenient = there(query, topics, failOnDataLoss="false")
    lenient.planned = lenient.reader.partitions(begin, query.offset)
    assert [each.end for each in lenient.planned] == [ALIKE, ALIKE]  # type: ignore[attr-defined]
    assert lenient.trigger() == {"t-0": [*range(ALIKE, ALIKE + LOST + 1)]}


def test_a_query_of_another_promoted_standby_ends(scene: Scene) -> None:
    """Nothing says how much of what the one has had is in the other."""
    query = scene.promoted(LOST).query()
    query.trigger()
    other = scene.promoted(LOST, "c", TWO_MINUTES_MS)
    with pytest.raises(DataLost, match="which this root does not have"):
        there(query, other).trigger()
    lenient = there(query, other, failOnDataLoss="false")
    assert lenient.trigger() == {"t-0": [*range(ALIKE, ALIKE + LOST)]}
    assert lenient.restart(failOnDataLoss="true").trigger() is None


@pytest.mark.parametrize("asked", [Topics.batch, lambda topics, **named: topics.query(**named).trigger()])
def test_offsets_of_what_is_lost_are_no_start(scene: Scene, asked: Callable[..., Offsets]) -> None:
    """If a progress report has told them. Who writes them himself is believed."""
    query = scene.original.query()
    query.trigger()
    assert query.offset is not None
    ends = {"t": query.offset["t"]}
    topics = scene.promoted(LOST + 1)
    with pytest.raises(InvalidArgument, match=f"startingOffsets: {PARTED}; begin at .* offset 3"):
        asked(topics, startingOffsets=ends)
    mine = {"t": {"0": ALIKE + LOST, "1": ALIKE}}
    assert asked(topics, startingOffsets=mine) == {"t-0": [ALIKE + LOST]}
    assert asked(topics, startingOffsets={"t": {**ends["t"], "0": ALIKE}}) == {
        "t-0": [*range(ALIKE, ALIKE + LOST + 1)]
    }


@pytest.mark.spark
def test_spark_ends_a_query_whose_checkpoint_is_of_what_is_lost(
    spark: "SparkSession", scene: Scene, tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    checkpoint, options = tmp_path / "checkpoint", {"startingOffsets": "earliest"}
    _, found = run(spark, scene.original.options(**options), checkpoint)
    assert found.offsets() == READ
    topics = scene.promoted(LOST + 1)
    with pytest.raises(StreamingQueryException, match=PARTED):
        run(spark, topics.options(**options), checkpoint)
    _, found = run(spark, topics.options(**options, failOnDataLoss="false"), checkpoint)
    assert found.offsets() == {"t-0": [*range(ALIKE, ALIKE + LOST + 1)]}
