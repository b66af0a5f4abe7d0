"""Tests for log_tables/root/fold_replay.py: what fsck says of the table over a topic."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.layout import PROPERTY_FILE_RETENTION, commit_path, last_checkpoint_path, segment_name
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.table.commit import Add, Commit, CommitInfo, Txn, put_commit
from log_tables.table.delta_log import commit_info
from log_tables.topic_table.topic_snapshot import add_of, noted_txn
from log_tables.topic_table.topic_table import refold
from tests.kit.folds import FoldedTopic, merge_folded


@pytest.fixture
def world(clock: ManualClock) -> FoldedTopic:
    world = FoldedTopic(open_store("memory://"), clock, 2)
    world.append(0, 3)
    world.fold()
    merge_folded(world, 0)
    world.append(1, 2)
    world.fold()
    return world


def put(world: FoldedTopic, commit: Commit) -> None:
    version = world.table.snapshot.version + 1
    assert put_commit(world.cluster.store, "topics/t", version, commit, world.cluster.clock) is None


def test_a_fold_is_sound_at_every_version_also_after_a_checkpoint(world: FoldedTopic) -> None:
    assert check(world.cluster.store).problems == []
    world.table.checkpoint(0)
    world.append(0)
    world.fold()
    assert check(world.cluster.store).problems == []


def test_a_fold_that_lags_is_sound(world: FoldedTopic) -> None:
    world.append(0)
    assert check(world.cluster.store).problems == []


def test_a_file_that_the_partition_never_had_is_found(world: FoldedTopic) -> None:
    segment = world.topic.partition(1).snapshot.segments[0]
    name = segment_name(9, "01234567")
    stray = replace(segment, path=name, base_offset=9, last_offset=9)
    noted = Txn(noted_txn(0), world.topic.partition(0).snapshot.version)
    put(
        world,
        Commit(commit_info(world.cluster.clock, "WRITE"), (noted,), (add_of(0, stray, data_change=True),)),
    )
    *_, first, second = check(world.cluster.store).problems
    assert first == (
        f"the table over topics/t: version 4 has other files than topics/t/partition=0 has at its version "
        f"{noted.version}"
    )
    assert second.endswith("which is missing; restore it from a backup")


def test_a_table_that_is_ahead_of_a_partition_is_found(world: FoldedTopic) -> None:
    put(world, Commit(commit_info(world.cluster.clock, "WRITE"), (Txn(noted_txn(0), 99),)))
    *_, problem = check(world.cluster.store).problems
    assert "notes version 99 of topics/t/partition=0, which ends at 5" in problem


def test_a_table_that_was_ahead_of_a_partition_is_sound_once_it_is_made_again(world: FoldedTopic) -> None:
    put(world, Commit(commit_info(world.cluster.clock, "WRITE"), (Txn(noted_txn(0), 99),)))
    refold(world.cluster.store, "topics/t", world.cluster.clock)
    world.topic.forget_table()
    world.fold()
    assert check(world.cluster.store).problems == []


FOREIGN = CommitInfo(operation="WRITE", engineInfo="another tool")


def by_another_tool(world: FoldedTopic) -> None:
    add = Add("part-0.parquet", 1, 1, True, partitionValues={"partition": "0"})
    put(world, Commit(FOREIGN, adds=(add,)))


def without_a_table(world: FoldedTopic) -> None:
    for item in [*world.cluster.store.list("topics/t/_delta_log/")]:
        world.cluster.store.delete(item.path)


def with_a_hole(world: FoldedTopic) -> None:
    world.cluster.store.delete(commit_path("topics/t", 2))


def with_a_torn_commit(world: FoldedTopic) -> None:
    world.cluster.store.put(commit_path("topics/t", 2), b"{")


def with_records_twice(world: FoldedTopic) -> None:
    segment = world.topic.partition(1).snapshot.segments[0]
    put(
        world, Commit(commit_info(world.cluster.clock, "WRITE"), adds=(add_of(1, segment, data_change=True),))
    )


def with_another_retention(world: FoldedTopic) -> None:
    metadata = world.table.snapshot.metadata
    changed = replace(
        metadata, configuration={**metadata.configuration, PROPERTY_FILE_RETENTION: "interval 1 day"}
    )
    put(world, Commit(commit_info(world.cluster.clock, "SET TBLPROPERTIES"), metadata=changed))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (by_another_tool, "it was made by another tool; stop the other tool, and make the table again with"),
        (without_a_table, "there is no table over the topic; make it with `lakelog root refold`"),
        (with_a_hole, "is missing"),
        (with_a_torn_commit, "cannot be read"),
        (with_records_twice, "below the end 2 of partition 1"),
        (with_another_retention, f"the table property {PROPERTY_FILE_RETENTION} is 'interval 1 day'"),
    ],
)
def test_a_damaged_table_is_named_and_can_be_made_again(
    world: FoldedTopic, damage: Callable[[FoldedTopic], None], said: str
) -> None:
    damage(world)
    assert any(said in problem for problem in check(world.cluster.store).problems)
    refold(world.cluster.store, "topics/t", world.cluster.clock)
    world.topic.forget_table()
    world.fold()
    world.check_level()
    assert check(world.cluster.store).problems == []


def test_a_table_that_was_made_again_is_opened_there_also_when_the_hint_is_old(world: FoldedTopic) -> None:
    world.table.checkpoint(0)
    old = world.cluster.store.get(last_checkpoint_path("topics/t"))
    by_another_tool(world)
    refold(world.cluster.store, "topics/t", world.cluster.clock)
    world.cluster.store.put(last_checkpoint_path("topics/t"), old)
    world.topic.forget_table()
    world.fold()
    world.check_level()


def test_a_table_that_is_made_again_has_another_id(world: FoldedTopic) -> None:
    before = world.table.snapshot.metadata.id
    refold(world.cluster.store, "topics/t", world.cluster.clock)
    world.fold()
    world.check_level()
    assert world.table.snapshot.metadata.id != before
    assert check(world.cluster.store).problems == []
