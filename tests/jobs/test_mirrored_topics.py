"""The jobs on topics that a mirror makes: they remove nothing until one is promoted, and all else goes on."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from jobs.maintenance import JOBS, Maintenance
from jobs.outcome import JobOutcome
from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.cluster import Cluster
from log_tables.errors import MirroredTopic
from log_tables.partition.partition import Partition
from log_tables.record import Record
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.segments.rewrite import compact_by_key
from log_tables.store.store import open_store
from tests.kit.engines import always, in_process
from tests.kit.maintenance import run
from tests.kit.mirrored import COMMITS, END, MIRROR, OFFSETS, at_us, copy, mirrored_topic, promote, value_of
from tests.kit.partitions import append, held

REMOVING = {job.name for job in JOBS if job.removes}
DUE = {
    "retention.ms": "1",
    "merge.min.age.ms": "0",
    "cleanup.policy": "compact,delete",
    "min.cleanable.dirty.ratio": "0",
}
COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0",
    "max.compaction.lag.ms": "1",
    "delete.retention.ms": "0",
}
FAR = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "0",
    "merge.min.age.ms": "0",
    "segment.bytes": "1024",
}
MORE = (22, 25, 28, 31, 34, 37)


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Iterator[Cluster]:
    """A root after whose tests fsck finds nothing."""
    made = Cluster.open(open_store(tmp_path / "here"), clock)
    clock.advance(2 * 10**12)  # all that a mirror copies here is old
    set_remote_root(made, tmp_path / "away")
    yield made
    assert check(open_store(tmp_path / "here"), deep=True).problems == []


def another(cluster: Cluster) -> Cluster:
    return Cluster.open(open_store(cluster.store.url), cluster.clock, create=False)


def offsets(cluster: Cluster, name: str = "t") -> list[int | None]:
    """As another process reads them."""
    return [*held(another(cluster).topic(name).partition(0))]


def folded(cluster: Cluster) -> list[int]:
    """As delta-rs reads the one table over the topic."""
    location, _ = cluster.store.delta_location(cluster.topic("t").directory)
    return sorted(DeltaTable(location).to_pyarrow_table(columns=["offset"])["offset"].to_pylist())


def done(outcomes: Sequence[JobOutcome]) -> set[str]:
    assert [outcome.error for outcome in outcomes if outcome.error] == []
    return {outcome.job for outcome in outcomes if outcome.topic == "t"}


def test_while_it_is_mirrored_segments_are_merged_and_no_record_goes(
    clock: ManualClock, cluster: Cluster
) -> None:
    more = [([offset], offset + 2) for offset in MORE]
    mirrored_topic(cluster, "t", configs=DUE, commits=(*COMMITS, *more))
    clock.advance(1_000)
    assert planned(cluster) == {"segment_compaction"}
    assert done(run(another(cluster))) >= {"segment_compaction"}
    (merged,) = another(cluster).topic("t").partition(0).snapshot.segments
    assert (merged.base_offset, merged.last_offset, merged.records) == (7, MORE[-1], len(OFFSETS + MORE))
    assert offsets(cluster) == folded(cluster) == [*OFFSETS, *MORE]
    # The mirror was not fenced, and goes on.
    copy(cluster, cluster.topic("t"), 0, [52], 55)
    assert done(run(another(cluster))).isdisjoint(REMOVING)
    assert offsets(cluster) == folded(cluster) == [*OFFSETS, *MORE, 52]


def test_while_it_is_mirrored_nothing_moves_to_the_remote_root(clock: ManualClock, cluster: Cluster) -> None:
    mirrored_topic(cluster, "t", configs=FAR)
    clock.advance(1_000)
    assert planned(cluster) == set()
    assert done(run(another(cluster))).isdisjoint(REMOVING)
    promote(cluster, "t")
    assert planned(cluster) == {"tiering"}


def planned(cluster: Cluster) -> set[str]:
    """The jobs that have something to do with the topic, but housekeeping."""
    previews = Maintenance(another(cluster), always(in_process)).previews("t")
    return {job for job, _, _, _ in previews} - {"housekeeping"}


def promoted(clock: ManualClock, cluster: Cluster, configs: Mapping[str, str]) -> Partition:
    """The partition, which this process leads for itself."""
    mirrored_topic(cluster, "t", configs=configs)
    topic = promote(cluster, "t")
    clock.advance(1_000)
    return cluster.claim(topic, 0)


def test_retention_removes_it_once_it_is_promoted(clock: ManualClock, cluster: Cluster) -> None:
    partition = promoted(clock, cluster, {"retention.ms": "1"})
    assert append(partition, b"new", at_us=cluster.clock.now_us()) == END
    assert "retention" in done(run(another(cluster)))
    assert offsets(cluster) == [END]
    clock.advance(1_000)
    assert "retention" in done(run(another(cluster)))
    assert offsets(cluster) == []
    assert another(cluster).topic("t").partition(0).log_start == END + 1


def test_a_log_that_ends_with_a_gap_is_emptied(clock: ManualClock, cluster: Cluster) -> None:
    partition = promoted(clock, cluster, {"retention.ms": "1"})
    assert "retention" in done(run(another(cluster)))
    now = another(cluster).topic("t").partition(0)
    assert (now.log_start, now.high_watermark, held(now)) == (16, END, {})
    assert append(partition, b"new", at_us=cluster.clock.now_us()) == END
    assert offsets(cluster) == [END]


def test_a_tombstone_before_the_gap_stays_when_it_is_compacted(clock: ManualClock, cluster: Cluster) -> None:
    """New records are timed after the last one of the log."""
    topic = mirrored_topic(cluster, "t", configs=COMPACTED)
    copy(cluster, topic, 0, [25], 30, lambda _: Record(None, b"gone", timestamp_us=at_us(25)))
    promote(cluster, "t")
    clock.advance(1_000)
    assert "key_compaction" in done(run(another(cluster)))
    now = another(cluster).topic("t").partition(0)
    assert (now.snapshot.cleaned, [*held(now)]) == (26, [8, 13, 15, 25])
    clock.advance(1_000)  # another cleaning meets it again
    assert compact_by_key(now.table, "zstd", delete_retention_ms=0)
    assert offsets(cluster) == [8, 13, 15, 25]
    append(cluster.claim(cluster.topic("t"), 0), b"ours")
    assert offsets(cluster)[-1] == 30


def test_it_moves_to_the_remote_root_once_it_is_promoted(clock: ManualClock, cluster: Cluster) -> None:
    partition = promoted(clock, cluster, FAR)
    append(partition, b"new")
    assert "tiering" in done(run(another(cluster)))
    now = another(cluster).topic("t").partition(0)
    assert now.snapshot.tiered > max(OFFSETS)
    assert offsets(cluster) == [*OFFSETS, END]
    assert [*held(now, max_bytes=1)] == [*OFFSETS, END]
    assert done(run(another(cluster))).isdisjoint({"tiering"})


def test_a_copy_of_the_root_has_it_and_its_mirror(cluster: Cluster, tmp_path: Path) -> None:
    mirrored_topic(cluster, "t")
    copy_root(cluster.store, open_store(tmp_path / "copy"), cluster.clock)
    made = Cluster.open(open_store(tmp_path / "copy"), cluster.clock, create=False)
    topic = made.topic("t")
    assert (topic.mirror, topic.partition(0).high_watermark) == (MIRROR, END)
    assert held(topic.partition(0)) == {offset: value_of(offset) for offset in OFFSETS}
    with pytest.raises(MirroredTopic):
        made.claim(topic, 0)
    copy(made, topic, 0, [21], 22)
    assert [*held(topic.partition(0))] == [*OFFSETS, 21]
    assert check(made.store, deep=True).problems == []
