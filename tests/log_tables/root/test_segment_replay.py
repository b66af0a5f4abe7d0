"""A segment whose content was changed is named, though its size, its checksums and its stats are right."""

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.topic_fold import fold
from log_tables.columns.declaration import parse
from log_tables.errors import CorruptLog, CorruptSegment
from log_tables.layout import HEADERS, KEY, VALUE
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.root.copy import copy_root
from log_tables.root.fsck import check
from log_tables.root.table_check import check_partition
from log_tables.segments import rewrite
from log_tables.segments import segment as segments
from log_tables.segments.digest import file_digest
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import DIGEST_BYTES, TAG_DIGEST, segment_of
from log_tables.table.table import Table
from tests.kit.partitions import new_partition
from tests.kit.tiers import move_topic, tiered_cluster

RECORDS = [
    Record(b"one", key=b"k", headers=(("h", b"x"),), timestamp_us=0),
    Record(b"two", key=b"q", headers=(("h", b"y"),), timestamp_us=0),
    Record(b"six", key=b"z", headers=(("h", b"z"),), timestamp_us=0),
]


def append(partition: Partition) -> None:
    partition.append([AppendRequest(input_batch(RECORDS, 0))])


@pytest.fixture
def partition() -> Partition:
    partition = new_partition(open_store("memory://"), ManualClock())
    append(partition)
    return partition


def put_in_another_order(partition: Partition, names: Sequence[str]) -> None:
    """Write the last file again with the items of some columns in another order, in as many bytes."""
    table, item = partition.table, partition.snapshot.segments[-1]
    (batch,) = segments.read(table.store, table.directory, item, 0, 9, None)
    for order in [*permutations(range(len(RECORDS)))][1:]:
        changed = batch
        for index, field in enumerate(batch.schema):
            if field.name in names:
                changed = changed.set_column(index, field, batch.column(index).take(pa.array(order)))
        data = segments.encode(changed, "zstd")
        if len(data) == item.size:  # checksums are numbers of one to five bytes
            table.store.put(f"{table.directory}/{item.path}", data)
            return
    raise AssertionError("no order of the records takes as many bytes")


@pytest.mark.parametrize("names", [[KEY], [VALUE], [HEADERS], [KEY, VALUE, HEADERS]])
def test_content_in_another_order_is_named(partition: Partition, names: list[str]) -> None:
    store, (item,) = partition.table.store, partition.snapshot.segments
    assert check_partition(store, partition.directory).problems == []
    put_in_another_order(partition, names)
    (problem,) = check_partition(store, partition.directory).problems
    assert f"segment {item.path} has the digest" in problem
    assert problem.endswith("its content was changed; restore it from a backup")
    data = store.get(f"{partition.directory}/{item.path}")
    with pytest.raises(CorruptSegment, match="its content was changed"):
        segments.check(data, partition.directory, item)
    segments.check(data, partition.directory, replace(item, digest=b""))


def test_the_digest_is_a_tag_that_may_be_missing_and_may_not_be_wrong(partition: Partition) -> None:
    (item,) = partition.snapshot.segments
    add = item.add(True)
    assert add.tags is not None
    assert len(add.tags[TAG_DIGEST]) == 2 * DIGEST_BYTES
    assert segment_of(add) == item
    without = {name: tag for name, tag in add.tags.items() if name != TAG_DIGEST}
    older = segment_of(replace(add, tags=without))
    assert older == replace(item, digest=b"")
    assert older.add(True).tags == without
    for wrong in ("", "banana", add.tags[TAG_DIGEST][:-1], f"{add.tags[TAG_DIGEST][:-2]}  "):
        with pytest.raises(CorruptLog, match=r"lakelog\.digest of .* not 16 hexadecimal digits"):
            segment_of(replace(add, tags={**without, TAG_DIGEST: wrong}))


def check_digests(store: Store, directory: str) -> int:
    """Each segment of a table has the digest of its file; returns how many there are."""
    found = Table(store, directory, ManualClock()).snapshot.segments
    for item in found:
        assert item.digest == file_digest(store.get(f"{directory}/{item.path}"))
    return len(found)


def test_every_way_to_write_a_segment_gives_it_the_digest_of_its_file(
    tmp_path: Path, clock: ManualClock
) -> None:
    cluster = tiered_cluster(tmp_path, clock)
    store, directory = cluster.store, "topics/t/partition=0"
    partition = cluster.claim(create_topic(cluster, "t", 1, {"remote.storage.enable": "true"}), 0)
    for _ in range(6):
        append(partition)
    inputs = partition.snapshot.segments[2:4]
    merged = rewrite.merge(store, directory, inputs, "zstd", clock)
    assert rewrite.commit_merge(partition.table, inputs, merged)
    alter_topic(cluster, "t", {"value.columns": "n bigint"})
    partition.refresh(wait=True)
    last = partition.snapshot.segments[-1]
    typed = rewrite.retype(store, directory, last, parse("n bigint"), "zstd", clock)
    assert rewrite.commit_retype(partition.table, [last], [typed], parse("n bigint"))
    partition.checkpoint()
    fold(cluster.topic("t"))
    move_topic(cluster, "t", [2])
    assert cluster.remote is not None
    assert check_digests(cluster.remote.store, directory) == 2
    assert check_digests(store, directory) == 3
    fold(cluster.topic("t"))
    folded = cluster.topic("t").table().snapshot
    assert folded.of(0) == partition.refresh(wait=True).segments
    compacted = cluster.claim(create_topic(cluster, "c", 1, {"cleanup.policy": "compact"}), 0)
    append(compacted)
    append(compacted)
    assert rewrite.compact_by_key(compacted.table, "zstd")
    assert check_digests(store, compacted.directory) == 1
    assert check(store, deep=True).problems == []
    copy_root(store, open_store(tmp_path / "copy", create=True), clock)
    assert check_digests(open_store(tmp_path / "copy"), directory) == 5
