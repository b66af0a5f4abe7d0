"""The gaps of mirrors: each once, and only those that a copy has left."""

from collections.abc import Sequence

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.internal_log import append_records
from log_tables.cluster.admin.mirror_gaps import MirrorGap, gaps_table, mirror_gaps, note_gaps
from log_tables.cluster.admin.topic_admin import delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import CorruptLog
from log_tables.layout import MIRROR_GAPS
from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.mirrored import END, MIRROR, mirrored_topic, promote


@pytest.fixture
def cluster(clock: ManualClock) -> Cluster:
    return Cluster.open(open_store("memory://"), clock)


@pytest.fixture
def topic(cluster: Cluster) -> Topic:
    """A copy whose partitions end at END."""
    return mirrored_topic(cluster, "orders", 2)


def gap(topic: Topic, first: int, last: int, partition: int = 0, mirror: str = MIRROR) -> MirrorGap:
    return MirrorGap(
        mirror=mirror,
        topic=topic.name,
        topic_id=topic.topic_id,
        partition=partition,
        first_offset=first,
        last_offset=last,
        noted_ms=1_700_000_000_000,
        reason="purged",
    )


def found(cluster: Cluster, mirror: str = "") -> Sequence[tuple[int, int, int]]:
    return [(each.partition, each.first_offset, each.last_offset) for each in mirror_gaps(cluster, mirror)]


def test_a_gap_that_was_noted_twice_is_one(cluster: Cluster, topic: Topic) -> None:
    assert found(cluster) == []
    note_gaps(cluster, [])
    assert cluster.cached_topic(MIRROR_GAPS) is None
    note_gaps(cluster, [gap(topic, 2, 4), gap(topic, 2, 4, partition=1)])
    note_gaps(cluster, [gap(topic, 2, 5), gap(topic, 10, 12)])
    note_gaps(cluster, [gap(topic, 2, 3)])
    assert found(cluster) == [(0, 2, 5), (1, 2, 4), (0, 10, 12)]
    assert found(cluster, MIRROR) == found(cluster)
    assert found(cluster, "other") == []


def test_one_that_the_copy_has_not_left_is_none(cluster: Cluster, topic: Topic) -> None:
    note_gaps(cluster, [gap(topic, 18, END - 1), gap(topic, END, END + 4, partition=1)])
    assert found(cluster) == [(0, 18, END - 1)]
    promote(cluster, "orders")
    assert found(cluster) == [(0, 18, END - 1)]


def test_gaps_of_a_deleted_topic_stay(cluster: Cluster, topic: Topic) -> None:
    note_gaps(cluster, [gap(topic, 2, 4)])
    promote(cluster, "orders")
    delete_topic(cluster, "orders")
    mirrored_topic(cluster, "orders")
    (row,) = gaps_table(cluster).to_pylist()
    assert (row["mirror"], row["topic"], row["topic_id"]) == (MIRROR, "orders", topic.topic_id)
    assert row["noted_at"].timestamp() == 1_700_000_000


def test_a_record_that_is_no_gap_is_damage(cluster: Cluster) -> None:
    append_records(cluster, MIRROR_GAPS, [Record(b"{}")], {}, "gaps")
    with pytest.raises(CorruptLog, match=r"offset 0 of __lakelog_mirror_gaps is not a gap"):
        mirror_gaps(cluster)
