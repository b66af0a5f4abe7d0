"""ingest/commit_budget.py: paid requests under load, by a manual clock: how many, and who waits how long."""

import asyncio
from dataclasses import dataclass, field

import pytest

from ingest.buffer import Buffer
from ingest.commit_budget import GATHER_MAX_S, REQUESTS_PER_COMMIT, commit_budget
from ingest.settings import Settings
from ingest.writer import Acks, Appended, Writer
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import topic_directory
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from log_tables.testing import WRITES, FaultyStore
from tests.kit.clocked_loop import STEP_MS, ClockedLoop

COMMIT_S = 0.04
"""A commit to a bucket."""

SECONDS = 10
SETTINGS = Settings(linger_ms=5, commits_requests_per_second_max=20)
STEP_S = STEP_MS / 1_000


@dataclass
class Load:
    """A producer for each partition, which sends the next record when one is durable."""

    partitions: int
    clock: ManualClock = field(default_factory=ManualClock)
    requests: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def run(self) -> "Load":
        with asyncio.Runner(loop_factory=lambda: ClockedLoop(self.clock)) as runner:
            runner.run(self._main())
        return self

    async def _main(self) -> None:
        store, loop = FaultyStore(open_store("memory://")), asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        cluster = Cluster.open(store, self.clock, "http://here")
        topic = create_topic(cluster, "t", partitions=self.partitions)
        writer = Writer(cluster, SETTINGS, self.clock)
        writer.budget = commit_budget(SETTINGS, True, self.clock)  # as for a bucket
        await writer.start()
        for index in range(self.partitions):
            await writer.accumulator_for(topic, index)
        claimed = _puts(store)

        async def produce(index: int) -> None:
            while True:
                began = self.clock.monotonic()
                batch = input_batch([Record(b"x")], self.clock.now_us())
                with Buffer(1 << 20).room("t") as room:
                    outcomes = await writer.append(topic, [(index, AppendRequest(batch))], Acks.ALL, room)
                assert [type(each) for each in outcomes] == [Appended], "a bill refuses nothing"
                self.waits.append(self.clock.monotonic() - began)

        loop.takes_s = COMMIT_S
        producing = [asyncio.create_task(produce(index)) for index in range(self.partitions)]
        await loop.passes(SECONDS * 1_000, lambda: self.requests.append(_puts(store) - claimed))
        ended = [each for each in producing if each.done()]
        for task in producing:
            task.cancel()
        await asyncio.wait(producing)
        assert ended == []
        assert writer.budget is not None
        under_way = self.requests[-1] - writer.budget.used
        assert 0 <= under_way <= REQUESTS_PER_COMMIT * self.partitions

    def most(self, window_s: float) -> int:
        """The most requests within so many seconds, after the burst is used up."""
        steps = round(window_s / STEP_S)
        after = self.requests[len(self.requests) // 2 :]
        return max(later - earlier for earlier, later in zip(after, after[steps:], strict=False))


def _puts(store: FaultyStore) -> int:
    under = topic_directory("t")
    return sum(call.operation in WRITES and call.path.startswith(under) for call in store.calls)


@pytest.mark.parametrize("partitions", [1, 2, 8, 40])
def test_no_batch_gathers_longer_than_its_bound_and_none_is_refused(partitions: int) -> None:
    load = Load(partitions).run()
    assert len(load.waits) >= partitions * (SECONDS - 1) / (GATHER_MAX_S + COMMIT_S + 4 * STEP_S)
    assert max(load.waits) <= GATHER_MAX_S + COMMIT_S + 4 * STEP_S


@pytest.mark.parametrize("partitions", [1, 2])
def test_partitions_that_fit_into_the_budget_keep_to_it(partitions: int) -> None:
    """Two that gather as long as they may need 16 requests a second."""
    load, rate = Load(partitions).run(), SETTINGS.commits_requests_per_second_max
    for window_s in (1.0, 2.0, 4.0):
        assert load.most(window_s) <= rate * window_s + 2 * REQUESTS_PER_COMMIT


def test_partitions_that_do_not_fit_make_no_more_requests_than_their_bound_asks_for() -> None:
    load = Load(40).run()
    assert load.most(2.0) <= 40 * REQUESTS_PER_COMMIT * (2.0 / GATHER_MAX_S + 1)
    free = 1 / (COMMIT_S + SETTINGS.linger_ms / 1_000)
    assert load.most(2.0) < 40 * REQUESTS_PER_COMMIT * 2.0 * free / 4, "they gather"
