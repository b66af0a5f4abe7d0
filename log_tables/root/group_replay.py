"""The state of a root's groups, replayed from `__consumer_offsets` table by table.

A copy or a check uses it, which reads tables that were written at different moments.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from log_tables.cluster.group_log import (
    Intent,
    IntentKey,
    OffsetKey,
    OffsetValue,
    PendingKey,
    PendingValue,
    ProducerKey,
    ProducerValue,
    TransactionsValue,
    UndoKey,
    UndoValue,
    decode,
)
from log_tables.layout import producer_of_txn
from log_tables.limits import PRODUCER_EPOCH_MAX
from log_tables.record import Record, to_records
from log_tables.segments import segment as segments
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.store.store import Store
from log_tables.table.commit import Txn
from log_tables.table.snapshot import Snapshot


def records(store: Store, directory: str, snapshot: Snapshot, start: int = 0) -> Iterator[Record]:
    """The records of `snapshot`, of the table at `directory`, from offset `start` on, in order.

    Raises CorruptSegment, StoreUnavailable.
    """
    end = snapshot.high_watermark
    for segment in snapshot.between(max(start, snapshot.log_start), end):
        for batch in segments.read(store, directory, segment, max(start, snapshot.log_start), end):
            yield from to_records(batch)


@dataclass(slots=True)
class GroupReplay:
    """The groups of some partitions of `__consumer_offsets`, as far as they were read."""

    offsets: dict[OffsetKey, OffsetValue] = field(default_factory=dict)
    undo: dict[UndoKey, UndoValue] = field(default_factory=dict)
    pending: dict[IntentKey, Intent] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    """By the id of a group's producer, the epoch of the newest transaction that it committed."""
    ended: dict[str, int] = field(default_factory=dict)
    """By transactional id, the newest of its transactions that has ended."""
    _heard: dict[str, int] = field(default_factory=dict)
    _waiting: dict[OffsetKey, dict[str, int]] = field(default_factory=dict)
    _places: dict[PendingKey, list[OffsetKey]] = field(default_factory=dict)
    _next: dict[str, int] = field(default_factory=dict)

    def follow(self, store: Store, directory: str, snapshot: Snapshot) -> None:
        """Read the partition at `directory` on, up to `snapshot`.

        Raises CorruptLog, CorruptSegment, StoreUnavailable.
        """
        for record in records(store, directory, snapshot, self._next.get(directory, 0)):
            self.take(*decode(record, directory))
        self._next[directory] = snapshot.high_watermark

    def waiting(self, key: OffsetKey) -> dict[str, int]:
        """By transactional id, its transaction for whose end an offset waits that would be committed here."""
        return self._waiting.get(key, {})

    def take(self, key: object, value: object) -> None:
        """Take the next record, decoded."""
        match key, value:
            case OffsetKey(), OffsetValue():
                self.offsets[key] = value
                for name, number in self._waiting.get(key, {}).items():
                    self._heard[name] = max(number, self._heard.get(name, 0))
            case OffsetKey(), None:
                self.offsets.pop(key, None)
            case UndoKey(), _:
                self.undo[key] = value if isinstance(value, UndoValue) else UndoValue(())
            case PendingKey(), _:
                self._pend(key, value)
            case ProducerKey(), ProducerValue():
                self.ended[key.id] = value.number
            case IntentKey(), Intent():
                self.pending[key] = value
                self._reached(value.producer_id, value.epoch)
            case IntentKey(), None:
                self.pending.pop(key, None)
            case _, TransactionsValue():
                self._reached(value.producer_id, value.number % (PRODUCER_EPOCH_MAX + 1))

    def places(self) -> Iterator[tuple[OffsetKey, OffsetValue]]:
        """The offsets that groups have committed, and those that an undo would commit again."""
        yield from self.offsets.items()
        for key, value in self.undo.items():
            for topic, partition, offset in (each for act in value.acts for each in act.offsets):
                if offset is not None:
                    yield OffsetKey(key.group, topic, partition), offset

    def _pend(self, key: PendingKey, value: object) -> None:
        for at in self._places.pop(key, ()):
            self._waiting[at].pop(key.id, None)
        if isinstance(value, PendingValue):
            places = [OffsetKey(key.group, topic, partition) for topic, partition, _ in value.offsets]
            self._places[key] = places
            for at in places:
                self._waiting.setdefault(at, {})[key.id] = value.number

    def behind(self) -> dict[str, int]:
        """By transactional id, the newest transaction of which a group has committed offsets that waited for
        its end, where the id has not ended it: its partition was read before that of the group. So has an id
        that is deleted, or whose offsets were committed without it.
        """
        return {name: number for name, number in self._heard.items() if number > self.ended.get(name, 0)}

    def _reached(self, producer_id: int, epoch: int) -> None:
        self.epochs[producer_id] = max(epoch, self.epochs.get(producer_id, -1))

    def staged(self) -> dict[str, StagedFile]:
        """The staged files of transactions that are not applied yet, by path, each with all runs that these
        have in it.
        """
        found: dict[str, tuple[StagedRun, ...]] = {}
        for file in (file for intent in self.pending.values() for file in intent.staged):
            found[file.path] = (*found.get(file.path, ()), *file.runs)
        return {path: StagedFile(path, runs) for path, runs in found.items()}


def applied(txns: Iterable[Txn]) -> Iterator[tuple[int, int]]:
    """(producer id, epoch) of the groups' transactions in `txns`. The producer of a group is never
    forgotten.
    """
    for txn in txns:
        producer = producer_of_txn(txn.app_id)
        if producer is not None and producer[1] == "seq" and txn.last_updated is None:
            yield producer[0], txn.version >> 32
