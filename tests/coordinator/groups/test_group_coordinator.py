"""The coordinator and its consumers inside a process: what may come between two steps of a request."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path

import pytest

from api.gateway import Gateway
from api.process.server import gateway_of
from coordinator.groups.classic.consumer_protocol import encode_assignment
from coordinator.groups.classic.events import JoinGroup, LeaveGroup, LeftMember, SyncGroup
from coordinator.groups.events import Join, OffsetAndMetadata, Subscribe, TopicsChanged, TopicState, Transact
from coordinator.groups.sessions.consumer_session import ConsumerSession, PollResult
from coordinator.groups.state.group import Group
from coordinator.groups.state.step import step
from ingest.settings import Settings
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberConfig, encode
from log_tables.errors import LakelogError, UnknownMember
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords
from log_tables.store.store import Store, open_store
from log_tables.testing import HoldingStore
from log_tables.topic_partition import TopicPartition
from tests.kit.consumer_bytes import subscription
from tests.kit.groups import any_topic
from tests.kit.partitions import values
from tests.kit.support import wait_until

AT = TopicPartition("t", 0)
MANY_BYTES = 1_000_000


async def never() -> bool:
    return False


async def as_it_is(consumer: ConsumerSession, polled: PollResult) -> tuple[ConsumerSession, PollResult]:
    return consumer, polled


class Running:
    """A gateway without its server, on the event loop of the test."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway, self.shard_manager, self.coordinator = (
            gateway,
            gateway.shard_manager,
            gateway.coordinator,
        )

    @classmethod
    async def at(cls, root: Path) -> "Running":
        return await cls.on(open_store(root))

    @classmethod
    async def on(cls, store: Store) -> "Running":
        clock = SystemClock()
        cluster = Cluster.open(store, clock, "http://nowhere")
        settings = Settings(
            data=store.url,
            linger_ms=0,
            advertised_url="http://nowhere",
            group_initial_rebalance_delay_ms=0,
            group_consumer_assignment_interval_ms=0,  # a subscription is followed at once
        )
        gateway = gateway_of(cluster, settings.model_copy(update={"peer_url": "http://nowhere"}), clock)
        await gateway.writer.start()
        return cls(gateway)

    async def put(self, count: int) -> None:
        accumulator = await self.gateway.writer.accumulator_for(self.gateway.cluster.topic("t"), 0)
        records = [Record(b"%d" % index) for index in range(count)]
        _, done = accumulator.add(AppendRequest(input_batch(records, self.gateway.clock.now_us())))
        await done

    async def join(self, name: str, **config: object) -> None:
        asked = {"auto_offset_reset": "earliest", "auto_commit": False, **config}
        await self.coordinator.apply_event("g", Join(name, MemberConfig(**asked)))  # type: ignore[arg-type]
        await self.subscribe(name, "t")

    async def subscribe(self, name: str, *topics: str) -> None:
        await self.coordinator.apply_event("g", Subscribe(name, frozenset(topics)))

    async def poll(
        self, timeout_s: float = 0, ended: Callable[[], Awaitable[bool]] = never
    ) -> tuple[ConsumerSession, PollResult]:
        return await self.coordinator.poll("g", "m", None, MANY_BYTES, timeout_s, ended, any_topic, as_it_is)

    async def given(self) -> list[tuple[int, int]]:
        """The first and the next offset of a poll, which is then advanced."""
        consumer, polled = await self.poll()
        consumer.advance(polled.serial, {reading.at: reading.plan.end for reading in polled.reads})
        return [(reading.plan.start, reading.plan.end) for reading in polled.reads]

    async def committed(self) -> int | None:
        found = (await self.shard_manager.group("g")).committed(AT)
        return None if found is None else found.offset


def run(scenario: Callable[[Path], Coroutine[None, None, None]], root: Path) -> None:
    asyncio.run(scenario(root))


def test_a_poll_that_began_before_another_gateway_took_over_changes_nothing(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        there = await Running.at(root)
        await setup.put(100)
        await setup.join("m", auto_commit=True, auto_commit_interval_ms=100)
        assert await setup.given() == [(0, 100)]
        waits = asyncio.Event()

        async def ended() -> bool:
            waits.set()
            return False

        waiting = asyncio.create_task(setup.poll(20, ended))
        await waits.wait()
        await there.coordinator.leave("g", "m")
        await there.coordinator.reset("g", {AT: OffsetAndMetadata(0)}, force=False)
        assert await setup.committed() == 0
        with pytest.raises(UnknownMember):
            await setup.given()
        with pytest.raises(LakelogError):
            await waiting
        assert await there.committed() == 0

    run(scenario, tmp_path)


def test_a_poll_that_waits_hears_of_what_classic_members_do(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.put(3)
        classic, protocols = setup.gateway.classic, (("cooperative-sticky", subscription(["t"], ())),)
        joins = JoinGroup(
            new_member_id="c",
            requires_known_member_id=False,
            protocol_type="consumer",
            protocols=protocols,
            session_timeout_ms=60_000,
            rebalance_timeout_ms=60_000,
        )
        joined = await classic.join("g", joins)
        shares = {"c": encode_assignment([AT])}
        syncs = SyncGroup(member_id="c", generation=joined.generation, assignments=shares)
        await classic.sync("g", syncs)
        await setup.join("m")
        assert await setup.given() == []
        _, partition = await setup.shard_manager.partition_for("g")
        changed = asyncio.Event()
        (await setup.shard_manager.shard(partition)).listen("g", changed)  # as such a poll does
        await classic.leave("g", LeaveGroup((LeftMember("c"),)))
        assert changed.is_set()
        assert await setup.given() == [(0, 3)]

    run(scenario, tmp_path)


def test_a_look_at_groups_claims_nothing(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        there = await Running.at(root)
        await setup.put(10)
        await setup.join("m")
        assert await setup.given() == [(0, 10)]
        log = setup.gateway.cluster.topic("__consumer_offsets").partition(0)
        epoch = log.refresh(wait=True).leader_epoch
        (group,) = await there.shard_manager.groups()
        assert group.member("m").owned == {AT}
        assert (await there.shard_manager.group("g")).members.keys() == {"m"}
        assert log.refresh(wait=True).leader_epoch == epoch

    run(scenario, tmp_path)


def test_looks_at_groups_share_a_replay_until_something_has_changed(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        there = await Running.at(root)
        await setup.put(10)
        await setup.join("m")
        first, second = await asyncio.gather(there.shard_manager.group("g"), there.shard_manager.group("g"))
        assert first is second
        await setup.join("n")
        assert (await there.shard_manager.group("g")).members.keys() == {"m", "n"}
        await there.join("o")
        await setup.join("p")
        assert (await there.shard_manager.group("g")).members.keys() == {"m", "n", "o", "p"}

    run(scenario, tmp_path)


async def held(store: HoldingStore) -> None:
    await asyncio.to_thread(wait_until, lambda: store.held == 1, "a call waits at the store")


def test_a_forced_reset_is_not_undone_by_auto_commit(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        slow = HoldingStore(open_store(root), "topics/__consumer_offsets/")
        setup = await Running.on(slow)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.put(100)
        await setup.join("m", auto_commit=True, auto_commit_interval_ms=0)
        assert await setup.given() == [(0, 100)]
        slow.hold()
        reset = asyncio.create_task(setup.coordinator.reset("g", {AT: OffsetAndMetadata(10)}, force=True))
        await held(slow)
        assert await setup.given() == [(10, 100)], "while the reset is not durable yet"
        slow.let_go()
        await reset
        assert await setup.committed() == 10

    run(scenario, tmp_path)


@pytest.mark.parametrize("what", ["reset", "seek"])
def test_what_comes_while_partitions_are_opened_counts(tmp_path: Path, what: str) -> None:
    async def scenario(root: Path) -> None:
        slow = HoldingStore(open_store(root), "topics/t/", {"get"})
        setup = await Running.on(slow)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.put(100)
        await setup.join("m")
        slow.hold()
        waiting = asyncio.create_task(setup.poll())
        await held(slow)
        if what == "reset":
            await setup.coordinator.reset("g", {AT: OffsetAndMetadata(50)}, force=True)
        else:
            await setup.coordinator.seek("g", "m", {AT: 50})
        slow.let_go()
        assert [reading.plan.start for reading in (await waiting)[1].reads] == [50]
        assert await setup.given() == [(50, 100)]

    run(scenario, tmp_path)


def test_two_polls_that_begin_at_the_end_agree_where_that_is(tmp_path: Path) -> None:
    """The first one opens `u` as well, which takes long, and the second one no longer."""

    async def scenario(root: Path) -> None:
        slow = HoldingStore(open_store(root), "topics/u/", {"get"})
        setup = await Running.on(slow)
        for topic in ("t", "u"):
            create_topic(setup.gateway.cluster, topic, 1)
        await setup.put(100)
        await setup.join("m", auto_offset_reset="latest")
        await setup.subscribe("m", "t", "u")
        slow.hold()
        first = asyncio.create_task(setup.poll())
        await held(slow)
        await setup.subscribe("m", "t")
        assert await setup.given() == []
        assert await setup.committed() == 100
        await setup.put(10)
        slow.let_go()
        assert (await first)[1].reads == []
        assert await setup.committed() == 100
        assert await setup.given() == [(100, 110)]

    run(scenario, tmp_path)


def test_a_commit_between_a_look_and_the_wait_wakes_the_poll(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.put(1)
        await setup.join("m")
        assert await setup.given() == [(0, 1)]
        asked = 0

        async def ended() -> bool:
            nonlocal asked
            asked += 1
            if asked == 1:
                await setup.put(1)
            return False

        _, polled = await setup.poll(20, ended)
        assert [(reading.plan.start, reading.plan.end) for reading in polled.reads] == [(1, 2)]
        assert asked == 1, "it was woken, and did not look again after a second"

    run(scenario, tmp_path)


def test_a_poll_that_waits_keeps_a_short_session_alive(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.shard_manager.start()
        await setup.join("m", session_timeout_ms=400, max_poll_interval_ms=400)
        epoch = (await setup.poll())[1].epoch
        _, polled = await setup.poll(timeout_s=1.5)
        assert polled.epoch == epoch
        await setup.shard_manager.close()

    run(scenario, tmp_path)


def test_a_group_that_was_deleted_leaves_no_places_behind(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.put(10)
        await setup.join("m")
        assert await setup.given() == [(0, 10)]
        await setup.coordinator.delete("g", force=True)
        await setup.join("m")
        assert await setup.given() == [(0, 10)]

    run(scenario, tmp_path)


def test_an_answer_that_is_full_does_not_wait_for_more(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        await setup.put(1_000)
        await setup.join("m", fetch_min_bytes=100_000_000)

        async def ended() -> bool:
            pytest.fail("it was to answer at once")

        _, polled = await setup.coordinator.poll("g", "m", None, 100, 20, ended, any_topic, as_it_is)
        assert polled.reads[0].plan.end < 1_000

    run(scenario, tmp_path)


async def leave_pending(running: Running, group: str, value: bytes) -> int:
    """Commit a transaction that puts `value` into the topic "t", as a gateway that then ends.

    Returns the partition of `__consumer_offsets` that says so.
    """
    gateway = running.gateway
    topic = gateway.cluster.topic("t")
    part = PartitionRecords("t", topic.topic_id, 0, [input_batch([Record(value)], 0)])
    staged = await asyncio.to_thread(staging.stage, gateway.cluster.store, gateway.clock, group, [part])
    known, _ = step(Group(group), TopicsChanged({"t": TopicState(topic.topic_id, 1)}), 0)
    _, records = step(known, Transact(offsets={}, staged=(staged,), producer_id=7, at_ms=1_000), 0)
    log, index = await running.shard_manager.partition_for(group)
    accumulator = await gateway.writer.accumulator_for(log, index)
    _, done = accumulator.add(AppendRequest(input_batch([encode(*record) for record in records], 0)))
    await done
    return index


def test_what_is_pending_is_applied_by_who_was_handed_the_partition(tmp_path: Path) -> None:
    """Nobody asks for the group: its new leader only leads."""

    async def scenario(root: Path) -> None:
        setup = await Running.at(root)
        create_topic(setup.gateway.cluster, "t", 1)
        there = await Running.at(root)
        index = await leave_pending(setup, "g", b"x")
        log, _ = await there.shard_manager.partition_for("g")
        await there.gateway.writer.accumulator_for(log, index)
        await there.shard_manager.start()
        out = there.gateway.cluster.topic("t").partition(0)

        def applied() -> bool:
            out.refresh()
            return out.high_watermark == 1

        await asyncio.to_thread(wait_until, applied, "it is applied")
        await there.shard_manager.close()
        assert values(out) == [b"x"]

    run(scenario, tmp_path)
