"""The transactional ids that this process coordinates, as administrators and metrics see them.

States have Kafka's names. While a transaction takes effect, it has the partitions and groups that are left.
CompleteCommit and CompleteAbort say how the newest transaction of an id ended; Empty says that none has, or
that a client has begun anew after a commit.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

from coordinator.groups.producers.ended_transactions import EndedTransactions, Ending
from coordinator.groups.producers.producer_wire import ProducerDescription
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards
from log_tables.clock import Clock
from log_tables.cluster.group_log import ProducerValue
from log_tables.topic_partition import TopicIdPartition, TopicPartition


class State(StrEnum):
    """The state of the newest transaction of an id."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


class OpenFigures(NamedTuple):
    """The open transactions of a gateway: how many, the age of the oldest, and the bytes staged for them."""

    transactions: int
    oldest_s: float
    size_bytes: int


class ProducerView:
    """Used on the event loop."""

    def __init__(self, shards: Shards, ends: EndedTransactions, clock: Clock) -> None:
        self._shards, self._ends, self._clock = shards, ends, clock

    def describe(self, shard: Shard, name: str) -> ProducerDescription | None:
        """An id of `shard`; None if nobody has begun with it, or it has expired."""
        value = shard.producers.get(name)
        if value is None:
            return None
        about = name, value.producer_id, value.epoch, value.timeout_ms, value.principal
        found, ending = shard.open.find(name), self._ends.ending(shard, name)
        if found is not None:
            began_ms, shown = self._began_ms(found.began_s), _shown(found.partitions, found.groups)
            return ProducerDescription(*about, State.ONGOING, began_ms, *shown, found.size_bytes)
        if ending is not None:
            state = State.PREPARE_COMMIT if value.committed else State.PREPARE_ABORT
            began_ms, shown = (
                self._began_ms(ending.began_s),
                _shown(_left(shard, value, ending), ending.groups),
            )
            return ProducerDescription(*about, state, began_ms, *shown)
        return ProducerDescription(*about, _state(value))

    def _began_ms(self, began_s: float) -> int:
        return round(self._clock.now_ms() - (self._clock.boottime() - began_s) * 1_000)

    def names(self, shard: Shard) -> list[str]:
        """The ids of `shard` with a transaction that is open, or has ended and not taken effect."""
        return [*dict.fromkeys((*(name for name, _ in shard.open.items()), *self._ends.names(shard)))]

    def each_of(self, shard: Shard) -> Iterator[ProducerDescription]:
        """All ids of `shard`, described as they are asked for: there may be very many."""
        found = (self.describe(shard, name) for name in [*shard.producers])
        return (each for each in found if each is not None)

    def open_figures(self) -> OpenFigures:
        """The open transactions of now."""
        found = [each for shard in self._shards if shard.leading for _, each in shard.open.items()]
        now = self._clock.boottime()
        oldest_s = max((now - each.began_s for each in found), default=0.0)
        return OpenFigures(len(found), oldest_s, sum(each.size_bytes for each in found))


def _state(value: ProducerValue) -> State:
    begun_anew = value.replaced is not None and not value.by_end
    if not value.number or (begun_anew and value.committed):
        return State.EMPTY
    return State.COMPLETE_COMMIT if value.committed else State.COMPLETE_ABORT


def _left(shard: Shard, value: ProducerValue, ending: Ending) -> Iterable[TopicIdPartition]:
    """The partitions to which records of a committed transaction are still to be appended."""
    if ending.applying is not None:
        return ending.applying.left
    intent = shard.group(shard.ids).transactions.pending.get(value.intent) if value.committed else None
    runs = (run for file in intent.staged for run in file.runs) if intent is not None else ()
    return {TopicIdPartition(run.topic, run.topic_id, run.partition) for run in runs}


def _shown(
    partitions: Iterable[TopicIdPartition], groups: Iterable[str]
) -> tuple[tuple[TopicPartition, ...], tuple[str, ...]]:
    shown = {TopicPartition(at.topic, at.partition) for at in partitions}
    return tuple(sorted(shown)), tuple(sorted(groups))
