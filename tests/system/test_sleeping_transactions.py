"""A gateway that sleeps in a transaction while housekeeping deletes what it has staged."""

import asyncio

import pytest

from coordinator.groups.transactions.transaction_coordinator import TransactionRequest
from jobs import housekeeping
from jobs.state import look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    AppendedRange,
    Intent,
    IntentKey,
    TransactionsKey,
    TransactionsValue,
)
from log_tables.errors import StoreUnavailable
from log_tables.layout import CONSUMER_OFFSETS, STAGING
from log_tables.limits import STAGING_RETENTION_MS
from log_tables.segments import staging
from log_tables.segments.staging import PartitionRecords
from log_tables.store.store import Store, open_store
from log_tables.testing import ClockedStore, Fault, FaultyStore
from tests.kit.engines import no_engine
from tests.kit.failures import before
from tests.kit.groups import say
from tests.kit.transaction_gateway import BATCHES, Gateway, batches, make_topics

OFFSETS = f"topics/{CONSUMER_OFFSETS}/partition=0/"


class Night:
    """A store that a gateway uses under `awake`, and a housekeeper next to it, by one clock."""

    def __init__(self) -> None:
        self.clock = ManualClock(seed=1)
        self.store: Store = ClockedStore(open_store("memory://"), self.clock)
        make_topics(self.store)
        self.awake = FaultyStore(self.store)
        self.gateway = Gateway(self.awake, seed=2)

    def fall(self) -> None:
        """The gateway's machine sleeps for more than a day, and housekeeping runs on another one."""
        for clock in (self.clock, self.gateway.clock):
            clock.sleep(STAGING_RETENTION_MS + 1)
        keep_house(self.store, self.clock)

    def staged(self) -> list[str]:
        return [item.path for item in self.store.list(f"{STAGING}/")]

    def asked(self) -> TransactionRequest:
        topic_id = self.gateway.cluster.topic("out").topic_id
        return TransactionRequest({}, [PartitionRecords("out", topic_id, 0, batches(0, "out", 0))])


def keep_house(store: Store, clock: ManualClock) -> None:
    cluster = Cluster.open(store, clock, create=False)
    states, _ = look(cluster, {})
    steps = housekeeping.plan(states, clock.now_ms())
    assert all(outcome.error is None for outcome in housekeeping.run(no_engine, cluster, steps))


@pytest.mark.parametrize(
    "path",
    [OFFSETS, f"{OFFSETS}_delta_log/"],
    ids=["before the records of the intent are put", "amid the put of their commit"],
)
def test_a_transaction_that_slept_is_refused_when_its_staged_file_may_be_gone(path: str) -> None:
    async def scenario() -> None:
        night = Night()
        gateway = night.gateway
        await gateway.start()
        night.awake.faults.append(Fault(1, before(night.fall), path=path))
        with pytest.raises(StoreUnavailable, match="took more than 30 minutes"):
            await gateway.transact(night.asked())
        assert night.staged() == []
        await gateway.stop()
        again = Gateway(night.store, seed=3)
        await again.start()
        assert not again.group.transactions.pending
        done = await again.transact(night.asked())
        assert await done.where() == (AppendedRange("out", 0, BATCHES, 0),)
        await again.stop()

    asyncio.run(scenario())


def test_a_transaction_that_slept_before_its_commit_began_is_refused() -> None:
    async def scenario() -> None:
        night = Night()
        gateway = night.gateway
        await gateway.start()
        asked = TransactionRequest({}, staged=(gateway.staged("out"),))
        # The last that `staging.check` does.
        night.awake.faults.append(Fault(1, before(night.fall), ("make_durable",), STAGING))
        with pytest.raises(StoreUnavailable, match="transaction of the group 'g' took more than 30 minutes"):
            await gateway.transact(asked)
        assert night.staged() == []
        done = await gateway.transact(night.asked())  # nothing was appended, so the gateway leads on
        assert await done.where() == (AppendedRange("out", 0, BATCHES, 0),)
        await gateway.stop()

    asyncio.run(scenario())


def test_what_becomes_old_while_the_housekeeper_sleeps_stays() -> None:
    """It has read which files the groups name, and sleeps until a newer one is old, too."""
    night = Night()
    say(night.gateway.cluster, (TransactionsKey("g"), TransactionsValue(1, 1)))
    old = night.gateway.staged("out")
    night.clock.sleep(STAGING_RETENTION_MS + 1)
    named = []

    def fall() -> None:
        named.append(night.gateway.staged("out"))
        say(night.gateway.cluster, (IntentKey("g", 2), Intent(1, 2, (named[0],))))
        night.clock.sleep(STAGING_RETENTION_MS + 1)

    failing = FaultyStore(night.store, [Fault(1, before(fall), ("get", "get_range"), f"{OFFSETS}0")])
    keep_house(failing, night.clock)
    assert night.staged() == [file.path for file in named]
    assert night.staged() != [old.path]


def test_a_housekeeper_that_slept_looks_which_groups_there_are() -> None:
    """The first group came after it had read the topics, and named a file that is old when it wakes."""
    clock = ManualClock(seed=1)
    store = ClockedStore(open_store("memory://"), clock)
    cluster = Cluster.open(store, clock)
    topic = create_topic(cluster, "out")

    def fall() -> None:
        staged = staging.stage(
            store, clock, "g", [PartitionRecords("out", topic.topic_id, 0, batches(0, "out", 0))]
        )
        say(cluster, (IntentKey("g", 1), Intent(1, 1, (staged,))))
        clock.sleep(STAGING_RETENTION_MS + 1)

    keep_house(FaultyStore(store, [Fault(1, before(fall), ("list_dirs",), "topics/")]), clock)
    assert len([*store.list(f"{STAGING}/")]) == 1
