"""ACLs through version 3: created, listed by filters, deleted, and who may do that."""

from collections.abc import Iterator

import httpx
import pytest

from log_tables.cluster.acl import Operation, ResourceType
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

ANN = "User:ann"
NEW = {
    "resource_type": "TOPIC",
    "resource_name": "flights",
    "pattern_type": "LITERAL",
    "principal": ANN,
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}
ANY = dict.fromkeys(("resource_type", "pattern_type", "operation", "permission"), "ANY")


class Administered:
    """A secured gateway and the ACLs of its cluster; requests are by default an administrator's."""

    def __init__(self, root: Secured, gateway: RunningGateway) -> None:
        self.root, self.gateway, self.admin = root, gateway, root.key()
        self.path = f"/v3/clusters/{root.cluster.cluster_id}/acls"
        wait_until(lambda: self.ask("GET").is_success, "the gateway knows the key")

    def ask(self, method: str, suffix: str = "", key: str = "", **sent: object) -> httpx.Response:
        headers = bearer(key or self.admin)
        return self.gateway.client.request(method, self.path + suffix, headers=headers, **sent)  # type: ignore[arg-type]

    def add(self, **fields: str) -> None:
        answer = self.ask("POST", json=NEW | fields)
        assert (answer.status_code, answer.content) == (201, b""), answer.text

    def listed(self, **named: str) -> list[dict[str, str]]:
        answer = self.ask("GET", params=named)
        assert answer.status_code == 200, answer.text
        return [{name: each[name] for name in NEW} for each in answer.json()["data"]]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Administered]:
    data = tmp_path_factory.mktemp("acls")
    root = Secured(data)
    with running_gateway(data, linger_ms=0, authentication_methods="api-key") as running:
        yield Administered(root, running)


@pytest.fixture
def acls(gateway: Administered) -> Administered:
    gateway.ask("DELETE", params=ANY).raise_for_status()
    return gateway


def test_an_acl_is_created_listed_and_deleted(acls: Administered) -> None:
    acls.add()
    acls.add()
    assert acls.listed() == [NEW]
    whole = acls.ask("GET").json()
    assert whole["kind"] == "KafkaAclList"
    assert whole["data"][0]["kind"] == "KafkaAcl"
    assert whole["data"][0]["cluster_id"] == acls.root.cluster.cluster_id
    assert whole["metadata"]["self"].endswith(acls.path)
    gone = acls.ask("DELETE", params=NEW).json()["data"]
    assert [each["resource_name"] for each in gone] == ["flights"]
    assert acls.listed() == []
    assert acls.ask("DELETE", params=NEW).json() == {"data": []}


def test_filters_are_kafkas(acls: Administered) -> None:
    acls.add()
    acls.add(resource_name="fl", pattern_type="PREFIXED", operation="WRITE")
    acls.add(resource_type="GROUP", resource_name="*", principal="Group:staff", permission="DENY")
    assert len(acls.listed(resource_type="TOPIC")) == 2
    assert len(acls.listed(resource_name="flights", pattern_type="MATCH", resource_type="TOPIC")) == 2
    assert len(acls.listed(resource_name="flights")) == 1
    assert len(acls.listed(pattern_type="PREFIXED", operation="ANY")) == 1
    assert len(acls.listed(principal="Group:staff", permission="DENY", host="*")) == 1
    assert acls.listed(principal="User:bob") == []
    assert len(acls.ask("DELETE", params=ANY | {"principal": ANN}).json()["data"]) == 2
    assert len(acls.listed()) == 1


def test_a_batch_is_created_as_one_or_not_at_all(acls: Administered) -> None:
    wrong = {"data": [NEW, NEW | {"operation": "CLUSTER_ACTION"}]}
    assert acls.ask("POST", ":batch", json=wrong).status_code == 400
    assert acls.listed() == []
    right = {"data": [NEW, NEW | {"operation": "WRITE"}]}
    assert acls.ask("POST", ":batch", json=right).status_code == 201
    assert len(acls.listed()) == 2


def test_what_could_never_match_is_refused(acls: Administered) -> None:
    for wrong in (
        {"resource_type": "TABLE"},
        {"resource_type": "CLUSTER"},
        {"principal": "ann"},
        {"host": "example.org"},
        {"operation": "CLUSTER_ACTION"},
        {"pattern_type": "MATCH"},
    ):
        answer = acls.ask("POST", json=NEW | wrong)
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002), answer.text
    assert acls.ask("POST", json=NEW | {"hosts": "*"}).status_code == 422
    assert acls.ask("GET", params={"operation": "FETCH"}).status_code == 400
    for name in ANY:
        asked = {other: "ANY" for other in ANY if other != name}
        assert name in acls.ask("DELETE", params=asked).json()["message"]


def test_describe_lists_and_alter_changes(acls: Administered) -> None:
    key = acls.root.key("User:clerk")
    wait_until(lambda: acls.ask("GET", key=key).status_code == 403, "the key is known")
    acls.root.allow(acl("User:clerk", Operation.DESCRIBE, ResourceType.CLUSTER))
    wait_until(lambda: acls.ask("GET", key=key).is_success, "the ACL is known")
    assert acls.ask("POST", key=key, json=NEW).status_code == 403
    assert acls.ask("DELETE", key=key, params=ANY).status_code == 403
    acls.root.allow(acl("User:clerk", Operation.ALTER, ResourceType.CLUSTER))
    wait_until(lambda: acls.ask("POST", key=key, json=NEW).is_success, "the ACL is known")


def test_an_acl_opens_and_closes_a_topic(acls: Administered) -> None:
    name, key = "flights", acls.root.key(ANN)
    admin = bearer(acls.admin)
    acls.gateway.client.post("/topics", headers=admin, json={"topic_name": name}).raise_for_status()

    def status() -> int:
        url = f"/topics/{name}/partitions/0/records"
        return acls.gateway.client.get(url, headers=bearer(key)).status_code

    wait_until(lambda: status() == 403, "the key is known")
    acls.add()
    assert status() == 200, "the gateway that made the change goes by it at once"
    acls.ask("DELETE", params=NEW).raise_for_status()
    assert status() == 403
