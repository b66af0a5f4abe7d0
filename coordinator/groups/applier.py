"""Appending the records of committed transactions to their partitions, independently of one another."""

import asyncio

from coordinator.groups.append_events import Loss, LossGivenUp
from coordinator.groups.partition_append import appends_of
from coordinator.groups.partition_applier import ApplierContext, PartitionApplier
from coordinator.groups.pending_transaction import PendingTransaction
from log_tables.cluster.group_log import Intent
from log_tables.topic_partition import TopicIdPartition


class Applier:
    """The transactions of one group, while one process coordinates it. Used on the event loop."""

    def __init__(self, context: ApplierContext) -> None:
        self._context = context
        self._partitions: dict[TopicIdPartition, PartitionApplier] = {}

    def begin(self, number: int, intent: Intent) -> PendingTransaction:
        """Append the staged records of a transaction, in each partition after those of earlier calls."""
        appends = appends_of(number, intent)
        pending = PendingTransaction(appends.keys())
        for at, append in appends.items():
            if at not in self._partitions:
                self._partitions[at] = PartitionApplier(self._context, at, self._partitions.pop)
            self._partitions[at].add(append, pending)
        return pending

    @property
    def lost(self) -> Loss | None:
        """Why some transaction cannot be applied, if one cannot."""
        return next((each.lost for each in self._partitions.values() if each.lost is not None), None)

    def drop_lost(self) -> None:
        """Give up records that cannot be appended, so that the rest is."""
        for each in [*self._partitions.values()]:
            each.happen(LossGivenUp())

    async def close(self) -> None:
        """Stop, and leave pending transactions to the next coordinator of the group."""
        await asyncio.gather(*(each.close() for each in [*self._partitions.values()]))
