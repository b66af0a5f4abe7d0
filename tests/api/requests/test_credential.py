"""A request that waits is let in by what is right when it goes on, not when it began."""

import json
import select
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import httpx
import pytest

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.gateway import RunningGateway, two_gateways
from tests.kit.secured import Secured, acl, bearer, error_code, everything
from tests.kit.support import wait_until

UNAUTHENTICATED, UNAUTHORIZED = 40101, 40301
JSON = {"Content-Type": "application/vnd.kafka.json.v2+json", "Accept": "application/vnd.kafka.json.v2+json"}
INSTANCE = "/consumers/g/instances/i"
FETCH, POLL = "/topics/t/partitions/0/records?offset=latest", f"{INSTANCE}/records"
SETTINGS = {"linger_ms": 0, "authentication_methods": "api-key", "principal_requests_max": 1}


class World:
    """Two secured gateways, one of which coordinates a group with an instance that reads a topic."""

    def __init__(self, root: Secured, gateways: tuple[RunningGateway, RunningGateway]) -> None:
        self.root, self.gateways, self.admin = root, gateways, root.key()
        for gateway in gateways:
            at = gateway.client
            wait_until(lambda: at.get("/topics", headers=bearer(self.admin)).is_success, "it knows the key")  # noqa: B023
        self.send("/topics", {"topic_name": "t"})
        self.send("/consumers/g", {"name": "i", "format": "json"})
        self.send(f"{INSTANCE}/subscription", {"topics": ["t"]})
        self.polled()

    def send(self, path: str, body: object) -> None:
        url = self.gateways[0].url + path
        httpx.post(url, json=body, headers=JSON | bearer(self.admin), timeout=60).raise_for_status()

    def polled(self) -> list[object]:
        """The values that the instance has not read yet."""
        url = f"{self.gateways[0].url}{POLL}?timeout=0"
        records = httpx.get(url, headers=JSON | bearer(self.admin), timeout=60).raise_for_status().json()
        return [record["value"] for record in records]

    def key(self, principal: str) -> str:
        """A new key of a principal who may do all, as every gateway knows: the coordinator decides, too."""
        self.root.allow(*everything(principal))
        key = self.root.key(principal)

        def known() -> bool:
            asked = [each.client.get("/metrics", headers=bearer(key)) for each in self.gateways]
            return all(answer.is_success for answer in asked)

        wait_until(known, "the key and the ACLs are known")
        return key


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("credential")
    root = Secured(data)
    with two_gateways(data, **SETTINGS) as gateways:
        yield World(root, gateways)


def waiting(pool: ThreadPoolExecutor, gateway: RunningGateway, path: str, key: str) -> Future[httpx.Response]:
    """A request for records that waits at the gateway."""
    url = f"{gateway.url}{path}{'&' if '?' in path else '?'}timeout=100000"

    def asked() -> httpx.Response:
        while True:  # to look whether it waits takes a request of the same principal
            answer = httpx.get(url, headers=JSON | bearer(key), timeout=200)
            if answer.status_code != 429:
                return answer

    asking = pool.submit(asked)

    def waits() -> bool:
        return asking.done() or gateway.client.get("/topics", headers=bearer(key)).status_code == 429

    wait_until(waits, "it waits")
    assert not asking.done(), asking.result().text
    return asking


@pytest.mark.parametrize("path", [FETCH, POLL])
@pytest.mark.parametrize("number", [0, 1])
def test_a_request_that_waits_ends_when_its_key_is_revoked(world: World, number: int, path: str) -> None:
    gateway, name = world.gateways[number], f"User:w{number}{len(path)}"
    key = world.key(name)
    with ThreadPoolExecutor(1) as pool:
        asking = waiting(pool, gateway, path, key)
        world.root.revoke(key)
        assert error_code(asking.result()) == UNAUTHENTICATED, asking.result().text
    world.send("/topics/t", {"records": [{"value": name}]})
    assert world.polled() == [name]


def test_records_that_come_after_a_group_was_denied_are_not_given(world: World) -> None:
    name, other, gateway = "User:denied", "User:denied-too", world.gateways[0]
    key, looking = world.key(name), world.key(other)
    with ThreadPoolExecutor(1) as pool:
        asking = waiting(pool, gateway, POLL, key)
        gone = [acl(each, Operation.ALL, ResourceType.GROUP, "*") for each in (name, other)]
        world.root.disallow(*gone)

        def denied() -> bool:
            asked = [
                each.client.get("/consumers/g/offsets", headers=bearer(looking)) for each in world.gateways
            ]
            return all(answer.status_code == 403 for answer in asked)

        wait_until(denied, "both gateways know it")
        world.send("/topics/t", {"records": [{"value": name}]})
        assert error_code(asking.result()) == UNAUTHORIZED, asking.result().text
    assert world.polled() == [name]


def is_answered(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


def test_records_whose_body_ends_after_the_key_was_revoked_are_not_taken(world: World) -> None:
    gateway, name = world.gateways[0], "User:slow"
    key = world.key(name)
    body = json.dumps({"records": [{"value": name}]}).encode()
    host, port = gateway.url.split("//")[1].split(":")
    head = f"POST /topics/t HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n"
    head += f"Content-Type: {JSON['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n"

    def begun() -> socket.socket:
        while True:  # to look whether it waits takes a request of the same principal
            made = socket.create_connection((host, int(port)), timeout=60)
            made.sendall(head.encode() + body[:1])
            wait_until(
                lambda: (
                    is_answered(made)  # noqa: B023 -- called at once
                    or gateway.client.get("/topics", headers=bearer(key)).status_code == 429
                ),
                "it waits",
            )
            if not is_answered(made):
                return made
            made.close()

    with closing(begun()) as connection:
        world.root.revoke(key)
        wait_until(
            lambda: gateway.client.get("/topics", headers=bearer(key)).status_code == 401, "the key is gone"
        )
        connection.sendall(body[1:])
        assert connection.recv(1_000).startswith(b"HTTP/1.1 401")
    assert world.polled() == []
