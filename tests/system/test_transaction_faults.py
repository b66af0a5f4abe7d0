"""A coordinator that dies before and after each single write: every transaction is whole and there once."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from coordinator.groups.events import Delete, OffsetAndMetadata
from coordinator.groups.transactions.transaction_coordinator import (
    TransactionRequest,
)
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import AppendedRange
from log_tables.errors import Conflict, InvalidArgument, OutcomeUnknown, PutRefused, Retriable
from log_tables.layout import CONSUMER_OFFSETS, STAGING
from log_tables.root.fsck import check
from log_tables.store.store import Store
from log_tables.testing import (
    Failure,
    Fault,
    FaultyStore,
    answer_lost,
    crash_after,
    crash_before,
    refused,
    unavailable,
)
from tests.kit.failures import before
from tests.kit.partitions import values
from tests.kit.transaction_gateway import (
    BATCHES,
    IN0,
    OUT,
    TRANSACTIONS,
    Client,
    Gateway,
    expected,
    finish_until_refused,
    topics_made,
)

# A coordinator that dies leaves its tasks on a loop that is closed.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <coroutine object Accumulator:pytest.PytestUnraisableExceptionWarning"
)


async def live(store: Store, client: Client, seed: int) -> Gateway:
    """A gateway that serves until all is done."""
    gateway = Gateway(store, seed)
    while True:
        try:
            if gateway.shard is None or not gateway.shard.leading:
                await gateway.start()
            if len(client.answers) == TRANSACTIONS:
                break
            await gateway.serve(client)
        except (Retriable, OutcomeUnknown):
            continue
    await gateway.stop()
    return gateway


async def die(store: Store, nth: int, crash: Failure, client: Client, path: str = "") -> None:
    """A life that ends at the `nth` write (to `path`), wherever the others stand then."""
    loop, died = asyncio.get_running_loop(), asyncio.Event()

    def noticed(perform: Callable[[], object]) -> object:
        try:
            return crash(perform)
        finally:
            loop.call_soon_threadsafe(died.set)

    faulty = FaultyStore(store, [Fault(nth, noticed, path=path)])
    living = asyncio.create_task(live(faulty, client, seed=1))
    dying = asyncio.create_task(died.wait())
    await asyncio.wait((living, dying), return_when=asyncio.FIRST_COMPLETED)
    assert died.is_set(), "it did not come to that write"
    left = [living, dying, *(asyncio.all_tasks() - {asyncio.current_task()})]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def check_all(store: Store, client: Client) -> None:
    """Every transaction is whole, once, in order, and where it was said to be; nothing is left behind."""
    cluster = Cluster.open(store, ManualClock(seed=98))
    for name in OUT:
        for partition in range(2):
            found = values(cluster.topic(name).partition(partition))
            wanted = [v for number in range(TRANSACTIONS) for v in expected(number, name, partition)]
            assert found == wanted
    for number, placed in enumerate(client.answers):
        for name, partition in {(place.topic, place.partition) for place in placed}:
            held, wanted = values(cluster.topic(name).partition(partition)), expected(number, name, partition)
            for place in (place for place in placed if (place.topic, place.partition) == (name, partition)):
                here, wanted = wanted[: place.count], wanted[place.count :]
                if place.base_offset is not None:
                    assert held[place.base_offset : place.base_offset + place.count] == here
            assert wanted == []
    assert check(store).problems == []


def writes_of_a_life() -> int:
    store, client = FaultyStore(topics_made()), Client()
    asyncio.run(live(store, client, seed=1))
    check_all(store.inner, client)
    assert [*store.inner.list(f"{STAGING}/")] == []
    return store.writes()


@pytest.mark.parametrize("crash", [crash_before, crash_after], ids=lambda crash: crash.__name__)
def test_each_transaction_is_whole_and_once_wherever_the_coordinator_dies(crash: Failure) -> None:
    async def die_and_live_again(nth: int) -> None:
        store, client = topics_made(), Client()
        await die(store, nth, crash, client)
        gateway = await live(store, client, seed=2)
        assert gateway.group.committed(IN0) is not None
        check_all(store, client)

    writes = writes_of_a_life()
    assert writes > 30
    for nth in range(1, writes - 1):
        asyncio.run(die_and_live_again(nth))


@pytest.mark.parametrize("failure", [unavailable, refused, answer_lost], ids=lambda failure: failure.__name__)
def test_each_transaction_is_whole_and_once_whichever_write_fails(failure: Failure) -> None:
    for nth in range(1, writes_of_a_life() - 1):
        store, client = topics_made(), Client()
        asyncio.run(live(FaultyStore(store, [Fault(nth, failure)]), client, seed=1))
        check_all(store, client)


@pytest.mark.parametrize("crash", [crash_before, crash_after], ids=lambda crash: crash.__name__)
def test_what_nobody_repeats_is_whole_or_not_there(crash: Failure) -> None:
    """The client dies with its gateway: offsets and records agree."""

    async def die_and_recover(nth: int) -> None:
        store, client = topics_made(), Client()
        await die(store, nth, crash, client)
        gateway = Gateway(store, seed=2)
        await gateway.start()
        for number in range(TRANSACTIONS):
            done = await gateway.known(f"k{number}")
            if done is not None:
                await done.where()
        await gateway.stop()
        committed = gateway.group.committed(IN0)
        there = 0 if committed is None else committed.offset
        assert len(client.answers) <= there <= len(client.answers) + 1
        cluster = Cluster.open(store, ManualClock(seed=98))
        for name in OUT:
            for partition in range(2):
                found = values(cluster.topic(name).partition(partition))
                assert found == [v for n in range(there) for v in expected(n, name, partition)]

    for nth in range(1, writes_of_a_life() - 1):
        asyncio.run(die_and_recover(nth))


@pytest.mark.parametrize("again", [False, True])
def test_records_for_a_topic_that_was_deleted_meanwhile_are_dropped(again: bool) -> None:
    """The coordinator dies before it has applied anything; then a topic is deleted, or re-created."""

    async def scenario() -> None:
        store, client = topics_made(), Client()
        await die(store, 1, crash_before, client, path="topics/o")
        cluster = Cluster.open(store, ManualClock(seed=97))
        delete_topic(cluster, "out")
        if again:
            create_topic(cluster, "out", 2)
        gateway = Gateway(store, seed=2)
        await gateway.start()
        done = await gateway.known("k0")
        assert done is not None
        placed = await done.where()
        await gateway.stop()
        assert {place.topic for place in placed} == {"other"}
        assert gateway.happened.count("dropped") == 2
        committed = gateway.group.committed(IN0)
        assert committed is not None
        assert committed.offset == 1
        assert not gateway.group.transactions.pending
        assert values(Cluster.open(store).topic("other").partition(0)) == expected(0, "other", 0)
        if again:
            assert values(Cluster.open(store).topic("out").partition(0)) == []

    asyncio.run(scenario())


OFFSETS = f"topics/{CONSUMER_OFFSETS}/partition=0/"


def test_a_transaction_whose_commit_failed_for_a_moment_is_repeated_with_its_files() -> None:
    async def scenario() -> None:
        store = FaultyStore(topics_made(), [Fault(1, refused, {"put_new"}, OFFSETS)])
        gateway = Gateway(store, seed=1)
        await gateway.start()
        asked = TransactionRequest({}, staged=(gateway.staged("out"),), key="k", digest="d")
        with pytest.raises(PutRefused):
            await gateway.transact(asked)
        await gateway.start()
        done = await gateway.transact(asked)
        assert await done.where() == (AppendedRange("out", 0, BATCHES, 0),)
        with pytest.raises(InvalidArgument, match="belongs to another transaction"):
            await gateway.transact(TransactionRequest({}, staged=asked.staged, key="l", digest="d"))
        await gateway.stop()

    asyncio.run(scenario())


def test_a_file_that_another_transaction_has_used_up_meanwhile_is_refused() -> None:
    """The two are one request that came twice, without a retry key."""

    async def scenario() -> None:
        store = FaultyStore(topics_made())
        gateway = Gateway(store, seed=1)
        await gateway.start()
        asked, loop = TransactionRequest({}, staged=(gateway.staged("out"),)), asyncio.get_running_loop()

        async def use_up() -> None:
            assert await (await gateway.transact(asked)).where() == (AppendedRange("out", 0, BATCHES, 0),)
            assert gateway.shard is not None
            gateway.transactions.mark_applied(gateway.shard)
            await gateway.transactions._tasks.wait(60)
            assert [*store.inner.list(f"{STAGING}/")] == []

        def use_up_first() -> None:
            asyncio.run_coroutine_threadsafe(use_up(), loop).result(60)

        store.faults.append(Fault(1, before(use_up_first), ("make_durable",), STAGING))
        with pytest.raises(InvalidArgument, match="belongs to another transaction"):
            await gateway.transact(asked)
        await gateway.stop()
        assert not gateway.transactions._spent

    asyncio.run(scenario())


def test_a_group_is_not_deleted_while_a_change_of_it_is_being_committed() -> None:
    """A new group would count from 1 again, and a client that waits for the old group's 1 would apply the new
    one's.
    """
    failing = threading.Event()

    def slow(perform: Callable[[], object]) -> object:
        failing.wait()
        return perform()

    async def scenario() -> None:
        store = FaultyStore(topics_made(), [Fault(1, slow, {"put_new"}, OFFSETS)])
        gateway = Gateway(store, seed=1)
        await gateway.start()
        assert gateway.shard is not None
        first = asyncio.create_task(gateway.transact(TransactionRequest({IN0: OffsetAndMetadata(1)})))
        while not gateway.group.exists:
            await asyncio.wait({first}, timeout=0)
        with pytest.raises(Retriable, match="being committed"):
            gateway.shard.apply("g", Delete(force=True))
        failing.set()
        await first
        gateway.shard.apply("g", Delete(force=True))
        assert gateway.shard.groups() == []
        await gateway.stop()

    asyncio.run(scenario())


def test_what_a_lost_file_held_is_dropped_with_the_group_if_that_is_forced() -> None:
    """The rest is applied: what stands before it and behind it in the same partition, too."""

    async def scenario() -> None:
        store, client = topics_made(), Client()
        await die(store, 1, crash_before, client, path="topics/o")
        (path,) = [item.path for item in store.list(f"{STAGING}/")]
        store.delete(path)
        gateway = Gateway(store, seed=2)
        await gateway.start()
        assert gateway.shard is not None
        await gateway.transact(TransactionRequest({}, staged=(gateway.staged("out"),)))
        with pytest.raises(Retriable, match="are being applied"):
            gateway.shard.apply("g", Delete(force=True))
        with pytest.raises(Conflict, match=path):
            await finish_until_refused(gateway)
        await gateway.transactions.finish(gateway.shard, "g", force=True)
        assert gateway.happened.count("dropped") == 2 * len(OUT)
        await gateway.shard.wait_durable("g")
        gateway.shard.apply("g", Delete(force=True))
        await gateway.stop()
        assert not gateway.group.exists
        assert values(Cluster.open(store).topic("out").partition(0)) == expected(0, "out", 0)
        assert [*store.list(f"{STAGING}/")] == []

    asyncio.run(scenario())
