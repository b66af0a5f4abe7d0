"""The transactional ids that this process coordinates, as administrators and metrics see them.

States have Kafka's names. CompleteCommit and CompleteAbort say how the newest transaction of an id ended;
Empty says that none has, or that a client has begun anew after a commit.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from coordinator.groups.producers.ended_transactions import EndedTransactions
from coordinator.groups.producers.producer_wire import ProducerDescription
from coordinator.groups.shard import Shard
from coordinator.groups.shards import Shards
from log_tables.clock import Clock
from log_tables.cluster.group_log import ProducerValue
from log_tables.topic_partition import TopicPartition


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
        found = shard.open.find(name)
        if found is None:
            return ProducerDescription(*about, self._state(shard, name, value))
        age_s = self._clock.boottime() - found.began_s
        return ProducerDescription(
            *about,
            State.ONGOING,
            round(self._clock.now_ms() - age_s * 1_000),
            tuple(sorted({TopicPartition(at.topic, at.partition) for at in found.partitions})),
            tuple(sorted(found.groups)),
            found.size_bytes,
        )

    def _state(self, shard: Shard, name: str, value: ProducerValue) -> State:
        if self._ends.under_way(shard, name):
            return State.PREPARE_COMMIT if value.committed else State.PREPARE_ABORT
        begun_anew = value.replaced is not None and not value.by_end
        if not value.number or (begun_anew and value.committed):
            return State.EMPTY
        return State.COMPLETE_COMMIT if value.committed else State.COMPLETE_ABORT

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
