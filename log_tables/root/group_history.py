"""The check of the log of consumer groups: what its records say, one after the other.

The producer of a group is in every partition to which its transactions wrote. It is a kept one there, and its
epoch is at most that of the newest transaction that the group has committed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from log_tables.cluster.group_log import (
    ClassicKey,
    ClassicValue,
    GroupKey,
    GroupKeys,
    GroupValue,
    Intent,
    IntentKey,
    Key,
    MemberValue,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    ProducerKey,
    ProducerValue,
    Retry,
    TransactionsKey,
    TransactionsValue,
    UndoKey,
    UndoValue,
    Value,
    decode,
    deleted_name,
    ids_group,
    is_deleted_name,
    is_hidden,
)
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.limits import (
    KEPT_PRODUCER_ID_MAX,
    KEPT_PRODUCER_ID_MIN,
    PRODUCER_EPOCH_MAX,
    UNDO_ACTS_MAX,
    UNDO_OFFSETS_MAX,
)
from log_tables.record import Record
from log_tables.root.topic_history import TopicHistory
from log_tables.table.snapshot import Snapshot
from log_tables.table.txns import ProducerState

States = Mapping[int, ProducerState]
"""The producers of a partition, by id."""


@dataclass(slots=True)
class GroupProducers:
    """The producers of groups' transactions, as the groups name them."""

    counts: dict[str, TransactionsValue] = field(default_factory=dict)
    pending: dict[tuple[str, int], Intent] = field(default_factory=dict)

    def hear(self, key: Key, value: Value | None) -> None:
        """Read the next record of `__consumer_offsets`."""
        if isinstance(key, TransactionsKey):
            self.counts.pop(key.group, None)
            if isinstance(value, TransactionsValue):
                self.counts[key.group] = value
        elif isinstance(key, IntentKey):
            self.pending.pop((key.group, key.number), None)
            if isinstance(value, Intent):
                self.pending[key.group, key.number] = value

    def ids(self, group: str) -> set[int]:
        """The producers that the group uses, or has used for pending transactions."""
        old = {intent.producer_id for (of, _), intent in self.pending.items() if of == group}
        return {self.counts[group].producer_id, *old}


def producers_of(snapshot: Snapshot) -> States:
    """The producers of a partition."""
    states = ((producer_id, snapshot.producer(producer_id)) for producer_id in snapshot.producer_ids())
    return {producer_id: state for producer_id, state in states if state is not None}


def misused(groups: GroupProducers, states: States) -> Iterator[str]:
    """The problems of groups' producers in a partition that was read before the groups were."""
    for group, count in sorted(groups.counts.items()):
        for producer_id in sorted(groups.ids(group) & states.keys()):
            state, newest = states[producer_id], count.newest_epoch(producer_id)
            if not state.kept:
                yield (
                    f"producer {producer_id}, which applies the transactions of group {group!r}, was used by "
                    "a client; check which records of the group arrived since, and send the rest again"
                )
            elif state.epoch > newest:
                yield (
                    f"producer {producer_id} of group {group!r} is at epoch {state.epoch}, and the group has "
                    f"committed up to {newest}; restore both from the same time"
                )


def shared(groups: GroupProducers) -> Iterator[str]:
    """Producers that two groups share: each would take the other's transactions for its own."""
    owners: dict[int, str] = {}
    for group, count in sorted(groups.counts.items()):
        other = owners.setdefault(count.producer_id, group)
        if other != group:
            yield (
                f"groups {other!r} and {group!r} have the same producer {count.producer_id}; delete one of "
                "them"
            )


_REMEDY = "delete the group with `lakelog group delete`, or restore the log of groups from a backup"


@dataclass(slots=True)
class GroupHistory:
    """The records of a partition of `__consumer_offsets`, which has `count` of them.

    `ends` are the high watermarks of partitions by (topic, id, partition), as far as they can be read.
    `whole` if no record was compacted away.
    """

    directory: str
    number: int
    count: int
    whole: bool
    topics: TopicHistory
    ends: Mapping[tuple[str, str, int], int]
    offsets: dict[OffsetKey, OffsetValue] = field(default_factory=dict)
    numbers: dict[str, TransactionsValue] = field(default_factory=dict)
    generations: dict[Key, int] = field(default_factory=dict)
    producers: dict[str, ProducerValue] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def take(self, record: Record) -> tuple[Key, Value | None]:
        """Check the next record, and decode it. Raises CorruptLog for one that cannot be read."""
        key, value = decode(record, self.directory)
        said = [*self._keyed(key), *self._said(key, value)]
        at = f"the record at offset {record.offset} of {self.directory}"
        self.problems += [f"{at} {each}; {_REMEDY}" for each in said]
        return key, value

    def _keyed(self, key: Key) -> Iterator[str]:
        what, name = ("id", key.id) if isinstance(key, ProducerKey) else ("group", key.group)
        if is_hidden(name) and name == ids_group(self.number):
            return
        due = partition_for_key(name.encode(), self.count, MURMUR3)
        if due != self.number:
            yield f"is of {what} {name!r}, which belongs to partition {due}"

    def _said(self, key: Key, value: Value | None) -> Iterator[str]:
        if value is None:
            self._forget(key)
        elif isinstance(key, ProducerKey):
            assert isinstance(value, ProducerValue)
            yield from self._of_producer(key.id, value)
        else:
            yield from self._of_group(key, value)

    def _of_group(self, key: GroupKeys, value: Value) -> Iterator[str]:
        if isinstance(key, PendingKey) and isinstance(value, PendingValue):
            yield from self._pending(key, value)
        elif isinstance(key, OffsetKey) and isinstance(value, OffsetValue):
            yield from self._committed(key, value)
        elif isinstance(key, UndoKey) and isinstance(value, UndoValue):
            yield from self._undone(key.group, value)
        elif isinstance(key, TransactionsKey) and isinstance(value, TransactionsValue):
            yield from self._numbered(key.group, value)
        elif isinstance(key, IntentKey) and isinstance(value, Intent):
            yield from self._intended(key, value)
        elif isinstance(key, GroupKey | ClassicKey) and isinstance(value, GroupValue | ClassicValue):
            yield from self._generation(key, value)
        elif isinstance(value, MemberValue):
            yield from self._member(value, repr(key.group))
        elif isinstance(value, Retry):
            yield from _retry(value, repr(key.group))
            yield from self._begun(key.group, value.number)

    def _of_producer(self, name: str, value: ProducerValue) -> Iterator[str]:
        """The number, and the epoch of one producer id, grow."""
        before, self.producers[name] = self.producers.get(name), value
        if min(value.producer_id, value.epoch, value.number) < 0 or value.timeout_ms <= 0:
            yield f"gives transactional id {name!r} a number below 0"
        if before is None:
            return
        falls = before.producer_id == value.producer_id and value.epoch < before.epoch
        if falls or value.number < before.number:
            yield (
                f"has transaction {value.number} and epoch {value.epoch} of transactional id {name!r}, after "
                f"{before.number} and {before.epoch}"
            )

    def _pending(self, key: PendingKey, value: PendingValue) -> Iterator[str]:
        for topic, partition, offset in value.offsets:
            if offset.offset < 0 or partition < 0:
                yield f"has offset {offset.offset} of {topic}-{partition} wait for group {key.group!r}"
            yield from self._of_topic(topic, offset.topic_id, repr(key.group))

    def _undone(self, group: str, value: UndoValue) -> Iterator[str]:
        """The acts of operators, the newest first, and the offsets before each."""
        places = [each for act in value.acts for each in act.offsets]
        if not value.acts or len(value.acts) > UNDO_ACTS_MAX or len(places) > UNDO_OFFSETS_MAX:
            yield f"keeps {len(value.acts)} acts on {len(places)} offsets of group {group!r}"
        if min((act.at_ms for act in value.acts), default=0) < 0:
            yield f"keeps an act on group {group!r} of a time below 0"
        for topic, partition, offset in places:
            if partition < 0 or (offset is not None and offset.offset < 0):
                yield f"keeps an offset of {topic}-{partition} of group {group!r} that is below 0"
            if offset is not None:
                yield from self._of_topic(topic, offset.topic_id, repr(group))

    def _forget(self, key: Key) -> None:
        self.generations.pop(key, None)
        if isinstance(key, OffsetKey):
            self.offsets.pop(key, None)
        elif isinstance(key, TransactionsKey):
            self.numbers.pop(key.group, None)
        elif isinstance(key, ProducerKey):
            self.producers.pop(key.id, None)

    def _committed(self, key: OffsetKey, value: OffsetValue) -> Iterator[str]:
        group, at = repr(key.group), f"{key.topic}-{key.partition}"
        self.offsets[key] = value
        if value.offset < 0 or value.committed_ms < 0:
            yield f"commits offset {value.offset} of {at} for group {group}, at {value.committed_ms}"
        if value.leader_epoch < -1:
            yield f"commits {at} for group {group} with the leader epoch {value.leader_epoch}"
        if is_deleted_name(key.topic):
            ids = set[str]().union(*self.topics.ids.values())
            if key.topic != deleted_name(value.topic_id) or (self.topics.whole and value.topic_id not in ids):
                yield f"keeps {at} for group {group} with the id {value.topic_id[:40]!r}, which no topic had"
            return
        yield from self._of_topic(key.topic, value.topic_id, group)
        known = self.topics.latest.get(key.topic)
        if known is None:
            return
        last = known.partitions - 1 if known.topic_id == value.topic_id else key.partition
        if not 0 <= key.partition <= last:
            yield f"commits partition {key.partition} of {key.topic}, which has {known.partitions}"

    def _intended(self, key: IntentKey, value: Intent) -> Iterator[str]:
        if value.epoch != key.number % (PRODUCER_EPOCH_MAX + 1):
            yield f"has epoch {value.epoch} for transaction {key.number} of group {key.group!r}"
        yield from self._begun(key.group, key.number)
        now = self.numbers.get(key.group)
        if now is not None and now.number == key.number and now.producer_id != value.producer_id:
            yield f"names producer {value.producer_id}, and group {key.group!r} has {now.producer_id}"

    def _begun(self, group: str, number: int) -> Iterator[str]:
        """The number of a transaction stands before all else that is said of it."""
        now = self.numbers.get(group)
        if now is not None and number > now.number:
            yield f"is of transaction {number} of group {group!r}, whose newest is {now.number}"

    def _generation(self, key: GroupKey | ClassicKey, value: GroupValue | ClassicValue) -> Iterator[str]:
        """The generations of a group grow."""
        before, now = self.generations.get(key, 0), value.generation
        if now < before:
            yield f"has generation {now} of group {key.group!r}, after {before}"
        self.generations[key] = now
        if isinstance(value, GroupValue):
            if value.idle_ms < 0:
                yield f"says that group {key.group!r} is idle since {value.idle_ms}"
            return
        if (value.leader or value.members) and value.leader not in value.members:
            yield f"names a leader of group {key.group!r} that is no member"
        for name, member in value.members.items():
            if min(member.session_timeout_ms, member.rebalance_timeout_ms, value.begun) < 0:
                yield f"gives member {name!r} of group {key.group!r} a time below 0"

    def _member(self, member: MemberValue, group: str) -> Iterator[str]:
        partitions = [number for numbers in member.owned.values() for number in numbers]
        places = [at for offsets in member.positions.values() for pair in offsets.items() for at in pair]
        if min([member.epoch, *partitions, *places], default=0) < 0:
            yield f"has a number below 0 for a member of group {group}"
        for topic, topic_id in member.topic_ids.items():
            yield from self._of_topic(topic, topic_id, group)
            known = self.topics.latest.get(topic)
            last = max([*member.owned.get(topic, ()), *member.positions.get(topic, ())], default=-1)
            if known is not None and known.topic_id == topic_id and last >= known.partitions:
                yield f"has partition {last} of topic {topic} for a member of group {group}"

    def _of_topic(self, topic: str, topic_id: str, group: str) -> Iterator[str]:
        """An id that no topic of that name ever had."""
        ids, known = self.topics.ids.get(topic, set()), self.topics.latest.get(topic)
        forgotten = not self.topics.whole and (known is None or known.incarnation > 1)
        if topic_id not in ids and not forgotten:
            yield f"names topic {topic} with the id {topic_id[:40]!r} for group {group}, which it never had"

    def _numbered(self, group: str, value: TransactionsValue) -> Iterator[str]:
        before = self.numbers.get(group)
        self.numbers[group] = value
        if not KEPT_PRODUCER_ID_MIN <= value.producer_id <= KEPT_PRODUCER_ID_MAX or value.number < 1:
            yield f"has transaction {value.number} of producer {value.producer_id} for group {group!r}"
            return
        due = 1 if before is None else before.number + 1
        if before is None and not self.whole:
            due = value.number
        if value.number != due:
            yield f"has transaction {value.number} of group {group!r}, and {due} is the next"
        wraps = value.number % (PRODUCER_EPOCH_MAX + 1) == 0
        old = before is not None and before.producer_id < KEPT_PRODUCER_ID_MIN
        if before is not None and before.producer_id != value.producer_id and not wraps and not old:
            yield f"names producer {value.producer_id}, and group {group!r} had {before.producer_id}"

    def ahead(self) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """The committed offsets beyond `ends`."""
        for key, value in self.offsets.items():
            end = self.ends.get((key.topic, value.topic_id, key.partition))
            if end is not None and value.offset > end:
                yield key, value

    def beyond(self) -> Iterator[str]:
        """The committed offsets that no record has yet: a client may have wanted that."""
        for key, value in self.ahead():
            end = self.ends[key.topic, value.topic_id, key.partition]
            at = f"{key.topic}-{key.partition}"
            yield (
                f"group {key.group!r} has committed offset {value.offset} of {at}, which ends at {end}; "
                "unless its client wanted that, set it with `lakelog group reset-offsets`"
            )


def _retry(value: Retry, group: str) -> Iterator[str]:
    placed = value.placed or ()
    counts = [each.count for each in placed] + [each.base_offset or 0 for each in placed]
    if min([value.number - 1, value.committed_ms, *counts]) < 0:
        yield f"remembers transaction {value.number} of group {group} with a number below 0"
