"""ingest/accumulator.py: one partition's batches, group commit, and what a failed commit takes with it."""

import asyncio
import gc
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from ingest.accumulator import Accumulator, BatchLimits
from ingest.commit_budget import BudgetLimits, CommitBucket, CommitBudget, processor_cost
from log_tables.clock import ManualClock, SystemClock
from log_tables.errors import NotLeader, OffsetMismatch, OutcomeUnknown, PutRefused
from log_tables.layout import offer_path
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.store.store import open_store
from log_tables.table.commit import Commit
from log_tables.table.delta_log import commit_info
from log_tables.table.offer import put_offer
from log_tables.table.table import create_table
from log_tables.testing import Fault, FaultyStore, refused
from tests.kit.budgets import overdrawn_budget
from tests.kit.partitions import TABLE, append_each, entry, records
from tests.kit.rewrites import merged

KEPT = ProducerStamp(KEPT_PRODUCER_ID_MIN, 0, 0, kept=True)
MIB = 1 << 20


class Gate:
    """A put that is held until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def open(self) -> None:
        self._open.set()

    def __call__(self, perform: Callable[[], object]) -> object:
        self.reached.set()
        assert self._open.wait(30)
        return perform()


class Bench:
    """An accumulator over a real partition, whose nth segments meet the given faults."""

    def __init__(
        self,
        root: Path,
        *faults: Fault,
        linger_s: float = 0,
        batch_size: int = MIB,
        rate: float = 0,
        budget: CommitBudget | None = None,
    ) -> None:
        clock, store = SystemClock(), open_store(root)
        create_table(store, TABLE, clock)
        self.partition = Partition(FaultyStore(store, faults), TABLE, clock)
        self.partition.claim("http://here")
        self.sealed = 0
        self.commits: list[int] = []
        self.accumulator = Accumulator(
            self.partition,
            BatchLimits(linger_s, batch_size),
            CommitBucket(rate, 1, clock),
            clock,
            ThreadPoolExecutor(2),
            self._count,
            lambda count, _seconds: self.commits.append(count),
            budget,
        )

    def _count(self) -> None:
        self.sealed += 1

    def add(self, *values: bytes, producer: ProducerStamp | None = None) -> "asyncio.Future[int | None]":
        _, done = self.accumulator.add(entry(*values, producer=producer))
        return asyncio.shield(done)

    def values(self) -> list[bytes | None]:
        return [record.value for record in records(self.partition)]


async def commit_until(bench: Bench, holds: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if not holds():
            await bench.add(b"more")
    assert holds()


def nth_segment(nth: int, failure: Callable[[Callable[[], object]], object]) -> Fault:
    return Fault(nth, failure, {"put_new"}, ".parquet")


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    asyncio.run(main())


async def reached(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.reached.wait, 30)


def test_what_comes_during_a_commit_is_the_next_commit(store_root: Path) -> None:
    gate = Gate()

    async def scenario() -> None:
        bench = Bench(store_root, nth_segment(1, gate))
        first = bench.add(b"a")
        await reached(gate)
        later = [bench.add(b"b", b"c"), bench.add(b"d")]
        assert not first.done()
        assert bench.partition.log_end == 4
        assert bench.partition.high_watermark == 0
        gate.open()
        await asyncio.gather(first, *later)
        assert bench.commits == [1, 3]
        assert bench.sealed == 2
        assert bench.values() == [b"a", b"b", b"c", b"d"]

    run(scenario)


@pytest.mark.parametrize(
    ("certain", "kind"), [(True, PutRefused), (False, OutcomeUnknown)], ids=["refused", "unknown"]
)
def test_a_failed_commit_voids_what_was_sequenced_after_it(
    store_root: Path, certain: bool, kind: type[Exception]
) -> None:
    gate = Gate()

    def fail(perform: Callable[[], object]) -> object:
        gate(lambda: None)
        if certain:
            return refused(perform)
        raise OutcomeUnknown("nobody knows, on purpose; look")

    async def scenario() -> None:
        bench = Bench(store_root, nth_segment(1, fail))
        first = bench.add(b"a")
        await reached(gate)
        later = bench.add(b"b")
        gate.open()
        with pytest.raises(kind):
            await first
        # Records that were never put are certainly not in the log: they may be repeated.
        with pytest.raises(PutRefused if certain else NotLeader):
            await later
        with pytest.raises(NotLeader):
            bench.add(b"c")
        await asyncio.to_thread(bench.partition.claim, "http://here")
        await bench.add(b"d")
        assert bench.values() == [b"d"]
        assert bench.commits == [1]

    run(scenario)


@pytest.mark.parametrize(("size", "kept", "prompt"), [(1_000, 0, 0), (1, 1, 0), (1, 0, 1)])
def test_a_full_or_prompt_batch_does_not_linger(store_root: Path, size: int, kept: int, prompt: int) -> None:
    async def scenario() -> None:
        bench = Bench(store_root, linger_s=3_600, batch_size=1_000)
        last = entry(b"x" * size, producer=KEPT if kept else None)
        await asyncio.gather(bench.add(b"a"), bench.accumulator.add(replace(last, prompt=bool(prompt)))[1])
        assert bench.commits == [2]

    run(scenario)


def test_flush_commits_what_lingers(store_root: Path) -> None:
    async def scenario() -> None:
        bench = Bench(store_root, linger_s=3_600)
        waiting = bench.add(b"a"), bench.add(b"b")
        await bench.accumulator.flush()
        assert all(done.done() for done in waiting)
        assert bench.values() == [b"a", b"b"]
        await bench.accumulator.flush()
        assert bench.commits == [2]

    run(scenario)


def test_a_repeat_waits_for_the_first_time_and_writes_nothing(store_root: Path) -> None:
    gate = Gate()

    async def scenario() -> None:
        bench = Bench(store_root, nth_segment(1, gate))
        first = bench.add(b"a", producer=ProducerStamp(1, 0, 0))
        await reached(gate)
        sequenced, again = bench.accumulator.add(entry(b"a", producer=ProducerStamp(1, 0, 0)))
        assert (sequenced.duplicate, sequenced.base_offset) == (True, 0)
        assert not again.done()
        gate.open()
        await asyncio.gather(first, again)
        assert bench.values() == [b"a"]
        assert bench.commits == [1]

    run(scenario)


def test_what_is_refused_at_once_waits_for_nothing(store_root: Path) -> None:
    async def scenario() -> None:
        bench = Bench(store_root)
        with pytest.raises(OffsetMismatch):
            bench.accumulator.add(entry(b"a", expected_offset=5))
        await bench.accumulator.flush()
        assert bench.sealed == 0
        assert bench.values() == []

    run(scenario)


def test_one_who_no_longer_waits_disturbs_nobody(store_root: Path) -> None:
    gate = Gate()

    async def scenario() -> None:
        bench = Bench(store_root, nth_segment(1, gate))
        first = bench.add(b"a")
        await reached(gate)
        gone, other = bench.add(b"b"), bench.add(b"c")
        gone.cancel()
        gate.open()
        await asyncio.gather(first, other)
        assert bench.values() == [b"a", b"b", b"c"]

    run(scenario)


def test_a_failure_that_nobody_waits_for_is_not_logged_by_asyncio(store_root: Path) -> None:
    async def scenario() -> None:
        logged: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
        bench = Bench(store_root, nth_segment(1, refused))
        bench.accumulator.add(entry(b"a"))
        await bench.accumulator.flush()
        gc.collect()
        assert bench.values() == []
        assert logged == []

    run(scenario)


async def waits(done: "asyncio.Future[int | None]", budget: CommitBudget) -> bool:
    """Whether the batch of `done` reaches the budget, which is spent, and waits there."""
    while not budget.waiting and not done.done():
        await asyncio.wait([done], timeout=0)
    return not done.done()


def test_a_lone_record_of_an_idle_gateway_waits_for_no_budget(store_root: Path, clock: ManualClock) -> None:
    async def scenario() -> None:
        # On this clock nobody would wait for ever.
        budget = CommitBudget(BudgetLimits(rate=0.1, burst=0.1, cost=0.001), processor_cost, clock)
        bench = Bench(store_root, budget=budget)
        for _ in range(3):
            await bench.add(b"a")
            clock.advance(60_000)
        assert bench.commits == [1, 1, 1]
        assert budget.used > 0

    run(scenario)


def test_batches_grow_while_they_wait_for_the_budget(store_root: Path, clock: ManualClock) -> None:
    async def scenario() -> None:
        budget = overdrawn_budget(clock)
        bench = Bench(store_root, budget=budget)
        first = bench.add(b"a")
        assert await waits(first, budget)
        later = [bench.add(b"b"), bench.add(b"c", b"d")]
        budget.spend(0.001, 0.0, 0)  # the commit of the other partition is over
        await asyncio.gather(first, *later)
        assert bench.commits == [4]

    run(scenario)


def test_a_full_batch_waits_for_no_budget(store_root: Path, clock: ManualClock) -> None:
    async def scenario() -> None:
        budget = overdrawn_budget(clock)
        bench = Bench(store_root, budget=budget, batch_size=1_000)
        first = bench.add(b"a")
        assert await waits(first, budget)
        await asyncio.gather(first, bench.add(b"x" * 1_000))
        await bench.add(b"x" * 1_000)
        assert bench.commits == [2, 1]

    run(scenario)


@pytest.mark.parametrize("end", [Accumulator.flush, Accumulator.release])
def test_an_end_in_order_and_a_hand_over_wait_for_no_budget(
    store_root: Path, clock: ManualClock, end: Callable[[Accumulator], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        budget = overdrawn_budget(clock)
        before = budget.used
        bench = Bench(store_root, budget=budget)
        first = bench.add(b"a")
        assert await waits(first, budget)
        await end(bench.accumulator)
        assert first.done()
        assert bench.values() == [b"a"]
        assert budget.used == before, "nor do others wait for what it costs"

    run(scenario)


def test_an_end_in_order_waits_for_no_token(store_root: Path) -> None:
    async def scenario() -> None:
        bench = Bench(store_root, rate=1e-6)  # one in eleven days
        await bench.add(b"a")
        second = bench.add(b"b")
        await bench.accumulator.flush()
        assert second.done()

    run(scenario)


@pytest.mark.parametrize("behind", [False, True])
def test_records_of_a_committed_transaction_wait_for_no_budget(
    store_root: Path, clock: ManualClock, behind: bool
) -> None:
    async def scenario() -> None:
        budget = overdrawn_budget(clock)
        before = budget.used
        bench = Bench(store_root, budget=budget)
        first = bench.add(b"a") if behind else None
        assert first is None or await waits(first, budget)
        await bench.add(b"b", producer=KEPT)
        assert budget.used == before
        assert bench.commits == [2 if behind else 1]
        assert await waits(bench.add(b"c"), budget), "only they do not"
        await bench.accumulator.flush()

    run(scenario)


def test_a_failed_commit_gives_back_what_was_reserved(store_root: Path, clock: ManualClock) -> None:
    async def scenario() -> None:
        limits = BudgetLimits(rate=1e-9, burst=0.5, cost=1.0)
        budget = CommitBudget(limits, lambda _processor_s, _size: 0.0, clock)
        bench = Bench(store_root, nth_segment(1, refused), budget=budget)
        with pytest.raises(PutRefused):
            await bench.add(b"a")
        await asyncio.to_thread(bench.partition.claim, "http://here")
        await bench.add(b"b")  # it would wait for ever
        assert bench.values() == [b"b"]

    run(scenario)


def test_an_offer_is_committed_after_the_next_append(tmp_path: Path) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        append_each(bench.partition, [b"0", b"1"])
        table, inputs = bench.partition.table, bench.partition.snapshot.segments
        made = merged(bench.partition, inputs)
        removes = tuple(item.remove(0, False) for item in inputs)
        commit = Commit(commit_info(table.clock, "OPTIMIZE"), adds=(made.add(False),), removes=removes)
        put_offer(table.store, TABLE, table.snapshot, commit)
        await commit_until(bench, lambda: bench.partition.snapshot.segments[0].records == 2)
        assert bench.values()[:2] == [b"0", b"1"]

    run(scenario)


@pytest.mark.parametrize("wrong", [b"{", b'{"x":' + b"[" * 100_000])
def test_a_wrong_offer_is_logged_once_and_the_partition_is_led_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: bytes
) -> None:
    async def scenario() -> None:
        bench = Bench(tmp_path)
        bench.partition.table.store.put(offer_path(TABLE), wrong)
        await commit_until(bench, lambda: "duty offers of topics/t/partition=0 failed" in caplog.text)
        await bench.add(b"last")
        assert bench.values()[-1] == b"last"
        assert not bench.partition.offer_due

    run(scenario)


def test_a_look_that_a_store_does_not_answer_holds_up_no_append(tmp_path: Path) -> None:
    gate = Gate()

    async def scenario() -> None:
        bench = Bench(tmp_path, Fault(1, gate, {"head"}, "_offer"))
        await asyncio.gather(bench.add(b"0"), bench.add(b"1"))
        await reached(gate)
        gate.open()

    run(scenario)
