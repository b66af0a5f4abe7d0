"""The room of the store as a gateway sees it: a quota that the system does not show, and two log lines."""

import errno
import os
import shutil
import zlib
from pathlib import Path

import pytest

from ingest.periodic_task import FailureLog
from log_tables.clock import SystemClock
from log_tables.errors import StoreFull
from log_tables.limits import MIB
from log_tables.store.disk_room import DiskBounds, DiskRoom
from log_tables.store.file import sync
from log_tables.store.local import LocalStore
from log_tables.store.store import Data
from log_tables.store.wrapper import StoreWrapper
from tests.kit.small_disk import small_disk


class Quota:
    """A quota of the file system, as NFS says at an fsync that it is used up."""

    def __init__(self) -> None:
        self.is_used_up = False

    def sync(self, descriptor: int) -> None:
        if self.is_used_up:
            raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))
        sync(descriptor)


def test_a_quota_that_is_used_up_refuses_records_until_a_probe_finds_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    quota, failures = Quota(), FailureLog()
    store = LocalStore(tmp_path, SystemClock(), sync=quota.sync)
    room = DiskRoom(store, DiskBounds(), SystemClock())
    room.look()
    assert room.free_bytes is not None
    quota.is_used_up = True
    with pytest.raises(StoreFull, match="the quota is used up: free room or raise it") as refused:
        store.put_if_absent("a/b", b"x")
    room.refused(refused.value)  # at once, and not when it is next looked
    with pytest.raises(StoreFull, match="quota"):
        room.check()
    for _ in range(3):
        with failures.catch("room"):
            room.look()
        assert room.full is not None
    quota.is_used_up = False
    for _ in range(2):
        with failures.catch("room"):
            room.look()
        room.check()
    begin, end = caplog.messages
    assert begin.startswith("duty room failed; it is tried again: ")
    assert "the quota is used up" in begin
    assert end == "duty room works again"
    assert [*store.list("")] == []


def test_a_reserve_that_does_not_fit_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with small_disk(tmp_path / "disk", 16 * MIB) as disk:
        store = LocalStore(disk, SystemClock())
        (disk / "others").write_bytes(bytes(shutil.disk_usage(disk).free - 3 * MIB))
        room = DiskRoom(store, DiskBounds(64 * MIB, 64 * MIB), SystemClock())
        for _ in range(2):
            room.look()
        room.check()
        assert [said.split(":")[0] for said in caplog.messages] == [
            "the disk of the root has no whole reserve of disk_reserve_bytes=2097152"
        ]
        (disk / "others").unlink()
        room.look()
        assert store.reserve(2 * MIB, 64 * MIB), "it is made when there is room"


class Compressed(StoreWrapper):
    """A file system that has room for what it makes much smaller, and for nothing else."""

    def check_room(self, data: Data) -> None:
        if len(zlib.compress(data)) > len(data) // 2:
            raise StoreFull("the disk is full")


def test_a_disk_that_compresses_has_no_room_for_what_nothing_makes_smaller(tmp_path: Path) -> None:
    room = DiskRoom(Compressed(LocalStore(tmp_path, SystemClock())), DiskBounds(), SystemClock())
    room.refused(StoreFull("the disk is full"))
    with pytest.raises(StoreFull):
        room.look()
