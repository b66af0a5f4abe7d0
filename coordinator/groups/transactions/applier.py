"""Appending the records of committed transactions to their partitions, independently of one another."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from coordinator.groups.transactions.append_events import (
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
    LossGivenUp,
    LossNoted,
    ProducerSeen,
    Queued,
    Report,
    Tick,
    TopicGone,
    Wait,
)
from coordinator.groups.transactions.append_queue import AppendQueue, step
from coordinator.groups.transactions.partition_append import PartitionAppend, appends_of
from coordinator.groups.transactions.pending_transaction import PendingTransaction
from ingest.buffer import Buffer, Room
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Intent
from log_tables.cluster.topic import Topic
from log_tables.errors import Conflict, CorruptSegment, LakelogError
from log_tables.limits import SEQUENCE_MODULUS, STAGED_BATCH_BYTES
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.segments.staging import read_run
from log_tables.store.store import Store
from log_tables.topic_partition import TopicIdPartition

APPLIES_AT_ONCE = 16
"""Partitions to which the transactions of one group are applied at a time: one transaction over thousands
must not hold up other groups, nor other work in threads.
"""

RouterAppend = Callable[
    [Topic, Sequence[tuple[int, AppendRequest]], Acks, Room], Awaitable[list[AppendOutcome]]
]

_log = logging.getLogger(__name__)


class StagedReader:
    """Reads the staged records of one partition as the requests that append them, equal at every read.

    A read goes on where the last one ended, if it begins there.
    """

    def __init__(self, store: Store, batch_bytes: int = STAGED_BATCH_BYTES) -> None:
        """A read ends with the request that makes it `batch_bytes` or more."""
        self._store, self._batch_bytes = store, batch_bytes
        self._number, self._position = 0, 0
        self._requests: Iterator[AppendRequest] | None = None

    def read(self, appends: Sequence[PartitionAppend]) -> list[AppendRequest]:
        """The next requests of `appends`, in order, from the first record that is not durable on. Blocking.

        Raises CorruptSegment when not even one can be read, because its staged file is lost;
        StoreUnavailable.
        """
        found: list[AppendRequest] = []
        size = 0
        try:
            for append in appends:
                for request in self._requests_of(append):
                    found.append(request)
                    size += request.size_bytes
                    self._position += request.count
                    if size >= self._batch_bytes:
                        return found
        except BaseException as error:
            self._requests = None
            if not found or not isinstance(error, CorruptSegment):
                raise
        return found

    def _requests_of(self, append: PartitionAppend) -> Iterator[AppendRequest]:
        if self._requests is None or (self._number, self._position) != (append.number, append.durable):
            self._number, self._position = append.number, append.durable
            self._requests = _requests(self._store, append)
        return self._requests


def _requests(store: Store, append: PartitionAppend) -> Iterator[AppendRequest]:
    """The requests from the first record that is not durable on."""
    position, intent = 0, append.intent
    for staged, run in append.runs:
        if position + run.records <= append.durable:
            position += run.records
            continue
        for batch in read_run(store, staged, run):
            if batch.num_rows and position >= append.durable:
                sequence = position % SEQUENCE_MODULUS
                yield AppendRequest(
                    batch, ProducerStamp(intent.producer_id, intent.epoch, sequence, kept=True)
                )
            position += batch.num_rows


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
