"""Folding a topic: its table is brought to where its partitions are now, in each of the two roots."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import CorruptLog, Damaged, LakelogError, TopicDeleted
from log_tables.layout import partition_directory
from log_tables.partition.partition import Partition
from log_tables.partition.remote import RemoteRoot
from log_tables.table.snapshot import Snapshot
from log_tables.topic_table.topic_snapshot import TopicSnapshot
from log_tables.topic_table.topic_table import refold


@dataclass(slots=True)
class FoldResult:
    """The snapshots to which a table was brought, by partition, and why others could not be read."""

    snapshots: dict[int, Snapshot] = field(default_factory=dict)
    failed: LakelogError | None = None


def fold(topic: Topic) -> None:
    """Bring the table over `topic` to its partitions as they are now.

    A partition that cannot be read does not keep the others: its error is raised in the end. Raises as
    `fold_partitions`.
    """
    failed = fold_partitions(topic, range(topic.partition_count)).failed
    if failed is not None:
        raise failed


def fold_partitions(topic: Topic, partitions: Iterable[int]) -> FoldResult:
    """Bring the table over `topic` to these `partitions` as they are now, as far as they can be read.

    Raises TopicDeleted, StoreUnavailable, OutcomeUnknown, and Damaged for the table over the topic.
    """
    result = FoldResult()
    for number in partitions:
        try:
            result.snapshots[number] = durable_snapshot(topic.partition(number))
        except TopicDeleted:
            raise
        except LakelogError as error:
            result.failed = error
    try:
        table = topic.table()
        name = f"topic {topic.name}"
        _check_not_ahead(name, table.snapshot, result.snapshots, lambda at: _newest(topic.partition(at)))
        table.fold(result.snapshots)
    except Damaged:
        topic.forget_table()
        raise
    return result


def fold_remote(root: RemoteRoot, directory: str, snapshots: dict[int, Snapshot]) -> TopicSnapshot:
    """Bring the table over the topic at `directory` in the remote root to these durable snapshots of remote
    tables, by partition; returns it. It is created if there is none.

    Only jobs change remote tables, so whoever does folds them, and keeps this table's log. Raises as
    `RemoteRoot.make_topic_table` and `fold_partitions`.
    """
    table = root.make_topic_table(directory)
    name = f"{directory} in the remote root"
    _check_not_ahead(
        name, table.snapshot, snapshots, lambda at: _newest_remote(root, partition_directory(directory, at))
    )
    table.fold(snapshots)
    table.make_durable()  # what another process has folded: records leave the first root because of it
    if table.checkpoint_is_due():
        table.checkpoint(0)
        table.clean()
    return table.snapshot


def begin_again(cluster: Cluster, topic: Topic) -> None:
    """Begin the table over `topic` again and fold it, and the one in the remote root if that has records.

    Raises as `fold` and `RemoteRoot.refold`.
    """
    refold(cluster.store, topic.directory, cluster.clock)
    topic.forget_table()
    fold(topic)
    root, tiered = cluster.remote, any(partition.snapshot.tiered for partition in topic.partitions())
    if root is None or not (tiered or topic.config.remote_storage):
        return
    root.refold(topic.directory)
    found = {}
    for number in range(topic.partition_count):
        table = root.find(partition_directory(topic.directory, number))
        if table is not None:
            table.make_durable()
            found[number] = table.snapshot
    fold_remote(root, topic.directory, found)


def settle(cluster: Cluster, topic: Topic, new_id: bool = False) -> None:
    """Make the table over `topic` agree with its partitions, in a root that was copied or moved.

    The table is begun again where it cannot be, and with `new_id`. Raises StoreUnavailable, OutcomeUnknown.
    """
    with suppress(Damaged):
        if not new_id:
            fold_partitions(topic, range(topic.partition_count))
            return
    with suppress(Damaged):  # a table that cannot be begun again stops nobody: the fold duty names it
        refold(cluster.store, topic.directory, cluster.clock)
        topic.forget_table()
        fold_partitions(topic, range(topic.partition_count))


def durable_snapshot(partition: Partition) -> Snapshot:
    """The newest snapshot of `partition`, which no power cut takes back.

    A partition that is led here is as its leader knows it, and nothing is asked. Raises as
    `PartitionReader.refresh`.
    """
    if not partition.leading:
        partition.refresh()
    partition.check_live()
    known = partition.table.durable
    if known is None or known.version < partition.snapshot.version:
        partition.table.make_durable()
        known = partition.table.durable
    assert known is not None
    return known


def _newest(partition: Partition) -> Snapshot:
    partition.refresh(wait=True)
    partition.table.make_durable()
    return partition.table.durable or partition.snapshot


def _newest_remote(root: RemoteRoot, directory: str) -> Snapshot:
    table = root.table(directory)
    table.make_durable()
    return table.snapshot


def _check_not_ahead(
    name: str, folded: TopicSnapshot, snapshots: dict[int, Snapshot], newest: Callable[[int], Snapshot]
) -> None:
    """Raise CorruptLog if the table over `name` holds more of a partition than there is; take newer
    `snapshots` if not.

    One who leads no longer, and does not know it, has an old snapshot.
    """
    for number, snapshot in snapshots.items():
        if max(folded.target(number), folded.noted(number)) <= snapshot.version:
            continue
        snapshots[number] = newest(number)
        end, found = folded.end(number), snapshots[number].high_watermark
        if end > found or folded.noted(number) > snapshots[number].version:
            raise CorruptLog(
                f"the table over {name} has version {folded.noted(number)} of partition "
                f"{number} up to offset {end}, and the partition is at version {snapshots[number].version} "
                f"and ends at {found}; if the root was restored, make the table again with "
                "`lakelog root refold`"
            )
