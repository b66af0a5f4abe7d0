"""A group on a disk that fails: it is never beyond what a power cut leaves of the log.

The leader of a partition dies between the link of a commit and its fsync: the record is seen, and a power cut
would take it. Another gateway gives it to a group, which notes the place behind it, in each of the ways that
there are. The power may be cut after every fsync from then on.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from api.process.server import gateway_of
from coordinator.groups.events import Assign, Join, OffsetAndMetadata
from coordinator.groups.state.group_records import restore
from coordinator.groups.state.noted_positions import NotedPosition, make_durable
from coordinator.groups.transactions.transaction_coordinator import TransactionRequest
from ingest.settings import Settings
from log_tables.clock import ManualClock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberConfig, replay
from log_tables.errors import OutcomeUnknown, Retriable, StoreUnavailable
from log_tables.layout import CONSUMER_OFFSETS, commit_path
from log_tables.partition.partition import Partition
from log_tables.store.store import Store, open_store
from log_tables.testing import Crash, Fault, FaultyStore, unavailable
from tests.coordinator.groups.test_group_coordinator import AT, Running
from tests.kit.disk import Fails, death, once
from tests.kit.partitions import TABLE, append
from tests.kit.power import Left, World, everything, nothing

SEEN = 2
"""Where the log ends for who sees it: one record is durable, the second may not be."""

Way = Callable[[Running], Awaitable[object]]


async def a_commit_of_an_offset(here: Running) -> None:
    await here.join("m")
    await here.given()
    await here.coordinator.commit("g", "m", {AT: OffsetAndMetadata(SEEN)})


async def a_commit_of_all_that_was_given(here: Running) -> None:
    await here.join("m")
    await here.given()
    await here.coordinator.commit("g", "m", None)


async def auto_commit_at_a_poll(here: Running) -> None:
    await here.join("m", auto_commit=True, auto_commit_interval_ms=0)
    await here.given()
    await here.poll()
    await here.shard_manager.group("g")  # a poll does not wait for it


async def auto_commit_at_the_end(here: Running) -> None:
    await here.join("m", auto_commit=True)
    await here.given()
    await here.coordinator.leave("g", "m")


async def a_transaction_of_a_member(here: Running) -> None:
    await here.join("m")
    await here.given()
    await here.coordinator.transact("g", "m", TransactionRequest({AT: OffsetAndMetadata(SEEN)}))


async def a_transaction_from_outside(here: Running) -> None:
    await here.coordinator.transact("g", None, TransactionRequest({AT: OffsetAndMetadata(SEEN)}))


async def a_reset(here: Running) -> None:
    await here.coordinator.reset("g", {AT: OffsetAndMetadata(SEEN)}, force=True)


async def a_beginning_at_the_end(here: Running) -> None:
    await here.join("m", auto_offset_reset="latest")
    await here.poll()


async def a_beginning_at_the_end_of_its_own_partition(here: Running) -> None:
    await here.coordinator.apply_event("g", Join("m", MemberConfig()))
    await here.coordinator.apply_event("g", Assign("m", frozenset({AT})))
    await here.poll()


async def a_seek(here: Running) -> None:
    await here.join("m")
    await here.poll()
    await here.coordinator.seek("g", "m", {AT: SEEN})


async def a_hand_over(here: Running) -> None:
    await here.join("m")
    await here.given()
    await here.shard_manager.close()


WAYS: list[Way] = [
    a_commit_of_an_offset,
    a_commit_of_all_that_was_given,
    auto_commit_at_a_poll,
    auto_commit_at_the_end,
    a_transaction_of_a_member,
    a_transaction_from_outside,
    a_reset,
    a_beginning_at_the_end,
    a_beginning_at_the_end_of_its_own_partition,
    a_seek,
    a_hand_over,
]
NOT_WAITED_FOR = [auto_commit_at_a_poll, a_hand_over]
ways = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


def led_elsewhere(store: Store, records: int) -> Partition:
    """The topic "t", whose partition another process leads, and a log of groups that nobody leads yet."""
    cluster = Cluster.open(store, ManualClock(), "http://elsewhere")
    create_topic(cluster, "t")
    create_topic(cluster, CONSUMER_OFFSETS, 1, {"cleanup.policy": "compact"}, internal=True)
    partition = cluster.claim(cluster.topic("t"), 0)
    for number in range(records):
        append(partition, b"%d" % number)
    return partition


async def running(store: Store) -> Running:
    settings = Settings(linger_ms=0, advertised_url="http://here", peer_url="http://here")
    clock = SystemClock()
    here = Running(gateway_of(Cluster.open(store, clock, settings.peer_url), settings, clock))
    await here.gateway.writer.start()
    return here


async def gone_through(store: Store, way: Way) -> None:
    """A gateway's life with one group."""
    here = await running(store)
    try:
        await way(here)
    finally:
        await here.gateway.writer.close()


def see_a_record_that_is_not_durable(world: World) -> None:
    partition = led_elsewhere(world.stores()[0], 0)
    before = world.disk.syncs
    append(partition, b"0")
    world.disk.fails = death(2 * world.disk.syncs - before)  # the last fsync of the next append
    with suppress(Crash):
        append(partition, b"1")
    assert world.disk.failed
    assert [ends(world, cut) for cut in (nothing, everything)] == [SEEN - 1, SEEN]


def ends(world: World, kept: Callable[[str], bool]) -> int:
    return Left(world, kept).cluster.topic("t").partition(0).high_watermark


def noted(store: Store) -> list[int]:
    """All places in the partition that a process which starts now finds groups to have noted."""
    log = Cluster.open(store, ManualClock(), create=False).topic(CONSUMER_OFFSETS).partition(0)
    groups = restore(replay(log), 0).values()
    committed = [group.offsets[AT].offset for group in groups if AT in group.offsets]
    members = [member for group in groups for member in group.members.values()]
    return committed + [member.positions[AT] for member in members if AT in member.positions]


def agree(left: Left) -> None:
    assert max(noted(left.here), default=0) <= left.cluster.topic("t").partition(0).high_watermark


def goes_on_behind_it(left: Left) -> None:
    assert SEEN in noted(left.here)


def lived(root: Path, way: Way, fails: Fails | None = None) -> int:
    """The life of a group that meets a record which is not durable, and, with `fails`, another failure.

    Returns the number of fsyncs of its gateway.
    """
    world = World(root, lambda _: None, watched=True)
    try:
        see_a_record_that_is_not_durable(world)
        world.told("a place", agree)
        before = world.disk.syncs
        world.disk.fails = (lambda number: fails(number - before)) if fails else lambda _: None
        with suppress(*((Retriable, OutcomeUnknown) if fails else ())):
            asyncio.run(gone_through(world.stores()[0], way))
            if not fails:
                world.told("that place", goes_on_behind_it)
        world.check(nothing, everything, world.something)
        return world.disk.syncs - before
    finally:
        world.disk.close()


@ways
def test_no_place_of_a_group_is_beyond_what_a_power_cut_leaves(tmp_path: Path, way: Way) -> None:
    lived(tmp_path, way)


@pytest.mark.torture
@ways
def test_nor_whichever_fsync_fails_then(tmp_path: Path, way: Way) -> None:
    for number in count(1):
        if lived(tmp_path / f"{number}", way, once(number)) < number:
            assert number > 5
            return


@ways
def test_what_cannot_be_made_durable_is_not_noted(tmp_path: Path, way: Way) -> None:
    """The answer is retriable, if somebody waits for one; and a repeat notes it."""
    store = open_store(tmp_path)
    led_elsewhere(store, SEEN)
    failing = FaultyStore(store, [Fault(1, unavailable, {"make_durable"}, TABLE)])
    with suppress(StoreUnavailable):
        asyncio.run(gone_through(failing, way))
        assert way in NOT_WAITED_FOR
    assert ("make_durable", TABLE) in failing.calls
    assert SEEN not in noted(store)
    asyncio.run(gone_through(store, a_reset))
    assert SEEN in noted(store)


def test_what_is_known_to_be_durable_costs_nothing(tmp_path: Path) -> None:
    """Nor what this process has committed itself, nor what was durable before others committed more."""
    store = FaultyStore(open_store(tmp_path))
    led_elsewhere(store, 2)

    def made_durable() -> int:
        return sum(call.operation == "make_durable" and call.path == TABLE for call in store.calls)

    async def scenario() -> None:
        here = await running(store)
        elsewhere = Cluster.open(store.inner, ManualClock(), "http://elsewhere")

        async def costs(*offsets: int) -> int:
            before = made_durable()
            resets = (
                here.coordinator.reset(f"g{at}", {AT: OffsetAndMetadata(at)}, force=False) for at in offsets
            )
            await asyncio.gather(*resets)
            return made_durable() - before

        assert await costs(0) == 0, "before offset 0 there is nothing"
        assert await costs(2, 1, 2, 0) == 1
        assert await costs(2, 1) == 0
        append(elsewhere.claim(elsewhere.topic("t"), 0), b"2")
        assert await costs(2) == 0
        assert await costs(3) == 1
        await here.put(1)
        assert await costs(3, 4) == 0
        await here.gateway.writer.close()

    asyncio.run(scenario())


def test_an_offset_beyond_what_was_seen_here_is_looked_for(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    partition = led_elsewhere(store, 1)
    cluster = Cluster.open(store, ManualClock())
    topic = cluster.topic("t")
    seen = topic.partition(0)
    append(partition, b"1")
    make_durable(cluster, [NotedPosition("t", topic.topic_id, 0, 9)])
    assert seen.high_watermark == 2


def test_a_damaged_partition_or_a_topic_that_is_gone_keeps_no_group_from_going_on(tmp_path: Path) -> None:
    store = FaultyStore(open_store(tmp_path))
    partition = led_elsewhere(store, 1)
    cluster = Cluster.open(store, ManualClock())
    topic = cluster.topic("t")
    place = NotedPosition("t", topic.topic_id, 0, 9)
    topic.partition(0)
    store.put(commit_path(TABLE, partition.snapshot.version + 1), b"{")
    store.calls.clear()
    make_durable(cluster, [place])
    assert store.calls[-2:] == [("make_durable", TABLE), ("make_durable", f"{TABLE}/_delta_log")]
    store.calls.clear()
    make_durable(cluster, [place._replace(topic_id="another"), place._replace(topic="none")])
    assert store.calls == []
    for item in [*store.list(TABLE)]:
        store.delete(item.path)
    make_durable(Cluster.open(store, ManualClock()), [place])
