"""A topic in use, on a disk: appended to, deleted from, maintained and folded by processes, as hours pass."""

import os
from pathlib import Path

from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.cluster.topic_fold import fold
from log_tables.partition.partition import Partition
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.topic_table.topic_snapshot import TopicSnapshot
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.clusters import another
from tests.kit.maintenance import errors, run
from tests.kit.partitions import entry

HOUR_MS = 60 * 60 * 1000
PARTITIONS = 2
KEYS = 4

Places = set[tuple[int, int]]
"""Records, by (partition, offset)."""

_CONFIGS = {
    "topic.delete.delay.ms": "0",
    "merge.min.age.ms": "0",
    "min.cleanable.dirty.ratio": "0",
    "delete.retention.ms": "0",
    "retention.ms": str(3 * HOUR_MS),
}

_DECLARED = "n bigint, s string", "s string"
"""The columns at first, and fewer: the schema never changes, and so no stream ends because of that."""


class TopicInUse:
    """A topic `t` with three processes: its leader, a gateway that folds, and a scheduler of the jobs.

    Each goes on only when told to. `unseen` are records that were deleted before they were folded: no reader
    of the table has to have them.
    """

    def __init__(
        self, directory: Path, seed: int = 0, policy: str = "delete", delay_ms: int = HOUR_MS
    ) -> None:
        """`delay_ms` is the topic's `compaction.file.delete.delay.ms`."""
        self.directory = directory
        self.clock = ManualClock(seed=seed)
        self.cluster = Cluster.open(open_store(directory), self.clock, "http://leader")
        self.appended, self.unseen = Places(), Places()
        own = {"cleanup.policy": policy, "compaction.file.delete.delay.ms": str(delay_ms)}
        self.declared = _DECLARED
        create_topic(self.cluster, "t", PARTITIONS, {**_CONFIGS, **own, "value.columns": self.declared[0]})
        self.lead()

    def lead(self) -> None:
        """Begin to lead the topic as it is now, and to fold it."""
        self.topic: Topic = self.cluster.topic("t")
        for partition in self.topic.partitions():
            partition.claim("http://leader")
        self.wake()

    def wake(self) -> None:
        """Let another gateway fold from now on, which has just started."""
        self.folder = another(self.cluster)

    @property
    def location(self) -> str:
        """The location of the table for other programs."""
        return self.cluster.store.delta_location(self.topic.directory)[0]

    def table(self) -> TopicSnapshot:
        """The table as a new process opens it."""
        return TopicTable(self.cluster.store, self.topic.directory, self.clock).snapshot

    def append(self, number: int, commits: int = 1) -> None:
        """Append so many commits of two records, with random keys and times; some are tombstones."""
        partition = self.topic.partition(number)
        for _ in range(commits):
            keys = [b"%d" % self.draw(KEYS) for _ in range(2)]
            values = [b"v" if self.draw(3) else None for _ in keys]
            begin = partition.high_watermark
            partition.append([entry(*values, keys=keys, at_us=self.clock.now_us())])
            self.appended |= {(number, offset) for offset in range(begin, partition.high_watermark)}
        self.clock.advance(1_000)  # modification times run ahead of a clock that stands still

    def delete_records(self, number: int, count: int) -> None:
        """Delete the first so many records of a partition."""
        partition, end = self.topic.partition(number), self.table().end(number)
        partition.truncate(min(partition.log_start + count, partition.high_watermark))
        self.unseen |= {(number, offset) for offset in range(end, partition.log_start)}

    def declare(self) -> None:
        """Declare the other columns: the next run of jobs retypes what there is."""
        self.declared = self.declared[::-1]
        alter_topic(self.cluster, "t", {"value.columns": self.declared[0]})

    def fold(self) -> None:
        """The gateway that folds does so, however long it has slept, and cleans the table's own log."""
        fold(self.folder.topic("t"))
        table = self.folder.topic("t").table()
        table.checkpoint(0)
        table.clean()

    def maintain(self) -> None:
        """A run of the jobs by a scheduler that has just been started: it folds first."""
        assert errors(run(another(self.cluster))) == {}

    def hours_pass(self, hours: int, asleep: bool = False) -> None:
        """Nothing is folded meanwhile. The leader cleans its logs at the end, unless all are `asleep`."""
        (self.clock.sleep if asleep else self.clock.advance)(hours * HOUR_MS + 1)
        for path in self.directory.rglob("*"):
            if path.is_file():
                then_s = path.stat().st_mtime - hours * 3_600 - 1
                os.utime(path, (then_s, then_s))
        for partition in [] if asleep else self.topic.partitions():
            clean(partition)

    def draw(self, below: int) -> int:
        return int(self.clock.random() * below)

    def act(self) -> None:
        """One thing that happens, drawn from the seed."""
        number, what = self.draw(PARTITIONS), self.draw(11)
        if what < 4:
            self.append(number, 1 + self.draw(4))
        elif what < 6:
            self.fold()
        elif what < 7:
            self.delete_records(number, 1 + self.draw(5))
        elif what < 9:
            self.maintain()
        elif what < 10:
            self.declare()
        else:
            self.hours_pass(1 + self.draw(2), asleep=self.draw(2) == 0)

    def check(self) -> None:
        """After a fold the table names the very files of the partitions, and everything is sound."""
        self.fold()
        folded = self.table()
        for number, partition in enumerate(self.topic.partitions()):
            assert folded.of(number) == partition.refresh(wait=True).segments
        assert check(self.cluster.store, deep=True).problems == []


def clean(partition: Partition) -> None:
    """Do the duties of a leader: write a checkpoint, and delete the expired log before it."""
    partition.refresh(wait=True)
    partition.checkpoint()
    partition.table.delete_expired_log()
