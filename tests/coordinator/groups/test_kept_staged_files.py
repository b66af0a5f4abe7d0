"""Staged files that stay once their transaction is applied, for standbys that follow."""

import asyncio

import pytest

from coordinator.groups.transactions.transaction_coordinator import CLOSE_WAIT_S, TransactionRequest
from log_tables.clock import timer
from log_tables.cluster.group_log import AppendedRange
from log_tables.errors import InvalidArgument
from log_tables.layout import STAGING
from tests.kit.partitions import values
from tests.kit.support import wait_until
from tests.kit.transaction_gateway import BATCHES, Gateway, expected, topics_made


@pytest.mark.parametrize("keep_s", [0.0, 0.05, 3600.0])
def test_staged_files_of_applied_transactions_stay_as_long_as_asked(keep_s: float) -> None:
    async def scenario() -> None:
        store = topics_made()
        gateway = Gateway(store, seed=1, keep_staged_s=keep_s)
        await gateway.start()
        staged = gateway.staged("out")
        begin = timer()
        done = await gateway.transact(TransactionRequest({}, staged=(staged,), key="k", digest="d"))
        assert await done.where() == (AppendedRange("out", 0, BATCHES, 0),)
        assert gateway.shard is not None
        gateway.transactions.mark_applied(gateway.shard)
        if keep_s > 1:
            with pytest.raises(InvalidArgument, match="belongs to another transaction"):
                await gateway.transact(TransactionRequest({}, staged=(staged,), key="l", digest="e"))
        else:
            await asyncio.to_thread(wait_until, lambda: not [*store.list(f"{STAGING}/")], "it is deleted")
            assert timer() - begin >= keep_s
        begin = timer()
        await gateway.stop()
        assert timer() - begin < CLOSE_WAIT_S
        assert len([*store.list(f"{STAGING}/")]) == (1 if keep_s > 1 else 0)
        following = Gateway(store, seed=2)
        await following.start()
        found = await following.known("k")
        assert found is not None
        assert await found.where() == (AppendedRange("out", 0, BATCHES, 0),)
        assert values(following.cluster.topic("out").partition(0)) == expected(0, "out", 0)
        await following.stop()

    asyncio.run(scenario())
