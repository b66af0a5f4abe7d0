"""Hot routes take the arguments that FastAPI would take, and say what is wrong as all routes do."""

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from fastapi import FastAPI

from api.process.app import create_app
from api.process.server import open_gateway
from api.requests.hot import HotRoute
from api.v2 import fetch, produce
from ingest.settings import Settings
from log_tables.cluster.admin.topic_admin import create_topic
from tests.kit.consumers import JSON

ROUTES = [route for router in (produce.router, fetch.router) for route in router.routes]

REQUESTS = [
    (method, path + query, headers)
    for method, path in (
        ("POST", "/topics/t"),
        ("POST", "/topics/t/partitions/0"),
        ("POST", "/topics/t/partitions/01"),
        ("POST", "/topics/t/partitions/-1"),
        ("POST", "/topics/t/partitions/9"),
        ("POST", "/topics/t/partitions/99999999999999999999"),
        ("POST", "/topics/none"),
        ("POST", "/topics/a%20b"),
        ("POST", "/topics/__cluster_metadata"),
        ("GET", "/topics/t/partitions/0/records"),
        ("GET", "/topics/t/partitions/x/records"),
        ("GET", "/topics/none/partitions/0/records"),
        ("PUT", "/topics/t"),
        ("DELETE", "/topics/t/partitions/0/records"),
        ("GET", "/topics/t/partitions/0/records/more"),
    )
    for query in (
        "",
        "?acks=1",
        "?ack=1",
        "?acks=1&acks=0",
        "?offset=0&timeout=00",
        "?timeout=5&max_bytes=-1",
        "?max_bytes=",
    )
    for headers in ({}, {"Producer-Id": "1"}, {"Expected-Offset": "x"})
]
"""Right and wrong ones: each path with each query, and with headers of a producer."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    return create_app(open_gateway(Settings(data=str(tmp_path_factory.mktemp("hot"))), "http://test"))


@asynccontextmanager
async def client(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as opened:
        yield opened


def without_hot_routes(app: FastAPI) -> FastAPI:
    """An application with the routes of `app`, in which FastAPI itself answers the hot ones, too."""
    plain = FastAPI(redirect_slashes=False)
    plain.router, plain.state = app.router, app.state
    plain.exception_handlers = app.exception_handlers
    return plain


def test_every_hot_route_is_documented(app: FastAPI) -> None:
    assert [type(route) for route in ROUTES] == [HotRoute] * 3
    shown = app.openapi()["paths"]
    for route in ROUTES:
        assert isinstance(route, HotRoute)
        for method in route.methods or ():
            operation = shown[route.path][method.lower()]
            named = {each["name"] for each in operation["parameters"]}
            wanted = [*inspect.signature(route.endpoint).parameters][1:]
            assert {name.lower().replace("-", "_") for name in named} == {*wanted}


def test_hot_routes_answer_as_fastapi_does(app: FastAPI) -> None:
    async def answers(one: FastAPI) -> list[tuple[int, object]]:
        async with client(one) as sent:
            found = [
                await sent.request(method, url, headers={"Content-Type": JSON, **headers}, content=b"{}")
                for method, url, headers in REQUESTS
            ]
        return [(answer.status_code, answer.json()) for answer in found]

    async def scenario() -> None:
        gateway = app.state.gateway
        await gateway.writer.start()
        create_topic(gateway.cluster, "t", 2)
        try:
            hot, plain = await answers(app), await answers(without_hot_routes(app))
        finally:
            await gateway.writer.close()
        for request, one, other in zip(REQUESTS, hot, plain, strict=True):
            assert one == other, request
        assert {status for status, _ in hot} == {200, 400, 404, 405}

    asyncio.run(scenario())
