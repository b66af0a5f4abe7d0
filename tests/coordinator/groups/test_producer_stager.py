"""Batches of transactions are staged; a failure ends those that wait, and none after them."""

import asyncio
from pathlib import Path

from api.gateway import Gateway
from coordinator.groups.producers.producer_stager import ProducerStager
from coordinator.groups.producers.producer_wire import Batch, InitProducer, Producer
from ingest.writer import Appended, AppendOutcome
from log_tables.errors import OutcomeUnknown
from log_tables.rows import Rows
from log_tables.store.local import LocalStore
from log_tables.store.store import Data
from log_tables.topic_partition import TopicIdPartition
from tests.kit.served import served
from tests.kit.support import WAIT_S


class Failing(LocalStore):
    """A store whose first put fails in a way that nobody expects."""

    failed = False

    def put(self, path: str, data: Data) -> None:
        if not self.failed:
            self.failed = True
            raise MemoryError
        super().put(path, data)


async def staged(
    stager: ProducerStager, here: Gateway, begun: Producer, sequence: int
) -> "asyncio.Future[AppendOutcome]":
    at = TopicIdPartition("t", "0" * 32, 0)
    batch = Batch("x", begun.producer_id, begun.epoch, sequence, at, opens=True)
    return await stager.stage(batch, Rows([b"a"], 0), here.buffer.room("t"))


def test_a_failure_holds_up_no_later_batch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path / "root") as app:
            here = app.gateway
            begun = await here.producers.begin(InitProducer("x", 10_000, -1, -1, ""))
            stager = ProducerStager(Failing(tmp_path / "root", here.clock, {}), here.producers, here.clock)
            first = [await staged(stager, here, begun, sequence) for sequence in (0, 1)]
            assert [type(outcome) for outcome in await asyncio.gather(*first)] == [OutcomeUnknown] * 2
            again = await asyncio.wait_for(await staged(stager, here, begun, 0), WAIT_S)
            assert isinstance(again, Appended)
            await stager.close()

    asyncio.run(scenario())
