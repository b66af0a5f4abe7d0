"""A transaction that is committed while its partitions take no record: what clients hear meanwhile."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.produce import InitProducerIdRequest
from api.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    DescribedTransactionState,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)
from coordinator.groups.classic.events import CommitOffsets, PendOffsets
from coordinator.groups.events import OffsetAndMetadata
from coordinator.groups.transactions.applier import APPLY_WAIT_S
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.store.store import Store
from log_tables.testing import HoldingStore
from log_tables.topic_partition import TopicPartition
from tests.kit.kafka import read_all
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.kafka_transactions import TIMEOUT_MS, Held, add, begin, end, pend, produce
from tests.kit.support import wait_until

HELD, FREE, ID = "held", "free", "tx"


class Scene(NamedTuple):
    """A gateway whose store takes nothing into the topic HELD, a client of it, and a producer of which two
    records, for HELD and for FREE, are committed with the epoch `before`.
    """

    served: KafkaServed
    store: HoldingStore
    asking: Asker
    before: Held

    @property
    def now(self) -> Held:
        """The producer with the epoch that it has since."""
        return self.before._replace(epoch=self.before.epoch + 1)

    def described(self) -> DescribedTransactionState:
        asked = DescribeTransactionsRequest(transactional_ids=[ID])
        (found,) = self.asking.ask(asked).transaction_states
        assert isinstance(found, DescribedTransactionState)
        return found

    def shown(self) -> tuple[str, list[tuple[str, list[int]]]]:
        found = self.described()
        return found.transaction_state, [(each.topic, each.partitions) for each in found.topics]


@contextmanager
def another(scene: Scene) -> Iterator[Asker]:
    with asker(scene.served.port) as made:
        yield made


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    stores: list[HoldingStore] = []

    def wrap(inner: Store) -> Store:
        stores.append(HoldingStore(inner, f"topics/{HELD}/"))
        return stores[-1]

    with kafka_served(tmp_path, wrap=wrap) as served, asker(served.port) as asking:
        for name in (HELD, FREE):
            create_topic(served.gateway.cluster, name, 1)
        (store,) = stores
        producer = begin(asking, ID)
        for name in (HELD, FREE):
            assert produce(asking, producer, name, b"x").error_code == ErrorCode.NONE
        store.hold()
        try:
            with asker(served.port) as ending:
                ending.send(EndTxnRequest(**producer.place, committed=True), 5)
                found = Scene(served, store, asking, producer)
                left = "PrepareCommit", [(HELD, [0])]
                wait_until(lambda: found.shown() == left, "the records of one topic are there")
                yield found
                store.let_go()
                answer = ending.answer(EndTxnRequest, 5)
                assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, found.now.epoch)
        finally:
            store.let_go()


def test_what_is_left_is_shown(scene: Scene) -> None:
    assert scene.described().transaction_start_time_ms > 0
    (listed,) = scene.asking.ask(ListTransactionsRequest(state_filters=["PrepareCommit"])).transaction_states
    assert listed.transactional_id == ID
    scene.store.let_go()
    wait_until(lambda: scene.shown() == ("CompleteCommit", []), "all is there")


def test_the_next_transaction_waits_for_the_last_one(scene: Scene) -> None:
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert add(scene.asking, scene.now, {FREE: [0]}) == {FREE: [concurrent]}
    assert produce(scene.asking, scene.now, FREE, b"next").error_code == concurrent
    asked = AddOffsetsToTxnRequest(**scene.now.place, group_id="g")
    assert scene.asking.ask(asked).error_code == concurrent
    scene.store.let_go()
    wait_until(lambda: scene.shown() == ("CompleteCommit", []), "all is there")
    assert produce(scene.asking, scene.now, FREE, b"next").error_code == ErrorCode.NONE


def test_who_begins_or_ends_hears_of_it_in_time(scene: Scene) -> None:
    """They wait for a while, as most ends take effect at once. A repeat is answered as the first request."""
    clock = scene.served.gateway.clock
    asked = (
        (InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=TIMEOUT_MS), 4),
        (EndTxnRequest(**scene.now.place, committed=False), 5),
        (EndTxnRequest(**scene.before.place, committed=True), 5),
    )
    with ExitStack() as open_:
        clients = [open_.enter_context(another(scene)) for _ in asked]
        began = clock.monotonic()
        for client, (request, version) in zip(clients, asked, strict=True):
            client.send(request, version)
        found = [
            client.answer(type(request), version).error_code
            for client, (request, version) in zip(clients, asked, strict=True)
        ]
    assert found == [ErrorCode.CONCURRENT_TRANSACTIONS] * 2 + [ErrorCode.NONE]
    assert APPLY_WAIT_S <= clock.monotonic() - began < 1.5 * APPLY_WAIT_S


def test_offsets_wait_until_the_group_has_heard_of_the_last_end(tmp_path: Path) -> None:
    """It has offsets of the last transaction, which came late: it asks, and drops them."""
    with kafka_served(tmp_path) as served, asker(served.port) as asking:
        create_topic(served.gateway.cluster, FREE, 1)
        held = begin(asking, ID)
        assert add(asking, held, {FREE: [0]}) == {FREE: [ErrorCode.NONE]}
        assert end(asking, held, 4).error_code == ErrorCode.NONE
        late = CommitOffsets(offsets={TopicPartition(FREE, 0): OffsetAndMetadata(3)}, at_ms=1)
        pending = served.gateway.classic.pend("g", PendOffsets(ID, 0, 1, late))
        asyncio.run_coroutine_threadsafe(pending, served.loop).result()
        asked = AddOffsetsToTxnRequest(**held.place, group_id="g")
        assert asking.ask(asked).error_code == ErrorCode.NONE
        assert pend(asking, held, "g", FREE, 5, version=3) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert pend(asking, held, "g", FREE, 5, version=5) == ErrorCode.CONCURRENT_TRANSACTIONS
        wait_until(lambda: pend(asking, held, "g", FREE, 5, version=3) == ErrorCode.NONE, "they are dropped")


def test_small_requests_are_read_at_the_same_time(tmp_path: Path) -> None:
    """Each is in a file of its own, and an object store takes a while for each."""
    stores: list[HoldingStore] = []

    def wrap(inner: Store) -> Store:
        stores.append(HoldingStore(inner, "staging/", {"get_range"}))
        return stores[-1]

    with kafka_served(tmp_path, wrap=wrap) as served, asker(served.port) as asking:
        create_topic(served.gateway.cluster, FREE, 1)
        (store,) = stores
        held, values = begin(asking, ID), [b"%d" % number for number in range(5)]
        for sequence, value in enumerate(values):
            assert produce(asking, held, FREE, value, sequence).error_code == ErrorCode.NONE
        store.hold()
        try:
            asking.send(EndTxnRequest(**held.place, committed=True), 5)
            wait_until(lambda: store.held == len(values), "all are being read")
        finally:
            store.let_go()
        assert asking.answer(EndTxnRequest, 5).error_code == ErrorCode.NONE
        assert [each.value for each in read_all(served.bootstrap, FREE)] == values
