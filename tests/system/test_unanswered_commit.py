"""A commit of a gateway's that is in the log and not answered yet: others show it, so must this one."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx

from api.gateway import Gateway
from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.body import WithBody
from coordinator.groups.events import Assign, Join, Seek
from coordinator.groups.sessions.consumer_session import ConsumerSession, PollResult
from ingest.settings import Settings
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberConfig
from log_tables.layout import log_directory
from log_tables.store.store import open_store
from log_tables.testing import Fault, FaultyStore
from log_tables.topic_partition import TopicPartition
from tests.kit.groups import any_topic
from tests.kit.support import wait_until
from tests.kit.tables import refreshes_wait

AT = TopicPartition("t", 0)
TABLE = "topics/t/partition=0"

T = TypeVar("T")


class SlowAnswer:
    """A put that is done, and whose answer comes when `answered` is set."""

    def __init__(self) -> None:
        self.done, self.answered = threading.Event(), threading.Event()

    def __call__(self, perform: object) -> object:
        assert callable(perform)
        found = perform()
        self.done.set()
        assert self.answered.wait(60)
        return found


@dataclass
class Committing:
    """A gateway with ten records in "t", and five more in a commit that is there and not answered."""

    gateway: Gateway
    client: httpx.AsyncClient
    answer: SlowAnswer

    async def once_answered(self, request: Coroutine[Any, Any, T]) -> T:
        """The answer to `request`. The commit is answered when the request has ended, or waits for that
        commit.
        """
        waits = refreshes_wait(self.gateway.cluster.topic("t").partition(0).table)
        task = asyncio.create_task(request)
        what = "the request has ended, or waits for the commit"
        await asyncio.to_thread(wait_until, lambda: task.done() or waits(), what)
        self.answer.answered.set()
        return await task


async def nothing(_: Gateway) -> None:
    return None


@asynccontextmanager
async def committing(
    root: Path, before: Callable[[Gateway], Coroutine[Any, Any, None]] = nothing
) -> AsyncIterator[Committing]:
    """`before` is awaited between the ten records and the five."""
    gateway = open_gateway(Settings(data=str(root), linger_ms=0), "http://127.0.0.1:9")
    answer = SlowAnswer()
    # Its commits: the claim, ten records, and then five.
    fault = Fault(3, answer, {"put_if_absent"}, log_directory(TABLE))
    gateway.cluster.store = FaultyStore(gateway.cluster.store, [fault])
    create_topic(Cluster.open(open_store(root)), "t")
    app = create_app(gateway)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(WithBody(app, gateway))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            assert (await produce(client, 10)).status_code == 200
            await before(gateway)
            waiting = asyncio.create_task(produce(client, 5))
            try:
                await asyncio.to_thread(answer.done.wait, 60)
                shown = Cluster.open(open_store(root)).topic("t").partition(0).high_watermark
                assert shown == 15, "as every other process sees it"
                yield Committing(gateway, client, answer)
            finally:
                answer.answered.set()
                await waiting


async def produce(client: httpx.AsyncClient, count: int) -> httpx.Response:
    body = {"records": [{"value": index} for index in range(count)]}
    return await client.post("/topics/t/partitions/0", json=body)


async def never() -> bool:
    return False


async def as_it_is(_consumer: ConsumerSession, polled: PollResult) -> PollResult:
    return polled


def test_an_offset_that_another_gateway_has_shown_is_in_range(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with committing(tmp_path) as here:
            answer = await here.once_answered(here.client.get("/topics/t/partitions/0/records?offset=15"))
            assert (answer.status_code, answer.headers.get("Next-Offset")) == (200, "15")

    asyncio.run(scenario())


def test_a_group_that_has_read_it_elsewhere_does_not_begin_anew(tmp_path: Path) -> None:
    async def reading(gateway: Gateway) -> None:
        coordinator = gateway.coordinator
        config = MemberConfig(auto_offset_reset="earliest", auto_commit=False)
        await coordinator.apply_event("g", Join("m", config))
        await coordinator.apply_event("g", Assign("m", frozenset({AT})))
        # As if a coordinator that has seen the five had given it them: this one would wait for their commit.
        await coordinator.apply_event("g", Seek("m", {AT: 15}))

    async def scenario() -> None:
        async with committing(tmp_path, reading) as here:
            polling = here.gateway.coordinator.poll("g", "m", None, 1 << 20, 0, never, any_topic, as_it_is)
            polled = await here.once_answered(polling)
            assert polled.reads == []

    asyncio.run(scenario())
