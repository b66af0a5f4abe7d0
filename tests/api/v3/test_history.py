"""Histories of settings and ACLs through version 3, the way back, and who is shown and may do which."""

from collections.abc import Iterator
from typing import Any

import pytest

from log_tables.cluster.access_record import DEFAULT_QUOTA, Quota
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.security_admin import alter_quotas
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import ADMIN, Secured, acl, bearer
from tests.kit.support import wait_until

ANN = "User:ann"
JSON = {"Content-Type": "application/json"}


class World:
    """A secured gateway; requests are an administrator's unless a key says other."""

    def __init__(self, root: Secured, gateway: RunningGateway) -> None:
        self.root, self.gateway, self.admin = root, gateway, root.key()
        self.v3 = f"/v3/clusters/{root.cluster.cluster_id}"
        wait_until(lambda: self.ask("GET", "/acls") == 200, "the gateway knows the key")

    def ask(self, method: str, path: str, key: str = "", **sent: Any) -> int:
        headers = bearer(key or self.admin) | JSON
        self.answer = self.gateway.client.request(method, self.v3 + path, headers=headers, **sent)
        return self.answer.status_code

    def get(self, path: str, **named: Any) -> Any:
        assert self.ask("GET", path, params=named) == 200, self.answer.text
        return self.answer.json()

    def alter(self, topic: str, **values: str) -> None:
        data = [{"name": name.replace("_", "."), "value": value} for name, value in values.items()]
        assert self.ask("POST", f"/topics/{topic}/configs:alter", json={"data": data}) == 204


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    data = tmp_path_factory.mktemp("history")
    root = Secured(data)
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as running:
        yield World(root, running)


def test_settings_go_back_after_a_dry_run_and_the_audit_log_says_who(world: World) -> None:
    assert world.ask("POST", "/topics", json={"topic_name": "t", "partitions_count": 1}) == 201
    world.alter("t", retention_ms="5")
    world.alter("t", retention_ms="6", retention_bytes="7")
    found = world.get("/topics/t/history")
    assert found["since_ms"] == 0
    assert [each["event"] for each in found["data"]] == ["altered", "altered", "created"]
    _, middle, _ = found["data"]
    assert middle["changes"] == [{"name": "retention.ms", "old": None, "new": "5"}]
    back = [
        {"name": "retention.bytes", "old": "7", "new": None},
        {"name": "retention.ms", "old": "6", "new": "5"},
    ]
    named = {"to_version": middle["version"]}
    assert world.get("/topics/t/configs:revert", **named)["changes"] == back
    assert len(world.get("/topics/t/history")["data"]) == 3, "it was only shown"
    assert world.ask("POST", "/topics/t/configs:revert", json=named) == 200
    assert world.answer.json()["changes"] == back
    assert world.get("/topics/t/configs/retention.ms")["value"] == "5"
    assert world.ask("POST", "/topics/t/configs:revert", json=named) == 200
    assert world.answer.json()["changes"] == []

    assert world.ask("DELETE", "/topics/t") == 204
    undeleted = world.gateway.client.post(
        "/deleted-topics/t/undelete", headers=bearer(world.admin), json={"topic_name": "back"}
    )
    assert undeleted.status_code == 200, undeleted.text

    def is_told() -> bool:
        found = [each for topic in ("t", "back") for each in world.get(f"/topics/{topic}/history")["data"]]
        return all(each["principal"] == ADMIN for each in found)

    wait_until(is_told, "the audit log has all changes")


def test_what_names_no_version_is_refused(world: World) -> None:
    world.ask("POST", "/topics", json={"topic_name": "u", "partitions_count": 1})
    path = "/topics/u/configs:revert"
    for named, status in (
        ({}, 400),
        ({"to_version": 1, "to_time": "2026-01-01"}, 400),
        ({"to_version": 10**6}, 404),
        ({"to_time": "2001-01-01T00:00:00Z"}, 416),
        ({"to_time": "soon"}, 400),
    ):
        assert world.ask("GET", path, params=named) == status, (named, world.answer.text)
        assert world.ask("POST", path, json=named) == status, (named, world.answer.text)
    assert world.ask("GET", "/topics/nobody/history") == 404


def test_acls_go_back_and_nobody_locks_themselves_out_unaware(world: World) -> None:
    first = world.get("/acls/history", limit=1)["data"][0]["version"]
    world.root.allow(acl(ANN, Operation.ALTER, ResourceType.CLUSTER))
    ann = world.root.key(ANN)
    wait_until(lambda: world.ask("GET", "/acls/history", ann) == 200, "the gateway knows ann")
    assert "principal" in world.answer.json()["data"][0]
    named = {"to_version": first}
    assert world.ask("GET", "/acls:revert", ann, params=named) == 200
    assert world.answer.json()["lost"] == [
        "ALTER on CLUSTER kafka-cluster",
        "DESCRIBE on CLUSTER kafka-cluster",
    ]
    assert world.ask("POST", "/acls:revert", ann, json=named) == 409
    assert "you would lose ALTER on CLUSTER" in world.answer.text
    assert world.get("/acls:revert", **named)["lost"] == [], "a super user loses nothing"
    assert world.ask("POST", "/acls:revert", ann, json=named | {"force": True}) == 200
    assert world.ask("GET", "/acls", ann) == 403
    assert world.get("/acls")["data"] == []
    assert world.ask("GET", "/acls:revert", ann, params=named) == 403


def test_quotas_go_back(world: World) -> None:
    log = world.root.cluster.metadata_log
    alter_quotas(log, {"User:ann": {"request_rate": 5}})
    wait_until(lambda: "quota" in world.get("/acls/history")["data"][0]["changes"][0]["name"], "it is known")
    version = world.get("/acls/history", limit=1)["data"][0]["version"]
    alter_quotas(log, {"User:ann": {"request_rate": 7}, DEFAULT_QUOTA: {"producer_byte_rate": 1e6}})
    due = [
        {"name": DEFAULT_QUOTA, "old": "producer_byte_rate=1000000", "new": None},
        {"name": "User:ann", "old": "request_rate=7", "new": "request_rate=5"},
    ]
    named = {"to_version": version}
    assert world.get("/quotas:revert", **named)["changes"] == due
    dan = world.root.key("User:dan")
    world.root.allow(acl("User:dan", Operation.ALTER_CONFIGS, ResourceType.CLUSTER))
    wait_until(lambda: world.ask("POST", "/quotas:revert", dan, json=named) == 200, "the gateway knows dan")
    assert world.answer.json()["changes"] == due
    log.refresh()
    assert log.access.quotas == {"User:ann": Quota(request_rate=5)}
    assert world.ask("GET", "/quotas:revert", dan, params=named) == 403
    assert world.get("/quotas:revert", **named)["changes"] == []

    def is_told() -> bool:
        return "User:dan" in [each["principal"] for each in world.get("/acls/history")["data"]]

    wait_until(is_told, "the audit log has the change")


def test_each_needs_its_right(world: World) -> None:
    world.ask("POST", "/topics", json={"topic_name": "v", "partitions_count": 1})
    bob = world.root.key("User:bob")
    world.root.allow(acl("User:bob", Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "v"))
    wait_until(lambda: world.ask("GET", "/topics/v/history", bob) == 200, "the gateway knows bob")
    version = world.answer.json()["data"][0]["version"]
    assert world.answer.json()["data"][0]["principal"] is None, "the audit log is the cluster's"
    named = {"to_version": version}
    assert world.ask("GET", "/topics/v/configs:revert", bob, params=named) == 200
    assert world.ask("POST", "/topics/v/configs:revert", bob, json=named) == 403
    assert world.ask("GET", "/acls/history", bob) == 403
    assert world.ask("GET", "/topics/t/history", bob) == 403
