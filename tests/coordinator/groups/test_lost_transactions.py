"""Records of a committed transaction that cannot be brought to their partition: never a silent success."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from coordinator.groups.events import Delete
from coordinator.groups.transactions.transaction_coordinator import TransactionRequest
from ingest.buffer import Buffer
from ingest.writer import Acks, Appended
from log_tables.clock import ManualClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    AppendedRange,
    Intent,
    IntentKey,
    Retry,
    RetryKey,
    TransactionsKey,
    TransactionsValue,
)
from log_tables.errors import Conflict, CorruptSegment, ObjectMissing, TransactionLost
from log_tables.layout import STAGING
from log_tables.limits import BRIEF_PRODUCER_ID_MIN, KEPT_PRODUCER_ID_MIN, PRODUCER_EPOCH_MAX
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import Record, input_batch
from log_tables.root.fsck import check
from log_tables.root.group_history import GroupProducers, shared
from log_tables.store.store import Store
from log_tables.testing import Fault, FaultyStore, HoldingStore
from tests.kit.groups import say
from tests.kit.partitions import values
from tests.kit.transaction_gateway import (
    BATCHES,
    Gateway,
    expected,
    finish_until_refused,
    topics_made,
)

OLD = BRIEF_PRODUCER_ID_MIN - 7
"""A group's producer in a root of an older version: a client could name it."""


async def write_as(gateway: Gateway, stamp: ProducerStamp) -> None:
    """Append a record to the first partition of `out` with any stamp, as nobody can over HTTP."""
    entry = AppendRequest(input_batch([Record(b"forged")], 0), stamp)
    with Buffer(1 << 30).room("out") as room:
        topic = gateway.cluster.topic("out")
        (outcome,) = await gateway._append(topic, [(0, entry)], Acks.ALL, room)
    assert isinstance(outcome, Appended)


def old_root(store: Store) -> None:
    """A group whose first transaction, by the producer OLD, is committed and not applied."""
    gateway = Gateway(store, seed=5)
    intent = Intent(OLD, 1, (gateway.staged("out"),), "k")
    cluster = Cluster.open(store, ManualClock(seed=6))
    said = (
        (TransactionsKey("g"), TransactionsValue(OLD, 1)),
        (IntentKey("g", 1), intent),
        (RetryKey("g", "k"), Retry(1, "d", cluster.clock.now_ms())),
    )
    say(cluster, *said)


async def lost(waiting: Coroutine[None, None, object]) -> None:
    with pytest.raises(TransactionLost, match="not in out-0"):
        await waiting


@pytest.mark.parametrize("epoch", [3, PRODUCER_EPOCH_MAX])
def test_a_producer_that_was_outbid_is_an_error_to_everybody_until_it_is_given_up(epoch: int) -> None:
    async def scenario() -> None:
        store = topics_made()
        gateway = Gateway(store, seed=1)
        await gateway.start()
        assert gateway.shard is not None
        done = await gateway.transact(TransactionRequest({}, staged=(gateway.staged("out"),)))
        assert await done.where() == (AppendedRange("out", 0, BATCHES, 0),)
        own = gateway.group.transactions.producer_id
        await write_as(gateway, ProducerStamp(own, epoch, 0, kept=True))
        assert f"is at epoch {epoch}, and the group has committed up to 1" in check(store).problems[0]
        asked = TransactionRequest({}, staged=(gateway.staged("out", "other"),), key="k", digest="d")
        await lost((await gateway.transact(asked)).where())
        for _ in range(2):
            found = await gateway.known("k")
            assert found is not None
            await lost(found.where())
        assert gateway.happened.count("lost") == 1
        with pytest.raises(Conflict, match="cannot be applied"):
            await finish_until_refused(gateway)
        await gateway.transactions.finish(gateway.shard, "g", force=True)
        await gateway.shard.wait_durable("g")
        with pytest.raises(TransactionLost, match="given up"):
            await gateway.known("k")
        gateway.shard.apply("g", Delete(force=True))
        await gateway.shard.wait_durable("g")
        again = await gateway.transact(
            TransactionRequest({}, staged=(gateway.staged("out"),), key="k", digest="d")
        )
        assert await again.where() == (AppendedRange("out", 0, BATCHES, BATCHES + 1),)
        assert gateway.group.transactions.producer_id != own
        await gateway.stop()
        wanted = expected(0, "out", 0)
        assert values(Cluster.open(store).topic("out").partition(0)) == [*wanted, b"forged", *wanted]
        assert values(Cluster.open(store).topic("other").partition(0)) == expected(0, "other", 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("forged", [False, True])
def test_what_an_older_version_left_pending_is_applied_unless_a_client_was_there(forged: bool) -> None:
    async def scenario() -> None:
        store = topics_made()
        old_root(store)
        gateway = Gateway(store, seed=1)
        if forged:
            await gateway.writer.start()
            await write_as(gateway, ProducerStamp(OLD, PRODUCER_EPOCH_MAX, 0))
            assert f"producer {OLD}" in check(store).problems[0]
        await gateway.start()
        found = await gateway.known("k")
        assert found is not None
        if forged:
            await lost(found.where())
        else:
            assert await found.where() == (AppendedRange("out", 0, BATCHES, 0),)
        done = await gateway.transact(TransactionRequest({}, staged=(gateway.staged("other"),)))
        assert await done.where() == (AppendedRange("other", 0, BATCHES, 0),)
        assert gateway.group.transactions.producer_id >= KEPT_PRODUCER_ID_MIN
        assert gateway.group.transactions.number == 2
        await gateway.stop()
        assert values(Cluster.open(store).topic("out").partition(0)) == (
            [b"forged"] if forged else expected(0, "out", 0)
        )

    asyncio.run(scenario())


def missing(_perform: Callable[[], object]) -> object:
    raise ObjectMissing("deleted, as nobody should")


def test_a_transaction_does_not_hear_of_the_losses_of_later_ones() -> None:
    """The first transaction waits for one partition; its records in another are in place, where a later one
    fails.
    """

    async def scenario() -> None:
        third_read = Fault(3, missing, {"get_range"}, f"{STAGING}/")
        other = HoldingStore(
            FaultyStore(topics_made(), [third_read]), "topics/other/partition=0", {"put_new"}
        )
        out = HoldingStore(other, "topics/out/partition=0", {"put_new"})
        gateway = Gateway(out, seed=1)
        await gateway.start()
        other.hold()
        out.hold()
        first = await gateway.transact(TransactionRequest({}, staged=(gateway.staged("out", "other"),)))
        waiting = asyncio.create_task(first.where())
        while not (out.held and other.held):
            await asyncio.wait({waiting}, timeout=0)
        second = await gateway.transact(TransactionRequest({}, staged=(gateway.staged("out"),)))
        out.let_go()
        with pytest.raises(CorruptSegment, match="missing"):
            await second.where()
        other.let_go()
        assert [found.topic for found in await waiting] == ["out", "other"]
        await gateway.stop()

    asyncio.run(scenario())


def test_a_gateway_that_has_lost_its_group_does_not_take_the_files_of_applied_transactions_for_lost() -> None:
    """The next one has applied the transaction, and deleted the file, while the first one was slow."""

    async def scenario() -> None:
        store = HoldingStore(topics_made(), f"{STAGING}/", {"get_range"})
        gateway = Gateway(store, seed=1)
        await gateway.start()
        store.hold()
        asked = TransactionRequest({}, staged=(gateway.staged("out"),), key="k", digest="d")
        waiting = asyncio.create_task((await gateway.transact(asked)).where())
        following = Gateway(store.inner, seed=2)
        await following.start()
        found = await following.known("k")
        assert found is not None
        assert await found.where() == (AppendedRange("out", 0, BATCHES, 0),)
        await following.stop()
        assert [*store.list(f"{STAGING}/")] == []
        store.let_go()
        assert await waiting == (AppendedRange("out", 0, BATCHES),)
        assert "lost" not in gateway.happened
        await gateway.stop()

    asyncio.run(scenario())


def test_two_groups_with_one_producer_are_named() -> None:
    count = TransactionsValue(KEPT_PRODUCER_ID_MIN, 1)
    groups = GroupProducers()
    groups.hear(TransactionsKey("a"), count)
    groups.hear(TransactionsKey("b"), count)
    assert "groups 'a' and 'b'" in next(shared(groups))
    groups.hear(TransactionsKey("a"), None)
    assert [*shared(groups)] == []
