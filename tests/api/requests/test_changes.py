"""Every route × who asks: a change, a denial and a refusal is one event each, and nothing else is one.

The requests are made from the application's own routes (tests/kit/every_route.py).
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI

from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.access import PUBLIC_PATHS
from api.requests.rules import RULES, Rule, rule_of
from coordinator.access.audit import Audit
from ingest.settings import Settings
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.metadata_log import MirrorRecord
from tests.kit.every_route import LATER, Request, requests_of, routes, without_topic
from tests.kit.secured import Secured, bearer
from tests.kit.served import Served, served

EVERY = 1_000_000
ACL = {
    "resource_type": "TOPIC",
    "resource_name": "t",
    "principal": "User:ann",
    "operation": "READ",
    "permission": "ALLOW",
}
CHANGES = {route: rule.change for route, rule in RULES.items() if rule.change is not None}
BODIES: dict[str, Any] = {
    "/acls:revert": {"to_time": LATER},
    "/quotas:revert": {"to_time": LATER},
    "/acls": ACL,
    "/acls:batch": {"data": [ACL]},
}
"""What a change takes whose route names no topic, by the end of its path."""
QUERIES = {"/acls": "?resource_type=ANY&pattern_type=ANY&operation=ANY&permission=ANY"}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The application, to be asked for its routes."""
    return create_app(open_gateway(Settings(data=str(tmp_path_factory.mktemp("routes"))), "http://test"))


def test_every_route_that_is_no_get_is_a_change_or_one_of_data() -> None:
    for route, rule in RULES.items():
        method, path = route.split(" ")
        assert rule_of({method}, path) is rule, route
        assert (rule.does is None) == (method == "GET"), route
    with pytest.raises(LookupError, match="POST /new"):
        rule_of({"POST"}, "/new", {"POST /new": Rule()})


def every_request(app: FastAPI, cluster_id: str) -> Iterator[Request]:
    for method, route in routes(app):
        path = without_topic(app, method, route, cluster_id)
        named = [*requests_of(app, method, route, cluster_id)]
        if path is not None and not named:
            end = next((end for end in BODIES if route.endswith(end)), "")
            body = BODIES.get(end) if method == "POST" else None
            query = QUERIES.get(end, "") if method == "DELETE" else ""
            media_type = "application/json" if method in ("POST", "PUT", "PATCH") else ""
            yield Request(method, route, "", path + query, media_type, body)
        yield from named


async def events_of(
    here: Served, request: Request, topic: str, key: str | None
) -> tuple[int, list[AuditRecord]]:
    """The status of the answer, and all events of the request."""
    audit = here.gateway.access.audit = Audit(here.gateway.clock)
    kind = {"Content-Type": request.media_type} if request.media_type else {}
    headers = kind | ({} if key is None else bearer(key))
    url = request.url(topic)
    answer = await here.client.request(request.method, url, content=request.content(topic), headers=headers)
    return answer.status_code, audit.take(EVERY)


def test_each_request_has_the_event_that_it_should(tmp_path: Path, app: FastAPI) -> None:
    root = Secured(tmp_path)
    root.cluster.metadata_log.change_mirror("m", lambda _: MirrorRecord("m", "127.0.0.1:1", ("t",)))
    admin, nobody = root.key(), root.key("User:nobody")
    changed = set()

    async def ask_each() -> None:
        async with served(tmp_path, authentication_methods=("api-key",)) as here:
            (
                await here.client.post("/consumers/g", json={"name": "i"}, headers=bearer(admin))
            ).raise_for_status()
            for number, request in enumerate(every_request(app, root.cluster.cluster_id)):
                changes = request.place == "topic_name" or request.method in ("DELETE", "PATCH")
                topic = f"t{number}" if changes else "t"
                if request.place not in ("", "topic_name"):
                    await here.client.post("/topics", json={"topic_name": topic}, headers=bearer(admin))
                await ask(here, request, topic)

    async def ask(here: Served, request: Request, topic: str) -> None:
        route = f"{request.method} {request.route}"
        status, events = await events_of(here, request, topic, None)
        public = request.path in PUBLIC_PATHS
        assert [each.kind for each in events] == ([] if public else [AuditKind.REFUSAL]), request
        status, events = await events_of(here, request, topic, nobody)
        assert [each.kind for each in events] == ([AuditKind.DENIAL] if status == 403 else []), request
        assert status == 403 or not rule_of({request.method}, request.route).needs, request
        status, events = await events_of(here, request, topic, admin)
        told = [each for each in events if each.kind is AuditKind.CHANGE]
        assert all(each.kind in (AuditKind.CHANGE, AuditKind.ACCESS) for each in events), request
        if route not in CHANGES:
            assert told == [], request
            return
        [event] = told
        change = CHANGES[route]
        assert (event.operation, event.resource_type) == (change.operation, change.resource_type), request
        assert event.resource_name in (topic, "g", "m", "kafka-cluster"), request
        assert event.success == (status < 400), (request, status)
        assert (event.principal, event.address) == ("User:admin", "127.0.0.1")
        assert "secret" not in json.dumps(dict(event.facts))
        if event.success:
            changed.add(route)

    asyncio.run(ask_each())
    # A group with a member is not deleted, nor are records that are not there: test_audit_duty.py has both.
    # Nothing of such a group is undone: tests/api/v2/test_undo.py.
    # No topic of the name is deleted: tests/api/v2/test_deleted_topics.py.
    # A mirror needs a source: tests/api/v2/test_mirrors.py.
    assert CHANGES.keys() - changed <= {
        "POST /deleted-topics/{topic}/undelete",
        "DELETE /deleted-topics/{topic}",
        "POST /mirrors",
        "POST /mirrors/{mirror}/promote",
        "DELETE /consumers/{group}",
        "POST /consumers/{group}/undo",
        "PUT /consumers/{group}/offsets",
        "DELETE /topics/{topic}/partitions/{partition}/records",
    }
