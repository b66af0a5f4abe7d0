"""coordinator/brokers/pipeline.py: a client's appends to a partition stay in order, and none is doubled.

One gateway on the clock of the test, over a store that fails, while other processes claim the partition.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway import Gateway
from api.process.server import gateway_of
from coordinator.brokers.pipeline import Pipeline
from ingest.settings import Settings
from ingest.writer import Acks, Appended, AppendOutcome
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.errors import LakelogError, NotLeader, OutcomeUnknown, SequenceGap, TopicDeleted
from log_tables.partition.partition import Partition, ProducerStamp
from log_tables.store.store import open_store
from log_tables.testing import Failure, Fault, FaultyStore, answer_lost, refused, unavailable
from tests.kit.clocked_loop import STEP_MS, ClockedLoop
from tests.kit.partitions import another, append, entry, values

TIMEOUT_S = 5.0
FAILURES = {"lost": answer_lost, "refused": refused, "unavailable": unavailable}


@dataclass
class _Given:
    """An append that was given to the pipeline."""

    value: bytes
    acks: Acks
    answer: "asyncio.Future[AppendOutcome]"


class Scene:
    """A gateway with a pipeline, a topic of one partition, and clients; those of even numbers idempotent."""

    def __init__(self, gateway: Gateway, topic: Topic, store: FaultyStore) -> None:
        self.gateway, self.topic, self.store = gateway, topic, store
        self.given: list[list[_Given]] = [[], [], [], []]
        self.lost: list[LakelogError] = []
        self._stamped = Counter[int]()
        self.pipeline = Pipeline(
            gateway.router,
            gateway.writer,
            gateway.peers,
            gateway.clock,
            lambda _, error: self.lost.append(error),
        )

    @property
    def log(self) -> Partition:
        """The partition as the gateway has it."""
        return self.topic.partition(0)

    def elsewhere(self) -> Partition:
        """The partition in another process, whose store does not fail."""
        found = another(self.log, self.store.inner)
        with suppress(TopicDeleted):
            found.refresh(wait=True)
        return found

    def append(
        self,
        client: int,
        acks: Acks = Acks.ALL,
        timeout_s: float = TIMEOUT_S,
        stamp: ProducerStamp | None = None,
    ) -> _Given:
        value = b"%d-%d" % (client, len(self.given[client]))
        if client % 2 == 0:
            stamp = ProducerStamp(100 + client, 0, self._stamped[client])
            self._stamped[client] += 1
        request = entry(value, producer=stamp)
        room = self.gateway.buffer.room("t")
        answer = self.pipeline.append(client, (self.topic, 0), request, acks, room, timeout_s)
        given = _Given(value, acks, answer)
        self.given[client].append(given)
        return given

    def fail(self, failure: Failure, nth: int = 1) -> None:
        """Let the n-th write of the partition from now on fail."""
        self.store.faults.append(Fault(nth, failure, path="_delta_log"))

    def claim_elsewhere(self, record: bool = False) -> None:
        """Claim the partition by another process, which ends then; with `record` it appends one first."""
        there = self.elsewhere()
        there.claim("http://elsewhere")
        if record:
            append(there, b"elsewhere")

    def look(self) -> None:
        """The gateway reads what others have committed."""
        self.log.refresh(wait=True)

    async def passes(self, ms: int = STEP_MS) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        await loop.passes(ms)

    async def settle(self) -> None:
        """Let the time pass until all is answered, and nothing is under way."""
        self.store.faults.clear()
        await self.ends(self.pipeline.close())

    async def ends(self, closing: Coroutine[Any, Any, None]) -> None:
        """Let the time pass until `closing` has ended: what it waits for in a thread takes time, too."""
        task = asyncio.create_task(closing)
        for _ in range(60):
            if task.done():
                break
            await self.passes(500)
        assert task.done(), f"{closing} does not come to an end"
        await task

    def check(self) -> None:
        """Assert that each acknowledged record is at the offset of its answer, that each client's are in
        order, and that none is doubled.
        """
        found = values(self.elsewhere())
        assert [value for value, times in Counter(found).items() if times > 1 and value != b"elsewhere"] == []
        for client, appends in enumerate(self.given):
            own = [value for value in found if value is not None and value.startswith(b"%d-" % client)]
            assert own == [each.value for each in appends if each.value in own], "they are out of order"
            for each in appends:
                outcome = each.answer.result()
                if isinstance(outcome, Appended):
                    if each.acks is Acks.ALL:
                        assert outcome.base_offset is not None
                        assert found[outcome.base_offset] == each.value
                elif not isinstance(outcome, OutcomeUnknown):
                    assert each.value not in own, f"{outcome} says that nothing was written"
        assert self.gateway.buffer.used == 0


def run(scenario: Callable[[Scene], Awaitable[None]], takes_s: float = 0.02, **given: object) -> None:
    """Run `scenario`, whose work for threads takes so long, and check what it leaves behind."""
    clock = ManualClock()
    store = FaultyStore(open_store("memory://"))
    settings = Settings(
        data="memory://",
        peer_url="http://here",
        advertised_url="http://here",
        leader_timeout_ms=100,
        **{"linger_ms": 30, "commits_per_second_max": 1_000, **given},  # type: ignore[arg-type]
    )

    async def main() -> None:
        gateway = gateway_of(Cluster.open(store, clock, "http://here"), settings, clock)
        scene = Scene(gateway, create_topic(gateway.cluster, "t"), store)
        await gateway.writer.start()
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ClockedLoop)
        loop.takes_s = takes_s
        await scenario(scene)
        await scene.settle()
        scene.check()
        await scene.ends(gateway.writer.close())

    with asyncio.Runner(loop_factory=lambda: ClockedLoop(clock)) as runner:
        runner.run(main())


def outcomes(given: Sequence[_Given]) -> list[type]:
    return [type(each.answer.result()) for each in given]


@pytest.mark.parametrize("client", [0, 1], ids=["idempotent", "plain"])
def test_appends_before_the_first_answer_share_a_commit(client: int) -> None:
    async def scenario(scene: Scene) -> None:
        first = scene.append(client)
        await scene.passes(200)
        assert first.answer.done()
        version = scene.elsewhere().snapshot.version
        for _ in range(5):
            scene.append(client)
        await scene.passes(200)
        assert outcomes(scene.given[client]) == [Appended] * 6
        assert scene.elsewhere().snapshot.version == version + 1

    run(scenario)


@pytest.mark.parametrize("client", [0, 1], ids=["idempotent", "plain"])
def test_appends_that_wait_for_a_claim_stay_in_order(client: int) -> None:
    async def scenario(scene: Scene) -> None:
        for _ in range(5):
            scene.append(client)
        await scene.passes()
        for _ in range(5):
            scene.append(client)
        await scene.settle()
        assert outcomes(scene.given[client]) == [Appended] * 10

    run(scenario, takes_s=0.1)


@pytest.mark.parametrize("failure", [answer_lost, refused, unavailable])
def test_an_idempotent_append_whose_commit_failed_comes_before_later_ones(failure: Failure) -> None:
    async def scenario(scene: Scene) -> None:
        scene.append(0)
        await scene.passes(200)
        scene.fail(failure)
        for _ in range(20):
            scene.append(0)
            await scene.passes()
        await scene.settle()

    run(scenario)


def test_an_append_waits_for_those_whose_term_has_ended_and_that_do_not_know_it_yet() -> None:
    """Another client's append begins the next term before the commit of the last one's records is tried."""

    async def scenario(scene: Scene) -> None:
        scene.append(3)
        await scene.passes(200)
        scene.append(1)
        scene.claim_elsewhere()
        scene.look()
        scene.append(3)
        await scene.passes(30)
        assert scene.log.leading, "the partition was claimed again"
        scene.append(1)
        await scene.settle()
        assert outcomes(scene.given[1]) == [Appended, Appended]

    run(scenario, takes_s=0.001, linger_ms=100)


def test_an_append_that_finds_its_term_ended_waits_for_those_before_it() -> None:
    """A gap of sequences has the gateway look, and see that another process has claimed the partition."""

    async def scenario(scene: Scene) -> None:
        scene.append(1)
        scene.append(1, stamp=ProducerStamp(7, 0, 5))
        scene.append(1)
        await scene.passes()
        scene.claim_elsewhere()
        await scene.settle()
        assert outcomes(scene.given[1]) == [Appended, SequenceGap, Appended]

    run(scenario, linger_ms=100, takes_s=0.05)


def test_an_answered_append_is_not_repeated_after_later_ones() -> None:
    async def scenario(scene: Scene) -> None:
        scene.append(1)
        await scene.passes(200)
        scene.append(1, Acks.LEADER)
        scene.append(1, Acks.NONE)
        scene.claim_elsewhere()
        scene.append(1)
        await scene.settle()
        assert [type(each) for each in scene.lost] == [NotLeader, NotLeader]

    run(scenario)


def test_a_failure_that_nobody_expects_leaves_no_append_without_an_answer() -> None:
    def broken(_: Callable[[], object]) -> object:
        raise ZeroDivisionError

    async def scenario(scene: Scene) -> None:
        scene.fail(broken)
        scene.append(1)
        await scene.passes()
        scene.append(1)
        await scene.passes(500)
        assert outcomes(scene.given[1]) == [OutcomeUnknown, OutcomeUnknown]
        scene.append(1)

    run(scenario, takes_s=0.1)


def test_a_deleted_topic_takes_nothing_more() -> None:
    async def scenario(scene: Scene) -> None:
        scene.append(1)
        await scene.passes(200)
        delete_topic(Cluster.open(scene.store.inner, scene.gateway.clock), "t")
        scene.append(1)
        scene.append(0)
        await scene.settle()
        assert outcomes(scene.given[1]) == [Appended, TopicDeleted]
        assert outcomes(scene.given[0]) == [TopicDeleted]

    run(scenario)


STEPS = st.one_of(
    st.tuples(st.just("append"), st.integers(0, 3), st.sampled_from(["all", "all", "all", "1", "0"])),
    st.tuples(st.just("append"), st.integers(0, 1), st.just("all")),
    st.tuples(st.just("fail"), st.sampled_from(sorted(FAILURES)), st.integers(1, 3)),
    st.tuples(st.just("claim"), st.booleans(), st.booleans()),
    st.tuples(st.just("pass"), st.sampled_from([1, 1, 2, 5, 20]), st.just(0)),
)


@given(
    st.lists(STEPS, max_size=40),
    st.sampled_from([0.0, 0.001, 0.02, 0.1]),
    st.sampled_from([0, 15, 60]),
    st.sampled_from([0.0, 0.3, TIMEOUT_S]),
)
def test_any_schedule_keeps_the_order_and_doubles_nothing(
    steps: list[tuple[str, int | str | bool, int | str | bool]],
    takes_s: float,
    linger_ms: int,
    timeout_s: float,
) -> None:
    async def scenario(scene: Scene) -> None:
        for step in steps:
            match step:
                case ("append", int(client), str(acks)):
                    scene.append(client, Acks(acks), timeout_s)
                case ("fail", str(kind), int(nth)):
                    scene.fail(FAILURES[kind], nth)
                case ("claim", bool(record), bool(noticed)):
                    scene.claim_elsewhere(record)
                    if noticed:
                        scene.look()
                case ("pass", int(steps_), _):
                    await scene.passes(steps_ * STEP_MS)

    run(scenario, takes_s, linger_ms=linger_ms)
