"""How many consumer instances and groups one principal may have, and that others have theirs."""

from collections.abc import Iterator

import httpx
import pytest

from log_tables.cluster.acl import ResourceType
from tests.kit.gateway import two_gateways
from tests.kit.secured import Secured, bearer, everything
from tests.kit.support import wait_until

ANN, BOB = "User:ann", "User:bob"
OFFSETS = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
TRANSACTION = {"records": [{"topic": "t", "value": 1}]}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[httpx.Client]]]:
    """Clients of each principal at two gateways, of which one coordinates all groups."""
    data = tmp_path_factory.mktemp("limited")
    root = Secured(data)
    keys = {principal: root.key(principal) for principal in (ANN, BOB)}
    for principal in keys:
        root.allow(*everything(principal, (ResourceType.TOPIC, ResourceType.GROUP)))
        root.allow(*everything(principal, (ResourceType.TRANSACTIONAL_ID,)))
    settings = {
        "authentication_methods": "api-key",
        "principal_groups_max": 2,
        "principal_consumer_instances_max": 3,
        "linger_ms": 0,
    }
    with two_gateways(data, **settings) as gateways:
        admin = bearer(root.key())
        wait_until(lambda: gateways[0].client.get("/", headers=admin).is_success, "the key is known")
        gateways[0].client.post("/topics", json={"topic_name": "t"}, headers=admin).raise_for_status()
        yield {
            principal: [httpx.Client(base_url=each.url, headers=bearer(key), timeout=60) for each in gateways]
            for principal, key in keys.items()
        }


@pytest.fixture(autouse=True)
def _no_groups(asked: dict[str, list[httpx.Client]]) -> Iterator[None]:
    yield
    for group in "abcd":
        asked[BOB][0].delete(f"/consumers/{group}", params={"force": "true"})


def create(client: httpx.Client, group: str, name: str) -> httpx.Response:
    return client.post(f"/consumers/{group}", json={"name": name})


def refused(answer: httpx.Response, setting: str) -> None:
    assert (answer.status_code, answer.json()["error_code"]) == (429, 42901), answer.text
    assert f"of {ANN} here, as many as {setting} allows" in answer.json()["message"]
    assert answer.headers["Retry-After"] == "1"


def test_a_principal_has_so_many_instances_wherever_it_asks(asked: dict[str, list[httpx.Client]]) -> None:
    here, there = asked[ANN]
    for client, group, name in ((here, "a", "1"), (there, "a", "2"), (there, "b", "1")):
        assert create(client, group, name).status_code == 200
    for client in (here, there):
        refused(create(client, "a", "3"), "principal_consumer_instances_max")
    assert create(asked[BOB][1], "a", "3").status_code == 200
    assert create(here, "a", "3").status_code == 409, "one that is there is told so"
    assert here.delete("/consumers/a/instances/1").status_code == 204
    assert create(there, "a", "1").status_code == 200


def test_a_principal_has_so_many_groups_however_they_are_made(asked: dict[str, list[httpx.Client]]) -> None:
    here, there = asked[ANN]
    assert create(here, "a", "1").status_code == 200
    assert there.put("/consumers/b/offsets", json=OFFSETS).status_code == 204
    media = {"Content-Type": "application/vnd.kafka.json.v2+json"}
    for client in (here, there):
        refused(create(client, "c", "1"), "principal_groups_max")
        refused(client.put("/consumers/c/offsets", json=OFFSETS), "principal_groups_max")
        refused(
            client.post("/consumers/c/transactions", json=TRANSACTION, headers=media), "principal_groups_max"
        )
    assert asked[BOB][0].put("/consumers/c/offsets", json=OFFSETS).status_code == 204
    assert create(here, "c", "1").status_code == 200, "it is Bob's"
    assert here.delete("/consumers/b").status_code == 204
    assert create(there, "d", "1").status_code == 200
