"""A committed transaction while its records are being appended: what is still to come, who waits for it."""

import asyncio
from collections.abc import Collection

from coordinator.groups.transactions.append_events import Loss, PartitionAppend
from log_tables.cluster.group_log import AppendedRange
from log_tables.topic_partition import TopicIdPartition

PlacedFuture = asyncio.Future[tuple[AppendedRange, ...] | None]
"""The ranges of a transaction's records, once appended; None when another process has to append them."""


class PendingTransaction:
    """The appends of one transaction, to `partitions`. `done` is resolved when all have ended.

    It is `given_up` when a client has deleted the group by force, so that lost records are not waited for.
    """

    def __init__(self, partitions: Collection[TopicIdPartition]) -> None:
        self.done: PlacedFuture = asyncio.get_running_loop().create_future()
        self.given_up = False
        self._partitions = partitions
        self._finished: dict[TopicIdPartition, PartitionAppend] = {}
        self._losses: dict[TopicIdPartition, Loss] = {}
        self._changed = asyncio.Event()
        self.done.add_done_callback(lambda _: self._changed.set())

    @property
    def left(self) -> set[TopicIdPartition]:
        """The partitions to which its records are still to be appended."""
        return {*self._partitions} - self._finished.keys()

    async def placed(self) -> tuple[AppendedRange, ...] | None:
        """The ranges of the records, once they are appended; None when another process has to append them.

        Raises CorruptSegment, TransactionLost while they cannot be appended, and for those given up.
        """
        while True:
            for loss in self._losses.values():
                raise loss
            if self.done.done():
                return self.done.result()
            await self._changed.wait()

    def set_loss(self, at: TopicIdPartition, loss: Loss | None) -> None:
        """Set why the records for a partition cannot be appended, or those before them; None: they can."""
        if loss is not None:
            self._losses[at] = loss
            self._changed.set()
        elif self._losses.pop(at, None) and not self._losses and not self.done.done():
            self._changed.clear()

    def finish(self, at: TopicIdPartition, append: PartitionAppend) -> None:
        """The records for a partition are appended, or never will be."""
        if not append.given_up:
            self.set_loss(at, None)
        self._finished[at] = append
        self.given_up |= append.given_up
        if len(self._finished) == len(self._partitions) and not self.done.done():
            self.done.set_result(tuple(r for at in self._partitions for r in self._finished[at].placed))

    def leave(self) -> None:
        """Another process has to append what is left."""
        if not self.done.done():
            self.done.set_result(None)
