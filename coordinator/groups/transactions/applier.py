"""The committed transactions of a group: appended to each partition, marked so, at last without staged files.

Partitions are independent of one another: each has an `AppendQueue`, whose commands are done here.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import pyarrow as pa

from coordinator.groups.events import Applied
from coordinator.groups.shard import Shard
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
    LossGivenUp,
    LossNoted,
    PartitionAppend,
    ProducerSeen,
    Queued,
    Report,
    Tick,
    TopicGone,
    Wait,
    appends_of,
)
from coordinator.groups.transactions.append_queue import AppendQueue, step
from coordinator.groups.transactions.pending_transaction import PendingTransaction, PlacedFuture
from ingest.buffer import Buffer, Room
from ingest.writer import Acks, AppendOutcome
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import Intent
from log_tables.cluster.topic import Topic
from log_tables.errors import Conflict, CorruptSegment, LakelogError, NotLeader
from log_tables.limits import MIB, SEQUENCE_MODULUS, STAGED_BATCH_BYTES
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.segments.staging import StagedFile, StagedRun, read_run
from log_tables.store.store import Store
from log_tables.topic_partition import TopicIdPartition

APPLIES_AT_ONCE = 16
"""Partitions to which the transactions of one group are applied at a time: one transaction over thousands
must not hold up other groups, nor other work in threads.
"""

APPLY_WAIT_S = 10.0
"""How long an answer waits until the records are appended; they are committed all the same."""

MARK_AFTER_S = 0.2
"""How long after it was applied a transaction is marked so, unless another one of the group comes first: the
other's append marks both."""

READ_AT_ONCE, READ_BYTES = 16, 1 * MIB
"""Runs of a partition that are read at the same time, if they have no more bytes together."""

_reading = ThreadPoolExecutor(2 * READ_AT_ONCE, thread_name_prefix="staged-runs")

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
    position, intent, begun = 0, append.intent, 0
    while begun < len(append.runs) and position + append.runs[begun][1].records <= append.durable:
        position += append.runs[begun][1].records
        begun += 1
    for batch in _batches(store, append.runs[begun:]):
        if batch.num_rows and position >= append.durable:
            sequence = position % SEQUENCE_MODULUS
            stamp = ProducerStamp(intent.producer_id, intent.epoch, sequence, kept=True)
            yield AppendRequest(batch, stamp, author=intent.author)
        position += batch.num_rows


def _batches(store: Store, runs: Sequence[tuple[StagedFile, StagedRun]]) -> Iterator[pa.RecordBatch]:
    """The records of `runs`, in order. Small runs are read at the same time: a transaction of small requests
    has many, each in a file of its own, and an object store takes a while for each.
    """
    start = 0
    while start < len(runs):
        end, size = start + 1, runs[start][1].length
        while end < min(len(runs), start + READ_AT_ONCE) and size + runs[end][1].length <= READ_BYTES:
            size += runs[end][1].length
            end += 1
        if end == start + 1:
            yield from read_run(store, *runs[start])
        else:
            coming = [_reading.submit(_whole, store, *each) for each in runs[start:end]]
            for each in coming:
                yield from each.result()
        start = end


def _whole(store: Store, staged: StagedFile, run: StagedRun) -> list[pa.RecordBatch]:
    return [*read_run(store, staged, run)]


class _Line:
    """The records on their way to one partition: their queue, and the transactions that they are of."""

    def __init__(self, store: Store) -> None:
        self.queue = AppendQueue()
        self.reader = StagedReader(store)
        self.pending: dict[int, PendingTransaction] = {}
        self.task: asyncio.Task[None] | None = None


class Applier:
    """The transactions of one group, while one shard coordinates it. Used on the event loop."""

    def __init__(
        self,
        cluster: Cluster,
        append: RouterAppend,
        buffer: Buffer,
        shard: Shard,
        group_id: str,
        *,
        on_event: Callable[[str], None],
        on_marked: Callable[[Shard, str, Sequence[StagedFile]], None],
        ended: Callable[["Applier"], None],
    ) -> None:
        """`on_event` is called with "applied"; and for a part with "dropped" when its topic is deleted or it
        is given up, with "lost" when it cannot be appended. `on_marked` is called with the staged files of
        transactions that are marked as applied, `ended` when none is under way any longer.
        """
        self._cluster, self._append, self._buffer = cluster, append, buffer
        self.shard, self._group_id = shard, group_id
        self._on_event, self._on_marked, self._ended = on_event, on_marked, ended
        self._lines: dict[TopicIdPartition, _Line] = {}
        self._turn = asyncio.Semaphore(APPLIES_AT_ONCE)
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
                self._begin(pending, intent)

    def _begin(self, number: int, intent: Intent) -> None:
        """Append the staged records of a transaction, in each partition after those of earlier ones."""
        appends = appends_of(number, intent)
        begun = self._under_way[number] = PendingTransaction(appends.keys())
        for at, append in appends.items():
            line = self._lines.setdefault(at, _Line(self._cluster.store))
            line.pending[number] = begun
            begun.set_loss(at, line.queue.loss)
            self._happen(at, line, Queued(append))
            if line.task is None:
                line.task = asyncio.create_task(self._run(at, line))
        begun.done.add_done_callback(partial(self._on_applied, number, begun))

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
        lost = next((line.queue.loss for line in self._lines.values() if line.queue.loss is not None), None)
        if lost is not None:
            if not force:
                raise Conflict(
                    f"a transaction of the group {self._group_id!r} cannot be applied: {lost}; "
                    "or delete the group with force, which drops what is lost"
                )
            for at, line in [*self._lines.items()]:
                self._happen(at, line, LossGivenUp())
            await asyncio.wait([each.done for each in self._under_way.values()], timeout=APPLY_WAIT_S)
        self.mark()

    async def close(self) -> None:
        """Stop, and leave pending transactions to the next coordinator of the group."""
        lines = [*self._lines.items()]
        tasks = [line.task for _, line in lines if line.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for at, line in lines:
            self._happen(at, line, LeadershipLost())

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

    # One partition.

    def _happen(self, at: TopicIdPartition, line: _Line, event: Event) -> None:
        """Apply `event` to the queue, and tell the transactions and metrics what it reports."""
        line.queue, reports = step(line.queue, event)
        for report in reports:
            self._tell(at, line, report)

    async def _run(self, at: TopicIdPartition, line: _Line) -> None:
        try:
            while (command := line.queue.command) is not None:
                leading = self.shard.leading
                self._happen(
                    at, line, await self._outcome(at, line, command) if leading else LeadershipLost()
                )
        finally:
            del self._lines[at]

    async def _outcome(self, at: TopicIdPartition, line: _Line, command: Command) -> Event:
        try:
            match command:
                case Wait():
                    await asyncio.sleep(command.seconds)
                    return Tick()
                case Append():
                    return await self._append_next(at, line, command.refresh)
                case FetchProducer():
                    return await self._fetch_producer(at, command.producer_id)
        except LakelogError as error:
            _log.warning("applying a transaction to %s: %s", at, error)
        except Exception:  # noqa: BLE001 -- logged; no other process would apply it
            _log.exception("applying a transaction to %s failed", at)
        return AppendFailed()

    async def _append_next(self, at: TopicIdPartition, line: _Line, refresh: bool) -> Event:
        """Raises NotLeader, StoreUnavailable, BufferFull."""
        topic = await self._find_topic(at, refresh)
        if topic is None:
            return TopicGone()
        async with self._turn:
            try:
                requests = await asyncio.to_thread(line.reader.read, line.queue.appends)
            except CorruptSegment as error:
                await self._check_leading()  # the next coordinator may have deleted the file
                return FileLost(error)
            with self._buffer.room(topic.name) as room:
                room.grow(sum(request.size_bytes for request in requests))
                entries = [(at.partition, request) for request in requests]
                outcomes = await self._append(topic, entries, Acks.ALL, room)
        refusal = next((outcome for outcome in outcomes if isinstance(outcome, LakelogError)), None)
        if refusal is not None and not isinstance(refusal, Conflict):  # what becomes of those is reported
            _log.warning("applying a transaction to %s: %s", at, refusal)
        return Answered(outcomes)

    async def _fetch_producer(self, at: TopicIdPartition, producer_id: int) -> Event:
        """Raises NotLeader, StoreUnavailable, Damaged."""
        topic = await self._find_topic(at, refresh=False)
        if topic is None:
            return TopicGone()
        async with self._turn:
            partition = topic.partition(at.partition)
            snapshot = await asyncio.to_thread(partition.refresh, True)
            await self._check_leading()
        newest_epoch = self.shard.group(self._group_id).transactions.newest_epoch(producer_id)
        return ProducerSeen(snapshot.producer(producer_id), newest_epoch)

    async def _check_leading(self) -> None:
        """Look for another coordinator. Raises NotLeader, StoreUnavailable."""
        await asyncio.to_thread(self.shard.refresh, wait=True)
        self.shard.check_leading()

    async def _find_topic(self, at: TopicIdPartition, refresh: bool) -> Topic | None:
        """The topic; None when it is deleted, or re-created. Raises StoreUnavailable."""
        if refresh or self._topic(at) is None:
            await asyncio.to_thread(self._cluster.refresh)
        return self._topic(at)

    def _topic(self, at: TopicIdPartition) -> Topic | None:
        found = self._cluster.cached_topic(at.topic)
        return found if found is not None and found.topic_id == at.topic_id else None

    def _tell(self, at: TopicIdPartition, line: _Line, report: Report) -> None:
        match report:
            case Finished():
                if report.dropped:
                    _log.warning("records of a transaction for %s are dropped: %s", at, report.dropped)
                    self._on_event("dropped")
                line.pending.pop(report.append.number).finish(at, report.append)
            case LossNoted():
                if report.loss is not None:
                    _log.error("a committed transaction cannot be applied: %s", report.loss)
                    self._on_event("lost")
                for pending in line.pending.values():
                    pending.set_loss(at, report.loss)
            case Left():
                line.pending.pop(report.append.number).leave()
