"""A root in use, without gateways: what they, clients and maintenance write to it, in order."""

from collections.abc import Callable, Sequence

from log_tables.clock import ManualClock
from log_tables.cluster.admin.restore_admin import restore_topic, wanted
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import add_partitions, alter_topic, create_topic, delete_topic
from log_tables.cluster.admin.undelete import undelete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    Key,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    ProducerKey,
    ProducerValue,
    TransactionsKey,
    TransactionsValue,
    Value,
    ids_group,
)
from log_tables.cluster.topic_fold import fold
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.segments import rewrite
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore
from tests.kit.groups import say
from tests.kit.partitions import append, entry
from tests.kit.unfolding import RecordingStore, Written

HOUR_MS = 60 * 60 * 1000
READERS = ("g", "h", "i")
COPIER = "copier"


def index_of(name: str) -> int:
    """The partition of groups to which a group or a transactional id belongs, of two."""
    return partition_for_key(name.encode(), 2, MURMUR3)


ID = next(each for each in map(str, range(100)) if index_of(each) != index_of("h"))


class Workload:
    """Writes of all kinds to a root; `written` has them in order, the `first` ones make it. Staged files are
    deleted once they are applied, unless it `keeps` them.
    """

    def __init__(self, keeps: bool = False, seed: int = 1, inner: Store | None = None) -> None:
        self._keeps = keeps
        self.clock, self.store_clock = ManualClock(seed=seed), ManualClock(seed=seed + 1)
        self.recorded = RecordingStore(inner or open_store("memory://worked"))
        self.store = ClockedStore(self.recorded, self.store_clock)
        self.cluster = Cluster.open(self.store, self.clock)
        self._draws = ManualClock(seed=seed + 2)
        self._copied = self._ended = self._intents = self._made = self._whole = 0
        create_topic(self.cluster, "t", 2)
        create_topic(self.cluster, "c", 1, {"cleanup.policy": "compact"})
        for number in range(2):
            append(self.partition("t", number), b"first")
        self._say("g", (OffsetKey("g", "t", 0), self._offset("t", 1)))
        self._say(ID, (ProducerKey(ID), ProducerValue(9, 0, 1_000)))
        self.first = len(self.written)

    @property
    def written(self) -> list[Written]:
        return self.recorded.written

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.store_clock.advance(ms)

    def partition(self, topic: str, number: int = 0) -> Partition:
        """A partition, led by this process."""
        found = self.cluster.topic(topic).partition(number)
        return found if found.leading else self.cluster.claim(self.cluster.topic(topic), number)

    def _say(self, name: str, *records: tuple[Key, Value | None]) -> None:
        say(self.cluster, *records, index=index_of(name))

    def _offset(self, topic: str, offset: int) -> OffsetValue:
        return OffsetValue(offset, self.cluster.topic(topic).topic_id, committed_ms=self.clock.now_ms())

    def steps(self) -> Sequence[Callable[[], object]]:
        """All that may happen at any time."""
        return (
            self.produce,
            self.consume,
            self.transact,
            self.transact_by_id,
            self.write_keys,
            self.merge,
            self.fold,
            self.make_again,
            self.bring_back,
            self.grow,
            self.make_again,
            self.truncate,
            self.restore,
            self.checkpoint,
            self.alter,
        )

    def work(self, count: int) -> None:
        """Do all steps in turn, each between two draws of produce, consume and transact."""
        steps = self.steps()
        for number in range(count):
            steps[number % len(steps)]()
            steps[int(self._draws.random() * 3)]()
            self.wait(1000)

    def produce(self) -> None:
        topic = self.cluster.topic("t")
        number = int(self._draws.random() * topic.partition_count)
        append(self.partition("t", number), b"one", b"two")

    def consume(self) -> None:
        """Each group has read all."""
        for group in READERS:
            for number in range(self.cluster.topic("t").partition_count):
                end = self.partition("t", number).high_watermark
                self._say(group, (OffsetKey(group, "t", number), self._offset("t", end)))

    def transact(self) -> None:
        """A group's transaction writes to two partitions, and commits where it was in the first."""
        self._copied += 1
        number, producer = self._copied, KEPT_PRODUCER_ID_MIN + 7
        end = self.partition("t").high_watermark
        self._say(
            COPIER,
            (OffsetKey(COPIER, "t", 0), self._offset("t", end)),
            *self._intent(COPIER, number, producer),
        )
        self._apply(COPIER, COPIER, number, producer)

    def transact_by_id(self) -> None:
        """A transactional id's transaction writes to two partitions, and commits offsets of group `h`."""
        self._ended, self._intents = self._ended + 1, self._intents + 1
        hidden, producer = ids_group(index_of(ID)), KEPT_PRODUCER_ID_MIN + 8
        pending, place = PendingKey("h", ID), self._offset("t", self.partition("t").high_watermark)
        self._say("h", (pending, PendingValue(self._ended, (("t", 0, place),))))
        state = ProducerValue(9, 0, 1_000, self._ended, True, telling=("h",), intent=self._intents)
        self._say(ID, (ProducerKey(ID), state), *self._intent(hidden, self._intents, producer))
        self._say("h", (OffsetKey("h", "t", 0), place), (pending, None))
        self._apply(ID, hidden, self._intents, producer)

    def _intent(self, group: str, number: int, producer: int) -> list[tuple[Key, Value]]:
        topic = self.cluster.topic("t")
        parts = [PartitionRecords("t", topic.topic_id, at, [entry(b"copied").records]) for at in range(2)]
        staged = stage(self.store, self.clock, group, parts)
        return [
            (TransactionsKey(group), TransactionsValue(producer, number)),
            (IntentKey(group, number), Intent(producer, number, (staged,))),
        ]

    def _apply(self, name: str, group: str, number: int, producer: int) -> None:
        staged = [item.path for item in [*self.store.list("staging/")]]
        for at in range(2):
            append(self.partition("t", at), b"copied", producer=ProducerStamp(producer, number, 0, True))
        self._say(name, (IntentKey(group, number), None))
        if not self._keeps:
            self.store.delete_objects(staged)

    def write_keys(self) -> None:
        keyed = self.partition("c")
        for value in (b"1", b"2"):
            keyed.append([entry(value, value, keys=[b"k", b"l"])])
        rewrite.compact_by_key(keyed.table, "zstd", segment_bytes=1)

    def merge(self) -> None:
        partition = self.partition("t")
        inputs = partition.refresh(wait=True).segments[:2]
        made = rewrite.merge(self.store, partition.directory, inputs, "zstd", self.clock)
        assert rewrite.commit_merge(partition.table, inputs, made)

    def fold(self) -> None:
        for topic in self.cluster.topics():
            fold(topic)

    def grow(self) -> None:
        self._made += 1
        add_partitions(self.cluster, "t", self.cluster.topic("t").partition_count + 1)
        self._readers_of_new(self.cluster.topic("t").partition_count - 1)

    def _readers_of_new(self, number: int) -> None:
        append(self.partition("t", number), b"in a new one")
        self._say("i", (OffsetKey("i", "t", number), self._offset("t", 1)))

    def make_again(self) -> None:
        """A topic comes, is read, folded, and goes again; its files are swept before it comes again."""
        if self.cluster.cached_topic("again") is not None:
            delete_topic(self.cluster, "again")
            return
        for _ in range(2):
            self.wait(26 * HOUR_MS)
            sweep(self.cluster)
        create_topic(self.cluster, "again", 1)
        append(self.partition("again"), b"1", b"2")
        self._say("g", (OffsetKey("g", "again", 0), self._offset("again", 2)))

    def bring_back(self) -> None:
        """A topic is deleted, brought back, and gone on with."""
        if self.cluster.cached_topic("again") is None:
            return
        delete_topic(self.cluster, "again")
        undelete_topic(self.cluster, "again")
        append(self.partition("again"), b"3")
        fold(self.cluster.topic("again"))
        self._say("g", (OffsetKey("g", "again", 0), self._offset("again", 3)))

    def truncate(self) -> None:
        partition = self.partition("t")
        self._whole = partition.snapshot.version
        partition.truncate(partition.high_watermark // 2)

    def restore(self) -> None:
        """Records that were deleted last are brought back."""
        restore_topic(self.cluster.topic("t"), self.clock.now_ms(), wanted(self._whole, None), 0)

    def checkpoint(self) -> None:
        for partition in (self.partition("t"), self.partition("c")):
            partition.checkpoint()

    def alter(self) -> None:
        alter_topic(self.cluster, "t", {"retention.ms": str(HOUR_MS + self._made)})
        self._made += 1
