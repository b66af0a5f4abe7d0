"""Subscriptions by pattern take topics that their principals may read: forwarded, changed, taken over."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.consumers import Instance, settle
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

ANN, BOB = "User:ann", "User:bob"
BLUE, RED = ("blue", 0), ("red", 0)


class Pair:
    """Two gateways of a secured root, the first of which coordinates the group."""

    def __init__(self, data: Path) -> None:
        self.root = Secured(data)
        for principal in (ANN, BOB):
            self.root.allow(acl(principal, Operation.READ, ResourceType.GROUP, "g"))
            self.root.allow(acl(principal, Operation.READ, ResourceType.TOPIC, "blue"))
        self.keys = {principal: self.root.key(principal) for principal in (ANN, BOB)}
        self.admin = bearer(self.root.key())
        settings = {"authentication_methods": "api-key", "linger_ms": 0, "leader_timeout_ms": 2_000}
        self.gateways = [start_gateway(data, **settings) for _ in range(2)]
        for name in ("blue", "red"):
            self.post("/topics", {"topic_name": name})

    def post(self, path: str, body: object) -> None:
        media = {"Content-Type": "application/vnd.kafka.json.v2+json"}
        self.gateways[0].client.post(path, json=body, headers=media | self.admin).raise_for_status()

    def client(self, principal: str, gateway: RunningGateway) -> httpx.Client:
        return httpx.Client(base_url=gateway.url, headers=bearer(self.keys[principal]), timeout=60)


def reads_red(client: httpx.Client) -> bool:
    return client.get("/topics/red/partitions/0/records").status_code == 200


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path)
    try:
        yield made
    finally:
        for gateway in made.gateways:
            gateway.stop()


def test_partitions_go_to_members_who_may_read_them(pair: Pair) -> None:
    here, there = pair.gateways
    red = acl(ANN, Operation.READ, ResourceType.TOPIC, "red")
    ann = Instance(pair.client(ANN, here), "g", "ann")
    ann.subscribe(pattern=".*")
    settle([ann])
    assert ann.assignment() == {BLUE}
    pair.root.allow(red)
    wait_until(lambda: bool(ann.poll()) or ann.assignment() == {BLUE, RED}, "the ACL counts")

    # Of a member whose requests another gateway forwards it is the same.
    bob = Instance(pair.client(BOB, there), "g", "bob")
    bob.subscribe(pattern=".*")
    settle([ann, bob])
    assert bob.assignment() == {BLUE}
    assert ann.assignment() == {RED}
    assert bob.send("GET", "subscription").json() == {"topics": ["blue"]}
    pair.root.disallow(red)
    pair.root.allow(acl(BOB, Operation.READ, ResourceType.TOPIC, "red"))
    # Either may answer a poll: the leadership of the group's log moves to the gateway that has less.
    elsewhere = pair.client(ANN, there)
    wait_until(lambda: not (reads_red(ann.client) or reads_red(elsewhere)), "the ACL is gone at both")
    pair.post("/topics/red/partitions/0", {"records": [{"value": "secret"}]})

    def moved() -> bool:
        assert "secret" not in str(ann.poll())
        return "secret" in str(bob.poll())

    wait_until(moved, "the partition goes to who may read it")

    # The next coordinator goes by the principals that the group's log has.
    here.kill()
    ann.client = pair.client(ANN, there)

    wait_until(lambda: ann.send("POST", "heartbeat").is_success, "the other gateway coordinates the group")
    settle([ann, bob])
    assert RED in bob.assignment()
    assert RED not in ann.assignment()
