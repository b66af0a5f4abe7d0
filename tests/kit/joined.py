"""Both tables over a topic as another program joins them: that in the root, and that in the remote root."""

import threading
from collections import Counter
from pathlib import Path

from log_tables.clock import Clock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError
from log_tables.store.store import open_store
from log_tables.topic_table.topic_snapshot import TopicSnapshot
from log_tables.topic_table.topic_table import TopicTable
from tests.kit.folds import records_of
from tests.kit.partitions import append_each
from tests.kit.tiers import tiered_cluster

MOVING = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "0",
    "merge.min.age.ms": "0",
    "segment.ms": "1",
}
"""Settings by which each run moves all segments but the newest, and merges none."""


def joined(first: TopicSnapshot, remote: TopicSnapshot) -> Counter[tuple[int, int]]:
    """How often each (partition, offset) is in both tables together, by the rule of docs/recipes.md."""
    found = Counter(records_of(first))
    for number, segments in first.segments.items():
        border = min((segment.base_offset for segment in segments), default=0)
        found += Counter(at for at in records_of(remote) if at[0] == number and at[1] < border)
    return found


def tables_of(cluster: Cluster, topic: Topic) -> tuple[TopicSnapshot, TopicSnapshot]:
    """Both tables as they are now, the first one opened first."""
    first = TopicTable(cluster.store, topic.directory, cluster.clock).snapshot
    assert cluster.remote is not None
    return first, TopicTable(cluster.remote.store, topic.directory, cluster.clock).snapshot


def moving_topic(directory: Path, clock: Clock, partitions: int = 2, commits: int = 4) -> Cluster:
    """A cluster with a topic `t` whose segments, of one record each, are to move but for the newest."""
    cluster = tiered_cluster(directory, clock)
    topic = create_topic(cluster, "t", partitions, MOVING)
    for number in range(partitions):
        append_each(cluster.claim(topic, number), [b"%d" % value for value in range(commits)])
    return cluster


def reopened(cluster: Cluster) -> Cluster:
    """The cluster of this root, opened anew as in another process."""
    return Cluster.open(open_store(cluster.store.url), cluster.clock, create=False)


def everything(cluster: Cluster) -> Counter[tuple[int, int]]:
    """Each (partition, offset) of the topic `t`, once."""
    return Counter(
        (number, offset)
        for number, partition in enumerate(cluster.topic("t").partitions())
        for offset in range(partition.log_start, partition.high_watermark)
    )


class JoinedReader(threading.Thread):
    """Joins both tables of a topic again and again, as another program, until it ends: whatever moves
    meanwhile, each record that is folded is there once.
    """

    def __init__(self, root: Path, name: str) -> None:
        super().__init__(daemon=True)
        self._root, self._name, self._ending = root, name, threading.Event()
        self._wrong: str | None = None
        self._joins = 0
        self.start()

    def run(self) -> None:
        try:
            self._read()
        except LakelogError as error:
            self._wrong = str(error)

    def _read(self) -> None:
        cluster = Cluster.open(open_store(self._root), create=False)
        topic = cluster.topic(self._name)
        while not self._ending.wait(0.05) and self._wrong is None:
            first, remote = tables_of(cluster, topic)
            found = joined(first, remote)
            ends = {number: first.end(number) for number in range(topic.partition_count)}
            expected = Counter((number, at) for number, end in ends.items() for at in range(end))
            if found != expected:
                self._wrong = f"{ends}: lacks {expected - found}, has too many of {found - expected}"
            self._joins += 1

    def stop(self) -> None:
        self._ending.set()
        self.join()

    def end(self) -> None:
        """Raise AssertionError unless all was right."""
        self.stop()
        assert self._wrong is None
        assert self._joins > 0
