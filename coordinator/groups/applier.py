"""Appending the records of committed transactions, in each partition by transaction number, exactly once.

The producer of a group's transactions appends with a transaction's number as its epoch, and the sequences of
a partition count from 0. So a repeated append, after a failure or by another process, writes nothing twice.
An append with an older epoch than the partition has seen was made long ago, if the group has committed so
many. Any other reason that keeps records of a committed transaction from their partition is raised to the
clients that wait for it, and nothing is given up before a client deletes the group by force.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from ingest.buffer import Buffer, Room
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.clock import Backoff
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import AppendedRange, Intent
from log_tables.cluster.topic import Topic
from log_tables.errors import (
    Conflict,
    CorruptSegment,
    LakelogError,
    Retriable,
    StaleProducerEpoch,
    TransactionLost,
)
from log_tables.limits import SEQUENCE_MODULUS, STAGED_BATCH_BYTES
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.segments.staging import StagedFile, StagedRun, read_run
from log_tables.store.store import Store
from log_tables.topic_partition import TopicIdPartition

APPLIES_AT_ONCE = 16
"""Partitions to which the transactions of one group are applied at a time: one transaction over thousands
must not hold up other groups, nor other work in threads.
"""

BACKOFF = Backoff(0.05, max_s=5.0)
"""The pause between two attempts, which grows from the first to the second."""

Append = Callable[[Topic, Sequence[tuple[int, AppendRequest]], Acks, Room], Awaitable[list[AppendOutcome]]]
PlacedFuture = asyncio.Future[tuple[AppendedRange, ...] | None]
"""The ranges of a transaction's records, once appended; None when another process has to append them."""

Loss = CorruptSegment | TransactionLost
"""Why records of a committed transaction cannot be appended as things stand."""


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApplierContext:
    """The dependencies of an applier.

    `leading` says whether this process still coordinates the group. `newest_epoch` returns the newest epoch
    with which the group has used a producer; it raises NotLeader, StoreUnavailable. `on_event` is called with
    "dropped" for a part whose topic is deleted, and with "lost" for one that cannot be appended.
    """

    cluster: Cluster
    append: Append
    buffer: Buffer
    leading: Callable[[], bool]
    newest_epoch: Callable[[int], Awaitable[int]]
    on_event: Callable[[str], None]
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(APPLIES_AT_ONCE))


@dataclass(slots=True)
class PendingTransaction:
    """A transaction whose records are being appended. `losses` hold it up, by partition. It is `given_up`
    when a client has deleted the group by force, so that lost records are not waited for.
    """

    done: PlacedFuture
    losses: dict[TopicIdPartition, Loss] = field(default_factory=dict)
    given_up: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.done.add_done_callback(lambda _: self._changed.set())

    async def placed(self) -> tuple[AppendedRange, ...] | None:
        """The ranges of the records, once they are appended; None when another process has to append them.

        Raises CorruptSegment, TransactionLost while they cannot be appended.
        """
        while not self.done.done():
            await self._changed.wait()
            for loss in self.losses.values():
                raise loss
        return self.done.result()

    def set_loss(self, at: TopicIdPartition, loss: Loss | None) -> None:
        """Set why the records for a partition, and those behind them, cannot be appended; None: they can."""
        if loss is not None:
            self.losses[at] = loss
            self._changed.set()
        elif self.losses.pop(at, None) and not self.losses and not self.done.done():
            self._changed.clear()


@dataclass(slots=True)
class _PartitionAppend:
    """The records of one transaction for one partition: how many requests are read, and how many durable."""

    intent: Intent
    runs: list[tuple[StagedFile, StagedRun]]
    finish: Callable[["_PartitionAppend"], None]
    placed: list[AppendedRange] = field(default_factory=list)
    read: int = 0
    durable: int = 0
    read_whole: bool = False
    given_up: bool = False

    @property
    def finished(self) -> bool:
        return self.read_whole and self.durable == self.read

    def add_durable(self, base_offset: int | None, count: int) -> None:
        """The next request is durable."""
        self.durable += 1
        topic, partition = self.runs[0][1].topic, self.runs[0][1].partition
        last = self.placed[-1] if self.placed else None
        if last is not None and _follows(last, base_offset):
            self.placed[-1] = AppendedRange(topic, partition, last.count + count, last.base_offset)
        else:
            self.placed.append(AppendedRange(topic, partition, count, base_offset))


def _follows(last: AppendedRange, base_offset: int | None) -> bool:
    if last.base_offset is None or base_offset is None:
        return last.base_offset is base_offset
    return last.base_offset + last.count == base_offset


def _entries(store: Store, part: _PartitionAppend) -> Iterator[AppendRequest]:
    """The append requests of a part, the same ones every time. Blocking."""
    sequence, intent = 0, part.intent
    for staged, run in part.runs:
        for batch in read_run(store, staged, run):
            yield AppendRequest(batch, ProducerStamp(intent.producer_id, intent.epoch, sequence, kept=True))
            sequence = (sequence + batch.num_rows) % SEQUENCE_MODULUS


class Applier:
    """The transactions of one group, while one process coordinates it. Used on the event loop."""

    def __init__(self, context: ApplierContext) -> None:
        self._context = context
        self._queues: dict[TopicIdPartition, _PartitionQueue] = {}

    def begin(self, intent: Intent) -> PendingTransaction:
        """Append the staged records of a transaction, in each partition after those of earlier calls."""
        done: PlacedFuture = asyncio.get_running_loop().create_future()
        applying = PendingTransaction(done)
        runs: dict[TopicIdPartition, list[tuple[StagedFile, StagedRun]]] = {}
        for staged in intent.staged:
            for run in staged.runs:
                at = TopicIdPartition(run.topic, run.topic_id, run.partition)
                runs.setdefault(at, []).append((staged, run))
        placed: dict[TopicIdPartition, list[AppendedRange]] = {}

        def finish(at: TopicIdPartition, part: _PartitionAppend) -> None:
            placed[at] = part.placed
            applying.given_up |= part.given_up
            if len(placed) == len(runs) and not done.done():
                done.set_result(tuple(found for at in runs for found in placed[at]))

        for at, listed in runs.items():
            self._queue_for(at).add(_PartitionAppend(intent, listed, partial(finish, at)), applying)
        return applying

    @property
    def lost(self) -> Loss | None:
        """Why some transaction cannot be applied, if one cannot."""
        return next((queue.lost for queue in self._queues.values() if queue.lost is not None), None)

    def drop_lost(self) -> None:
        """Give up records that cannot be appended, so that the rest is."""
        for queue in self._queues.values():
            queue.dropping = True

    async def close(self) -> None:
        """Stop, and leave pending transactions to the next coordinator of the group."""
        await asyncio.gather(*(queue.close() for queue in [*self._queues.values()]))

    def _queue_for(self, at: TopicIdPartition) -> "_PartitionQueue":
        queue = self._queues.get(at)
        if queue is None:
            queue = self._queues[at] = _PartitionQueue(self._context, at, lambda: self._queues.pop(at, None))
        return queue


class _PartitionQueue:
    """The parts for one partition, appended one after the other; a failure is retried.

    `lost` says why the first part cannot be appended; with `dropping` such a part is given up.
    """

    def __init__(self, context: ApplierContext, at: TopicIdPartition, ended: Callable[[], object]) -> None:
        self._context, self._ended = context, ended
        self._at = self._name, self._topic_id, self._partition = at
        self._parts: deque[_PartitionAppend] = deque()
        self._reading: Iterator[AppendRequest] | None = None
        self._read: deque[tuple[_PartitionAppend, AppendRequest]] = deque()
        self._waiting: list[PendingTransaction] = []
        self._task: asyncio.Task[None] | None = None
        self.lost: Loss | None = None
        self.dropping = False

    def add(self, part: _PartitionAppend, applying: PendingTransaction) -> None:
        self._parts.append(part)
        self._waiting = [waiting for waiting in self._waiting if not waiting.done.done()]
        self._waiting.append(applying)
        applying.set_loss(self._at, self.lost)
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._give_up()

    async def _run(self) -> None:
        pause_s, failed = BACKOFF.first_s, False
        while self._parts and self._context.leading():
            try:
                if await self._is_gone(failed):
                    self._drop_all()
                    continue
                async with self._context.turn:
                    lost = await asyncio.to_thread(self._read_batch, [*self._parts]) or await self._append()
                self._set_loss(lost)
                if lost is None or self.dropping:
                    if lost is not None:
                        self._drop_lost(lost)
                    self.dropping = lost is not None
                    pause_s, failed = BACKOFF.first_s, False
                    continue
            except LakelogError as error:
                _log.warning("applying a transaction to %s-%d: %s", self._name, self._partition, error)
            except Exception:  # noqa: BLE001 -- logged; no other process would apply it
                _log.exception("applying a transaction to %s-%d failed", self._name, self._partition)
            failed = True
            await asyncio.sleep(pause_s)
            pause_s = BACKOFF.after(pause_s)
        self._give_up()

    def _give_up(self) -> None:
        """Stop: nothing is left, or another process has to append the rest."""
        self._ended()
        if self._parts:
            for waiting in self._waiting:
                if not waiting.done.done():
                    waiting.done.set_result(None)

    def _set_loss(self, lost: Loss | None) -> None:
        """Tell all waiting clients whether the first part can be appended; log and count a loss once."""
        if lost is self.lost is None:
            return
        if lost is not None and self.lost is None:
            _log.error("a committed transaction cannot be applied: %s", lost)
            self._context.on_event("lost")
        self.lost = lost
        for waiting in self._waiting:
            waiting.set_loss(self._at, lost)

    def _topic(self) -> Topic | None:
        found = self._context.cluster.cached_topic(self._name)
        return found if found is not None and found.topic_id == self._topic_id else None

    async def _is_gone(self, look: bool) -> bool:
        """Whether the topic is deleted, or re-created. Raises StoreUnavailable."""
        if look or self._topic() is None:
            await asyncio.to_thread(self._context.cluster.refresh)
        return self._topic() is None

    def _drop_lost(self, why: LakelogError) -> None:
        """Give up the rest of the first part."""
        self._finish()  # the parts before it
        _log.warning("a transaction's records for %s-%d are dropped: %s", self._name, self._partition, why)
        self._context.on_event("dropped")
        part = self._parts.popleft()
        part.given_up = True
        if not part.read_whole:
            self._reading = None
        self._read = deque((of, entry) for of, entry in self._read if of is not part)
        part.finish(part)

    def _drop_all(self) -> None:
        for part in self._parts:
            _log.warning(
                "a transaction's records for %s-%d are dropped: the topic was deleted",
                self._name,
                self._partition,
            )
            self._context.on_event("dropped")
            part.placed.clear()
            part.finish(part)
        self._parts.clear()
        self._read.clear()
        self._reading = None

    def _read_batch(self, parts: Sequence[_PartitionAppend]) -> CorruptSegment | None:
        """Read entries until there are STAGED_BATCH_BYTES of them, or no more in `parts`. Blocking.

        Returns the error when not even one could be read, because its staged file is lost. Raises
        StoreUnavailable.
        """
        size = sum(entry.size_bytes for _, entry in self._read)
        for part in parts:
            while not part.read_whole:
                if size >= STAGED_BATCH_BYTES:
                    return None
                try:
                    size += self._read_one(part)
                except CorruptSegment as error:
                    return None if self._read else error
        return None

    def _read_one(self, part: _PartitionAppend) -> int:
        """Read the next request of `part`, if there is one; returns its size in bytes."""
        if self._reading is None:
            entries = _entries(self._context.cluster.store, part)
            self._reading = islice(entries, part.read, None)
        try:
            entry = next(self._reading, None)
        except BaseException:
            self._reading = None
            raise
        if entry is None:
            part.read_whole, self._reading = True, None
            return 0
        part.read += 1
        self._read.append((part, entry))
        return entry.size_bytes

    async def _append(self) -> TransactionLost | None:
        """Append the requests that are read, up to the first one that was appended before: those behind it
        were refused with it. Returns why the first can never be appended; raises any other error.
        """
        topic = self._topic()
        entries = [(self._partition, entry) for _, entry in self._read]
        if topic is None or not entries:
            self._finish()
            return None
        with self._context.buffer.room(self._name) as room:
            room.grow(sum(entry.size_bytes for _, entry in entries))
            outcomes = await self._context.append(topic, entries, Acks.ALL, room)
        for outcome in outcomes:
            if isinstance(outcome, StaleProducerEpoch):
                return await self._skip_durable(topic)
            if isinstance(outcome, Conflict):
                return self._lost(outcome.message)
            if not isinstance(outcome, Appended):
                raise outcome
            self._mark_durable(outcome.base_offset, outcome.count)
        return None

    def _mark_durable(self, base_offset: int | None, count: int) -> None:
        """The first request that is read is durable."""
        part, _ = self._read.popleft()
        part.add_durable(base_offset, count)
        self._finish()

    def _finish(self) -> None:
        while self._parts and self._parts[0].finished:
            part = self._parts.popleft()
            part.finish(part)

    def _lost(self, why: str) -> TransactionLost:
        intent = self._read[0][0].intent
        files = ", ".join(staged.path for staged in intent.staged)
        return TransactionLost(
            f"records of a committed transaction (epoch {intent.epoch}) are not in {self._name}-"
            f"{self._partition}: {why}; they stay in {files} until the group is deleted by force"
        )

    async def _skip_durable(self, topic: Topic) -> TransactionLost | None:
        """Skip the requests that were appended long ago: a later transaction of the group is durable in the
        partition, and so are all before it. For every append of a group begins with the first request that
        its sender does not know to be durable, and requests behind a refused one are refused.

        That holds only for a number that the group has committed; for others the loss is returned. Raises
        Retriable when the later transaction is only sequenced, by another process: it may fail.
        """
        first = self._read[0][0].intent
        partition = topic.partition(self._partition)
        snapshot = await asyncio.to_thread(partition.refresh, True)
        state = snapshot.producer(first.producer_id)
        if state is None or state.epoch <= first.epoch:
            raise Retriable("a later transaction is under way to the partition; look again")
        newest = await self._context.newest_epoch(first.producer_id)
        if not state.kept or state.epoch > newest:
            return self._lost(
                f"its producer was used with epoch {state.epoch}, the group's newest is {newest}"
            )
        while self._read:
            part, entry = self._read[0]
            if part.intent.producer_id != first.producer_id or part.intent.epoch >= state.epoch:
                break
            self._mark_durable(None, entry.batch.num_rows)
        return None
