"""A root on a local disk that is replaced, mounted again or copied, and who may read it."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.metadata_log import open_log
from log_tables.cluster.root_location import note_location
from log_tables.errors import PutRefused
from log_tables.store.store import open_store, table_location
from tests.kit.stores import paths


def test_a_root_that_was_replaced_is_not_begun_anew(tmp_path: Path) -> None:
    root = tmp_path / "root"
    store = open_store(root)
    store.put_if_absent("table/_delta_log/0", b"first")
    root.rename(tmp_path / "lost")
    root.mkdir()
    with pytest.raises(PutRefused, match="mount it again"):
        store.put_if_absent("table/_delta_log/1", b"second")
    assert list(root.iterdir()) == []


@pytest.fixture
def mounted_again(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A function after which all files seem to be on another device, as after a mount came back."""
    stat_of = os.stat

    def elsewhere(*args: Any, **named: Any) -> os.stat_result:
        found = stat_of(*args, **named)
        return os.stat_result(
            (*found[:2], found.st_dev + 1, *found[3:]),
            {"st_mtime_ns": found.st_mtime_ns, "st_ctime_ns": found.st_ctime_ns},
        )

    return lambda: monkeypatch.setattr(os, "stat", elsewhere)


def test_a_root_that_was_mounted_again_is_gone_on_with(
    tmp_path: Path, mounted_again: Callable[[], None]
) -> None:
    store = open_store(tmp_path / "root")
    open_log(store, ManualClock())
    note_location(store)
    store.put_if_absent("a/1", b"")
    mounted_again()
    store.put_if_absent("a/2", b"")
    store.put("a/3", b"")
    assert paths(store, "a/") == ["a/1", "a/2", "a/3"]


@pytest.mark.parametrize("anchored", [True, False])
def test_another_root_that_was_mounted_in_its_place_is_not_written_to(
    anchored: bool, tmp_path: Path, mounted_again: Callable[[], None]
) -> None:
    """Though its top has the same inode, as that of every file system of a kind has."""
    store = open_store(tmp_path / "root")
    if anchored:
        open_log(store, ManualClock())
        note_location(store)
    store.put_if_absent("a/1", b"")
    if anchored:
        store.delete("home/anchor")
        (tmp_path / "other").touch()  # it takes the inode of the anchor
        open_store(tmp_path / "root").put("home/anchor", b"")
    mounted_again()
    with pytest.raises(PutRefused, match="not the directory that was opened"):
        store.put_if_absent("a/2", b"")


def test_the_name_of_a_root_that_is_there_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that created the root may have died before its fsync. A process that only reads makes
    nothing durable.
    """
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda opened: synced.append(os.fstat(opened).st_ino))
    (tmp_path / "root").mkdir()
    open_store(tmp_path / "root", create=False)
    assert synced == []
    open_store(tmp_path / "root")
    assert synced == [tmp_path.stat().st_ino]


def test_a_root_that_is_made_is_its_owners_alone(tmp_path: Path) -> None:
    open_store(tmp_path / "above" / "root").put("a", b"")
    assert stat.S_IMODE((tmp_path / "above" / "root").stat().st_mode) == 0o700
    (tmp_path / "made").mkdir(mode=0o755)
    open_store(tmp_path / "made").put("a", b"")
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o755  # somebody wants it so


def test_an_object_keeps_its_identity_when_owner_and_permissions_are_set(store_root: Path) -> None:
    store = open_store(store_root)
    store.put("home/anchor", b"")
    before = store.identity("home/anchor")
    for path in (store_root / "home" / "anchor", store_root / "home", store_root):
        path.chmod(0o750)
        os.chown(path, os.getuid(), os.getgid())
    assert store.identity("home/anchor") == before


def test_a_copy_with_all_times_has_another_identity(tmp_path: Path) -> None:
    store = open_store(tmp_path / "root")
    store.put("home/anchor", b"")
    shutil.copytree(tmp_path / "root", tmp_path / "copy")  # copy2: with its times
    copy = open_store(tmp_path / "copy")
    assert copy.head("home/anchor") == store.head("home/anchor")
    assert copy.identity("home/anchor") != store.identity("home/anchor")


def test_nothing_is_put_into_a_root_that_was_put_in_the_place_of_the_one_opened(tmp_path: Path) -> None:
    opened = open_store(tmp_path / "root")
    opened.put("a/1", b"")
    shutil.copytree(tmp_path / "root", tmp_path / "restored")
    (tmp_path / "root").rename(tmp_path / "old")
    (tmp_path / "restored").rename(tmp_path / "root")
    for put in (opened.put, opened.put_if_absent, opened.put_new):
        with pytest.raises(PutRefused, match="not the directory that was opened"):
            put("a/2", b"")
    assert paths(open_store(tmp_path / "root"), "") == ["a/1"]


def test_a_location_for_other_programs_needs_no_look_at_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path / "a root % of ours")
    assert table_location(store.url, "topics/t") == store.delta_location("topics/t")[0]
    assert table_location("s3://cheap/lakelog", "topics/t") == "s3://cheap/lakelog/topics/t"
