"""A topic that another process deletes, and makes again, in the middle of a request."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pyarrow as pa
import pytest

from api.gateway import Gateway
from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.body import WithBody
from ingest.settings import Settings
from log_tables.cluster.admin.sweep import sweep
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import STAGING, log_directory, partition_directory, topic_directory
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from log_tables.testing import HoldingStore
from tests.kit.consumers import JSON, V2
from tests.kit.partitions import append, values
from tests.kit.support import wait_until

MEMBER = "/consumers/g/instances/m"
ARROW = "application/vnd.apache.arrow.stream"
LONG_MS = 60_000

Answer = TypeVar("Answer")


class Setup:
    """A gateway inside this process, a client of it, and another process on its root."""

    def __init__(self, root: Path, gateway: Gateway, client: httpx.AsyncClient, store: HoldingStore) -> None:
        self.gateway, self.client, self._store = gateway, client, store
        self.elsewhere = Cluster.open(open_store(root))

    async def amid(self, asked: Coroutine[None, None, Answer], step: Callable[[], object]) -> Answer:
        """The answer to `asked` if `step` happens while the gateway waits for its store."""
        self._store.hold()
        return await self.going_on(asyncio.create_task(asked), step)

    async def going_on(self, asking: "asyncio.Task[Answer]", step: Callable[[], object]) -> Answer:
        """The answer to a request that has begun already, if `step` happens at its next use of the store."""
        self._store.hold()
        await asyncio.to_thread(wait_until, lambda: self._store.held > 0, "the store is asked")
        await asyncio.to_thread(step)
        self._store.let_go()
        return await asking

    def again(self, *values: bytes, partitions: int = 1, there: bool = True) -> None:
        """Delete the topic `t`, and its segments; make it again with `values` if it is to be `there`."""
        delete_topic(self.elsewhere, "t")
        sweep(self.elsewhere)
        if there:
            topic = create_topic(self.elsewhere, "t", partitions)
            if values:
                append(self.elsewhere.claim(topic, 0), *values)

    async def known(self, partitions: int = 1) -> None:
        """The topic `t`, whose segments go as soon as it does; the gateway knows it."""
        create_topic(
            self.elsewhere, "t", partitions, {"file.delete.delay.ms": "0", "topic.delete.delay.ms": "0"}
        )
        await asyncio.to_thread(self.gateway.cluster.refresh, True)

    async def produce(self, *values: int, **query: str) -> httpx.Response:
        """Append each value to the partition of that number."""
        body = {"records": [{"value": value, "partition": value} for value in values]}
        return await self.client.post("/topics/t", json=body, headers={"Content-Type": JSON}, params=query)

    async def join(self, form: str = "json") -> None:
        config = {"name": "m", "format": form, "auto.offset.reset": "earliest", "auto.commit.enable": False}
        answer = await self.client.post("/consumers/g", json=config, headers={"Content-Type": V2})
        assert answer.status_code == 200, answer.text
        answer = await self.client.post(f"{MEMBER}/subscription", json={"topics": ["t"]})
        assert answer.status_code == 204, answer.text

    def held(self, incarnation: int, index: int = 0) -> list[bytes | None]:
        """The values in a partition of one incarnation of the topic `t`, also of a deleted one."""
        directory = partition_directory(topic_directory("t", incarnation), index)
        return values(Partition(self.elsewhere.store, directory, self.elsewhere.clock))


@asynccontextmanager
async def opened(root: Path, operations: Collection[str], path: str) -> AsyncIterator[Setup]:
    """A gateway that looks at no topics unasked; its store can be held at `operations` on what has `path`."""
    settings = Settings(data=str(root), linger_ms=0, refresh_interval_ms=600_000)
    gateway = open_gateway(settings, "http://127.0.0.1:9")
    store = gateway.cluster.store = HoldingStore(gateway.cluster.store, path, operations)
    app = create_app(gateway)
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(WithBody(app, gateway))
        async with httpx.AsyncClient(transport=transport, base_url="http://here", timeout=None) as client:
            yield Setup(root, gateway, client, store)


def run(
    scenario: Callable[[Setup], Coroutine[None, None, None]],
    root: Path,
    operations: Collection[str] = (),
    path: str = "",
) -> None:
    async def opened_and_run() -> None:
        async with opened(root, operations, path) as setup:
            await scenario(setup)

    asyncio.run(opened_and_run())


# Reading.


def given(answer: httpx.Response, form: str) -> list[Any]:
    assert answer.status_code == 200, answer.text
    if form == "json":
        return [record["value"] for record in answer.json()]
    with pa.ipc.open_stream(answer.content) as reader:
        return [int(value) for value in reader.read_all()["value"].to_pylist()]


@pytest.mark.parametrize("form", ["json", "arrow"])
def test_a_segment_that_is_swept_between_plan_and_read_is_no_damage(tmp_path: Path, form: str) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.known()
        append(setup.elsewhere.claim(setup.elsewhere.topic("t"), 0), b"1")
        await setup.join(form)
        headers = {"Accept": JSON if form == "json" else ARROW}
        asked = setup.client.get(f"{MEMBER}/records", params={"timeout": LONG_MS}, headers=headers)
        assert given(await setup.amid(asked, lambda: setup.again(b"2")), form) == [2]
        asked = setup.client.get("/topics/t/partitions/0/records", headers=headers)
        assert given(await asked, form) == [2]

    run(scenario, tmp_path, {"get", "get_range"}, ".parquet")


async def waits(setup: Setup) -> None:
    """Return when somebody waits at the end of the topic that the gateway knows."""
    topic = setup.gateway.cluster.topic("t")
    await asyncio.to_thread(
        wait_until, lambda: topic.is_open(0) and bool(topic.partition(0)._listeners), "somebody waits"
    )


@pytest.mark.parametrize("path", [f"{MEMBER}/records", "/topics/t/partitions/0/records"])
@pytest.mark.parametrize("led", [True, False])
def test_a_long_poll_goes_on_with_the_topic_that_is_there(tmp_path: Path, path: str, led: bool) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.known()
        if led:
            await setup.gateway.writer.accumulator_for(setup.gateway.cluster.topic("t"), 0)
        await setup.join()
        waiting = asyncio.create_task(setup.client.get(path, params={"timeout": LONG_MS}))
        await waits(setup)
        assert given(await setup.going_on(waiting, lambda: setup.again(b"1")), "json") == [1]

    run(scenario, tmp_path, {"get"}, log_directory("topics/t/partition=0"))


@pytest.mark.parametrize("path", [f"{MEMBER}/records", "/topics/t/partitions/0/records"])
def test_a_long_poll_at_the_end_of_a_topic_that_goes_for_good(tmp_path: Path, path: str) -> None:
    """A fetch hears so; a poll waits for a topic of the name, as it does from its beginning."""

    async def scenario(setup: Setup) -> None:
        await setup.known()
        await setup.join()
        waiting = asyncio.create_task(setup.client.get(path, params={"timeout": LONG_MS}))
        await waits(setup)
        await asyncio.to_thread(lambda: setup.again(there=False))
        if path.startswith("/topics"):
            answer = await waiting
            assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
            return
        await asyncio.to_thread(create_topic, setup.elsewhere, "t")
        await setup.gateway.shard_manager.refresh_topics()
        assert (await setup.produce(0)).status_code == 200
        assert given(await waiting, "json") == [0]

    run(scenario, tmp_path)


# Appending.


def test_a_request_that_is_partly_written_is_answered_for_both_topics(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.known(2)
        assert (await setup.produce(0, 1)).status_code == 200

        def one_is_there() -> bool:
            partition = setup.elsewhere.topic("t").partition(0)
            return partition.refresh().high_watermark == 2

        def step() -> None:
            wait_until(one_is_there, "one part of the request is appended")
            setup.again(b"7", b"8", b"9", partitions=2)

        answer = await setup.amid(setup.produce(0, 1), step)
        assert answer.status_code == 200, answer.text
        assert [(each["partition"], each["offset"]) for each in answer.json()["offsets"]] == [(0, 1), (1, 0)]
        assert (setup.held(2, 0), setup.held(2, 1)) == ([b"7", b"8", b"9"], [b"1"])

    run(scenario, tmp_path, {"put_if_absent"}, log_directory("topics/t/partition=1"))


def test_what_was_answered_before_it_was_durable_goes_with_its_topic(tmp_path: Path) -> None:
    async def scenario(setup: Setup) -> None:
        await setup.known()
        assert (await setup.produce(0)).status_code == 200
        answered = []

        async def produced() -> None:
            answered.append(await setup.produce(0, acks="1"))
            await asyncio.to_thread(
                wait_until, lambda: setup.gateway.buffer.used == 0, "nothing is under way"
            )

        await setup.amid(produced(), setup.again)
        assert [each["offset"] for each in answered[0].json()["offsets"]] == [1]
        assert setup.held(2) == []
        assert (await setup.produce(0)).json()["offsets"][0]["offset"] == 0
        assert setup.held(2) == [b"0"]

    run(scenario, tmp_path, {"put_if_absent"}, log_directory("topics/t/partition=0"))


def test_what_was_answered_before_it_had_an_offset_goes_to_the_topic_that_is_there(tmp_path: Path) -> None:
    """And what the client sends next comes after it, as ever."""

    async def scenario(setup: Setup) -> None:
        await setup.known(2)

        async def produced() -> list[httpx.Response]:
            return [await setup.produce(0, 1, acks="0"), await setup.produce(0, 1)]

        early, following = await setup.amid(produced(), lambda: setup.again(b"7", partitions=2))
        assert [each["offset"] for each in early.json()["offsets"]] == [None, None]
        assert [each["offset"] for each in following.json()["offsets"]] == [2, 1]
        assert (setup.held(2, 0), setup.held(2, 1)) == ([b"7", b"0", b"0"], [b"1", b"1"])

    run(scenario, tmp_path, {"put_if_absent"}, "topics/t/")


# Transactions.


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("heard", [True, False])
def test_a_transaction_is_of_the_topic_that_is_there(tmp_path: Path, there: bool, heard: bool) -> None:
    """The topic is re-created while records are staged. Records that are committed before the gateway hears
    of it are deleted with the old topic.
    """

    async def scenario(setup: Setup) -> None:
        await setup.known()
        await setup.join()
        loop = asyncio.get_running_loop()

        def step() -> None:
            setup.again(b"7", there=there)
            if heard:
                asyncio.run_coroutine_threadsafe(setup.gateway.shard_manager.refresh_topics(), loop).result()

        body = {"offsets": [], "records": [{"topic": "t", "value": 1}]}
        asked = setup.client.post(f"{MEMBER}/transactions", json=body, headers={"Content-Type": JSON})
        answer = await setup.amid(asked, step)
        if heard and not there:
            assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
            return
        assert answer.status_code == 200, answer.text
        assert [each["base_offset"] for each in answer.json()["offsets"]] == ([1] if heard else [])
        if there:
            assert setup.held(2) == ([b"7", b"1"] if heard else [b"7"])

    run(scenario, tmp_path, {"put_new"}, STAGING)
