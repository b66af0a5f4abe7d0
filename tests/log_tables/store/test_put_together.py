"""Commits of several tables that are put with fewer waits, on a disk that fails, and that loses its power."""

import errno
import os
from collections.abc import Collection
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.errors import AlreadyExists, LakelogError, StoreFull
from log_tables.store.file import SystemFlush, system_flush
from log_tables.store.local import LocalStore
from log_tables.store.store import Put, Store, open_store
from log_tables.testing import Crash, FaultyStore
from tests.kit.disk import Disk, Fails, death, from_then_on, once
from tests.kit.power import HERE, everything, nothing
from tests.kit.small_disk import fill, small_disk
from tests.kit.stores import paths

TABLES, COMMITS = ("a", "b", "c"), 3
SYNCS = 1 + COMMITS
"""One for all contents, and one for the names of those that may be seen at once."""

PUTS = [
    Put(f"{table}/log/{number}", f"commit {number}".encode(), [(f"{table}/{number}", b"segment")])
    for table in TABLES
    for number in range(COMMITS)
]


def each_by_itself(store: Store, puts: Collection[Put]) -> None:
    """Put those that are not there, as who puts them together has to in the end."""
    for put in puts:
        for path, data in put.new:
            store.put(path, data)
        try:
            store.put_if_absent(put.path, put.data)
        except AlreadyExists:
            store.make_durable(os.path.dirname(put.path))


def check(store: Store, durable: Collection[str]) -> None:
    """All that is `durable` is there, and no commit without the one before it, or without its segment."""
    there = set(paths(store, ""))
    assert there.issuperset(durable)
    for put in PUTS:
        table, _, number = put.path.rpartition("/")
        if put.path in there:
            assert store.get(put.path) == put.data
            assert [(path, store.get(path)) for path, _ in put.new] == [*put.new]
            assert number == "0" or f"{table}/{int(number) - 1}" in there


FAILURES = [fails(number) for fails in (death, once, from_then_on) for number in range(1, SYNCS + 1)]


@pytest.mark.parametrize("fails", [lambda _: None, *FAILURES])
def test_whatever_fails_a_power_cut_leaves_a_log_without_holes(tmp_path: Path, fails: Fails) -> None:
    disk, chance = Disk(tmp_path, HERE, fails=fails), ManualClock(seed=1)
    process = disk.process()
    store = LocalStore(tmp_path / HERE, ManualClock(seed=2), sync=process, flush=process.flush)
    durable: list[str] = []
    try:
        durable += store.put_together(PUTS)
        assert disk.failed or len(durable) == len(PUTS)
        for kept in (nothing, everything, *[lambda _: chance.random() < 0.5] * 20):
            check(disk.cut(HERE, kept), durable)
        disk.fails = lambda _: None
        each_by_itself(store, [put for put in PUTS if put.path not in durable])
        durable = [put.path for put in PUTS]
    except Crash:
        assert disk.failed
    for kept in (nothing, everything, *[lambda _: chance.random() < 0.5] * 20):
        check(disk.cut(HERE, kept), durable)
    disk.close()


def test_it_waits_once_for_all_contents_and_once_for_each_commit_of_a_table(tmp_path: Path) -> None:
    disk = Disk(tmp_path, HERE)
    process = disk.process()
    store = LocalStore(tmp_path / HERE, SystemClock(), sync=process, flush=process.flush)
    assert {*store.put_together(PUTS)} == {put.path for put in PUTS}
    assert disk.syncs == SYNCS
    assert not [*tmp_path.rglob(".tmp-*")]
    disk.close()


class Cheap(SystemFlush):
    """The system's flush, however much others write at the same time."""

    def __init__(self, calls: list[int], fails: bool = False) -> None:
        self._calls, self._fails = calls, fails

    def is_cheap(self) -> bool:
        return True

    def __call__(self, descriptor: int) -> None:
        self._calls.append(descriptor)
        if self._fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_the_systems_flush_tells_what_it_is_asked_for(tmp_path: Path) -> None:
    flush = system_flush()
    if flush is None:
        pytest.skip("this system has no flush that tells of what is lost")
    descriptor = os.open(tmp_path, os.O_RDONLY)
    flush(descriptor)
    os.close(descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):
        flush(descriptor)
    assert isinstance(flush.is_cheap(), bool)


def test_one_that_is_there_stops_it_and_is_left_as_it_is(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, SystemClock(), flush=Cheap([]))
    store.put("b/log/1", b"another")
    durable = store.put_together(PUTS)
    assert {*durable} == {"a/log/0", "b/log/0", "c/log/0"}
    assert store.get("b/log/1") == b"another"
    assert "b/log/2" not in paths(store, "")


def test_without_a_flush_or_beside_a_wrapper_it_puts_nothing(tmp_path: Path) -> None:
    for store in (
        LocalStore(tmp_path, SystemClock()),
        FaultyStore(LocalStore(tmp_path, SystemClock(), flush=Cheap([]))),
        open_store("memory://"),
    ):
        assert not [*store.put_together(PUTS)]
        assert not paths(store, "")


def test_a_full_disk_is_told_by_each_put(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        store = LocalStore(disk, SystemClock(), flush=Cheap([]))
        fill(disk / "filling")
        assert not [*store.put_together(PUTS)]
        with pytest.raises(StoreFull):
            each_by_itself(store, PUTS)
        (disk / "filling").unlink()
        each_by_itself(store, PUTS)
        check(store, [put.path for put in PUTS])


def test_what_could_not_be_flushed_is_put_anew(tmp_path: Path) -> None:
    calls: list[int] = []
    store = LocalStore(tmp_path, SystemClock(), flush=Cheap(calls, fails=True))
    assert not [*store.put_together(PUTS)]
    assert len(calls) == 1
    before = {path: store.identity(path) for path in paths(store, "")}
    each_by_itself(store, PUTS)
    assert all(store.identity(path) != was for path, was in before.items())


def test_errors_of_a_put_are_the_puts_own(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, SystemClock(), flush=Cheap([]))
    assert not [*store.put_together([Put("../out", b""), *PUTS])]
    with pytest.raises(LakelogError, match="does not lead to an object"):
        store.put_if_absent("../out", b"")
