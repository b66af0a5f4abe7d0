"""Commands in processes of their own: bounded, and never left behind."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from starlette.requests import Request

from api.requests.child_process import AT_ONCE, PRIORITY, CommandResult, CommandRunner, environment
from ingest.settings import Settings
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.processes import alive, children, command
from tests.kit.support import wait_until

pytestmark = pytest.mark.usefixtures("process")

LONG_S = 600.0
ENDLESS = ("maintain", "--every", "1h", "--nice", "0")


class Client:
    """A client of the console that waits, until it leaves."""

    def __init__(self, *headers: tuple[bytes, bytes]) -> None:
        self._left = asyncio.Event()
        self.request = Request({"type": "http", "method": "GET", "headers": [*headers]}, self._receive)
        self._begun = False

    async def _receive(self) -> dict[str, object]:
        if not self._begun:
            self._begun = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with two topics, one of them with a name like an option."""
    cluster = Cluster.open(open_store(tmp_path / "data"))
    for name in ("t", "--help"):
        create_topic(cluster, name, 1)
    return tmp_path / "data"


def runner(root: Path, stopping: asyncio.Event | None = None) -> CommandRunner:
    return CommandRunner(Settings(data=str(root)), SystemClock(), stopping or asyncio.Event())


def commands(root: Path) -> list[int]:
    """The commands of this process that run."""
    return [pid for pid in children(os.getpid()) if alive(pid) and "lakelog maintain" in command(pid)]


async def until(holds: Callable[[], object]) -> None:
    await asyncio.to_thread(wait_until, lambda: bool(holds()), "a command in its state")


def test_it_gives_what_a_command_prints(root: Path) -> None:
    async def ask(topic: str) -> CommandResult:
        return await runner(root).run(Client().request, ["fsck", "--json", f"--topic={topic}"], LONG_S)

    for topic in ("t", "--help"):
        found = asyncio.run(ask(topic))
        assert found.failed == ""
        assert json.loads(found.output)["partitions"][0]["directory"] == f"topics/{topic}/partition=0"


@pytest.mark.parametrize("topic", ["'; rm -rf /", "x\x1b[31m", "--data=/"])
def test_a_topic_that_is_none_is_an_error_and_no_option(root: Path, topic: str) -> None:
    async def ask() -> CommandResult:
        return await runner(root).run(Client().request, ["fsck", "--json", f"--topic={topic}"], LONG_S)

    found = asyncio.run(ask())
    assert found.output == b""
    assert "there is no topic" in found.failed
    assert str(root) not in found.failed


def test_a_page_of_another_origin_starts_none(root: Path) -> None:
    async def ask(site: bytes) -> CommandResult:
        client = Client((b"sec-fetch-site", site))
        return await runner(root).run(client.request, ["fsck", "--json", "--topic=t"], LONG_S)

    assert "another origin" in asyncio.run(ask(b"cross-site")).failed
    for site in (b"same-origin", b"none"):
        assert asyncio.run(ask(site)).failed == ""


def test_a_command_is_killed_when_its_client_goes_away(root: Path) -> None:
    async def leave() -> CommandResult:
        client = Client()
        asked = asyncio.create_task(runner(root).run(client.request, ENDLESS, LONG_S))
        await until(lambda: commands(root))
        client.leave()
        return await asked

    assert "nobody waits" in asyncio.run(leave()).failed
    assert commands(root) == []


def test_a_command_is_killed_when_the_gateway_stops(root: Path) -> None:
    async def stop() -> CommandResult:
        stopping = asyncio.Event()
        asked = asyncio.create_task(runner(root, stopping).run(Client().request, ENDLESS, LONG_S))
        await until(lambda: commands(root))
        stopping.set()
        return await asked

    assert "nobody waits" in asyncio.run(stop()).failed
    assert commands(root) == []


def test_a_command_is_killed_when_its_request_is_cancelled(root: Path) -> None:
    async def cancel() -> None:
        asked = asyncio.create_task(runner(root).run(Client().request, ENDLESS, LONG_S))
        await until(lambda: commands(root))
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(cancel())
    assert commands(root) == []


def test_a_command_is_killed_when_its_time_is_over(root: Path) -> None:
    async def ask() -> CommandResult:
        return await runner(root).run(Client().request, ENDLESS, 0.05)

    found = asyncio.run(ask())
    assert found.failed.startswith("it took longer than 0.05 s and was stopped; run `lakelog maintain")
    assert commands(root) == []


def test_few_run_at_once_and_others_are_told_so(root: Path) -> None:
    async def ask() -> tuple[CommandResult, CommandResult]:
        here, clients = runner(root), [Client() for _ in range(AT_ONCE)]
        running = [asyncio.create_task(here.run(client.request, ENDLESS, LONG_S)) for client in clients]
        await until(lambda: len(commands(root)) == AT_ONCE)
        refused = await here.run(Client().request, ["fsck", "--json"], LONG_S)
        for client in clients:
            client.leave()
        await asyncio.gather(*running)
        return refused, await here.run(Client().request, ["fsck", "--json", "--topic=t"], LONG_S)

    refused, later = asyncio.run(ask())
    assert "wait until one has ended" in refused.failed
    assert later.failed == ""


def test_secrets_are_in_the_environment_and_those_of_the_gateway_are_not() -> None:
    settings = Settings(data="s3://b/root", store_options={"secret_access_key": "hidden"})
    inherited = {"PATH": "/bin", "AWS_REGION": "eu", "LAKELOG_DATA": "old", "LAKELOG_OIDC_CLIENT_SECRET": "x"}
    made = environment(settings, inherited)
    assert made["LAKELOG_DATA"] == "s3://b/root"
    assert json.loads(made["LAKELOG_STORE_OPTIONS"]) == {"secret_access_key": "hidden"}
    assert (made["PATH"], made["AWS_REGION"]) == ("/bin", "eu")
    assert "LAKELOG_OIDC_CLIENT_SECRET" not in made


def test_a_command_stands_back_behind_the_gateway(root: Path) -> None:
    lower = os.getpriority(os.PRIO_PROCESS, 0) + PRIORITY

    async def ask() -> None:
        client = Client()
        asked = asyncio.create_task(runner(root).run(client.request, ENDLESS, LONG_S))
        await until(lambda: [os.getpriority(os.PRIO_PROCESS, pid) for pid in commands(root)] == [lower])
        client.leave()
        await asked

    asyncio.run(ask())
