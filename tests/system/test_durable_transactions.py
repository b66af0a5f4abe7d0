"""Transactions of a group on a disk that fails: staged, committed, applied, and whole after a power cut.

Each fsync of a coordinator's life fails, or is where it dies and another one goes on. When something was
answered, and in the long form after every fsync, the power may be cut: the group and the records agree then,
and what was answered is there. (On a disk that fails for good a committed transaction is tried for ever: that
ends like a death.)
"""

import asyncio
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.transactions.transaction_coordinator import TransactionRequest
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import OffsetKey, committed_offsets, pending_files
from log_tables.errors import OutcomeUnknown, Retriable
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.segments.staging import PartitionRecords
from log_tables.store.store import Store
from tests.kit.disk import death, once
from tests.kit.partitions import values
from tests.kit.power import Left, World, everything, nothing
from tests.kit.transaction_gateway import IN0, Gateway

TRANSACTIONS_MAX = 2


def make_topics(store: Store, world: World) -> None:
    cluster = Cluster.open(store, world.clock)
    create_topic(cluster, "in")
    create_topic(cluster, "out")
    create_topic(cluster, CONSUMER_OFFSETS, 1, {"cleanup.policy": "compact"}, internal=True)
    records = [Record(b"x")] * TRANSACTIONS_MAX
    cluster.claim(cluster.topic("in"), 0).append([AppendRequest(input_batch(records, 0))])
    world.told("topics", agree)


def agree(left: Left) -> None:
    """Assert that `out` holds only committed values, in order and once, and that the others can still be
    appended.
    """
    committed, found = committed_in(left), values(left.cluster.topic("out").partition(0))
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) <= committed
    files = pending_files(left.cluster.topic(CONSUMER_OFFSETS).partitions())
    assert len(found) == committed or files
    for path in files:
        left.here.head(path)


def committed_in(left: Left) -> int:
    """How many transactions the group has committed, by its offset."""
    places = committed_offsets(left.cluster.topic(CONSUMER_OFFSETS).partitions())
    return places[OffsetKey("g", "in", 0)].offset if places else 0


def applied(left: Left, number: int) -> None:
    assert values(left.cluster.topic("out").partition(0))[number] == b"%d" % number


def least(left: Left, committed: int) -> None:
    assert committed_in(left) >= committed


async def live(world: World, transactions: int, seed: int) -> None:
    """A gateway that has so many `transactions` done, those that were not answered yet."""
    gateway = Gateway(world.stores()[0], seed)
    while gateway.shard is None:
        with suppress(Retriable, OutcomeUnknown):
            await gateway.start()
    for number in range(transactions):
        await have_done(world, gateway, number)
    await gateway.stop()


async def have_done(world: World, gateway: Gateway, number: int) -> None:
    while not world.was_told(f"{number}"):
        with suppress(Retriable, OutcomeUnknown):
            if gateway.shard is not None and not gateway.shard.leading:
                await gateway.start()
            part = PartitionRecords(
                "out", gateway.cluster.topic("out").topic_id, 0, [input_batch([record(number)], 0)]
            )
            done = await gateway.transact(
                TransactionRequest({IN0: OffsetAndMetadata(number + 1)}, [part], key=f"k{number}")
            )
            world.told(f"{number} is committed", partial(least, committed=number + 1))
            if await done.where():
                world.told(f"{number}", partial(applied, number=number))


def record(number: int) -> Record:
    return Record(b"%d" % number)


async def die(world: World, transactions: int, number: int) -> None:
    """A life that ends in fsync `number`, wherever the others stand then."""
    loop, died = asyncio.get_running_loop(), asyncio.Event()
    dies = death(number)

    def noticed(n: int) -> BaseException | None:
        failure = dies(n)
        if failure is not None:
            loop.call_soon_threadsafe(died.set)
        return failure

    world.disk.fails = noticed
    living, dying = asyncio.create_task(live(world, transactions, 1)), asyncio.create_task(died.wait())
    await asyncio.wait((living, dying), return_when=asyncio.FIRST_COMPLETED)
    left = [living, dying, *(asyncio.all_tasks() - {asyncio.current_task()})]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


async def lived(world: World, transactions: int, number: int, *, dies: bool) -> None:
    number += world.disk.syncs
    if dies:
        await die(world, transactions, number)
        world.disk.fails = lambda _: None
        await live(world, transactions, 2)
    else:
        world.disk.fails = once(number)
        await live(world, transactions, 1)


def came_to(root: Path, number: int, *, dies: bool, long: bool) -> bool:
    """Run a life with a fault at fsync `number`. False if it had fewer fsyncs."""
    world = World(root, lambda _: None, watched=long)
    try:
        make_topics(world.stores()[0], world)
        asyncio.run(lived(world, TRANSACTIONS_MAX if long else 1, number, dies=dies))
        world.check(nothing, everything)
        return world.disk.failed
    except BaseException as error:
        error.add_note(f"fsync {number}, {'death' if dies else 'once'}")
        raise
    finally:
        world.disk.close()


def test_a_transaction_is_whole_whichever_fsync_fails(tmp_path: Path) -> None:
    """Each fsync fails, or is a death, by turns."""
    number = 1
    while came_to(tmp_path / f"{number}", number, dies=number % 2 == 0, long=False):
        number += 1
    assert number > 10


@pytest.mark.torture
@pytest.mark.parametrize("dies", [False, True], ids=["once", "death"])
def test_transactions_are_whole_whichever_fsync_it_is_and_whenever_the_power_is_cut(
    tmp_path: Path, dies: bool
) -> None:
    number = 1
    while came_to(tmp_path / f"{number}", number, dies=dies, long=True):
        number += 1
    assert number > 10
