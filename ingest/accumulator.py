"""The records of one partition: sequenced as they come, committed in batches.

While one commit is in flight the next batch fills. A batch is sealed when `linger_ms` has passed since its
first record, or `batch_size` is reached, the partition's commit bucket has a token, and the budget of all
commits has something left. A full batch does not wait for the budget: gathering would not make it cheaper.
Nor does one linger in which a transaction ends: its client sends nothing more until it is answered.

While too many files of the partition wait for a merge, its batches gather longer (ingest/merge_debt.py).
Committed transactions, hand-overs and the end of the process stand outside of this and of the budget.

All that wait for one commit wait for one future, because to resolve and call back one for each entry costs
more than to sequence it. So nobody awaits it directly: a task that is cancelled cancels what it awaits.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import Context
from dataclasses import dataclass, field

from ingest.commit_budget import CommitBucket, CommitBudget
from ingest.merge_debt import MergeDebt
from ingest.periodic_task import FailureLog
from ingest.request_trace import CURRENT, RequestTrace, Span
from log_tables.clock import Clock
from log_tables.errors import LakelogError, NotLeader, OutcomeUnknown
from log_tables.limits import BATCH_MAX_BYTES
from log_tables.partition.partition import AppendRequest, Partition, SequencedAppend

TRACES_MAX = 32
"""Requests that the span of their commit names."""


@dataclass(slots=True, eq=False)
class _Batch:
    """The entries of one commit, at least one: of one term of leadership, up to BATCH_MAX_BYTES.

    The first one `arrived` then. One that is `prompt` lets none linger, and one of a committed transaction
    lets all stand `outside` of the budget. `traces` are those of the first requests, where traces are kept.
    """

    term: int
    arrived: float
    done: "asyncio.Future[int | None]"
    entries: list[SequencedAppend] = field(default_factory=list)
    size_bytes: int = 0
    outside: bool = False
    prompt: bool = False
    traces: list[RequestTrace] = field(default_factory=list)

    def takes(self, term: int, size_bytes: int) -> bool:
        """Whether an entry belongs to this batch."""
        return self.term == term and self.size_bytes + size_bytes <= BATCH_MAX_BYTES

    def add(self, sequenced: SequencedAppend, size_bytes: int) -> None:
        self.entries.append(sequenced)
        self.size_bytes += size_bytes
        self.outside = self.outside or sequenced.request.of_transaction
        self.prompt = self.prompt or self.outside or sequenced.request.prompt

    def fail(self, error: LakelogError) -> None:
        self.done.set_exception(error)
        self.done.exception()  # asyncio would log it if nobody waits any more


BeginCommit = Callable[[Sequence[RequestTrace], int, int], Span]
"""Begins the span of a commit: for these requests, at least one, of so many records and bytes."""

Authored = Callable[[Sequence[SequencedAppend]], None]
"""Is called with the appends of a commit that is durable, in the order of their offsets, before any of them
is answered; some may be repeats.
"""

Ticket = tuple[SequencedAppend, "asyncio.Future[int | None]"]
"""An entry's place, and what is done when it is durable, with the append's time in microseconds if any.

Others wait for the same future: `asyncio.shield` it.
"""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """When a batch is sealed: seconds after its first record, or bytes."""

    linger_s: float
    batch_size: int


class Accumulator:
    """Gathers and commits the records of one partition. Used on the event loop; commits run in `executor`."""

    def __init__(
        self,
        partition: Partition,
        limits: BatchLimits,
        bucket: CommitBucket,
        clock: Clock,
        executor: Executor,
        sealed: Callable[[], None],
        committed: Callable[[int, float], None],
        budget: CommitBudget | None = None,
    ) -> None:
        """`sealed` is called when a batch is sealed, `committed` with its records and the seconds it took.
        Without a `budget` there is no bound.
        """
        self.partition = partition
        self._limits, self._bucket, self._clock, self._executor = limits, bucket, clock, executor
        self._on_sealed, self._on_committed = sealed, committed
        self._queue: deque[_Batch] = deque()
        self._queued_bytes = 0
        self._budget = budget
        self._turn: asyncio.Future[float] | None = None
        self._spent_s = 0.0
        self._full = False
        self._ripe, self._closing = asyncio.Event(), asyncio.Event()
        self._drain: asyncio.Task[None] | None = None
        self._outside = self._released = False
        self._look: asyncio.Future[bool] | None = None
        self.committing = False
        self.failures = FailureLog()
        """Logs and counts those of taking what maintenance offers."""
        self.begin_commit: BeginCommit | None = None
        """Where traces are kept: begins the span of a commit."""
        self.authored: Authored | None = None
        """Where it is noted who has written what."""
        self.debt: MergeDebt | None = None
        """Where commits gather longer while too many files wait for a merge."""
        self.refused: Callable[[LakelogError], None] = lambda _: None
        """Called with the error of a commit that failed."""
        self._hurry, self._sealed_s = asyncio.Event(), 0.0

    @property
    def leading(self) -> bool:
        """Whether records may be added, as far as this process knows."""
        return self.partition.leading and not self._released

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed."""
        return self._drain is None

    def add(self, entry: AppendRequest, term: int | None = None) -> Ticket:
        """Sequence `entry` now, only in `term` if it is given; its future is done when it is durable.

        Raises what Partition.sequence raises.
        """
        if self._released:
            raise NotLeader("the partition is being handed over; repeat the request")
        sequenced = self.partition.sequence(entry, term)
        size = 0 if sequenced.duplicate else entry.size_bytes
        if not self._queue or not self._queue[-1].takes(sequenced.term, size):
            done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
            self._queue.append(_Batch(sequenced.term, self._clock.monotonic(), done))
        batch = self._queue[-1]
        batch.add(sequenced, size)
        if self.begin_commit is not None and len(batch.traces) < TRACES_MAX:
            trace = CURRENT.get()
            if trace is not None and trace not in batch.traces:
                batch.traces.append(trace)
        self._queued_bytes += size
        self._outside = self._outside or batch.outside
        if self._outside:
            self._hurry.set()
        self._full = self._full or self._queued_bytes >= self._limits.batch_size
        if self._full or batch.prompt:
            self._ripe.set()
        if self._outside or self._full:
            self._wait_no_longer()
        if self._drain is None:
            # For no request: it commits also for those that come later.
            self._drain = asyncio.create_task(self._drain_queue(), context=Context())
        return sequenced, batch.done

    async def flush(self) -> None:
        """Commit all records that wait, at once."""
        self._outside = self._full = True
        self._closing.set()
        self._hurry.set()
        self._ripe.set()
        self._wait_no_longer()
        if self._drain is not None:
            await self._drain

    async def release(self) -> None:
        """Refuse new records, commit those that wait, and stop leading."""
        self._released = True
        await self.flush()
        await asyncio.get_running_loop().run_in_executor(self._executor, self.partition.resign)
        self.failures.forget("offers", self.partition.directory)

    async def _drain_queue(self) -> None:
        try:
            while self._queue:
                await self._until_ripe()
                reserved = await self._until_affordable()
                outside, batch = self._outside, self._seal()
                self.committing = True
                self._on_sealed()
                self._look_for_offer()
                try:
                    await self._commit(batch)
                finally:
                    self._pay(reserved, None if outside else batch)
                # After the answer, and before the next commit: maintenance waits for no gap between them.
                await self._take_offer()
                self.committing = False
        finally:
            self.committing = False
            self._drain = None

    async def _until_ripe(self) -> None:
        linger = self._queue[0].arrived + self._limits.linger_s - self._clock.monotonic()
        await _wait(self._ripe, linger)
        await _wait(self._closing, self._bucket.delay_s())
        if self.debt is not None and not self._outside:
            await _wait(self._hurry, self.debt.pause_s(self.partition, self._sealed_s))

    async def _until_affordable(self) -> float:
        """Wait for the budget, if this batch has to; returns what is reserved for it."""
        if self._budget is None or self._outside or self._full:
            return 0.0
        self._turn = self._budget.ask(self._queue[0].arrived)
        return await self._turn

    def _wait_no_longer(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(0.0)

    def _pay(self, reserved: float, batch: _Batch | None) -> None:
        """Give back what was `reserved`, and pay for the commit of `batch`; None was free."""
        if self._budget is not None and batch is not None:
            self._budget.spend(reserved, self._spent_s, batch.size_bytes)
        elif self._budget is not None:
            self._budget.spend(reserved, 0.0, 0)

    def _seal(self) -> _Batch:
        """Take the next batch."""
        batch = self._queue.popleft()
        self._queued_bytes -= batch.size_bytes
        self._full = self._queued_bytes >= self._limits.batch_size or self._closing.is_set()
        if not self._full and not any(waiting.prompt for waiting in self._queue):
            self._ripe.clear()
        self._outside = self._closing.is_set() or any(waiting.outside for waiting in self._queue)
        if not self._outside:
            self._hurry.clear()
        self._sealed_s = self._clock.monotonic()
        if batch.size_bytes:
            self._bucket.take()
        return batch

    async def _commit(self, batch: _Batch) -> None:
        begin = self._clock.monotonic()
        records = sum(item.count for item in batch.entries if not item.duplicate)
        span = None
        if self.begin_commit is not None and batch.traces:
            span = self.begin_commit(batch.traces, records, batch.size_bytes)
        failed = ""
        try:
            loop = asyncio.get_running_loop()
            append_time = await loop.run_in_executor(self._executor, self._commit_in_thread, batch.entries)
        except LakelogError as error:
            failed = error.code
            self.refused(error)
            self._fail(batch, error)
        except GeneratorExit:
            raise  # the event loop has ended amid the commit: nobody can be told any more
        except BaseException as error:
            failed = type(error).__name__
            self._fail(batch, OutcomeUnknown("the gateway failed while it committed; read before you repeat"))
            raise
        else:
            if records:
                self._on_committed(records, self._clock.monotonic() - begin)
                if self.authored is not None:
                    self.authored(batch.entries)
            batch.done.set_result(append_time)
        finally:
            if span is not None:
                span.end(failed=failed)

    def _look_for_offer(self) -> None:
        """Begin to look while a commit runs, which takes longer: no append waits for it."""
        if self._look is None and self.partition.offer_due:
            self._look = asyncio.get_running_loop().run_in_executor(self._executor, self.partition.has_offer)
            self._look.add_done_callback(_note)

    async def _take_offer(self) -> None:
        if self._look is None or not self._look.done():
            return  # after the next commit; without one its maker needs no help
        look, self._look = self._look, None
        with self.failures.catch("offers", self.partition.directory):
            if look.result():
                await asyncio.get_running_loop().run_in_executor(self._executor, self.partition.take_offer)

    def _commit_in_thread(self, entries: list[SequencedAppend]) -> int | None:
        begin = self._clock.processor_s()
        try:
            return self.partition.commit(entries)
        finally:
            self._spent_s = self._clock.processor_s() - begin

    def _fail(self, batch: _Batch, error: LakelogError) -> None:
        """Fail `batch`, and all that was sequenced after it in the same term of leadership."""
        batch.fail(error)
        # Records that still waited were never put: that is certain, whatever became of the batch.
        certain = isinstance(error, OutcomeUnknown)
        for void in [waiting for waiting in self._queue if waiting.term == batch.term]:
            void.fail(NotLeader("an earlier commit failed; repeat the request") if certain else error)
            self._queue.remove(void)
            self._queued_bytes -= void.size_bytes


def _note(look: "asyncio.Future[bool]") -> None:
    """Note its failure, which asyncio would log if no other commit came."""
    if not look.cancelled():
        look.exception()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Return when `event` is set, or after `seconds`."""
    if seconds > 0 and not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):  # unlike `wait_for` of Python 3.11, without another task
                await event.wait()
