"""Routes of groups: each runs at the group's coordinator, and any gateway passes its answer on unchanged."""

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules

import httpx
import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

from api import v2, v3
from api.requests.group_route import STREAMED_BYTES, GroupRoute
from tests.kit.consumers import V2, Instance
from tests.kit.gateway import RunningGateway, two_gateways

OF_ONE_CONNECTION = {
    "connection",
    "content-length",
    "date",
    "server",
    "transfer-encoding",
    "x-request-id",
}
"""Headers that may differ."""


def routes() -> Iterator[APIRoute]:
    """The routes of every module of v2 and v3, also of a module that the application does not include."""
    for package in (v2, v3):
        for found in iter_modules(package.__path__):
            module = import_module(f"{package.__name__}.{found.name}")
            router: APIRouter = getattr(module, "router", APIRouter())
            yield from (route for route in router.routes if isinstance(route, APIRoute))


def test_every_route_that_changes_a_group_runs_at_its_coordinator() -> None:
    of_groups = [each for each in routes() if "{group}" in each.path]
    elsewhere = [each for each in of_groups if not isinstance(each, GroupRoute)]
    assert len(of_groups) > len(elsewhere)
    assert {(each.path.split("/")[1], *sorted(each.methods or ())) for each in elsewhere} == {("v3", "GET")}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways of one root; the first coordinates the group of `reader`, which reads topic `t`."""
    root = tmp_path_factory.mktemp("two")
    with two_gateways(root, linger_ms=0) as (first, second):
        first.create_topic("t")
        reader = Instance(first.client, "g", "reader", auto_commit_enable="false")
        reader.subscribe("t")
        reader.poll()
        yield first, second


def asked(gateway: RunningGateway, path: str, **headers: str) -> httpx.Response:
    return gateway.client.get(f"/consumers/g/instances/{path}", headers=headers)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("reader/subscription", 200),
        ("reader/assignments", 200),
        ("nobody/assignments", 404),
        ("reader/records?timeout=0", 200),
        ("reader/records?timeout=-2", 400),
        ("reader/records?time%6fut=0", 200),
        ("a%2Fb/assignments", 404),
    ],
)
def test_an_answer_is_passed_on_as_it_is(
    two: tuple[RunningGateway, RunningGateway], path: str, status: int
) -> None:
    direct, forwarded = (asked(gateway, path, Accept="*/*") for gateway in two)
    assert direct.status_code == forwarded.status_code == status, direct.text
    assert forwarded.content == direct.content
    kept = [
        {name: value for name, value in answer.headers.items() if name not in OF_ONE_CONNECTION}
        for answer in (direct, forwarded)
    ]
    assert kept[0] == kept[1]


def test_a_large_answer_is_streamed_whole(two: tuple[RunningGateway, RunningGateway]) -> None:
    first, second = two
    values = ["x" * (STREAMED_BYTES // 4)] * 8
    assert first.produce("t", *values, partition=0).status_code == 200
    assert Instance(second.client, "g", "reader", create=False).values(len(values)) == values


def test_a_body_is_passed_on(two: tuple[RunningGateway, RunningGateway]) -> None:
    first, second = two
    answer = second.client.post("/consumers/g", json={"name": "other"}, headers={"Content-Type": V2})
    assert answer.json()["instance_id"] == "other"
    assert asked(first, "other/assignments").json() == {"partitions": []}
    assert second.client.delete("/consumers/g/instances/other").status_code == 204
    assert asked(first, "other/assignments").status_code == 404


def test_a_header_that_gateways_might_read_differently_is_refused(
    two: tuple[RunningGateway, RunningGateway],
) -> None:
    for gateway in two:
        answer = gateway.client.get(
            "/consumers/g/instances/reader/records", headers=[("Accept", V2), ("Accept", "*/*")]
        )
        assert answer.status_code == 400
        assert "the header accept has the values" in answer.json()["message"]
