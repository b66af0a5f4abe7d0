"""The I/O around an append queue: it reads staged records, appends them, and tells the transactions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from coordinator.groups.append_events import (
    Answered,
    Append,
    AppendFailed,
    Command,
    Event,
    FetchProducer,
    FileLost,
    Finished,
    LeadershipLost,
    Left,
    Loss,
    LossNoted,
    ProducerSeen,
    Queued,
    Report,
    Tick,
    TopicGone,
    Wait,
)
from coordinator.groups.append_queue import AppendQueue, step
from coordinator.groups.partition_append import PartitionAppend
from coordinator.groups.pending_transaction import PendingTransaction
from coordinator.groups.staged_reader import StagedReader
from ingest.buffer import Buffer, Room
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import Conflict, CorruptSegment, LakelogError
from log_tables.partition.partition import AppendRequest
from log_tables.topic_partition import TopicIdPartition

APPLIES_AT_ONCE = 16
"""Partitions to which the transactions of one group are applied at a time: one transaction over thousands
must not hold up other groups, nor other work in threads.
"""

RouterAppend = Callable[
    [Topic, Sequence[tuple[int, AppendRequest]], Acks, Room], Awaitable[list[AppendOutcome]]
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ApplierContext:
    """The dependencies of an applier.

    `leading` says whether this process still coordinates the group, as far as it knows; `check_leading` looks
    for another one, and raises NotLeader, StoreUnavailable. `newest_epoch` is the newest epoch with which the
    group has used a producer, as of then. `on_event` is called with "dropped" for a part whose topic is
    deleted or that is given up, and with "lost" for one that cannot be appended.
    """

    cluster: Cluster
    append: RouterAppend
    buffer: Buffer
    leading: Callable[[], bool]
    check_leading: Callable[[], Awaitable[None]]
    newest_epoch: Callable[[int], int]
    on_event: Callable[[str], None]
    turn: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(APPLIES_AT_ONCE))


class PartitionApplier:
    """Has the commands of one append queue done, and tells the transactions what it reports."""

    def __init__(
        self,
        context: ApplierContext,
        at: TopicIdPartition,
        ended: Callable[[TopicIdPartition], object],
    ) -> None:
        """`ended` is called when nothing is left to do."""
        self._context, self._at, self._ended = context, at, ended
        self._queue = AppendQueue()
        self._reader = StagedReader(context.cluster.store)
        self._pending: dict[int, PendingTransaction] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def lost(self) -> Loss | None:
        """Why the first append cannot go on, if it cannot."""
        return self._queue.loss

    def add(self, append: PartitionAppend, pending: PendingTransaction) -> None:
        """Append these records of a transaction after those that were added before."""
        self._pending[append.number] = pending
        pending.set_loss(self._at, self._queue.loss)
        self.happen(Queued(append))
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def happen(self, event: Event) -> None:
        """Apply `event` to the queue, and tell of it."""
        self._queue, reports = step(self._queue, event)
        for report in reports:
            self._tell(report)

    async def close(self) -> None:
        """Stop, and leave the rest to another process."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.happen(LeadershipLost())

    async def _run(self) -> None:
        try:
            while (command := self._queue.command) is not None:
                leading = self._context.leading()
                self.happen(await self._outcome(command) if leading else LeadershipLost())
        finally:
            self._ended(self._at)

    async def _outcome(self, command: Command) -> Event:
        try:
            match command:
                case Wait():
                    await asyncio.sleep(command.seconds)
                    return Tick()
                case Append():
                    return await self._append(command.refresh)
                case FetchProducer():
                    return await self._fetch_producer(command.producer_id)
        except LakelogError as error:
            _log.warning("applying a transaction to %s: %s", self._at, error)
        except Exception:  # noqa: BLE001 -- logged; no other process would apply it
            _log.exception("applying a transaction to %s failed", self._at)
        return AppendFailed()

    async def _append(self, refresh: bool) -> Event:
        """Raises NotLeader, StoreUnavailable, BufferFull."""
        topic = await self._find_topic(refresh)
        if topic is None:
            return TopicGone()
        async with self._context.turn:
            try:
                requests = await asyncio.to_thread(self._reader.read, self._queue.appends)
            except CorruptSegment as error:
                await self._context.check_leading()  # the next coordinator may have deleted the file
                return FileLost(error)
            with self._context.buffer.room(topic.name) as room:
                room.grow(sum(request.size_bytes for request in requests))
                entries = [(self._at.partition, request) for request in requests]
                outcomes = await self._context.append(topic, entries, Acks.ALL, room)
        refusal = next((outcome for outcome in outcomes if isinstance(outcome, LakelogError)), None)
        if refusal is not None and not isinstance(refusal, Conflict):  # what becomes of those is reported
            _log.warning("applying a transaction to %s: %s", self._at, refusal)
        return Answered(outcomes)

    async def _fetch_producer(self, producer_id: int) -> Event:
        """Raises NotLeader, StoreUnavailable, Damaged."""
        topic = await self._find_topic(refresh=False)
        if topic is None:
            return TopicGone()
        async with self._context.turn:
            partition = topic.partition(self._at.partition)
            snapshot = await asyncio.to_thread(partition.refresh, True)
            await self._context.check_leading()
        return ProducerSeen(snapshot.producer(producer_id), self._context.newest_epoch(producer_id))

    async def _find_topic(self, refresh: bool) -> Topic | None:
        """The topic; None when it is deleted, or re-created. Raises StoreUnavailable."""
        if refresh or self._topic() is None:
            await asyncio.to_thread(self._context.cluster.refresh)
        return self._topic()

    def _topic(self) -> Topic | None:
        found = self._context.cluster.cached_topic(self._at.topic)
        return found if found is not None and found.topic_id == self._at.topic_id else None

    def _tell(self, report: Report) -> None:
        match report:
            case Finished():
                if report.dropped:
                    _log.warning("records of a transaction for %s are dropped: %s", self._at, report.dropped)
                    self._context.on_event("dropped")
                self._pending.pop(report.append.number).finish(self._at, report.append)
            case LossNoted():
                if report.loss is not None:
                    _log.error("a committed transaction cannot be applied: %s", report.loss)
                    self._context.on_event("lost")
                for pending in self._pending.values():
                    pending.set_loss(self._at, report.loss)
            case Left():
                self._pending.pop(report.append.number).leave()
