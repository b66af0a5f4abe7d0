"""The old root follows the one that was promoted in its place, and loses nothing without a word."""

from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.audit_log import first_batch
from log_tables.cluster.admin.audit_spill import spill, spilled
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.standby import read_mark
from log_tables.errors import Conflict, InvalidArgument
from log_tables.root.failback import fail_back
from log_tables.root.fsck import check
from log_tables.root.promote import promote
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, crash_after, crash_before
from tests.kit.audits import deletion
from tests.kit.partitions import append, append_each, values
from tests.kit.standby import files, follow, logs
from tests.kit.unfolding import QuickClock

VALUES = [b"0", b"1", b"2", b"3"]


class Pair:
    """An old root, and the standby that was promoted in its place; both have gone on."""

    def __init__(self, directory: Path, clock: ManualClock, *, alone: bool = True) -> None:
        self.clock, self.old = clock, open_store(directory / "old")
        self.new = open_store(directory / "new")
        before = Cluster.open(self.old, clock)
        append_each(before.claim(create_topic(before, "t"), 0), VALUES)
        append_each(before.claim(create_topic(before, "u"), 0), VALUES)
        follow(self.old, self.new, clock=QuickClock())
        if alone:
            append_each(before.claim(before.topic("t"), 0), [b"only", b"here"])
        before.metadata_log.remove_broker(before.metadata_log.register_broker("http://gone"))
        promote(self.new, clock)
        after = Cluster.open(self.new, clock, create=False)
        append(after.claim(after.topic("t"), 0), b"new")
        create_topic(after, "v")

    def fail_back(self, old: Store | None = None, **options: bool) -> list[str]:
        return [str(each) for each in fail_back(old or self.old, self.new, self.clock, 0, **options)]

    def check_alike(self) -> None:
        follow(self.new, self.old, clock=QuickClock())
        assert logs(self.old).items() >= logs(self.new).items()
        assert check(self.old).problems == []
        found = Cluster.open(self.old, self.clock, create=False)
        assert values(found.topic("t").partition(0)) == [*VALUES, b"new"]


def test_what_only_the_old_root_has_is_named_before_it_goes(tmp_path: Path, clock: ManualClock) -> None:
    pair = Pair(tmp_path, clock)
    before = {item.path for item in pair.old.list("")}
    assert "topics/t/partition=0: offsets 4 to 5" in pair.fail_back(dry_run=True)
    with pytest.raises(Conflict, match="2 records are only in the old root: topics/t/partition=0: offsets 4"):
        pair.fail_back()
    assert {item.path for item in pair.old.list("")} == before
    pair.fail_back(discard=True)
    pair.check_alike()


def test_gateways_that_came_and_went_are_no_loss(tmp_path: Path, clock: ManualClock) -> None:
    pair = Pair(tmp_path, clock, alone=False)
    assert pair.fail_back() != []
    pair.check_alike()


def test_files_that_both_have_are_not_copied_again(tmp_path: Path, clock: ManualClock) -> None:
    pair = Pair(tmp_path, clock)
    shared = files(pair.old).keys() & files(pair.new).keys()
    assert len(shared) >= 2 * len(VALUES)
    pair.fail_back(discard=True)
    written = FaultyStore(pair.old)
    follow(pair.new, written, clock=QuickClock())
    puts = {call.path for call in written.calls if call.operation.startswith("put")}
    assert puts & files(pair.new).keys()
    assert not puts & shared
    assert check(pair.old).problems == []


def test_a_topic_of_the_old_root_alone_is_a_loss(tmp_path: Path, clock: ManualClock) -> None:
    pair = Pair(tmp_path, clock, alone=False)
    before = Cluster.open(pair.old, clock)
    append(before.claim(create_topic(before, "mine"), 0), b"mine")
    with pytest.raises(Conflict, match="topics/mine/partition=0: offsets 0 to 0"):
        pair.fail_back()


def test_a_topic_that_was_deleted_in_the_new_root_is_no_loss(tmp_path: Path, clock: ManualClock) -> None:
    pair = Pair(tmp_path, clock, alone=False)
    delete_topic(Cluster.open(pair.new, clock, create=False), "u")
    pair.new.delete_objects([item.path for item in [*pair.new.list("topics/u/")]])  # as a sweep does
    pair.fail_back()


def test_a_root_follows_one_other_root(tmp_path: Path, clock: ManualClock) -> None:
    pair = Pair(tmp_path, clock, alone=False)
    with pytest.raises(InvalidArgument, match="follow itself"):
        fail_back(pair.new, pair.new, clock, 0)
    pair.fail_back()
    with pytest.raises(Conflict, match="only `lakelog replicate` writes"):
        fail_back(pair.new, pair.old, clock, 0)
    third = open_store(tmp_path / "third")
    Cluster.open(third, clock)
    with pytest.raises(Conflict, match=r"is a standby of .* already"):
        fail_back(pair.old, third, clock, 0)


def test_an_unrelated_root_is_never_cut(tmp_path: Path, clock: ManualClock) -> None:
    pair, other = Pair(tmp_path, clock), open_store(tmp_path / "other")
    cluster = Cluster.open(other, clock)
    append(cluster.claim(create_topic(cluster, "t"), 0), b"precious")
    before = files(other)
    for discard in (False, True):
        with pytest.raises(Conflict, match="was not promoted in the place of") as caught:
            fail_back(other, pair.new, clock, 0, discard=discard)
        assert cluster.cluster_id in str(caught.value)
    assert files(other) == before
    assert read_mark(other) is None


def test_the_promoted_root_does_not_follow_its_original(tmp_path: Path, clock: ManualClock) -> None:
    """Nor does one that was promoted in the same place: they are alike up to a version."""
    pair, sibling = Pair(tmp_path, clock), open_store(tmp_path / "sibling")
    follow(pair.old, sibling, clock=QuickClock())
    promote(sibling, clock)
    before = files(pair.new)
    for newer in (pair.old, sibling):
        with pytest.raises(Conflict, match="was not promoted in the place of"):
            fail_back(pair.new, newer, clock, 0, discard=True)
    assert files(pair.new) == before


def test_a_root_that_kept_its_id_is_followed_by_its_original_alone(
    tmp_path: Path, clock: ManualClock
) -> None:
    old, new = open_store(tmp_path / "old"), open_store(tmp_path / "new")
    cluster = Cluster.open(old, clock)
    append_each(cluster.claim(create_topic(cluster, "t"), 0), VALUES)
    follow(old, new, clock=QuickClock())
    promote(new, clock, keep_id=True)
    with pytest.raises(Conflict, match="was not promoted in the place of"):
        fail_back(new, old, clock, 0, discard=True)
    fail_back(old, new, clock, 0)
    follow(new, old, clock=QuickClock())
    assert check(old).problems == []


def test_it_is_repeated_after_a_crash_at_any_write(tmp_path: Path, clock: ManualClock) -> None:
    number, died = 0, True
    while died:
        number += 1
        pair = Pair(tmp_path / str(number), clock)
        spill(pair.old, [first_batch(clock, [deletion(clock, "waits")])])
        waiting = {item.path: pair.old.get(item.path) for item in spilled(pair.old)}
        faulty = FaultyStore(pair.old, [Fault(number, (crash_before, crash_after)[number % 2])])
        try:
            pair.fail_back(faulty, discard=True)
        except Crash:
            pair.fail_back(discard=True)
        died = faulty.dead
        assert {item.path: pair.new.get(item.path) for item in spilled(pair.new)} == waiting
        pair.check_alike()
    assert number > 5
