"""Vacuum alone, on a disk without room: it marks from the reserve, and gives the room back."""

import shutil
from pathlib import Path

from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.limits import FILE_RETENTION_MS, MIB
from log_tables.root.fsck import check
from log_tables.store.local import LocalStore
from log_tables.store.reserve import PIECES, RESERVE
from log_tables.table.vacuum import vacuum
from log_tables.testing import ClockedStore
from tests.kit.partitions import append, values
from tests.kit.small_disk import fill, small_disk


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
