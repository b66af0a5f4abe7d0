"""A root is copied; a copy that is not whole is refused, and says why."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import RootLocation, locate
from log_tables.errors import CorruptLog, InvalidArgument
from log_tables.layout import HOME_ANCHOR, UNFINISHED_COPY
from log_tables.root.adopt import adopt
from log_tables.root.copy import copy_root, open_target
from log_tables.root.fsck import check
from log_tables.root.inspection import check_location, inspect
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.store.store import Store, open_store
from log_tables.testing import (
    Crash,
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    unavailable,
)
from tests.kit.failures import before
from tests.kit.partitions import append_each, values
from tests.kit.tiers import move_topic, tiered_cluster
from tests.kit.trees import TIERED, VALUES, reopened


def copied(cluster: Cluster, target: Path, **options: Any) -> Cluster:
    copy_root(cluster.store, open_store(target), cluster.clock, **options)
    return Cluster.open(open_store(target), cluster.clock, create=False)


def test_a_copy_has_all_that_the_original_has_and_an_id_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    append_each(cluster.claim(cluster.topic("u"), 0), VALUES)
    cluster.topic("u").partition(0).truncate(2)
    made = copied(cluster, tmp_path / "copy")
    for name in ("t", "u"):
        here, there = cluster.topic(name), made.topic(name)
        assert (there.topic_id, there.config) == (here.topic_id, here.config)
        assert values(there.partition(0)) == values(here.partition(0))
        assert there.partition(0).log_start == here.partition(0).log_start
    assert made.cluster_id != cluster.cluster_id
    assert made.metadata_log.brokers == {}
    assert [item.path for item in made.store.list("staging/")] == [
        item.path for item in cluster.store.list("staging/")
    ]
    assert check(made.store).problems == []
    assert locate(made.store) is RootLocation.HERE


def test_a_copy_that_comes_too_late_for_a_merged_segment_looks_again(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The copy begins with small segments, which are merged soonest, and ends with large ones, such as a
    merged one.
    """
    partition = cluster.claim(cluster.topic("u"), 0)
    append_each(partition, [b"%d" % number * (10 - number) for number in range(10)])
    directory, inputs = partition.directory, partition.snapshot.segments

    def meanwhile() -> None:
        assert commit_merge(
            partition.table, inputs, merge(cluster.store, directory, inputs, "zstd", cluster.clock)
        )
        cluster.store.delete_objects([f"{directory}/{item.path}" for item in inputs])

    faulty = FaultyStore(cluster.store, [Fault(5, before(meanwhile), {"get"}, f"{directory}/0000")])
    copy_root(faulty, open_store(tmp_path / "copy"), cluster.clock)
    made = Cluster.open(open_store(tmp_path / "copy"), cluster.clock, create=False)
    assert values(made.topic("u").partition(0)) == values(partition)
    assert check(made.store).problems == []
    read = [call.path for call in faulty.calls if call.operation == "get" and f"{directory}/0" in call.path]
    sizes = {f"{directory}/{item.path}": item.size for item in inputs}
    assert max(sizes[path] for path in read[:4]) < max(sizes.values())


def test_a_copy_for_the_originals_place_keeps_its_id(cluster: Cluster, tmp_path: Path) -> None:
    assert copied(cluster, tmp_path / "copy", keep_id=True).cluster_id == cluster.cluster_id


def test_records_in_a_remote_root_come_along_and_it_is_not_the_copys(
    tmp_path: Path, clock: ManualClock
) -> None:
    original = tiered_cluster(tmp_path, clock)
    tiered = original.claim(create_topic(original, "t", configs=TIERED), 0)
    append_each(tiered, VALUES)
    move_topic(original, "t", [2])
    there = {item.path for item in open_store(tmp_path / "away").list("")}
    made = copied(original, tmp_path / "copy")
    assert (made.remote_root, made.remote) == (None, None)
    assert values(made.topic("t").partition(0)) == VALUES
    assert made.topic("t").partition(0).snapshot.tiered == 0
    assert check(made.store).problems == []
    assert {item.path for item in open_store(tmp_path / "away").list("")} == there
    with pytest.raises(InvalidArgument, match="is the remote root of cluster"):
        set_remote_root(made, tmp_path / "away")
    set_remote_root(made, tmp_path / "its-own")
    move_topic(made, "t", [2])
    assert values(made.topic("t").partition(0)) == VALUES
    assert check(made.store).problems == []


@pytest.mark.parametrize("name", ["here", "here/inside", "."])
def test_a_root_is_not_copied_into_itself(cluster: Cluster, tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="into itself"):
        copied(cluster, tmp_path / name)


def test_a_place_that_is_not_empty_is_no_place_for_a_copy(cluster: Cluster, tmp_path: Path) -> None:
    store = open_store(tmp_path / "full")
    store.put("mine", b"")
    with pytest.raises(InvalidArgument, match="is not empty"):
        copied(cluster, tmp_path / "full")
    store.delete("mine")
    store.put(UNFINISHED_COPY, b"file:///another")
    with pytest.raises(InvalidArgument, match="unfinished copy of file:///another"):
        copied(cluster, tmp_path / "full")


def test_a_copy_that_was_killed_anywhere_is_refused_until_it_was_gone_on_with(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Killed at each write in turn: what is there is refused, or whole; once more, and it is the copy."""
    number, died = 0, True
    while died:
        target, crash = tmp_path / f"copy{number}", (crash_before, crash_after)[number % 2]
        faulty = FaultyStore(open_store(target), [Fault(1 + number // 2, crash)])
        try:
            copy_root(cluster.store, faulty, cluster.clock)
        except Crash:
            check_unfinished(open_store(target), cluster)
        died = faulty.dead
        if died and (number < 1 or is_marked(target)):
            made = copied(cluster, target)
            assert values(made.topic("t").partition(0)) == VALUES
        assert check(open_store(target)).problems == []
        assert not is_marked(target)
        shutil.rmtree(target)
        number += 1
    assert number > 2 * 15


def test_a_directory_that_is_made_for_a_copy_is_never_empty(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before anything is copied, it is no place where a gateway would begin a root."""
    target = tmp_path / "above" / "copy"

    def died(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", died)
        with pytest.raises(Crash):
            open_target(cluster.store, str(target), {}, cluster.clock)
    assert not target.exists()
    store = open_target(cluster.store, str(target), {}, cluster.clock)
    assert is_marked(target)
    assert target.stat().st_mode & 0o777 == 0o700
    assert [each.name for each in target.parent.iterdir()] == ["copy"]
    with pytest.raises(CorruptLog, match="unfinished copy of file:"):
        check_location(Cluster.open(store, cluster.clock), 0)  # as a gateway begins
    again = open_target(cluster.store, str(target), {}, cluster.clock)
    copy_root(cluster.store, again, cluster.clock)
    assert check(again).problems == []


@pytest.mark.parametrize("begun", ["empty", "of another"])
def test_a_directory_that_is_there_is_taken_as_it_is(cluster: Cluster, tmp_path: Path, begun: str) -> None:
    target = tmp_path / "copy"
    store = open_store(target)
    if begun == "of another":
        store.put(UNFINISHED_COPY, b"file:///another")
    before = [item.path for item in store.list("")]
    assert [
        item.path for item in open_target(cluster.store, str(target), {}, cluster.clock).list("")
    ] == before


def test_a_place_within_the_root_is_not_made(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="into itself"):
        open_target(cluster.store, str(tmp_path / "here" / "inside"), {}, cluster.clock)
    assert not (tmp_path / "here" / "inside").exists()


def is_marked(target: Path) -> bool:
    return any(item.path == UNFINISHED_COPY for item in open_store(target).list(""))


def check_unfinished(store: Store, original: Cluster) -> None:
    """Nobody serves it, unless it is whole; then the command does not touch it any more."""
    try:
        cluster = Cluster.open(store, original.clock, create=False)
        check_location(cluster, 0)
    except (CorruptLog, InvalidArgument) as error:
        refused = error.message
    else:
        assert inspect(cluster).problems == []
        assert check(store).problems == []
        with pytest.raises(InvalidArgument, match="is not empty"):
            copy_root(original.store, store, original.clock)
        return
    assert "unfinished copy" in refused or "no lakelog data" in refused


def test_an_unfinished_copy_with_all_its_logs_is_no_root(
    cluster: Cluster, tmp_path: Path, clock: ManualClock
) -> None:
    """Killed at the end. Served, it would lose what it acknowledged, once the copy was gone on with."""
    store = open_store(tmp_path / "copy")
    killed = FaultyStore(store, [Fault(1, crash_before, {"delete"}, UNFINISHED_COPY)])
    with pytest.raises(Crash):
        copy_root(cluster.store, killed, clock)
    made = Cluster.open(store, clock, create=False)
    with pytest.raises(CorruptLog, match="unfinished copy of file:"):
        check_location(made, 0)
    for force in (False, True):
        with pytest.raises(CorruptLog, match="unfinished copy of file:"):
            adopt(store, clock, 0, force=force)
    with pytest.raises(CorruptLog, match="unfinished copy of file:"):
        set_remote_root(made, tmp_path / "away")
    assert "unfinished copy" in check(store).problems[0]
    copied(cluster, tmp_path / "copy")
    check_location(reopened(store, clock), 0)


def test_a_copy_that_was_in_use_is_not_begun_again(cluster: Cluster, tmp_path: Path) -> None:
    made = copied(cluster, tmp_path / "copy")
    append_each(made.claim(made.topic("t"), 0), [b"acknowledged"])
    made.store.put(UNFINISHED_COPY, cluster.store.url.encode())  # as after a power cut it may come back
    with pytest.raises(InvalidArgument, match="was in use"):
        copied(cluster, tmp_path / "copy")
    assert values(made.topic("t").partition(0)) == [*VALUES, b"acknowledged"]


def test_a_copy_that_goes_on_looks_into_the_files_that_are_there(cluster: Cluster, tmp_path: Path) -> None:
    """A power cut may leave a file with all its bytes, each of them zero."""
    store = open_store(tmp_path / "copy")
    killed = FaultyStore(store, [Fault(1, crash_before, path="_delta_log")])
    with pytest.raises(Crash):
        copy_root(cluster.store, killed, cluster.clock)
    segments = [item for item in store.list("topics/t/") if item.path.endswith(".parquet")]
    store.put(segments[0].path, bytes(segments[0].size))
    put_new = [call.path for call in killed.calls if call.operation == "put_new"]
    assert put_new == []  # which shows a file before its bytes are durable
    made = copied(cluster, tmp_path / "copy")
    assert values(made.topic("t").partition(0)) == VALUES
    assert check(store).problems == []


@pytest.mark.parametrize("failure", [unavailable, answer_lost])
def test_a_whole_copy_has_not_failed_because_it_does_not_know_its_place_yet(
    cluster: Cluster, tmp_path: Path, failure: Failure
) -> None:
    """A repeat would find it in use. The first gateway looks through it, as through any that was moved."""
    store = open_store(tmp_path / "copy")
    copy_root(cluster.store, FaultyStore(store, [Fault(1, failure, path=HOME_ANCHOR)]), cluster.clock)
    copied = Cluster.open(store, cluster.clock, create=False)
    check_location(copied, 0)
    assert locate(store) is RootLocation.HERE
