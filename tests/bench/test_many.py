"""The root of many idle things that `bench.scale` measures is a sound one."""

from pathlib import Path

from bench.many import PARTITIONS, Sizes, build
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.store import open_store


def test_a_root_of_many_things_is_sound_and_has_them(tmp_path: Path) -> None:
    build(tmp_path, Sizes(2, 5, 40, 0))
    store = open_store(str(tmp_path))
    assert check(store).problems == []
    topics = Cluster.open(store).topics()
    partitions = [partition for topic in topics for partition in topic.partitions()]
    assert len(partitions) == 2 * PARTITIONS
    assert sum(len(partition.snapshot.producer_ids()) for partition in partitions) == 40
