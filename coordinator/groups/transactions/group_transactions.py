"""The transactions under way in a group: applied in order, then marked so, at last without staged files."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from coordinator.groups.events import Applied
from coordinator.groups.shard import Shard
from coordinator.groups.transactions.applier import Applier
from coordinator.groups.transactions.pending_transaction import PendingTransaction, PlacedFuture
from log_tables.errors import Conflict, NotLeader
from log_tables.segments.staging import StagedFile

APPLY_WAIT_S = 10.0
"""How long an answer waits until the records are appended; they are committed all the same."""

MARK_AFTER_S = 0.2
"""How long after it was applied a transaction is marked so, unless another one of the group comes first: the
other's append marks both."""


class GroupTransactions:
    """The transactions of one group, while one shard coordinates it. Used on the event loop."""

    def __init__(
        self,
        shard: Shard,
        group_id: str,
        applier: Applier,
        *,
        on_event: Callable[[str], None],
        on_marked: Callable[[Shard, str, Sequence[StagedFile]], None],
        ended: Callable[["GroupTransactions"], None],
    ) -> None:
        """`on_event` is called with "applied", `on_marked` with the staged files of transactions that are
        marked as applied, `ended` when none is under way any longer.
        """
        self.shard, self._group_id, self._applier = shard, group_id, applier
        self._on_event, self._on_marked, self._ended = on_event, on_marked, ended
        self._under_way: dict[int, PendingTransaction] = {}
        self._applied: dict[int, Applied] = {}
        self._marking: asyncio.TimerHandle | None = None

    def pending(self, number: int) -> PendingTransaction | None:
        """A transaction that is being applied, or not marked yet."""
        return self._under_way.get(number)

    def apply_up_to(self, number: int) -> None:
        """Apply the group's transactions up to `number`, in order. All of them are durable."""
        for pending, intent in self.shard.group(self._group_id).transactions.pending.items():
            if pending > number:
                break
            if pending not in self._under_way:
                begun = self._under_way[pending] = self._applier.begin(pending, intent)
                begun.done.add_done_callback(partial(self._on_applied, pending, begun))

    def mark(self) -> None:
        """Mark the applied transactions as such; then their staged files are deleted."""
        if self._marking is not None:
            self._marking.cancel()
            self._marking = None
        files: list[StagedFile] = []
        with suppress(NotLeader):  # then the next coordinator applies them again, which writes nothing
            for number, applied in [*self._applied.items()]:
                files += self.shard.group(self._group_id).transactions.pending[number].staged
                self.shard.apply(self._group_id, applied)
                del self._applied[number], self._under_way[number]
            if files:
                self._on_marked(self.shard, self._group_id, files)
        if not self._under_way or not self.shard.leading:
            self._ended(self)

    async def finish(self, force: bool) -> None:
        """Finish the transactions before the group is deleted. Returns after APPLY_WAIT_S at the latest.

        With `force` lost records are dropped; without it such a loss raises Conflict.
        """
        if self._applier.lost is not None:
            if not force:
                raise Conflict(
                    f"a transaction of the group {self._group_id!r} cannot be applied: {self._applier.lost}; "
                    "or delete the group with force, which drops what is lost"
                )
            self._applier.drop_lost()
            await asyncio.wait([each.done for each in self._under_way.values()], timeout=APPLY_WAIT_S)
        self.mark()

    async def close(self) -> None:
        """Stop, and leave pending transactions to the next coordinator."""
        await self._applier.close()

    def _on_applied(self, number: int, pending: PendingTransaction, done: PlacedFuture) -> None:
        placed = None if done.cancelled() else done.result()
        if placed is None or not self.shard.leading:  # another process has to apply it, and to mark it
            del self._under_way[number]
            if not self._under_way:
                self._ended(self)
            return
        if not pending.given_up:
            self._on_event("applied")
        self._applied[number] = Applied(number, placed, pending.given_up)
        if self._marking is None:
            self._marking = asyncio.get_running_loop().call_later(MARK_AFTER_S, self.mark)
