"""A root is copied as it was: before and after what was done since; what is gone is named."""

from pathlib import Path
from typing import Any

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    OffsetKey,
    OffsetValue,
    TransactionsKey,
    TransactionsValue,
)
from log_tables.errors import InvalidArgument
from log_tables.layout import CONSUMER_OFFSETS, commit_path, partition_directory
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import ProducerStamp
from log_tables.root.copy import CopyResult, copy_root
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location, inspect
from log_tables.root.reach import reaches
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_before
from tests.kit.groups import commit, say
from tests.kit.partitions import append, append_each, entry, values
from tests.kit.tiers import move_topic, tiered_cluster

APPLIER = KEPT_PRODUCER_ID_MIN + 7


@pytest.fixture
def cluster(tmp_path: Path, clock: ManualClock) -> Cluster:
    """A topic `t` with two records, which group `g` has consumed."""
    made = Cluster.open(open_store(tmp_path / "here"), clock)
    append_each(made.claim(create_topic(made, "t"), 0), [b"0", b"1"])
    commit(made, "g", "t", 0, 2)
    return made


def after(cluster: Cluster, seconds: int = 10) -> int:
    """Let time go by; returns a moment between before and after, in milliseconds since 1970."""
    assert isinstance(cluster.clock, ManualClock)
    cluster.clock.advance(seconds * 500)
    moment = cluster.clock.now_ms()
    cluster.clock.advance(seconds * 500)
    return moment


def copied(
    cluster: Cluster, target: Path, as_of_ms: int | None, **options: Any
) -> tuple[Cluster, CopyResult]:
    """The copy, which is whole."""
    store = open_store(target)
    result = copy_root(cluster.store, store, cluster.clock, as_of_ms=as_of_ms, **options)
    made = Cluster.open(store, cluster.clock, create=False)
    check_location(made, 0)
    assert check(store).problems == []
    return made, result


def offset_of(cluster: Cluster) -> int:
    return inspect(cluster).groups.offsets[OffsetKey("g", "t", 0)].offset


def test_a_topic_that_came_back_under_another_name_is_copied_under_both(
    cluster: Cluster, tmp_path: Path
) -> None:
    moment = after(cluster)
    delete_topic(cluster, "t")
    undelete_topic(cluster, "t", new_name="u")
    assert values(copied(cluster, tmp_path / "then", moment)[0].topic("t").partition(0)) == [b"0", b"1"]
    assert values(copied(cluster, tmp_path / "now", after(cluster))[0].topic("u").partition(0)) == [
        b"0",
        b"1",
    ]
    assert {each.topic for each in reaches(cluster.store, cluster.clock) if each.since_ms is None} == set()


def test_records_groups_and_topics_are_those_of_then(cluster: Cluster, tmp_path: Path) -> None:
    moment = after(cluster)
    append_each(cluster.topic("t").partition(0), [b"2"])
    commit(cluster, "g", "t", 0, 3)
    create_topic(cluster, "new")
    made, result = copied(cluster, tmp_path / "then", moment)
    assert result.as_of_ms == moment
    assert [topic.name for topic in made.topics()] == ["t"]
    assert values(made.topic("t").partition(0)) == [b"0", b"1"]
    assert offset_of(made) == 2
    append(made.claim(made.topic("t"), 0), b"another 2")
    later, _ = copied(cluster, tmp_path / "now", after(cluster))
    assert values(later.topic("t").partition(0)) == [b"0", b"1", b"2"]
    assert offset_of(later) == 3


def test_what_was_deleted_since_is_there(cluster: Cluster, tmp_path: Path) -> None:
    """Records by retention, others by a merge, and a whole topic, which was made again."""
    append_each(cluster.claim(create_topic(cluster, "u"), 0), [b"0", b"1", b"2"])
    first = cluster.topic("u").topic_id
    moment = after(cluster)
    table = cluster.topic("t").partition(0)
    inputs = table.snapshot.segments
    assert commit_merge(
        table.table, inputs, merge(cluster.store, table.directory, inputs, "zstd", cluster.clock)
    )
    cluster.topic("u").partition(0).truncate(2)
    after(cluster)
    delete_topic(cluster, "u")
    create_topic(cluster, "u", 3)
    made, _ = copied(cluster, tmp_path / "then", moment)
    assert values(made.topic("u").partition(0)) == [b"0", b"1", b"2"]
    assert (made.topic("u").topic_id, made.topic("u").partition_count) == (first, 1)
    assert values(made.topic("t").partition(0)) == [b"0", b"1"]


def test_a_checkpoint_since_then_is_not_begun_at(cluster: Cluster, tmp_path: Path) -> None:
    moment = after(cluster)
    table = cluster.topic("t").partition(0)
    append(table, b"2")
    table.table.checkpoint(0)
    made, _ = copied(cluster, tmp_path / "then", moment)
    assert values(made.topic("t").partition(0)) == [b"0", b"1"]


def test_a_file_that_is_gone_is_named(cluster: Cluster, tmp_path: Path) -> None:
    moment = after(cluster)
    table = cluster.topic("t").partition(0)
    inputs = table.snapshot.segments
    version = table.snapshot.version
    commit_merge(table.table, inputs, merge(cluster.store, table.directory, inputs, "zstd", cluster.clock))
    since = cluster.clock.now_ms()
    cluster.store.delete(f"{table.directory}/{inputs[0].path}")
    with pytest.raises(
        InvalidArgument, match=rf"{table.directory} .*version {version} names {inputs[0].path}"
    ):
        copied(cluster, tmp_path / "then", moment)
    [reach] = [each for each in reaches(cluster.store, cluster.clock) if each.topic == "t"]
    assert reach.since_ms == since
    made, _ = copied(cluster, tmp_path / "later", since)
    assert values(made.topic("t").partition(0)) == [b"0", b"1"]


def test_a_log_that_does_not_reach_back_is_named(cluster: Cluster, tmp_path: Path) -> None:
    moment = after(cluster)
    table = cluster.topic("t").partition(0)
    append(table, b"2")
    table.table.checkpoint(0)
    for version in range(table.snapshot.version):
        cluster.store.delete(commit_path(table.directory, version))
    with pytest.raises(InvalidArgument, match=f"{table.directory} cannot be had .*reaches back to"):
        copied(cluster, tmp_path / "then", moment)
    with pytest.raises(InvalidArgument, match="cannot be had"):
        copied(cluster, tmp_path / "before", 0)
    with pytest.raises(InvalidArgument, match="in the future"):
        copied(cluster, tmp_path / "future", cluster.clock.now_ms() + 1_000)


def test_a_topic_that_was_swept_is_named(cluster: Cluster, tmp_path: Path) -> None:
    create_topic(cluster, "u")
    directory = cluster.topic("u").directory
    moment = after(cluster)
    delete_topic(cluster, "u")
    for item in [*cluster.store.list(f"{directory}/")]:
        cluster.store.delete(item.path)
    with pytest.raises(InvalidArgument, match=f"{directory}/partition=0 was there .* its files are gone"):
        copied(cluster, tmp_path / "then", moment)
    gone = [each for each in reaches(cluster.store, cluster.clock) if each.topic == "u"]
    assert [(each.since_ms, each.deleted_ms is not None) for each in gone] == [(None, True)]


def test_a_topic_that_came_back_under_another_name_is_copied(cluster: Cluster, tmp_path: Path) -> None:
    """Its tables stay in the directory of its first name, under which another topic was made since."""
    delete_topic(cluster, "t")
    create_topic(cluster, "t", 2)
    back = undelete_topic(cluster, "t", new_name="back")
    append(cluster.claim(back, 0), b"2")
    commit(cluster, "g", "back", 0, 3)
    made, result = copied(cluster, tmp_path / "then", moment := after(cluster))
    assert (result.as_of_ms, inspect(made).groups.offsets[OffsetKey("g", "back", 0)].offset) == (moment, 3)
    assert values(made.topic("back").partition(0)) == [b"0", b"1", b"2"]
    assert values(made.topic("t").partition(0)) == []
    found = {each.topic: each.since_ms for each in reaches(cluster.store, cluster.clock)}
    assert None not in (found["back"], found["t"])


def test_a_deleted_topic_with_fewer_partitions_than_the_one_after_it_reaches_back(cluster: Cluster) -> None:
    delete_topic(cluster, "t")
    create_topic(cluster, "t", 3)
    deleted, live = (each for each in reaches(cluster.store, cluster.clock) if each.topic == "t")
    assert (deleted.partitions, live.partitions) == (1, 3)
    assert None not in (deleted.since_ms, deleted.deleted_ms, live.since_ms)


def test_a_topic_that_has_just_come_back_is_copied(cluster: Cluster, tmp_path: Path) -> None:
    """Its record is there, and the process was killed before its tables went on."""
    delete_topic(cluster, "t")
    dies = Fault(1, crash_before, path="topics/t/partition=0")
    with pytest.raises(Crash):
        undelete_topic(Cluster.open(FaultyStore(cluster.store, [dies]), cluster.clock), "t")
    moment = after(cluster)
    for name, as_of_ms in (("now", None), ("then", moment)):
        made, result = copied(cluster, tmp_path / name, as_of_ms)
        assert result.as_of_ms == as_of_ms
        assert values(made.topic("t").partition(0)) == [b"0", b"1"]
        append(made.claim(made.topic("t"), 0), b"2")


def transaction(cluster: Cluster, applies: bool) -> tuple[int, int, int]:
    """A transaction of group `g` that is committed, and applied 10 s later; returns moments before, between
    and after. Its staged file goes if it `applies`.
    """
    before = after(cluster)
    part = PartitionRecords("t", cluster.topic("t").topic_id, 0, [entry(b"staged").records])
    staged = stage(cluster.store, cluster.clock, "g", [part])
    offset = OffsetValue(2, cluster.topic("t").topic_id, committed_ms=cluster.clock.now_ms(), metadata="its")
    say(
        cluster,
        (IntentKey("g", 1), Intent(APPLIER, 1, (staged,))),
        (OffsetKey("g", "t", 0), offset),
    )
    between = after(cluster)
    append(cluster.topic("t").partition(0), b"beside it")
    if applies:
        append(cluster.topic("t").partition(0), b"staged", producer=ProducerStamp(APPLIER, 1, 0, True))
        say(
            cluster,
            (IntentKey("g", 1), None),
            (TransactionsKey("g"), TransactionsValue(APPLIER, 1)),
        )
        cluster.store.delete(staged.path)
    return before, between, after(cluster)


def test_a_transaction_across_the_moment_is_whole_or_not_there(cluster: Cluster, tmp_path: Path) -> None:
    before, between, later = transaction(cluster, applies=True)
    made, result = copied(cluster, tmp_path / "between", between)
    assert result.as_of_ms is not None
    assert before < result.as_of_ms < between  # its staged file is gone, so it is of before its commit
    assert values(made.topic("t").partition(0)) == [b"0", b"1"]
    assert inspect(made).groups.offsets[OffsetKey("g", "t", 0)].metadata == ""
    made, result = copied(cluster, tmp_path / "later", later)
    assert values(made.topic("t").partition(0)) == [b"0", b"1", b"beside it", b"staged"]
    assert result.as_of_ms == later


def test_a_transaction_that_was_applied_and_not_noted_ends_in_the_copy(
    cluster: Cluster, tmp_path: Path
) -> None:
    part = PartitionRecords("t", cluster.topic("t").topic_id, 0, [entry(b"staged").records])
    staged = stage(cluster.store, cluster.clock, "g", [part])
    say(cluster, (IntentKey("g", 1), Intent(APPLIER, 1, (staged,))))
    append(cluster.topic("t").partition(0), b"staged", producer=ProducerStamp(APPLIER, 1, 0, True))
    moment = after(cluster)
    say(cluster, (IntentKey("g", 1), None))
    cluster.store.delete(staged.path)
    made, result = copied(cluster, tmp_path / "then", moment)
    assert result.as_of_ms == moment
    assert values(made.topic("t").partition(0)) == [b"0", b"1", b"staged"]
    assert inspect(made).groups.pending == {}


def test_a_transaction_that_still_waits_waits_in_the_copy_too(cluster: Cluster, tmp_path: Path) -> None:
    _, between, _ = transaction(cluster, applies=False)
    made, result = copied(cluster, tmp_path / "between", between)
    assert result.as_of_ms == between
    assert [*inspect(made).groups.staged()] == [item.path for item in made.store.list("staging/")]
    assert values(made.topic("t").partition(0)) == [b"0", b"1"]


def test_a_group_whose_clock_is_behind_is_not_ahead_of_its_partition(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The gateway of the group is 4 s behind that of the partition: the moment becomes an earlier one."""
    assert isinstance(cluster.clock, ManualClock)
    good = after(cluster, 20)
    append(cluster.topic("t").partition(0), b"2")
    slow = Cluster.open(cluster.store, ManualClock(cluster.clock.now_ms() - 4_000))
    commit(slow, "g", "t", 0, 3)
    made, result = copied(cluster, tmp_path / "then", cluster.clock.now_ms() - 2_000)
    assert result.as_of_ms is not None
    assert good <= result.as_of_ms < cluster.clock.now_ms() - 4_000
    assert (offset_of(made), len(values(made.topic("t").partition(0)))) == (2, 2)


def test_an_offset_that_was_committed_beyond_the_end_stays_so(cluster: Cluster, tmp_path: Path) -> None:
    commit(cluster, "g", "t", 0, 99)
    made, result = copied(cluster, tmp_path / "then", moment := after(cluster))
    assert (result.as_of_ms, offset_of(made)) == (moment, 99)


def test_records_that_moved_are_copied_from_the_remote_root(tmp_path: Path, clock: ManualClock) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    append_each(
        cluster.claim(create_topic(cluster, "t", configs={"remote.storage.enable": "true"}), 0),
        [b"0", b"1", b"2"],
    )
    move_topic(cluster, "t", [2])
    moment = after(cluster)
    append(cluster.topic("t").partition(0), b"3")
    move_topic(cluster, "t", [3])
    made, _ = copied(cluster, tmp_path / "then", moment)
    assert values(made.topic("t").partition(0)) == [b"0", b"1", b"2"]


def test_every_topic_reaches_back_to_its_beginning_at_first(cluster: Cluster) -> None:
    created = cluster.clock.now_ms()
    found = {each.topic: each for each in reaches(cluster.store, cluster.clock)}
    assert set(found) == {"__cluster_metadata", CONSUMER_OFFSETS, "t"}
    assert all(each.since_ms is not None and each.since_ms <= created for each in found.values())
    assert partition_directory(cluster.topic("t").directory, 0) == "topics/t/partition=0"
