"""ingest/accumulator.py: one partition's batches, group commit, and what a failed commit takes with it."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ingest.accumulator import Accumulator, BatchLimits
from ingest.bucket import CommitBucket
from log_tables.clock import SystemClock
from log_tables.errors import NotLeader, OffsetMismatch, OutcomeUnknown, PutRefused
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.store.store import open_store
from log_tables.table.table import create_table
from log_tables.testing import Fault, FaultyStore, refused
from tests.kit.partitions import TABLE, entry, records

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

    def __init__(self, root: Path, *faults: Fault, linger_s: float = 0, batch_size: int = MIB) -> None:
        clock, store = SystemClock(), open_store(root)
        create_table(store, TABLE, clock)
        self.partition = Partition(FaultyStore(store, faults), TABLE, clock)
        self.partition.claim("http://here")
        self.sealed = 0
        self.commits: list[int] = []
        self.accumulator = Accumulator(
            self.partition,
            BatchLimits(linger_s, batch_size),
            CommitBucket(0, 1, clock),
            clock,
            ThreadPoolExecutor(1),
            self._count,
            lambda count, _seconds: self.commits.append(count),
        )

    def _count(self) -> None:
        self.sealed += 1

    def add(self, *values: bytes, producer: ProducerStamp | None = None) -> "asyncio.Future[int | None]":
        _, done = self.accumulator.add(entry(*values, producer=producer))
        return done

    def values(self) -> list[bytes | None]:
        return [record.value for record in records(self.partition)]


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


def test_a_full_batch_does_not_linger(store_root: Path) -> None:
    async def scenario() -> None:
        bench = Bench(store_root, linger_s=3_600, batch_size=1_000)
        small = bench.add(b"a")
        await asyncio.gather(small, bench.add(b"x" * 1_000))
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
