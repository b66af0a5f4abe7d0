"""Every route × every kind of credential: nothing is answered that its rule, or an ACL, does not allow.

The requests are made from the application's own routes (tests/kit/every_route.py).
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.access import PUBLIC_PATHS
from api.requests.rules import RULES, rule_of
from api.requests.strict import StrictRoute
from ingest.settings import Settings
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.errors import AuthorizationFailed
from tests.kit.every_route import PAGES, Request, pages, requests_of, routes, without_topic
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer, error_code, everything
from tests.kit.served import Served, served
from tests.kit.support import wait_until

UNAUTHENTICATED, UNAUTHORIZED = 40101, 40301
NOBODY, ELSEWHERE, ABLE = "User:nobody", "User:elsewhere", "User:able"
INSTANCE = "/consumers/g/instances/i"
LISTS_WHAT_IT_MAY = {"topic_pattern"}
"""Places whose answer has less instead of being refused."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The application, to be asked for its routes."""
    return create_app(open_gateway(Settings(data=str(tmp_path_factory.mktemp("routes"))), "http://test"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator["World"]:
    data = tmp_path_factory.mktemp("secured")
    root = Secured(data)
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as gateway:
        yield World(root, gateway)


class World:
    """A secured gateway, and keys of principals who may do all, nothing, or all but to the topic."""

    def __init__(self, root: Secured, gateway: RunningGateway) -> None:
        self.root, self.gateway, self.client, self._topics = root, gateway, gateway.client, 0
        self.cluster_id = root.cluster.cluster_id
        but_topics = [kind for kind in ResourceType if kind is not ResourceType.TOPIC]
        elsewhere = [acl(ELSEWHERE, each, ResourceType.TOPIC, "other*") for each in (Operation.ALL,)]
        no_create = [each for each in everything(ELSEWHERE, but_topics) if each.resource_type != "CLUSTER"]
        root.allow(*everything(ABLE), *elsewhere, *no_create)
        self.admin, self.nobody = root.key(), root.key(NOBODY)
        self.elsewhere, self.able = root.key(ELSEWHERE), root.key(ABLE)
        self.expired = root.key(ABLE, expires_ms=1)
        wait_until(lambda: self.ask("GET", "/metrics", self.able).is_success, "the gateway knows the keys")
        self.topic = self.new_topic()
        self.ask("POST", "/consumers/g", self.admin, json={"name": "i"}).raise_for_status()

    def ask(self, method: str, url: str, key: str | None, **sent: object) -> httpx.Response:
        headers = {} if key is None else bearer(key)
        return self.client.request(method, url, headers=headers, **sent)  # type: ignore[arg-type]

    def new_topic(self) -> str:
        self._topics += 1
        name = f"t{self._topics}"
        self.ask("POST", "/topics", self.admin, json={"topic_name": name}).raise_for_status()
        return name

    def send(self, request: Request, name: str, key: str | None) -> httpx.Response:
        headers = {"Content-Type": request.media_type} if request.media_type else {}
        headers |= {} if key is None else bearer(key)
        content = request.content(name)
        return self.client.request(request.method, request.url(name), content=content, headers=headers)


def test_every_route_has_a_rule_and_every_rule_a_route(app: FastAPI) -> None:
    files = {"/docs", "/docs/files/{name}", "/redoc", "/openapi.json"}
    found = {f"{method} {path}" for method, path in (*routes(app), *pages(app))}
    found |= {f"GET {page}" for page in files}
    assert found == {*RULES}


def test_a_route_without_a_rule_cannot_be_made() -> None:
    async def anything() -> None: ...

    with pytest.raises(LookupError):
        StrictRoute("/new", anything, methods=["GET"])


def test_every_request_needs_a_right_credential_and_every_topic_an_acl(world: World, app: FastAPI) -> None:
    tried = 0
    for method, route in routes(app):
        for request in requests_of(app, method, route, world.cluster_id):
            topic = world.new_topic() if method in ("DELETE", "PATCH") else world.topic
            if request.place == "topic_name":
                topic = f"new-{tried}"
            for key in (None, "a.b", world.expired, f"{world.able}x"):
                assert error_code(world.send(request, topic, key)) == UNAUTHENTICATED, request
            assert error_code(world.send(request, topic, world.nobody)) == UNAUTHORIZED, request
            refused = error_code(world.send(request, topic, world.elsewhere))
            assert refused == UNAUTHORIZED or request.place in LISTS_WHAT_IT_MAY, request
            absent = error_code(world.send(request, "absent", world.elsewhere))
            assert absent == refused, f"{request} tells whether a topic exists"
            answer = world.send(request, topic, world.able)
            assert error_code(answer) not in (UNAUTHENTICATED, UNAUTHORIZED), f"{request}: {answer.text}"
            tried += 1
    assert tried > 60


def test_every_route_that_names_no_topic_goes_by_its_rule(world: World, app: FastAPI) -> None:
    files = [("GET", f"/{page}") for page in PAGES]
    for method, route in [*routes(app), *files]:
        known = (method, route) not in files
        path = without_topic(app, method, route, world.cluster_id) if known else route
        if path is None or (method == "DELETE" and route == "/consumers/{group}"):
            continue
        kind = {"Content-Type": "application/json"} if method in ("POST", "PUT", "PATCH") else {}
        public = path in PUBLIC_PATHS
        for key in (None, "a.b", world.expired):
            headers = kind | ({} if key is None else bearer(key))
            code = error_code(world.client.request(method, path, headers=headers))
            assert code == (0 if public else UNAUTHENTICATED), (method, path)
        code = error_code(world.client.request(method, path, headers=kind | bearer(world.nobody)))
        assert (code == UNAUTHORIZED) == bool(rule_of({method}, route).needs), (method, path, code)
        code = error_code(world.client.request(method, path, headers=kind | bearer(world.able)))
        assert code not in (UNAUTHENTICATED, UNAUTHORIZED), (method, path)


def test_lists_show_what_the_caller_may_describe(world: World) -> None:
    world.ask("POST", "/topics", world.admin, json={"topic_name": "other-1"}).raise_for_status()
    assert world.ask("GET", "/topics", world.nobody).json() == []
    assert world.ask("GET", "/topics", world.elsewhere).json() == ["other-1"]
    v3 = f"/v3/clusters/{world.cluster_id}"
    found = world.ask("GET", f"{v3}/topics?includeAuthorizedOperations=true", world.elsewhere).json()["data"]
    assert [each["topic_name"] for each in found] == ["other-1"]
    assert "WRITE" in found[0]["authorized_operations"]
    offsets = [{"topic": world.topic, "partition": 0, "offset": 0}]
    world.ask("PUT", "/consumers/h/offsets", world.admin, json={"offsets": offsets}).raise_for_status()
    assert world.ask("GET", "/consumers/h/offsets", world.elsewhere).json() == {"offsets": []}
    assert len(world.ask("GET", "/consumers/h/offsets", world.able).json()["offsets"]) == 1
    assert world.ask("GET", f"{v3}/consumer-groups", world.nobody).json()["data"] == []


def test_a_poll_returns_records_of_topics_that_the_caller_reads(world: World) -> None:
    """The rights of the caller count, also if another principal has created the instance."""
    topic = world.new_topic()
    sent = {"records": [{"value": "secret"}]}
    kind = {"Content-Type": "application/vnd.kafka.json.v2+json"}
    world.client.post(f"/topics/{topic}", headers=kind | bearer(world.admin), json=sent).raise_for_status()
    config = {"name": "p", "format": "json", "auto.offset.reset": "earliest"}
    world.ask("POST", "/consumers/g", world.able, json=config).raise_for_status()
    at = "/consumers/g/instances/p"
    pattern = {"topic_pattern": topic}
    world.ask("POST", f"{at}/subscription", world.able, json=pattern).raise_for_status()
    accept = {"Accept": "application/vnd.kafka.json.v2+json"}

    def polled(key: str) -> httpx.Response:
        return world.client.get(f"{at}/records?timeout=0", headers=accept | bearer(key))

    for _ in range(3):
        assert polled(world.elsewhere).json() == []
    wait_until(lambda: "secret" in polled(world.able).text, "the reader gets its record")
    world.ask("DELETE", f"{at}/subscription", world.able).raise_for_status()
    world.ask("POST", f"{at}/subscription", world.able, json={"topics": [topic]}).raise_for_status()
    assert error_code(polled(world.elsewhere)) == UNAUTHORIZED


def test_what_is_revoked_or_denied_is_refused_soon(world: World) -> None:
    key, rule = world.root.key("User:soon"), acl("User:soon", Operation.READ, ResourceType.TOPIC, world.topic)
    url = f"/topics/{world.topic}/partitions/0/records"
    world.root.allow(rule)
    wait_until(lambda: world.ask("GET", url, key).is_success, "the ACL is known")
    world.root.disallow(rule)
    wait_until(lambda: error_code(world.ask("GET", url, key)) == UNAUTHORIZED, "the ACL is gone")
    world.root.revoke(key)
    wait_until(lambda: error_code(world.ask("GET", url, key)) == UNAUTHENTICATED, "the key is gone")


def test_one_check_more_is_asked_on_every_route(tmp_path: Path, app: FastAPI) -> None:
    """The caller is a super user, whom only a check and no ACL can refuse."""
    root = Secured(tmp_path)
    key = root.key()

    def refuse(_context: object, operation: Operation, kind: ResourceType, name: str) -> None:
        raise AuthorizationFailed(f"the canary says no to {operation} on {kind} {name}")

    async def ask_each() -> None:
        async with served(tmp_path, authentication_methods=("api-key",)) as here:
            here.client.headers.update(bearer(key))
            (await here.client.post("/topics", json={"topic_name": "t"})).raise_for_status()
            (await here.client.post("/consumers/g", json={"name": "i"})).raise_for_status()
            here.gateway.access.checks.append(refuse)
            assert await refused(here, app, root.cluster.cluster_id) > 60

    asyncio.run(ask_each())


async def refused(here: Served, app: FastAPI, cluster_id: str) -> int:
    """Ask for all that needs a permission; how much that is. Each has to meet the canary."""
    tried = 0
    for method, route in routes(app):
        kind = {"Content-Type": "application/json"} if method in ("POST", "PUT", "PATCH") else {}
        path = without_topic(app, method, route, cluster_id)
        if path is not None and rule_of({method}, route).needs:
            assert "canary" in (await here.client.request(method, path, headers=kind)).text, (method, path)
            tried += 1
        for request in requests_of(app, method, route, cluster_id):
            if request.place not in LISTS_WHAT_IT_MAY:
                kind = {"Content-Type": request.media_type} if request.media_type else {}
                content, url = request.content("t"), request.url("t")
                answer = await here.client.request(method, url, content=content, headers=kind)
                assert "canary" in answer.text, (request, answer.text)
                tried += 1
    return tried


def test_a_repeated_transaction_is_answered_to_those_who_may_write_its_topics(world: World) -> None:
    def committed(key: str, body: object) -> httpx.Response:
        url = "/consumers/repeated/transactions"
        headers = {"Idempotency-Key": "once", **bearer(key)}
        return world.client.post(url, json=body, headers=headers)

    first = {"records": [{"topic": world.topic, "value": 1}]}
    run = {"topic": "other", "topic_id": "t", "partition": 0, "start": 0, "length": 1, "records": 1}
    staged = {"staged": [{"path": f"staging/{'0' * 32}-{'0' * 16}.arrow", "runs": [run]}]}
    done = committed(world.able, first)
    assert done.is_success, done.text
    for body in (first, staged):
        assert committed(world.able, body).json()["offsets"] == done.json()["offsets"]
        refused = committed(world.elsewhere, body)
        assert error_code(refused) == UNAUTHORIZED, refused.text


def test_the_root_is_named_to_those_who_may_describe_the_cluster(world: World) -> None:
    seen = [
        world.ask("GET", "/v3/clusters", key).json()["data"][0]["location"]
        for key in (world.able, world.nobody)
    ]
    assert seen == [world.root.cluster.store.url, None]
