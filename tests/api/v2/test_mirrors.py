"""Mirrors over HTTP: what is shown of them, to whom, and what changes them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.gateway import Gateway
from api.process.app import create_app
from api.process.guard import GuardMiddleware
from api.process.server import open_gateway
from ingest.settings import Settings
from log_tables.clock import ManualClock
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.mirror_admin import stop_copy
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.mirror_report import SourcePartition
from log_tables.cluster.process_report import SILENT_S
from log_tables.store.store import open_store
from tests.kit.mirrored import END, MIRROR, mirrored_topic
from tests.kit.reporting import Reporting
from tests.kit.secured import Secured, acl, bearer
from tests.kit.served import served

SHOP = f"/mirrors/{MIRROR}"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    """A root with the copies `orders`, of two partitions, and `users`."""
    cluster = Cluster.open(open_store(str(tmp_path)))
    mirrored_topic(cluster, "orders", partitions=2)
    mirrored_topic(cluster, "users")
    return cluster


def asked(root: Path, ask: Callable[[Gateway, httpx.AsyncClient], Awaitable[None]], **settings: Any) -> None:
    """Let `ask` send requests to a gateway of which no duty runs."""

    async def run() -> None:
        gateway = open_gateway(Settings(data=str(root), **settings), "http://test", clock=ManualClock(seed=7))
        transport = httpx.ASGITransport(GuardMiddleware(create_app(gateway), gateway))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            await ask(gateway, client)

    asyncio.run(run())


def test_without_a_process_nothing_is_said_of_the_source(tmp_path: Path, cluster: Cluster) -> None:
    async def ask(here: Gateway, client: httpx.AsyncClient) -> None:
        here.mirrors.follow()
        found = (await client.get(SHOP)).json()
        assert (found["mirror"], found["source"], found["state"], found["lag"]) == (
            MIRROR,
            "127.0.0.1:1",
            "active",
            None,
        )
        assert found["processes"] == []
        assert [(each["topic"], each["partition"]) for each in found["partitions"]] == [
            ("orders", 0),
            ("orders", 1),
            ("users", 0),
        ]
        for each in found["partitions"]:
            assert (each["position"], each["source_end"], each["lag"]) == (END, None, None)
            assert (each["lag_seconds"], each["lag_bytes"], each["state"]) == (None, None, "active")
        assert (await client.get("/mirrors/none")).status_code == 404

    asked(tmp_path, ask, authentication_methods=())


def test_what_a_living_process_reports_is_shown_until_it_is_silent(tmp_path: Path, cluster: Cluster) -> None:
    topics = {"orders": [SourcePartition(0, 3, END + 5, 7.5), SourcePartition(1, 0, END)]}

    async def ask(here: Gateway, client: httpx.AsyncClient) -> None:
        process = Reporting(cluster.store)
        process.report(topics)
        here.mirrors.follow()  # one report says nothing of a process: it may be an old one's
        assert (await client.get(SHOP)).json()["processes"] == []
        process.report(topics, trouble="no broker answers", offsets_behind=2)
        here.mirrors.follow()
        found = (await client.get(SHOP)).json()
        [shown] = found["processes"]
        assert (shown["host"], shown["pid"], shown["partitions"]) == ("machinemachine", 102, 2)
        assert (shown["trouble"], shown["offsets_behind"]) == ("no broker answers", 2)
        first, second, other = found["partitions"]
        assert (first["source_start"], first["source_end"], first["lag"]) == (3, END + 5, 5)
        assert first["lag_seconds"] == 7.5
        assert first["lag_bytes"] > 0
        assert (second["lag"], second["lag_seconds"], second["lag_bytes"]) == (0, 0.0, 0)
        assert (other["source_end"], other["lag"]) == (None, None)
        assert (found["lag"], found["lag_seconds"], found["lag_bytes"]) == (5, 7.5, first["lag_bytes"])
        [listed] = (await client.get("/mirrors")).json()
        assert (listed["topics"], listed["stopped"], listed["processes"], listed["lag"]) == (2, 0, 1, 5)

        assert isinstance(here.clock, ManualClock)
        here.clock.advance(round(SILENT_S * 1000))
        assert (await client.get(SHOP)).json()["lag"] is None  # nobody has looked since
        here.mirrors.follow()
        found = (await client.get(SHOP)).json()
        assert (found["processes"], found["lag"]) == ([], None)
        assert found["partitions"][0]["source_end"] is None

    asked(tmp_path, ask, authentication_methods=())


def test_a_caller_sees_what_it_may_describe(tmp_path: Path, cluster: Cluster) -> None:
    root = Secured(tmp_path)
    admin, reader, nobody = (root.key(f"User:{name}") for name in ("admin", "reader", "nobody"))
    root.allow(acl("User:reader", Operation.READ, ResourceType.TOPIC, "users"))

    async def ask(here: Gateway, client: httpx.AsyncClient) -> None:
        process = Reporting(cluster.store)
        process.live(here.mirrors.follow, {"users": [SourcePartition(0, 0, END + 1)]})
        found = (await client.get(SHOP, headers=bearer(admin))).json()
        assert len(found["partitions"]) == 3
        found = (await client.get(SHOP, headers=bearer(reader))).json()
        assert [(each["topic"], each["lag"]) for each in found["partitions"]] == [("users", 1)]
        hidden = ("source", "cluster_id", "topics", "groups", "processes")
        assert [found[name] for name in hidden] == [None] * 5
        [listed] = (await client.get("/mirrors", headers=bearer(reader))).json()
        assert (listed["source"], listed["topics"], listed["lag"]) == (None, 1, 1)
        assert (await client.get("/mirrors", headers=bearer(nobody))).json() == []
        answer = await client.get(SHOP, headers=bearer(nobody))
        assert (answer.status_code, MIRROR in answer.json()["message"]) == (404, True)
        for method, path in (("POST", f"{SHOP}/pause"), ("POST", f"{SHOP}/resume"), ("DELETE", SHOP)):
            assert (await client.request(method, path, headers=JSON | bearer(reader))).status_code == 403

    asked(tmp_path, ask, authentication_methods=("api-key",))


def test_the_life_of_a_mirror_without_its_source(tmp_path: Path, cluster: Cluster) -> None:
    stop_copy(cluster, MIRROR, "orders", "the source has no such topic any more")

    async def run() -> None:
        async with served(tmp_path) as here:
            client = here.client
            assert (await client.post(f"{SHOP}/pause", headers=JSON)).status_code == 204
            found = (await client.get(SHOP)).json()
            states = {each["topic"]: (each["state"], each["reason"]) for each in found["partitions"]}
            assert states["users"] == ("paused", "")
            assert states["orders"] == ("stopped", "the source has no such topic any more")
            assert (await client.post(f"{SHOP}/promote", json={})).json()["error_code"] == 40002
            assert (await client.delete(SHOP)).json()["error_code"] == 40002
            resumed = (await client.post(f"{SHOP}/resume", headers=JSON)).json()
            assert resumed == {"mirror": MIRROR, "resumed": ["orders"]}
            answer = await client.post(f"{SHOP}/promote", json={"topics": ["order"], "now": True})
            assert "did you mean orders" in answer.json()["message"]
            one = {"topics": ["orders"], "now": True}
            assert (await here.produce("orders", {"value": 1})).status_code == 409
            answer = await client.post(f"{SHOP}/promote", json=one)
            assert answer.json() == {"mirror": MIRROR, "promoted": ["orders"], "groups": []}
            produced = await here.produce("orders", {"value": 1}, partition=1)
            assert produced.json()["offsets"][0]["offset"] == END
            rest = await client.post(f"{SHOP}/promote", json={"now": True})
            assert rest.json()["promoted"] == ["users"]
            assert (await client.delete(SHOP)).status_code == 204
            assert (await client.get("/mirrors")).json() == []
            assert (await client.post(f"{SHOP}/pause", headers=JSON)).status_code == 404

    asyncio.run(run())


def test_a_mirror_that_cannot_be_is_refused(tmp_path: Path, cluster: Cluster) -> None:
    new = {"mirror": "shop", "source": "127.0.0.1:1", "topics": ["orders"]}

    async def run() -> None:
        async with served(tmp_path) as here:
            for change, code, said in (
                ({"mirror": "a/b"}, 40002, "'a/b' is not allowed"),
                ({"mirror": MIRROR}, 40002, f"there is a mirror {MIRROR} already"),
                ({"topics": ["^("]}, 40002, "'^(' is not a pattern"),
                ({"topics": []}, 40002, "names no topics"),
                ({"source": "--config=/etc/passwd"}, 40002, "names no source"),
                ({"groups": ["^("]}, 40002, "--group '^(' is not a pattern"),
                ({"on_gap": "skip"}, 40002, "use stop or record"),
                ({"config": "/etc/passwd"}, 42206, "config"),
                ({}, 50003, "127.0.0.1:1"),  # there is no broker
            ):
                answer = await here.client.post("/mirrors", json={**new, **change})
                assert answer.json()["error_code"] == code, answer.text
                assert said in answer.json()["message"]
            assert [each["mirror"] for each in (await here.client.get("/mirrors")).json()] == [MIRROR]

    asyncio.run(run())
