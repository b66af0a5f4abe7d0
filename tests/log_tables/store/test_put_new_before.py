"""An object, and another one that relies on it, on a local disk that keeps order."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.errors import AlreadyExists, InvalidArgument, OutcomeUnknown, PutRefused
from log_tables.store.local import LocalStore
from log_tables.store.store import Store, open_store
from log_tables.testing import FaultyStore
from tests.kit.stores import paths

BOTH = ["t/log/0", "t/segment"]


class Syncs:
    """The fsyncs of a store: what is called for each, and what has its name by then."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seen: list[tuple[str, bool]] = []
        self.fails: Callable[[str], bool] = lambda _: False

    def __call__(self, descriptor: int) -> None:
        found = os.fstat(descriptor)
        size = "" if stat.S_ISDIR(found.st_mode) else f" of {found.st_size}"
        what = f"{'directory' if not size else 'file'}{size or self._name(found.st_ino)}"
        self.seen.append((what, (self.root / "t/log/0").exists()))
        if self.fails(what):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _name(self, inode: int) -> str:
        return next(f" {name}" for name in ("", "t", "t/log") if (self.root / name).stat().st_ino == inode)


@pytest.fixture
def syncs(tmp_path: Path) -> Syncs:
    return Syncs(tmp_path)


@pytest.fixture
def ordered(tmp_path: Path, syncs: Syncs) -> LocalStore:
    """On a disk that keeps order, with the names of its directories durable."""
    store = LocalStore(tmp_path, SystemClock(), sync=syncs, ordered=True)
    store.put("t/log/x", b"x")
    store.delete("t/log/x")
    store.put("t/log/-", b"-")
    store.make_durable("t")
    syncs.seen.clear()
    return store


def put_both(store: Store) -> None:
    with store.put_new_before("t/segment", b"12") as put:
        put("t/log/0", b"345")


def there(store: Store) -> list[str]:
    return [path for path in paths(store, "t") if path != "t/log/-"]


def test_the_second_has_its_name_after_both_files_are_durable_and_before_its_directory_is(
    ordered: LocalStore, syncs: Syncs
) -> None:
    put_both(ordered)
    assert sorted(syncs.seen) == [
        ("directory t/log", True),
        ("file of 2", False),
        ("file of 3", False),
    ]
    assert (ordered.get("t/segment"), ordered.get("t/log/0")) == (b"12", b"345")


@pytest.mark.parametrize("what", ["file of 2", "file of 3"])
def test_a_file_that_cannot_be_fsynced_is_a_put_that_did_not_happen(
    ordered: LocalStore, syncs: Syncs, what: str
) -> None:
    syncs.fails = lambda seen: seen == what
    with ordered.put_new_before("t/segment", b"12") as put, pytest.raises(PutRefused, match="t/log/0"):
        put("t/log/0", b"345")
    assert "t/log/0" not in there(ordered)
    if what == "file of 2":
        assert there(ordered) == []


def test_a_file_whose_fsync_failed_is_not_fsynced_again(ordered: LocalStore, syncs: Syncs) -> None:
    syncs.fails = lambda seen: seen == "file of 2"
    with ordered.put_new_before("t/segment", b"12") as put:
        for _ in range(2):
            with pytest.raises(PutRefused):
                put("t/log/0", b"345")
            syncs.fails = lambda _: False
    assert [what for what, _ in syncs.seen].count("file of 2") == 1
    assert there(ordered) == []


def test_a_directory_that_cannot_be_fsynced_leaves_the_outcome_open(
    ordered: LocalStore, syncs: Syncs
) -> None:
    syncs.fails = lambda seen: seen == "directory t/log"
    with pytest.raises(OutcomeUnknown, match="may not be durable"):
        put_both(ordered)
    assert there(ordered) == BOTH


def test_when_another_was_first_the_second_is_put_alone_under_another_name(
    ordered: LocalStore, syncs: Syncs
) -> None:
    ordered.put("t/log/0", b"another's")
    syncs.seen.clear()
    with ordered.put_new_before("t/segment", b"12") as put:
        with pytest.raises(AlreadyExists, match="t/log/0"):
            put("t/log/0", b"345")
        put("t/log/1", b"345")
    assert [what for what, _ in syncs.seen][2:] == ["directory t", "file of 3", "directory t/log"]
    assert there(ordered) == ["t/log/0", "t/log/1", "t/segment"]


def test_what_is_given_up_before_the_second_is_put_leaves_nothing(ordered: LocalStore) -> None:
    with pytest.raises(AlreadyExists), ordered.put_new_before("t/segment", b"12"):
        raise AlreadyExists("it is no longer wanted")
    assert there(ordered) == []


def test_the_first_may_not_be_there_already(ordered: LocalStore) -> None:
    ordered.put("t/segment", b"another's")
    with pytest.raises(AlreadyExists, match="t/segment"):
        put_both(ordered)
    assert ordered.get("t/segment") == b"another's"
    with pytest.raises(InvalidArgument):
        ordered.put_new_before("../t", b"").__enter__()


def in_turn(syncs: Syncs) -> list[str]:
    return [what for what, _ in syncs.seen][:2]


def test_in_a_directory_whose_name_may_not_be_durable_the_first_is_durable_first(
    ordered: LocalStore, syncs: Syncs, tmp_path: Path
) -> None:
    store = LocalStore(tmp_path, SystemClock(), sync=syncs, ordered=True)
    put_both(store)
    assert in_turn(syncs) == ["file of 2", "directory t"]


def test_on_a_disk_that_keeps_no_order_the_first_is_durable_first(syncs: Syncs, tmp_path: Path) -> None:
    store = LocalStore(tmp_path, SystemClock(), sync=syncs)
    store.put("t/log/-", b"-")
    store.make_durable("t")
    syncs.seen.clear()
    put_both(store)
    assert syncs.seen[0] == ("file of 2", False)
    assert in_turn(syncs) == ["file of 2", "directory t"]


def test_what_is_recreated_is_not_taken_for_durable(
    ordered: LocalStore, syncs: Syncs, tmp_path: Path
) -> None:
    for item in list(ordered.list("t")):
        os.unlink(tmp_path / item.path)  # by another process, which then prunes
    os.rmdir(tmp_path / "t/log")
    os.rename(tmp_path / "t", tmp_path / "u")
    (tmp_path / "t").mkdir()
    put_both(ordered)
    assert in_turn(syncs) == ["file of 2", "directory t"]


def test_every_store_has_both(ordered: LocalStore) -> None:
    for store in (ordered, FaultyStore(ordered), open_store("memory://")):
        put_both(store)
        assert there(store) == BOTH
        store.delete("t/segment")
        store.delete("t/log/0")
