"""A topic whose table is folded, and Delta's streaming source over that table as a model."""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from log_tables.clock import Clock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.segments import rewrite
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Add, read_commit
from log_tables.table.snapshot import Snapshot, segment_of
from log_tables.topic_table.topic_snapshot import TopicSnapshot, partition_of
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.partitions import append


class FoldedTopic:
    """A topic `t` of a fresh root, whose partitions this process leads."""

    def __init__(self, store: Store, clock: Clock, partitions: int) -> None:
        self.cluster = Cluster.open(store, clock)
        self.topic = create_topic(self.cluster, "t", partitions)
        self.numbers = range(partitions)
        for number in self.numbers:
            self.topic.partition(number).claim("http://first")

    @property
    def table(self) -> TopicTable:
        return self.topic.table()

    def append(self, number: int, count: int = 1) -> None:
        """Append so many commits of one record each."""
        for _ in range(count):
            append(self.topic.partition(number), b"v")

    def snapshots(self) -> dict[int, Snapshot]:
        return {number: self.topic.partition(number).snapshot for number in self.numbers}

    def fold(self, most: int = 10_000) -> int:
        return self.table.fold(self.snapshots(), most)

    def check_level(self) -> None:
        """The table names the very files of the partitions, in the versions that it notes."""
        folded = TopicTable(self.cluster.store, self.topic.directory, self.cluster.clock).snapshot
        for number, snapshot in self.snapshots().items():
            assert folded.of(number) == snapshot.segments
            assert folded.end(number) <= snapshot.high_watermark
        assert records_of(folded) == {
            (number, offset)
            for number, snapshot in self.snapshots().items()
            for segment in snapshot.segments
            for offset in range(segment.base_offset, segment.last_offset + 1)
        }


def records_of(folded: TopicSnapshot) -> set[tuple[int, int]]:
    """(partition, offset) of all records in a table whose segments are dense."""
    return {
        (number, offset)
        for number, segments in folded.segments.items()
        for segment in segments
        for offset in range(segment.base_offset, segment.last_offset + 1)
    }


@dataclass
class DeltaStream:
    """A model of Delta's streaming source with `skipChangeCommits`: it skips each commit that removes
    records, and each file that is no data change.

    `columns` are the declared columns that a reader knows, for each record after every change.
    """

    store: Store
    directory: str
    version: int = 0
    seen: list[tuple[int, int]] = field(default_factory=list)
    columns: dict[tuple[int, int], str] = field(default_factory=dict)

    def read(self) -> None:
        """Follow the log to its end."""
        while (commit := read_commit(self.store, self.directory, self.version)) is not None:
            self.version += 1
            assert not {add.path for add in commit.adds} & {remove.path for remove in commit.removes}
            skipped = any(remove.dataChange for remove in commit.removes)
            assert skipped <= (commit.info.operation in ("DELETE", "REFOLD")), "plain streams end at it"
            for add in commit.adds:
                if add.dataChange:
                    self._take(add, skipped)

    def _take(self, add: Add, skipped: bool) -> None:
        number, name = partition_of(add.path)
        segment = segment_of(msgspec.structs.replace(add, path=name))
        offsets = range(segment.base_offset, segment.last_offset + 1)
        self.columns |= {(number, offset): segment.columns for offset in offsets}
        if not skipped:
            self.seen += ((number, offset) for offset in offsets)


def merge_folded(world: FoldedTopic, number: int) -> None:
    """Merge all segments of a partition that the table over the topic has, as jobs do."""
    partition, end = world.topic.partition(number), world.table.snapshot.end(number)
    inputs = [segment for segment in partition.snapshot.segments if segment.last_offset < end]
    store, clock = world.cluster.store, world.cluster.clock
    made = rewrite.merge(store, partition.directory, inputs, "zstd", clock)
    assert rewrite.commit_merge(partition.table, inputs, made)


def check_streamed(root: Path, name: str) -> None:
    """A stream of the table over a topic, from its beginning, has each record that was ever appended once."""
    topic = Cluster.open(open_store(root), create=False).topic(name)
    stream = DeltaStream(topic.table().store, topic.directory)
    stream.read()
    ends = [partition.high_watermark for partition in topic.partitions()]
    assert sorted(stream.seen) == [
        (number, offset) for number, end in enumerate(ends) for offset in range(end)
    ]


def unfolded(root: Path, name: str) -> list[int]:
    """The partitions of a topic that the table over it does not have as they are."""
    topic = Cluster.open(open_store(root), create=False).topic(name)
    folded = topic.table().snapshot
    return [
        number
        for number, partition in enumerate(topic.partitions())
        if folded.of(number) != partition.snapshot.segments
    ]
