"""A standby is at every moment a root that the original could have been: no commit before its causes."""

from collections.abc import Callable, Iterator
from pathlib import Path

from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    ProducerKey,
    ProducerValue,
    TransactionsKey,
    TransactionsValue,
)
from log_tables.cluster.topic_fold import fold
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import ProducerStamp
from log_tables.root.fsck import check
from log_tables.segments.rewrite import commit_merge, merge
from log_tables.segments.staging import PartitionRecords, delete, stage
from log_tables.store.store import open_store
from tests.kit.groups import say
from tests.kit.partitions import append, entry
from tests.kit.root_clients import busy
from tests.kit.standby import Watched, files, follow, logs

APPLIER = KEPT_PRODUCER_ID_MIN + 7
PARTITIONS = 3
ID = next(each for each in map(str, range(100)) if not partition_for_key(each.encode(), 2, MURMUR3))


class History:
    """A root in which, round after round, one table's commits rest on another's."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster, self.number = cluster, 0
        create_topic(cluster, "t", PARTITIONS)
        for partition in range(PARTITIONS):
            append(cluster.claim(cluster.topic("t"), partition), b"first")
        say(cluster, (ProducerKey(ID), ProducerValue(7, 0, 1_000)))

    def acts(self) -> Iterator[Callable[[], object]]:
        """The acts of a round, in their order."""
        yield self.consume
        yield self.transact
        yield self.stage
        yield self.commit_of_an_id
        yield self.make_topics
        yield self.shorten
        yield lambda: fold(self.cluster.topic("t"))

    def round(self) -> None:
        self.number += 1
        for act in self.acts():
            act()

    def _end(self, partition: int) -> int:
        return self.cluster.topic("t").partition(partition).refresh().high_watermark

    def _at(self, offset: int) -> OffsetValue:
        return OffsetValue(offset, self.cluster.topic("t").topic_id)

    def consume(self) -> None:
        """Groups of both tables follow the ends of all partitions."""
        for number in range(4 * PARTITIONS):
            partition = number % PARTITIONS
            append(self.cluster.claim(self.cluster.topic("t"), partition), b"plain")
            committed = OffsetKey("h", "t", partition), self._at(self._end(partition))
            say(self.cluster, committed, index=number % 2)

    def transact(self) -> None:
        """A group decides a transaction, whose records then are in every partition, and are consumed."""
        say(self.cluster, (TransactionsKey("g"), TransactionsValue(APPLIER, self.number)))
        for partition in range(PARTITIONS):
            stamp = ProducerStamp(APPLIER, self.number, 0, True)
            append(self.cluster.claim(self.cluster.topic("t"), partition), b"of it", producer=stamp)
            say(self.cluster, (OffsetKey("r", "t", partition), self._at(self._end(partition))), index=1)

    def stage(self) -> None:
        """A transaction waits with a staged file, and is applied."""
        topic = self.cluster.topic("t")
        part = PartitionRecords("t", topic.topic_id, 0, [entry(b"pending").records])
        staged = stage(self.cluster.store, self.cluster.clock, "s", [part])
        say(self.cluster, (IntentKey("s", self.number), Intent(APPLIER + 1, self.number, (staged,))), index=1)
        stamp = ProducerStamp(APPLIER + 1, self.number, 0, True)
        append(self.cluster.claim(topic, 0), b"pending", producer=stamp)
        say(self.cluster, (IntentKey("s", self.number), None), index=1)
        delete(self.cluster.store, (staged,))

    def commit_of_an_id(self) -> None:
        """A transactional id commits offsets of a group that is kept in the other table."""
        pending = PendingKey("h", ID)
        at = self._at(self._end(0))
        say(self.cluster, (pending, PendingValue(self.number, (("t", 0, at),))), index=1)
        ended = ProducerValue(7, 0, 1_000, self.number, True, telling=("h",))
        say(self.cluster, (ProducerKey(ID), ended))
        say(self.cluster, (OffsetKey("h", "t", 0), at), (pending, None), index=1)

    def make_topics(self) -> None:
        name = f"u{self.number}"
        create_topic(self.cluster, name, 1)
        add_partitions(self.cluster, name, 2)
        append(self.cluster.claim(self.cluster.topic(name), 1), b"grown")
        at = OffsetValue(1, self.cluster.topic(name).topic_id)
        say(self.cluster, (OffsetKey("h", name, 1), at))
        alter_topic(self.cluster, name, {"value.columns": f"n{self.number} bigint"})
        append(self.cluster.claim(self.cluster.topic(name), 1), b'{"n":1}')
        if self.number % 2:
            delete_topic(self.cluster, name)

    def shorten(self) -> None:
        """Merge, delete records, and write checkpoints."""
        log = self.cluster.claim(self.cluster.topic("t"), 1)
        inputs = log.snapshot.segments[-4:]
        store, clock = self.cluster.store, self.cluster.clock
        assert commit_merge(log.table, inputs, merge(store, log.directory, inputs, "zstd", clock))
        log.truncate(self.number)
        log.checkpoint()


def test_no_commit_is_seen_before_its_causes(tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path / "here"), SystemClock())
    history = History(cluster)
    target = open_store(tmp_path / "there")
    follow(cluster.store, target)
    for _ in range(4):
        history.round()
    watched = Watched(target)
    follow(cluster.store, watched)
    assert watched.problems == []
    assert watched.checked > 200
    assert logs(target) == logs(cluster.store)
    assert files(target).items() >= files(cluster.store).items()
    assert check(target).problems == []
    assert [*target.list("staging/")] == []


def test_a_standby_is_whole_while_clients_are_busy(tmp_path: Path) -> None:
    target = Watched(open_store(tmp_path / "there"))
    with busy(str(tmp_path / "here"), {}) as clients:
        source = open_store(tmp_path / "here")
        begun = clients.copied
        follow(source, target, until=lambda: clients.copied > begun + 60 and target.checked > 60)
        assert check(target.inner).problems == []
    assert target.problems == []
    follow(source, target)
    assert logs(target) == logs(source)
    assert check(target.inner).problems == []
