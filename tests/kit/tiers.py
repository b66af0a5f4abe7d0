"""A partition with a remote tier to try things on: moving segments, and what is where."""

from collections.abc import Sequence
from pathlib import Path

from log_tables.clock import Clock
from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic_fold import fold_remote
from log_tables.layout import REMOTE_MARK
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.tier import commit_copies, copy, release
from log_tables.record import to_records
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import Segment
from log_tables.table.table import Table
from tests.kit.partitions import TABLE, append, held, new_partition

CLUSTER = "a-cluster"
VALUES = [f"{number}".encode() for number in range(12)]
"""The values of `numbered_partition`, by offset."""


def remote_root(directory: Path, clock: Clock, store: Store | None = None) -> RemoteRoot:
    """The remote root at `directory`, through `store` when one is given."""

    def opened() -> Store:
        return store or open_store(directory, create=False)

    if directory.is_dir():
        (directory / REMOTE_MARK).write_text(CLUSTER)

    return RemoteRoot(directory.as_uri(), CLUSTER, clock, opened)


def move(local: Table, root: RemoteRoot, count: int) -> tuple[Segment, ...]:
    """Move the first `count` segments of `local`, as a maintenance run does; returns what went from there."""
    local.refresh(wait=True)
    remote = root.make_table(local.directory)
    wanted = local.snapshot.segments[local.snapshot.first_segment(local.snapshot.log_start) :][:count]
    made = copied(local, root, wanted)
    return commit_move(local, remote, made)


def commit_move(local: Table, remote: Table, made: Sequence[Segment]) -> tuple[Segment, ...]:
    """Commit what was copied, without a table over the topic; returns what went from here."""
    commit_copies(local, remote, made)
    return release(local, remote, made, remote.snapshot.high_watermark)


def copied(local: Table, root: RemoteRoot, wanted: Sequence[Segment]) -> tuple[Segment, ...]:
    """Copy `wanted` to the remote root, and commit nothing."""
    held = root.make_table(local.directory).snapshot.high_watermark
    return copy(local.store, root.store, local.directory, wanted, held, "zstd", local.clock)


def with_tier(partition: Partition, root: RemoteRoot) -> Partition:
    """The partition opened anew, as in another process that knows its remote root."""
    return Partition(
        partition.table.store,
        partition.directory,
        partition.clock,
        partition.config,
        remote=lambda: root,
    )


def tiered_cluster(directory: Path, clock: Clock) -> Cluster:
    """A cluster below `directory` whose remote root is beside its root."""
    cluster = Cluster.open(open_store(directory / "here"), clock)
    set_remote_root(cluster, directory / "away")
    return cluster


def move_topic(cluster: Cluster, name: str, counts: Sequence[int]) -> None:
    """Move the first segments of each partition of the topic `name`, of each as many as `counts` says."""
    root = cluster.remote
    assert root is not None
    topic, there = cluster.topic(name), {}
    for number, (partition, count) in enumerate(zip(topic.partitions(), counts, strict=True)):
        move(partition.table, root, count)
        there[number] = root.table(partition.directory).snapshot
    fold_remote(root, topic.directory, there)


def bases(segments: Sequence[Segment]) -> list[int]:
    """The base offset of each segment."""
    return [segment.base_offset for segment in segments]


def tiered(partition: Partition, root: RemoteRoot, count: int) -> tuple[list[int], list[int]]:
    """Move the first `count` segments of `partition`; returns where those there and those here begin."""
    move(partition.table, root, count)
    partition.refresh()
    return bases(root.table(partition.directory).snapshot.segments), bases(partition.snapshot.segments)


def numbered_partition(store: Store, clock: Clock) -> Partition:
    """Six segments of two records each, at 0, 2 … 10."""
    made = new_partition(store, clock)
    for number in range(0, 12, 2):
        append(made, *VALUES[number : number + 2])
    return made


def check_whole(partition: Partition, root: RemoteRoot) -> None:
    """Assert that each record is in one of the tiers, that none below the border is local, and that readers
    find each once.
    """
    reader = with_tier(partition, root)
    here, there = reader.snapshot, root.table(TABLE).snapshot
    assert there.high_watermark >= here.tiered
    assert here.segments[0].base_offset == here.tiered
    expected = {number: str(number).encode() for number in range(here.log_start, here.high_watermark)}
    assert held(reader) == expected
    for start in range(max(here.log_start, here.tiered - 3), here.high_watermark):
        (first, *_) = to_records(reader.fetch(start, 1).combine_chunks().to_batches()[0])
        assert (first.offset, first.value) == (start, str(start).encode())
