"""Every page of the console, found in the application: who may see it, and what it does with any address."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx
import pytest
from fastapi import FastAPI

from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.rules import rule_of
from ingest.settings import Settings
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import AuthorizationFailed
from log_tables.layout import AUDIT, CLUSTER_METADATA, CONSUMER_OFFSETS, MAINTENANCE
from tests.kit.every_route import pages
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer, everything
from tests.kit.served import served
from tests.kit.support import wait_until

INTERNAL = (CLUSTER_METADATA, CONSUMER_OFFSETS, MAINTENANCE, AUDIT, "__lakelog_x")
SECRET = "a value that only readers of the topic see"
NOBODY, ELSEWHERE = "User:nobody", "User:elsewhere"
IN_PATH = {
    "topic": "t",
    "partition": "0",
    "group": "g",
    "run": "r",
    "mirror": "m",
    "version": "0",
    "name": "page.js",
}
LOGIN = ("/console/login", "/console/logout", "/console/files")
"""They need no credential."""

HOSTILE = (
    *("", " ", "-1", "0", "1e9", "9" * 30, "-" + "9" * 30, "0x10", "١", "true", "null", "NaN", "\x00", "\n"),
    *(
        "<script>alert(1)</script>",
        "'\"><img src=x onerror=alert(1)>",
        "{{7*7}}",
        "${7*7}",
        "../../etc/passwd",
    ),
    *("\u202etxt.exe", "😀", "x" * 3_000, "%00", "a&b=c"),
    *("9999-12-31T23:59:59Z", "0001-01-01", "2026-02-30", "earliest", "newest", "base64:!!!", "{", "[" * 500),
)
"""Values that a parameter may be given, whatever it wants."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The application, to be asked for its routes."""
    return create_app(open_gateway(Settings(data=str(tmp_path_factory.mktemp("routes"))), "http://test"))


class World:
    """A secured gateway with a topic, a record and a group; keys of those who may do all, nothing, or
    something elsewhere.
    """

    def __init__(self, root: Secured, gateway: RunningGateway) -> None:
        self.root, self.client = root, gateway.client
        root.allow(*everything(ELSEWHERE, [ResourceType.GROUP]))
        root.allow(acl(ELSEWHERE, Operation.ALL, ResourceType.TOPIC, "other*"))
        self.admin, self.nobody, self.elsewhere = root.key(), root.key(NOBODY), root.key(ELSEWHERE)
        wait_until(lambda: self.get("/topics", self.elsewhere).is_success, "the gateway knows the keys")
        head = bearer(self.admin)
        self.client.post("/topics", json={"topic_name": "t"}, headers=head).raise_for_status()
        sent = {"records": [{"key": "k", "value": SECRET}]}
        kind = {"Content-Type": "application/vnd.kafka.json.v2+json"}
        self.client.post("/topics/t", json=sent, headers=head | kind).raise_for_status()
        offsets = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
        self.client.put("/consumers/g/offsets", json=offsets, headers=head).raise_for_status()

    def get(self, url: str, key: str | None, **headers: str) -> httpx.Response:
        self.client.cookies.clear()
        return self.client.get(url, headers=headers | ({} if key is None else bearer(key)))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as gateway:
        yield World(root, gateway)


def filled(path: str, **named: str) -> str:
    return path.format(**IN_PATH | named)


def shown(app: FastAPI) -> list[str]:
    """The paths of all pages but those of the login."""
    found = [path for method, path in pages(app) if method == "GET" and not path.startswith(LOGIN)]
    assert len(found) > 30
    return found


def test_nobody_sees_a_page_without_a_right_credential(world: World, app: FastAPI) -> None:
    for path in shown(app):
        for key in (None, "a.b"):
            assert world.get(filled(path), key).status_code == 401, path
            led = world.get(filled(path), key, Accept="text/html")
            assert (led.status_code, led.headers["location"][:14]) == (303, "/console/login"), path


def test_each_goes_by_its_rule_and_shows_nothing_of_what_is_hidden(world: World, app: FastAPI) -> None:
    for path in shown(app):
        rule = rule_of({"GET"}, path)
        answer = world.get(filled(path), world.nobody)
        assert (answer.status_code == 403) == bool(rule.needs), (path, answer.status_code)
        for key in (world.nobody, world.elsewhere):
            text = world.get(filled(path), key).text
            assert SECRET not in text, path
            if "{topic}" not in path:
                assert ">t<" not in text, path
        if "{topic}" in path:
            hidden, absent = (
                world.get(filled(path, topic=name), world.elsewhere) for name in ("t", "absent")
            )
            assert hidden.status_code == absent.status_code == 403, path


def test_one_check_more_is_asked_on_every_page(tmp_path: Path, app: FastAPI) -> None:
    root = Secured(tmp_path)
    key = root.key()

    def refuse(_context: object, operation: Operation, kind: ResourceType, name: str) -> None:
        raise AuthorizationFailed(f"the canary says no to {operation} on {kind} {name}")

    async def ask_each() -> None:
        async with served(tmp_path, authentication_methods=("api-key",)) as here:
            here.client.headers.update(bearer(key))
            (await here.client.post("/topics", json={"topic_name": "t"})).raise_for_status()
            here.gateway.access.checks.append(refuse)
            for path in shown(app):
                if rule_of({"GET"}, path).needs:
                    assert "canary" in (await here.client.get(filled(path))).text, path

    asyncio.run(ask_each())


def test_no_page_gets_at_an_internal_topic(world: World, app: FastAPI) -> None:
    for path in shown(app):
        if "{topic}" in path:
            for name in (*INTERNAL, "%5F%5Fconsumer_offsets"):
                answer = world.get(filled(path, topic=name), world.admin)
                assert answer.status_code in (303, 400, 404), (path, name)
                if answer.status_code == 303:
                    answer = world.get(answer.headers["location"], world.admin)
                    assert answer.status_code in (400, 404), (path, name)


def parameters(app: FastAPI) -> dict[str, list[str]]:
    """The query parameters of each page."""
    found: dict[str, list[str]] = {}
    for route in app.routes:
        for each in getattr(route, "effective_route_contexts", lambda route=route: [route])():
            if each.path.startswith("/console") and "GET" in each.methods:
                dependants = [each.dependant]
                for one in dependants:
                    dependants.extend(one.dependencies)
                found[each.path] = [query.alias for one in dependants for query in one.query_params]
    return found


def test_no_address_makes_a_page_fail(world: World, app: FastAPI) -> None:
    """A wrong one is said to be wrong; none is an error of the gateway, and all that is shown is text."""
    tried = 0
    for path, names in parameters(app).items():
        if path.startswith(LOGIN) or path.endswith("/fsck"):
            continue
        for name in names:
            for value in HOSTILE:
                answer = world.get(f"{filled(path)}?{urlencode({name: value})}", world.admin)
                assert answer.status_code < 500, (path, name, value, answer.text[:2_000])
                for tag in ("<script>alert", "<img src=x"):
                    assert tag not in answer.text, (path, name, value)
                tried += 1
    assert tried > 1_000


def test_no_name_in_a_path_makes_a_page_fail(world: World, app: FastAPI) -> None:
    for path in shown(app):
        for name in ("topic", "partition", "group", "run", "mirror"):
            if f"{{{name}}}" in path:
                for value in (
                    "<script>alert(1)<%2Fscript>",
                    "%00",
                    "%FF",
                    "9" * 40,
                    "-1",
                    "..",
                    "%2e%2e",
                    "x" * 300,
                ):
                    answer = world.get(filled(path, **{name: value}), world.admin)
                    assert answer.status_code < 500, (path, name, value, answer.text[:2_000])
                    if answer.headers.get("content-type", "").startswith("text/html"):
                        assert "<script>alert" not in answer.text, (path, name, value)


def test_every_page_has_the_policy(world: World, app: FastAPI) -> None:
    for path in shown(app):
        answer = world.get(filled(path), world.admin)
        if answer.headers.get("content-type", "").startswith("text/html"):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy, path
            assert "unsafe" not in policy, path
            assert " style=" not in answer.text, path
            assert "<script>" not in answer.text, path
            assert answer.headers["cache-control"] == "no-store", path
