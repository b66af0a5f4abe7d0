"""A committed transaction, and what those hear who wait until its records are appended."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from coordinator.groups.transactions.append_events import Loss, PartitionAppend, appends_of
from coordinator.groups.transactions.pending_transaction import PendingTransaction
from log_tables.cluster.group_log import AppendedRange, Intent
from log_tables.errors import CorruptSegment, TransactionLost
from log_tables.limits import KEPT_PRODUCER_ID_MIN
from log_tables.segments.staging import StagedFile, StagedRun
from log_tables.topic_partition import TopicIdPartition

OUT, OTHER = TopicIdPartition("out", "id-out", 0), TopicIdPartition("other", "id-other", 1)
RUNS = tuple(StagedRun(*at, 0, 10, 2) for at in (OUT, OTHER))
APPENDS = appends_of(1, Intent(KEPT_PRODUCER_ID_MIN, 1, (StagedFile("staging/a", RUNS),)))
IN_OUT, IN_OTHER = AppendedRange("out", 0, 2, 5), AppendedRange("other", 1, 2, 9)
MISSING = CorruptSegment("the file is missing")

Scene = Callable[[PendingTransaction], Awaitable[None]]


def played(scene: Scene) -> None:
    async def scenario() -> None:
        await scene(PendingTransaction(APPENDS.keys()))

    asyncio.run(scenario())


def durable(at: TopicIdPartition, base_offset: int) -> PartitionAppend:
    return APPENDS[at].with_durable(2, base_offset)


async def refused(pending: PendingTransaction, loss: Loss) -> None:
    with pytest.raises(type(loss), match=str(loss)):
        await pending.placed()


def test_the_ranges_are_there_when_every_partition_has_its_records() -> None:
    async def scene(pending: PendingTransaction) -> None:
        waiting = asyncio.create_task(pending.placed())
        pending.finish(OTHER, durable(OTHER, 9))
        await asyncio.wait({waiting}, timeout=0)
        assert not waiting.done()
        pending.finish(OUT, durable(OUT, 5))
        assert await waiting == await pending.placed() == (IN_OUT, IN_OTHER)
        assert not pending.given_up

    played(scene)


def test_a_loss_is_told_to_all_who_wait_until_it_is_none_any_longer() -> None:
    async def scene(pending: PendingTransaction) -> None:
        waiting = asyncio.create_task(refused(pending, MISSING))
        await asyncio.wait({waiting}, timeout=0)
        pending.set_loss(OUT, MISSING)
        await waiting
        await refused(pending, MISSING)
        pending.set_loss(OUT, None)
        later = asyncio.create_task(pending.placed())
        await asyncio.wait({later}, timeout=0)
        for at, base_offset in ((OUT, 5), (OTHER, 9)):
            pending.finish(at, durable(at, base_offset))
        assert await later == (IN_OUT, IN_OTHER)

    played(scene)


def test_a_partition_that_has_its_records_holds_nothing_up() -> None:
    async def scene(pending: PendingTransaction) -> None:
        pending.set_loss(OUT, MISSING)
        pending.finish(OUT, durable(OUT, 5))
        pending.finish(OTHER, durable(OTHER, 9))
        assert await pending.placed() == (IN_OUT, IN_OTHER)

    played(scene)


def test_what_is_given_up_is_no_success() -> None:
    async def scene(pending: PendingTransaction) -> None:
        lost = TransactionLost("given up by force")
        pending.set_loss(OUT, lost)
        pending.finish(OUT, replace(APPENDS[OUT], given_up=True))
        await refused(pending, lost)
        pending.finish(OTHER, durable(OTHER, 9))
        assert pending.done.result() == (IN_OTHER,)
        assert pending.given_up
        await refused(pending, lost)

    played(scene)


def test_what_another_process_has_to_append_has_no_ranges() -> None:
    async def scene(pending: PendingTransaction) -> None:
        pending.finish(OUT, durable(OUT, 5))
        pending.leave()
        pending.leave()
        assert await pending.placed() is None

    played(scene)
