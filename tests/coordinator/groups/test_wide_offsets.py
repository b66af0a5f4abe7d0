"""A request for more offsets than are changed in one go: it is checked once, and is all or nothing."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest

from api.gateway import Gateway
from api.process.server import gateway_of
from coordinator.groups.classic.events import (
    CommitOffsets,
    EndPending,
    JoinGroup,
    LeaveGroup,
    LeftMember,
    PendOffsets,
    SyncGroup,
)
from coordinator.groups.events import (
    Assign,
    Commit,
    Join,
    Leave,
    OffsetAndMetadata,
    Reset,
    TopicsChanged,
    TopicState,
)
from coordinator.groups.shard import Shard
from coordinator.groups.state.group import Group
from coordinator.groups.state.step import step
from ingest.settings import Settings
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberConfig
from log_tables.errors import LakelogError, UnknownGroup
from log_tables.limits import OFFSETS_AT_ONCE
from log_tables.store.store import open_store
from log_tables.topic_partition import TopicPartition
from tests.kit.loop_holds import HELD_MAX_S, Hold, shortest
from tests.kit.support import WAIT_S

FIRST, LAST = TopicPartition("t", 0), TopicPartition("t", 1)
NOWHERE = [TopicPartition("none", partition) for partition in range(OFFSETS_AT_ONCE)]
EVERY = [FIRST, *NOWHERE, LAST]
"""The partitions of a request. The two that there are do not come in one go."""

JOIN = JoinGroup(
    new_member_id="m",
    protocol_type="consumer",
    protocols=(("range", b""),),
    session_timeout_ms=10_000,
    requires_known_member_id=False,
    rebalance_timeout_ms=10_000,
)


def places(partitions: list[TopicPartition], offset: int = 0) -> dict[TopicPartition, OffsetAndMetadata]:
    return dict.fromkeys(partitions, OffsetAndMetadata(offset))


async def gateway_at(root: Path) -> Gateway:
    clock, store = SystemClock(), open_store(root)
    cluster = Cluster.open(store, clock, "http://nowhere")
    settings = Settings(
        data=store.url, linger_ms=0, group_initial_rebalance_delay_ms=0, advertised_url="http://nowhere"
    )
    gateway = gateway_of(cluster, settings.model_copy(update={"peer_url": "http://nowhere"}), clock)
    await gateway.writer.start()
    create_topic(cluster, "t", 2)
    return gateway


async def member(gateway: Gateway) -> CommitOffsets:
    """The commit of a member in all partitions."""
    joined = await gateway.classic.join("g", JOIN)
    sync = SyncGroup(member_id="m", generation=joined.generation, assignments={"m": b""})
    await gateway.classic.sync("g", sync)
    return CommitOffsets(offsets=places(EVERY), at_ms=1, member_id="m", generation=joined.generation)


async def commit_with(gateway: Gateway, event: CommitOffsets, then: Callable[[Shard], object]) -> Shard:
    """Commit, and call `then` when the first offsets are committed and the last are not."""
    _, partition = await gateway.shard_manager.partition_for("g")
    shard = await gateway.shard_manager.shard(partition)
    async with asyncio.timeout(WAIT_S):
        committing = asyncio.create_task(gateway.classic.commit("g", event))
        while not shard.group("g").offsets:
            await gateway.loop_share.give_way()
        assert shard.group("g").offsets.keys() == {FIRST}
        then(shard)
        assert {*await committing} == {*NOWHERE}
    return shard


def test_a_wide_group_hears_of_topics_in_one_turn() -> None:
    """Half of its topics are re-created, so half of its offsets go."""
    topics = {f"t{number}": TopicState("old", 100) for number in range(50)}
    every = [TopicPartition(name, partition) for name in topics for partition in range(100)]
    group, _ = step(Group("g", topics=topics), Reset(places(every), 1), 0)
    again = {name: state._replace(topic_id="new") for name, state in [*topics.items()][:25]}
    used_s = SystemClock().processor_s

    def turn() -> Hold:
        began = used_s()
        left, _ = step(group, TopicsChanged({**topics, **again}), 0)
        seconds = used_s() - began
        assert len(left.offsets) == len(every) / 2
        return seconds, "the turn"

    assert shortest(turn)[0] < HELD_MAX_S


def test_a_reset_is_whole_whatever_happens_meanwhile(tmp_path: Path) -> None:
    """Its client leaves, and a member joins because of which a new reset would be refused."""

    async def scenario(gateway: Gateway) -> None:
        create_topic(gateway.cluster, "wide", OFFSETS_AT_ONCE + 1)
        *first, last = [TopicPartition("wide", partition) for partition in range(OFFSETS_AT_ONCE + 1)]
        _, partition = await gateway.shard_manager.partition_for("g")
        shard = await gateway.shard_manager.shard(partition)
        async with asyncio.timeout(WAIT_S):
            resetting = asyncio.create_task(
                gateway.coordinator.reset("g", places([*first, last]), force=False)
            )
            while not shard.group("g").offsets:
                await gateway.loop_share.give_way()
            assert [*shard.group("g").offsets] == first
            shard.apply_classic("g", JOIN)
            resetting.cancel()
            while last not in shard.group("g").offsets:
                await gateway.loop_share.give_way()

    run(scenario, tmp_path)


def test_what_an_instance_asks_for_is_whole_whatever_happens_meanwhile(tmp_path: Path) -> None:
    """A poll commits what was given before its seek, a partition goes, and it leaves."""

    async def scenario(gateway: Gateway) -> None:
        create_topic(gateway.cluster, "wide", OFFSETS_AT_ONCE + 1)
        *first, last = every = [TopicPartition("wide", partition) for partition in range(OFFSETS_AT_ONCE + 1)]
        coordinator = gateway.coordinator
        await coordinator.apply_event("g", Join("a", MemberConfig(auto_offset_reset="earliest")))
        await gateway.shard_manager.refresh_topics()
        await coordinator.apply_event("g", Assign("a", frozenset(every)))
        _, partition = await gateway.shard_manager.partition_for("g")
        shard = await gateway.shard_manager.shard(partition)

        async def half(offset: int) -> "asyncio.Task[None]":
            seeking = asyncio.create_task(coordinator.seek("g", "a", dict.fromkeys(every, offset)))
            while shard.group("g").member("a").positions.get(first[0]) != offset:
                await gateway.loop_share.give_way()
            assert shard.group("g").member("a").positions.get(last) != offset
            return seeking

        async with asyncio.timeout(WAIT_S):
            seeking = await half(3)
            shard.apply("g", Commit("a", {last: OffsetAndMetadata(7)}, 1))
            await seeking
            assert shard.group("g").member("a").positions == dict.fromkeys(every, 3)
            seeking = await half(4)
            shard.apply("g", Assign("a", frozenset(first)))
            await seeking
            assert shard.group("g").member("a").positions == dict.fromkeys(first, 4)
            shard.apply("g", Assign("a", frozenset(every)))
            committing = asyncio.create_task(coordinator.commit("g", "a", places(every)))
            while first[0] not in shard.group("g").offsets:
                await gateway.loop_share.give_way()
            assert shard.group("g").offsets[last].offset == 7
            shard.apply("g", Leave("a"))
            await committing
            assert {each.offset for each in shard.group("g").offsets.values()} == {0}

    run(scenario, tmp_path)


def test_a_wide_transaction_ends_in_turns_and_is_whole(tmp_path: Path) -> None:
    """Others have turns amid it, to whom all of its offsets are unstable. Its end is told again from its
    start, as after a death of the gateway.
    """

    async def scenario(gateway: Gateway) -> None:
        create_topic(gateway.cluster, "wide", OFFSETS_AT_ONCE + 1)
        *first, last = every = [TopicPartition("wide", partition) for partition in range(OFFSETS_AT_ONCE + 1)]
        commit = CommitOffsets(offsets=places([*every, *NOWHERE], 5), at_ms=1)
        assert {*await gateway.classic.pend("g", PendOffsets("x", 0, 1, commit))} == {*NOWHERE}
        _, partition = await gateway.shard_manager.partition_for("g")
        shard = await gateway.shard_manager.shard(partition)
        async with asyncio.timeout(WAIT_S):
            ending = asyncio.create_task(gateway.classic.end_pending("g", EndPending("x", 1, True, 2)))
            while not shard.group("g").offsets:
                await gateway.loop_share.give_way()
            assert [*shard.group("g").offsets] == first
            assert shard.group("g").unstable_partitions == {*every}
            ending.cancel()
            while last not in shard.group("g").offsets:
                await gateway.loop_share.give_way()
            assert shard.group("g").unstable == {}
            await gateway.classic.pend("g", PendOffsets("x", 0, 2, commit))
            shard.apply_classic("g", EndPending("x", 2, True, 3))
            await gateway.classic.end_pending("g", EndPending("x", 2, True, 4))
        assert {each.committed_ms for each in shard.group("g").offsets.values()} == {3, 4}
        assert shard.group("g").unstable == {}
        await gateway.classic.pend("g", PendOffsets("x", 0, 3, commit))
        await gateway.classic.end_pending("g", EndPending("x", 3, False, 5))
        assert {each.committed_ms for each in shard.group("g").offsets.values()} == {3, 4}

    run(scenario, tmp_path)


def run(scenario: Callable[[Gateway], Coroutine[None, None, None]], root: Path) -> None:
    async def started() -> None:
        await scenario(await gateway_at(root))

    asyncio.run(started())


def test_more_offsets_are_deleted_than_there_are(tmp_path: Path) -> None:
    """The group has no members, so it ends with its last offset; the whole request is still answered."""

    async def scenario(gateway: Gateway) -> None:
        event = CommitOffsets(offsets=places([FIRST]), at_ms=1)
        assert await gateway.classic.commit("g", event) == {}
        assert {*await gateway.classic.delete_offsets("g", EVERY)} == {*NOWHERE}
        assert not (await gateway.classic.group("g")).exists
        with pytest.raises(UnknownGroup):
            await gateway.classic.delete_offsets("g", EVERY)

    run(scenario, tmp_path)


def test_each_offset_that_cannot_be_committed_or_deleted_has_its_reason(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        beyond = [TopicPartition("t", partition) for partition in (2, 3)]
        asked = [beyond[0], *EVERY, beyond[1]]
        refused = await gateway.classic.commit("g", CommitOffsets(offsets=places(asked), at_ms=1))
        assert {*refused} == {*beyond, *NOWHERE}
        assert (await gateway.classic.group("g")).offsets.keys() == {FIRST, LAST}
        assert {*await gateway.classic.delete_offsets("g", asked)} == {*beyond, *NOWHERE}

    run(scenario, tmp_path)


def test_a_commit_is_whole_though_its_member_leaves_meanwhile(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        event = await member(gateway)
        gone = LeaveGroup((LeftMember("m"),))
        shard = await commit_with(gateway, event, lambda shard: shard.apply_classic("g", gone))
        found = shard.group("g").offsets
        assert found.keys() == {FIRST, LAST}
        assert {each.member for each in found.values()} == {"m"}
        with pytest.raises(LakelogError):
            await gateway.classic.commit("g", event)

    run(scenario, tmp_path)


def test_what_others_commit_meanwhile_came_later(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        event = CommitOffsets(offsets=places(EVERY), at_ms=1)
        later = Reset(places([LAST], 7), 2)
        shard = await commit_with(gateway, event, lambda shard: shard.apply("g", later))
        assert {at: found.offset for at, found in shard.group("g").offsets.items()} == {FIRST: 0, LAST: 7}

    run(scenario, tmp_path)


def test_a_commit_goes_on_when_its_client_is_gone(tmp_path: Path) -> None:
    async def scenario(gateway: Gateway) -> None:
        event = CommitOffsets(offsets=places(EVERY), at_ms=1)
        _, partition = await gateway.shard_manager.partition_for("g")
        shard = await gateway.shard_manager.shard(partition)
        async with asyncio.timeout(WAIT_S):
            committing = asyncio.create_task(gateway.classic.commit("g", event))
            while not shard.group("g").offsets:
                await gateway.loop_share.give_way()
            committing.cancel()
            while LAST not in shard.group("g").offsets:
                await gateway.loop_share.give_way()

    run(scenario, tmp_path)
