"""Vacuum alone, on a disk without room, with a reserve and without one: it gives room back."""

import os
import shutil
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import StoreFull
from log_tables.limits import FILE_RETENTION_MS, MIB
from log_tables.root.fsck import check
from log_tables.root.table_check import check_partition
from log_tables.store.local import LocalStore
from log_tables.store.reserve import PIECES, RESERVE
from log_tables.table.vacuum import SPARED_MS, vacuum
from log_tables.testing import ClockedStore
from tests.kit.partitions import append, append_each, new_partition, values
from tests.kit.small_disk import fill, fill_inodes, small_disk


def test_records_come_back_and_others_make_room_on_a_disk_that_is_full(
    tmp_path: Path, clock: ManualClock
) -> None:
    with small_disk(tmp_path / "disk", 12 * MIB) as disk:
        (disk / "root").mkdir()
        local = LocalStore(disk / "root", clock)
        store = ClockedStore(local, clock)
        cluster = Cluster.open(store, clock)
        kept, gone = (cluster.claim(create_topic(cluster, name), 0) for name in ("kept", "gone"))
        large = [bytes.fromhex(clock.random_hex(2 * MIB)) for _ in range(4)]
        for value in large:
            append(gone, value)
            append(kept, value[:1_000])
        assert local.reserve(MIB, 0)
        whole_ms = clock.now_ms()
        clock.advance(1_000)
        for log in (kept, gone):
            log.truncate(4)
        fill(disk / "filling")
        assert vacuum(gone.table).marked == vacuum(kept.table).marked == 4
        restore_topic(cluster.topic("kept"), clock.now_ms(), wanted(None, whole_ms))
        clock.advance(FILE_RETENTION_MS + 1_000)
        assert shutil.disk_usage(disk).free < MIB
        assert vacuum(kept.table).deleted == 0
        assert vacuum(gone.table).deleted == 4
        assert shutil.disk_usage(disk).free > 4 * MIB
        assert 0 < len([*(disk / "root" / RESERVE).iterdir()]) < PIECES
        assert local.reserve(MIB, MIB)
        append(gone, large[0])
        assert values(kept) == [value[:1_000] for value in large]
        assert check(store).problems == []


@pytest.mark.parametrize("is_outrun", [True, False])
def test_without_any_room_it_deletes_what_a_commit_allows_that_is_there(
    tmp_path: Path, clock: ManualClock, is_outrun: bool
) -> None:
    """There is no reserve, or it is used up."""
    with small_disk(tmp_path / "disk", 12 * MIB) as disk:
        (disk / "root").mkdir()
        store = ClockedStore(LocalStore(disk / "root", clock), clock)
        log = new_partition(store, clock)
        for _ in range(4):
            append(log, bytes.fromhex(clock.random_hex(2 * MIB)))
        log.truncate(4)
        assert vacuum(log.table).marked == 4
        clock.advance(SPARED_MS + is_outrun)
        append(log, b"kept")
        append(log, b"gone")
        log.truncate(5)
        clock.advance(FILE_RETENTION_MS)
        fill(disk / "filling")
        assert shutil.disk_usage(disk).free == 0
        if not is_outrun:
            with pytest.raises(
                StoreFull, match=r"^4 files of topics/t/partition=0 \(4,.* bytes\) may be del"
            ):
                vacuum(log.table)
            assert [item.size > MIB for item in store.list(log.directory) if "-" in item.path].count(
                True
            ) == 4
            (disk / "filling").unlink()
        done = vacuum(log.table)
        assert (done.marked, done.deleted) == (1, 4)
        assert shutil.disk_usage(disk).free > 4 * MIB
        clock.advance(FILE_RETENTION_MS + 1)
        assert vacuum(log.table).deleted == 1
        assert values(log) == [b"gone"]
        assert check_partition(store, log.directory).problems == []


def test_files_without_inodes_are_vacuumed_too(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 12 * MIB, 200) as disk:
        (disk / "root").mkdir()
        store, clock = LocalStore(disk / "root", SystemClock()), SystemClock()
        log = new_partition(store, clock)
        append_each(log, [b"%d" % number for number in range(4)])
        log.truncate(3)
        assert vacuum(log.table).marked == 3
        for path in (path for path in (disk / "root").rglob("*") if path.is_file()):
            made_s = path.stat().st_mtime - 2 * FILE_RETENTION_MS / 1_000
            os.utime(path, (made_s, made_s))
        append(log, b"4")
        fill_inodes(disk / "filling")
        assert vacuum(log.table).deleted == 3
        assert values(log) == [b"3", b"4"]
        assert check_partition(store, log.directory).problems == []
