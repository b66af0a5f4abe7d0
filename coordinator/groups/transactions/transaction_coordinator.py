"""The life of a transaction at the coordinator of its group: staged, committed, applied, forgotten.

The commit point is one append to the group's partition of `__consumer_offsets`. A failure before it leaves at
worst a staged file, which a vacuum finds. The steps after it are retried until they succeed, by the group's
coordinator of that time.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from coordinator.access.principal import RequestContext, author_of
from coordinator.groups.events import OffsetAndMetadata, Transact
from coordinator.groups.shard import Shard
from coordinator.groups.state.group import Group
from coordinator.groups.transactions.applier import APPLY_WAIT_S, Applier, RouterAppend
from coordinator.groups.transactions.pending_transaction import PendingTransaction
from ingest.buffer import Buffer
from ingest.pending_tasks import PendingTasks, retrieve
from log_tables.clock import Clock, check_recent
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import AppendedRange
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.partition.sequencer import kept_producer_id
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords, StagedFile, StagedRun
from log_tables.topic_partition import TopicPartition

CLOSE_WAIT_S = 5.0
"""How long a closing gateway waits until its marks are durable; else transactions are applied once more,
which writes nothing.
"""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TransactionRequest:
    """A transaction that a client asks for: records in memory and in staged files, and offsets to commit.

    `context` is that of its request; None where nobody is authenticated.
    """

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    parts: Sequence[PartitionRecords] = ()
    staged: tuple[StagedFile, ...] = ()
    generation: int | None = None
    key: str = ""
    digest: str = ""
    forget: tuple[str, ...] = ()
    context: RequestContext | None = None


@dataclass(frozen=True, slots=True)
class TransactionResult:
    """A committed transaction; `applying` is set while its records may not all be appended."""

    number: int
    placed: tuple[AppendedRange, ...]
    applying: PendingTransaction | None = None

    async def where(self) -> tuple[AppendedRange, ...]:
        """Wait for the ranges of its records; they have no offsets after APPLY_WAIT_S, or if another process
        applies it. Raises Damaged when the records cannot be appended.
        """
        if self.applying is not None:
            with suppress(TimeoutError):
                placed = await asyncio.wait_for(self.applying.placed(), APPLY_WAIT_S)
                if placed is not None:
                    return placed
        return self.placed


class TransactionCoordinator:
    """The transactions of all groups that this process coordinates. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        append: RouterAppend,
        buffer: Buffer,
        clock: Clock,
        on_event: Callable[[str], None],
        keep_staged_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`on_event` is called with "committed", "applied", "repeated"; and for a part with "dropped" when
        its topic is deleted or it is given up, with "lost" when it cannot be appended. Staged files stay for
        `keep_staged_s` once they are applied, or until a vacuum if the gateway ends before.
        """
        self._cluster, self._append, self._buffer = cluster, append, buffer
        self._clock, self._on_event, self._keep_staged_s = clock, on_event, keep_staged_s
        self._groups: dict[str, Applier] = {}
        self._spent: set[str] = set()  # staged files that are applied, and about to be deleted
        self._named = Counter[str]()  # those that requests under way name, which may have found them there
        self._gone: set[str] = set()  # those of them that are deleted since
        self._tasks, self._keeping = PendingTasks(), PendingTasks()

    async def find_repeat(
        self, shard: Shard, group_id: str, key: str, digest: str | None
    ) -> TransactionResult | None:
        """The result of a repeated transaction, None for a new one. Raises RetryKeyReused, NotLeader."""
        retry = shard.group(group_id).transactions.find_retry(key, digest)
        if retry is None:
            return None
        self._on_event("repeated")
        await shard.wait_durable(group_id)
        shard.check_leading()  # a failed commit is forgotten with its shard
        if retry.placed is not None:
            return TransactionResult(retry.number, retry.placed)
        self._apply_up_to(shard, group_id, retry.number)
        return self._result(shard, group_id, retry.number, key)

    async def transact(
        self,
        shard: Shard,
        group_id: str,
        member_id: str | None,
        request: TransactionRequest,
        committing: Callable[[Group], None],
    ) -> TransactionResult:
        """Commit a transaction of a member, or (None) of a client outside the group; and have it applied.

        `committing` is called with the group and its new offsets, before they are durable. Raises what the
        event raises, NotLeader, StoreUnavailable, OutcomeUnknown; InvalidArgument for a staged file that does
        not exist. After an error nothing of it is written, now or later; OutcomeUnknown: all or nothing is.
        """
        found = await self.find_repeat(shard, group_id, request.key, request.digest)
        if found is not None:
            return found
        event = self._event(member_id, request, (*_planned(request.parts), *request.staged))
        shard.check(group_id, event)
        await self._check_own(event.staged)
        self._check_unused(shard.group(group_id), request.staged)
        with self._naming(request.staged):
            began = self._clock.boottime()
            staged = await self._stage(group_id, request)
            try:
                # The same transaction may have come by another connection.
                found = await self.find_repeat(shard, group_id, request.key, request.digest)
                if found is None:
                    check_recent(self._clock, began, f"a transaction of the group {group_id!r}")
                    self._mark(group_id)
                    self._check_unused(shard.group(group_id), request.staged)
                    after = shard.apply(group_id, replace(event, staged=staged))
            except LakelogError:
                await self._delete(staged[: bool(request.parts)])
                raise
        if found is not None:
            await self._delete(staged[: bool(request.parts)])
            return found
        committing(after)
        number = after.transactions.number
        # The client may be gone before it is durable: it is applied all the same.
        await asyncio.shield(self._in_background(self._committed(shard, group_id, number)))
        return self._result(shard, group_id, number, request.key)

    def apply_durable(self, shard: Shard, group_id: str, number: int) -> PendingTransaction | None:
        """Apply the transactions of a group up to `number`, which is durable; None if it is applied."""
        self._on_event("committed")
        self._apply_up_to(shard, group_id, number)
        group = self._groups.get(group_id)
        return None if group is None or group.shard is not shard else group.pending(number)

    def recover(self, shard: Shard) -> None:
        """Apply the pending transactions in the groups of a shard that was just taken over."""
        for group in shard.groups():
            if group.transactions.pending:
                self._apply_up_to(shard, group.id, group.transactions.number)

    async def finish(self, shard: Shard, group_id: str, force: bool) -> None:
        """Finish the transactions of a group before it is deleted. Returns after APPLY_WAIT_S at the latest.

        With `force` the records of lost staged files are dropped; without it such a loss raises Conflict.
        """
        group = self._groups.get(group_id)
        if group is not None and group.shard is shard:
            await group.finish(force)

    def mark_applied(self, shard: Shard) -> None:
        """Mark the applied transactions, before another process coordinates the groups of `shard`."""
        for group in [*self._groups.values()]:
            if group.shard is shard:
                group.mark()

    async def close(self) -> None:
        """Stop, and leave pending transactions to the next coordinator."""
        await self._keeping.cancel()
        await self._tasks.wait(CLOSE_WAIT_S)
        for group in [*self._groups.values()]:
            await group.close()
        await self._tasks.cancel()

    def _event(
        self, member_id: str | None, request: TransactionRequest, staged: tuple[StagedFile, ...]
    ) -> Transact:
        return Transact(
            member_id=member_id,
            generation=request.generation,
            offsets=request.offsets,
            staged=staged,
            key=request.key,
            digest=request.digest,
            forget=request.forget,
            producer_id=kept_producer_id(self._clock),
            at_ms=self._clock.now_ms(),
            context=request.context,
            author=author_of(request.context),
        )

    async def _stage(self, group_id: str, request: TransactionRequest) -> tuple[StagedFile, ...]:
        """The staged files, all of which exist. Raises InvalidArgument, StoreUnavailable."""
        store = self._cluster.store
        if request.staged:
            await asyncio.to_thread(staging.check, store, group_id, request.staged)
        if not request.parts:
            return request.staged
        return await asyncio.to_thread(
            staging.stage, store, self._clock, group_id, request.parts
        ), *request.staged

    async def _check_own(self, staged: Iterable[StagedFile]) -> None:
        """Raise MirroredTopic if records are for a topic that a mirror makes: they could not be applied."""
        names = {run.topic for file in staged for run in file.runs}
        for topic in filter(None, map(self._cluster.cached_topic, names)):
            if topic.mirror:
                await asyncio.to_thread(self._cluster.check_own, topic)

    @contextmanager
    def _naming(self, staged: Iterable[StagedFile]) -> Iterator[None]:
        """Let what others delete of `staged` meanwhile be known as spent to the end."""
        paths = [file.path for file in staged]
        self._named.update(paths)
        try:
            yield
        finally:
            self._named.subtract(paths)
            self._named = +self._named
            self._forget_gone(self._gone.intersection(paths))

    def _forget_gone(self, paths: Set[str]) -> None:
        """Forget deleted files, but for those that requests under way may have found before."""
        kept = paths & self._named.keys()
        self._gone = (self._gone - paths) | kept
        self._spent -= paths - kept

    def _check_unused(self, group: Group, staged: Iterable[StagedFile]) -> None:
        """Raise InvalidArgument for a file of another transaction, which is deleted with that one."""
        if not staged:
            return
        pending = {file.path for intent in group.transactions.pending.values() for file in intent.staged}
        for file in staged:
            if file.path in self._spent or file.path in pending:
                raise InvalidArgument(
                    f"the staged file {file.path} belongs to another transaction; stage the records again"
                )

    async def _committed(self, shard: Shard, group_id: str, number: int) -> None:
        await shard.wait_durable(group_id)
        self._on_event("committed")
        self._apply_up_to(shard, group_id, number)

    def _result(self, shard: Shard, group_id: str, number: int, key: str) -> TransactionResult:
        """The result of a committed transaction."""
        group, transactions = self._groups.get(group_id), shard.group(group_id).transactions
        applying = None if group is None or group.shard is not shard else group.pending(number)
        if applying is not None:
            return TransactionResult(number, _unplaced(transactions.pending[number].staged), applying)
        retry = transactions.retries.get(key)
        return TransactionResult(
            number, retry.placed or () if retry is not None and retry.number == number else ()
        )

    def _apply_up_to(self, shard: Shard, group_id: str, number: int) -> None:
        """Apply the group's transactions up to `number`, all of which are durable."""
        if not any(pending <= number for pending in shard.group(group_id).transactions.pending):
            return
        group = self._groups.get(group_id)
        if group is None or group.shard is not shard:
            group = self._groups[group_id] = self._applier(shard, group_id)
        group.apply_up_to(number)

    def _applier(self, shard: Shard, group_id: str) -> Applier:
        def ended(applier: Applier) -> None:
            if self._groups.get(group_id) is applier:
                del self._groups[group_id]

        return Applier(
            self._cluster,
            self._append,
            self._buffer,
            shard,
            group_id,
            on_event=self._on_event,
            on_marked=self._on_marked,
            ended=ended,
        )

    def _mark(self, group_id: str) -> None:
        group = self._groups.get(group_id)
        if group is not None:
            group.mark()

    def _on_marked(self, shard: Shard, group_id: str, files: Sequence[StagedFile]) -> None:
        if group_id == shard.ids:  # others may have records in them
            unused = {*shard.open.release(files)}
            files = [file for file in dict.fromkeys(files) if file.path in unused]
        self._spent |= {file.path for file in files}
        keep_s = self._keep_staged_s()
        tasks = self._keeping if keep_s else self._tasks
        tasks.start(self._delete_applied(shard, group_id, files, keep_s)).add_done_callback(retrieve)

    async def _delete_applied(
        self, shard: Shard, group_id: str, files: Sequence[StagedFile], keep_s: float
    ) -> None:
        with suppress(LakelogError):  # the files stay for the next coordinator, or for a vacuum
            await shard.wait_durable(group_id)
            await asyncio.sleep(keep_s)
            shard.check_leading()
            await self._delete(files)
        self._forget_gone({file.path for file in files})

    async def _delete(self, files: Iterable[StagedFile]) -> None:
        """Delete staged files that nothing names; a vacuum deletes those that remain."""
        with suppress(LakelogError):
            await asyncio.to_thread(staging.delete, self._cluster.store, files)

    def _in_background(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = self._tasks.start(work)
        task.add_done_callback(retrieve)  # a caller that still waits has its error
        return task


def _planned(parts: Iterable[PartitionRecords]) -> tuple[StagedFile, ...]:
    """The staged files that `parts` will become, without offsets: enough for the checks."""
    runs = tuple(StagedRun(part.topic, part.topic_id, part.partition, 0, 0, 0) for part in parts)
    return (StagedFile("", runs),) if runs else ()


def _unplaced(staged: Iterable[StagedFile]) -> tuple[AppendedRange, ...]:
    counts: dict[tuple[str, int], int] = {}
    for run in (run for file in staged for run in file.runs):
        at = (run.topic, run.partition)
        counts[at] = counts.get(at, 0) + run.records
    return tuple(AppendedRange(topic, partition, count) for (topic, partition), count in counts.items())
