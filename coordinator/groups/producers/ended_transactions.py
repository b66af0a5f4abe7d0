"""Transactions of Kafka's clients that have ended, until that has taken effect: their records are in their
partitions, and the groups with offsets in them know.

What is left amid it is begun again by the next coordinator, which writes nothing twice.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from coordinator.groups.classic.events import EndPending
from coordinator.groups.classic_coordinator import ClassicCoordinator
from coordinator.groups.shard import Shard
from coordinator.groups.transactions.applier import APPLY_WAIT_S
from coordinator.groups.transactions.pending_transaction import PendingTransaction
from coordinator.groups.transactions.transaction_coordinator import TransactionCoordinator
from ingest.pending_tasks import PendingTasks, retrieve
from log_tables.clock import Backoff, Clock
from log_tables.cluster.group_log import ProducerValue
from log_tables.errors import ConcurrentTransactions, Damaged, LakelogError
from log_tables.segments import producer_staging
from log_tables.store.store import Store

TELL = Backoff(0.05, max_s=5.0)
"""The pause between two attempts to tell a group how a transaction has ended."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Ending:
    """An ended transaction that began at `began_s` by `Clock.boottime`, while it takes effect: `groups` are
    still to be told. `applying`, of one that is committed with records, says to which partitions they go.
    """

    began_s: float
    groups: set[str]
    task: "asyncio.Task[None] | None" = None
    applying: PendingTransaction | None = None


class EndedTransactions:
    """Ended transactions of the ids that this process coordinates. Used on the event loop."""

    def __init__(
        self, store: Store, classic: ClassicCoordinator, transactions: TransactionCoordinator, clock: Clock
    ) -> None:
        self._store, self._classic, self._transactions, self._clock = store, classic, transactions, clock
        self._under_way: dict[tuple[Shard, str], Ending] = {}
        self._tasks = PendingTasks()

    async def close(self) -> None:
        """Stop, and leave what is under way to the next coordinator."""
        await self._tasks.cancel()

    def start(
        self,
        shard: Shard,
        name: str,
        value: ProducerValue,
        unused: Iterable[str] = (),
        began_s: float | None = None,
    ) -> None:
        """Have the newest end of a transaction of the id `name` take effect, once it is durable. The files
        `unused` are nobody's then. It began at `began_s`, where that is known.
        """
        ending = Ending(self._clock.boottime() if began_s is None else began_s, {*value.telling})
        ending.task = self._tasks.start(self._take_effect(shard, name, value, ending, [*unused]))
        ending.task.add_done_callback(retrieve)  # its shard is lost: the next coordinator begins again
        self._under_way[shard, name] = ending
        ending.task.add_done_callback(lambda _: self._under_way.pop((shard, name), None))

    def ending(self, shard: Shard, name: str) -> Ending | None:
        """The newest end of a transaction of an id, while it has not taken effect."""
        return self._under_way.get((shard, name))

    def names(self, shard: Shard) -> list[str]:
        """The ids of `shard` of which an end has not taken effect."""
        return [name for each, name in self._under_way if each is shard]

    def under_way(self, shard: Shard, name: str) -> bool:
        """Whether the newest end of a transaction of an id has not taken effect yet."""
        return (shard, name) in self._under_way

    def check(self, shard: Shard, name: str) -> None:
        """Raise ConcurrentTransactions while the newest end has not taken effect."""
        if self.under_way(shard, name):
            raise ConcurrentTransactions(
                f"the last transaction of the transactional id {name[:100]!r} is being applied; repeat the "
                "request"
            )

    async def wait(self, shard: Shard, name: str) -> None:
        """Wait until the newest end has taken effect, for APPLY_WAIT_S at most."""
        ending = self.ending(shard, name)
        if ending is not None and ending.task is not None:
            await asyncio.wait((ending.task,), timeout=APPLY_WAIT_S)

    def delete(self, shard: Shard, paths: list[str]) -> None:
        """Delete staged files that are nobody's, once that is durable."""
        self._tasks.start(self._delete_durable(shard, paths)).add_done_callback(retrieve)

    async def _delete_durable(self, shard: Shard, paths: list[str]) -> None:
        # Not before: a coordinator that does not know of the end must find them.
        await shard.wait_durable(shard.ids)
        shard.check_leading()
        with suppress(LakelogError):  # a vacuum deletes those that remain
            await asyncio.to_thread(producer_staging.delete, self._store, paths)

    async def _take_effect(
        self, shard: Shard, name: str, value: ProducerValue, ending: Ending, unused: list[str]
    ) -> None:
        await shard.wait_durable(shard.ids)
        if unused:
            self.delete(shard, unused)
        results = [self._tell(shard, name, value, ending, group) for group in value.telling]
        if value.committed and value.intent:
            results.append(self._applied(shard, value.intent, ending))
        await asyncio.gather(*results)

    async def _applied(self, shard: Shard, number: int, ending: Ending) -> None:
        ending.applying = self._transactions.apply_durable(shard, shard.ids, number)
        if ending.applying is not None:
            with suppress(Damaged):  # it is said where it is found; later transactions go on
                await ending.applying.placed()

    async def _tell(self, shard: Shard, name: str, value: ProducerValue, ending: Ending, group: str) -> None:
        pause_s = TELL.first_s
        while shard.leading:
            try:
                event = EndPending(name, value.number, value.committed, self._clock.now_ms())
                await self._classic.end_pending(group, event)
                ending.groups.discard(group)
                return
            except LakelogError as error:
                _log.debug("the group %r cannot be told of a transaction yet: %s", group, error)
            await asyncio.sleep(pause_s)
            pause_s = TELL.after(pause_s)
