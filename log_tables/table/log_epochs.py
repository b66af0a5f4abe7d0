"""The log epochs of a partition: where its root has gone on from an older state.

A root that is copied, restored or promoted begins another epoch: its log may end before what readers of the
original have read. They are Kafka's leader epochs (KIP-101, KIP-320), by which a client finds where its log
and this one part.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from log_tables.layout import log_epoch_of_txn
from log_tables.table.commit import Txn

LOG_EPOCH_MAX = 2**31 - 1
"""Kafka's are int32."""

_MINUTE_MS = 60_000


class LogEpoch(NamedTuple):
    """A log epoch, and the offset of its first record."""

    number: int
    start: int


class LogEpochs(tuple[LogEpoch, ...]):
    """All of a table, the oldest first: that is 0, which every log begins with."""

    __slots__ = ()

    @classmethod
    def of(cls, txns: Iterable[Txn]) -> "LogEpochs":
        """The log epochs that `txns` note."""
        found = [
            LogEpoch(number, txn.version)
            for txn in txns
            if (number := log_epoch_of_txn(txn.app_id)) is not None
        ]
        return cls((LogEpoch(0, 0), *sorted(found)))

    @property
    def newest(self) -> int:
        return self[-1].number

    def following(self, now_ms: int) -> int:
        """The next one: minutes since 1970, so that two roots that go on from one state mostly differ, and
        one that is restored twice from one backup does not repeat itself.
        """
        return min(max(self.newest + 1, now_ms // _MINUTE_MS), LOG_EPOCH_MAX)

    def at(self, offset: int) -> int:
        """The epoch of the record at `offset`, or of the next one to be written."""
        return self[bisect_right(self, offset, key=lambda each: each.start) - 1].number

    def end_of(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The newest epoch up to `epoch`, which is not below 0, and the offset at which it ends."""
        index = bisect_right(self, epoch, key=lambda each: each.number)
        return self[index - 1].number, self[index].start if index < len(self) else log_end

    def numbers(self) -> Iterator[int]:
        return (each.number for each in self)


FIRST_EPOCH = LogEpochs.of(())
"""Those of a root that never went on from an older state."""
