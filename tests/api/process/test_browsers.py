"""A page in a browser cannot change anything here by a request that it may send without a preflight."""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from ingest.settings import load_settings
from log_tables.errors import InvalidConfig
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.routes import JSON, WITH_BODY, Route, World, routes
from tests.kit.support import free_port

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=x"
SIMPLE = ["text/plain", "text/plain; charset=utf-8", "text/plain;application/json", "TEXT/PLAIN", FORM]
WITHOUT_PREFLIGHT = [None, "", *SIMPLE, MULTIPART, f"{FORM};{JSON}"]
PAGE = {"Origin": "http://page.example", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}


@pytest.fixture
def world(gateway: RunningGateway, topic: str) -> World:
    return World(gateway, topic)


def written_to(world: World) -> Iterator[Route]:
    return (route for route in routes(world.gateway.client) if route.method in WITH_BODY)


def refused(world: World, route: Route, headers: dict[str, str], content: Any = None) -> tuple[int, int]:
    answer = world.gateway.client.request(
        route.method, route.path(**world.names), headers=headers, content=content
    )
    return answer.status_code, answer.json()["error_code"]


def test_nothing_is_written_without_a_media_type_that_no_page_can_send(world: World) -> None:
    """Every route is tried, also without a body: that alone could create an instance, or commit."""
    before, tried = world.state(), 0
    for named in WITHOUT_PREFLIGHT:
        headers = PAGE if named is None else {**PAGE, "Content-Type": named}
        for route in written_to(world):
            body = world.body_of(route)
            contents = {None, None if body is None else json.dumps(body).encode()}
            # Without a body the other methods miss it, and need a preflight anyway.
            for content in contents if route.method == "POST" else contents - {None}:
                assert refused(world, route, headers, content) == (415, 415), (route, named, content)
                tried += 1
    assert tried > 25 * len(WITHOUT_PREFLIGHT)
    assert world.state() == before


def test_the_same_requests_with_a_media_type_are_taken(world: World) -> None:
    """So what was refused above was refused for that alone."""
    taken = {
        route: world.send(route.method, route.path(**world.names), world.body_of(route)).status_code
        for route in written_to(world)
    }
    # What a member has assigned to itself it cannot subscribe to, and one that is not its own has no offsets.
    # There is no such mirror, and no Kafka for a new one; nothing is deleted, and no older version there.
    in_the_way = {route for route, status in taken.items() if status >= 300}
    assert {route.template.rsplit("/", 1)[1] for route in in_the_way} == {
        "subscription",
        *("mirrors", "pause", "resume", "promote", "verify"),
        *("undelete", "restore", "configs:revert", "acls:revert", "quotas:revert"),
    }, taken


def test_a_page_of_another_origin_is_no_consumer(world: World) -> None:
    """A GET needs no preflight, and a poll moves on: no GET of another origin may change anything."""
    before, refusals = world.state(), []
    for site in ("cross-site", "same-site"):
        for route in routes(world.gateway.client):
            if route.method != "GET":
                continue
            path = route.path(**world.names)
            answer = world.gateway.client.get(path, headers={**PAGE, "Sec-Fetch-Site": site})
            if answer.status_code == 403:
                refusals.append(path)
                assert answer.json()["error_code"] == 403
    assert f"{world.instance}/records" in refusals
    assert world.state() == before
    assert [record["value"] for record in world.gateway.client.get(f"{world.instance}/records").json()] == [
        "first"
    ]


def test_a_page_of_this_origin_is_one(world: World) -> None:
    for site in ("same-origin", "none"):
        headers = {"Sec-Fetch-Site": site}
        assert world.gateway.client.get(f"{world.instance}/records", headers=headers).status_code == 200


def test_no_preflight_is_answered(world: World) -> None:
    asking = {"Origin": "http://page.example", "Access-Control-Request-Method": "POST"}
    for route in routes(world.gateway.client):
        answer = world.gateway.client.options(route.path(**world.names), headers=asking)
        assert answer.status_code == 405, route
        assert not [name for name in answer.headers if name.startswith("access-control-")]


def status(gateway: RunningGateway, host: str, path: str = "/topics") -> int:
    answer = gateway.client.get(path, headers={"Host": host})
    if answer.status_code != 200:
        assert (answer.status_code, answer.json()["error_code"]) == (421, 421)
        assert "allowed_hosts" in answer.json()["message"]
    return answer.status_code


@pytest.mark.parametrize(
    "host",
    [
        "page.example",
        "page.example:8082",
        "localhost.page.example",
        "127.0.0.1.page.example",
        "10.0.0.1",
        "[::2]:80",
        "[",
        "",
        "localhost@page.example",
        "page.example@localhost",
        "page.example:1@localhost:2",
        "localhost#page.example",
        "localhost/.page.example",
        "localhost?page.example",
        "localhost\\page.example",
        "localhost page.example",
        "localhost,page.example",
        "localhost:port",
        "localhost:1:2",
        "[localhost]",
        "[127.0.0.1",
        "::1",
        "..",
        "0.0.0.0",
        "x",
    ],
)
def test_a_loopback_address_is_not_reached_by_another_name(gateway: RunningGateway, host: str) -> None:
    assert status(gateway, host) == 421
    assert status(gateway, host, "/metrics") == 421
    for public in ("/health", "/ready"):  # a kubelet asks by any address
        assert status(gateway, host, public) == 200


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:1", "localhost.:8082", "127.0.0.1", "127.0.0.1:9", "127.1.2.3:80", "[::1]:8082"],
)
def test_a_loopback_address_is_reached_by_its_own_names(gateway: RunningGateway, host: str) -> None:
    assert status(gateway, host) == 200


def test_the_names_in_its_urls_and_those_allowed_are_its_own(tmp_path: Path) -> None:
    port = free_port()
    settings = {
        "port": port,
        "advertised_url": "https://log.example/behind",
        "peer_url": "http://own.example:7",
        "allowed_hosts": "first.example, second.example",
    }
    with running_gateway(tmp_path, **settings) as gateway:
        gateway.client.base_url = f"http://127.0.0.1:{port}"
        for host in ("log.example", "own.example:7", "first.example:1", "Second.Example", "127.0.0.1"):
            assert status(gateway, host) == 200
        assert status(gateway, "third.example") == 421


def test_who_names_no_host_at_all_is_no_browser(gateway: RunningGateway) -> None:
    """Such as a load balancer's probe in HTTP/1.0."""
    url = gateway.client.base_url
    connection = HTTPConnection(url.host, url.port)
    connection.putrequest("GET", "/health", skip_host=True)
    connection.endheaders()
    assert connection.getresponse().status == 200


def test_where_other_machines_come_in_any_name_will_do_unless_names_are_given(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "open", host="0.0.0.0", insecure=True) as gateway:
        port = gateway.url.rsplit(":", 1)[1]
        gateway.client.base_url = f"http://127.0.0.1:{port}"
        assert status(gateway, "whatever.example") == 200
    with running_gateway(
        tmp_path / "named", host="0.0.0.0", insecure=True, allowed_hosts="log.example"
    ) as gateway:
        port = gateway.url.rsplit(":", 1)[1]
        gateway.client.base_url = f"http://127.0.0.1:{port}"
        assert [status(gateway, host) for host in ("log.example", "127.0.0.1", "page.example")] == [
            200,
            200,
            421,
        ]


def test_any_name_may_be_allowed(tmp_path: Path) -> None:
    with running_gateway(tmp_path, allowed_hosts="*") as gateway:
        assert status(gateway, "whatever.example") == 200


def test_pages_of_the_allowed_origins_may_ask_everything_and_others_nothing(tmp_path: Path) -> None:
    own, other = "https://app.example", "https://page.example"
    with running_gateway(tmp_path, cors_allowed_origins=f"{own},http://localhost:3000") as gateway:
        asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
        preflight = gateway.client.options("/topics/t", headers={"Origin": own, **asks})
        assert preflight.status_code == 200
        assert preflight.headers["Access-Control-Allow-Origin"] == own
        assert "access-control-allow-credentials" not in preflight.headers
        refused = gateway.client.options("/topics/t", headers={"Origin": other, **asks})
        assert refused.status_code == 400
        assert "access-control-allow-origin" not in refused.headers
        for origin, status in ((own, 404), (other, 403)):
            page = {"Origin": origin, "Sec-Fetch-Site": "cross-site", "Accept": "*/*"}
            answer = gateway.client.get("/consumers/g/instances/i/records", headers=page)
            assert answer.status_code == status
            assert answer.headers.get("Access-Control-Allow-Origin") == (own if origin == own else None)


@pytest.mark.parametrize("origin", ["*", "app.example", "https://app.example/", "https://*.example", "null"])
def test_an_origin_is_written_out(origin: str) -> None:
    with pytest.raises(InvalidConfig, match="cors_allowed_origins"):
        load_settings(None, cors_allowed_origins=origin)
