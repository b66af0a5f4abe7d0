"""Another disk at the place of the root, with the device and the inode of the first one."""

import subprocess
from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.errors import StoreUnavailable
from log_tables.store.store import open_store
from tests.kit.small_disk import small_disk


def test_no_topic_is_made_on_another_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        cluster = Cluster.open(open_store(disk), SystemClock())
        create_topic(cluster, "t")
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)
        with pytest.raises(StoreUnavailable, match=r"another disk may be mounted|not the directory"):
            create_topic(cluster, "zz")
        assert [*disk.rglob("*")] == []


def test_nothing_is_written_to_another_disk(tmp_path: Path) -> None:
    """A store that was opened before, whatever it puts."""
    with small_disk(tmp_path / "disk", 16 << 20) as disk:
        store = open_store(disk)
        store.put("there", b"1")
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=True)
        for put in (store.put, store.put_if_absent, store.put_new):
            with pytest.raises(StoreUnavailable, match="not the directory"):
                put("new", b"2")
        assert [*disk.rglob("*")] == []
