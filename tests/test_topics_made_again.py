"""A topic that is deleted and made again through one gateway, used through the others meanwhile."""

import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from tests.consumers import JSON
from tests.several import LONG_S, Several

SLOW_MS = 600_000
"""So that nothing is known here because somebody has looked in time."""


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Several]:
    with closing(Several(tmp_path_factory.mktemp("again"), 3, refresh_interval_ms=SLOW_MS)) as found:
        yield found


@pytest.fixture(scope="module")
def clients(several: Several) -> Iterator[list[httpx.Client]]:
    found = [httpx.Client(base_url=url, timeout=LONG_S) for url in several.urls]
    yield found
    for client in found:
        client.close()


def topics_path(client: httpx.Client) -> str:
    cluster = client.get("/v3/clusters").json()["data"][0]["cluster_id"]
    return f"/v3/clusters/{cluster}/topics"


def create(client: httpx.Client, name: str, partitions: int = 1, **configs: str) -> None:
    listed = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    body = {"topic_name": name, "partitions_count": partitions, "configs": listed}
    answer = client.post(topics_path(client), json=body)
    assert answer.status_code == 201, answer.text


def delete(client: httpx.Client, name: str) -> None:
    answer = client.delete(f"{topics_path(client)}/{name}")
    assert answer.status_code == 204, answer.text


def produce(client: httpx.Client, name: str, *values: Any, **query: str) -> list[dict[str, Any]]:
    body = {"records": [{"value": value} for value in values]}
    answer = client.post(f"/topics/{name}", json=body, headers={"Content-Type": JSON}, params=query)
    assert answer.status_code == 200, answer.text
    placed: list[dict[str, Any]] = answer.json()["offsets"]
    return placed


def fetched(client: httpx.Client, name: str, partition: int = 0, **query: Any) -> list[Any]:
    answer = client.get(
        f"/topics/{name}/partitions/{partition}/records", headers={"Accept": JSON}, params=query
    )
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()]


def test_every_gateway_serves_the_topic_that_is_there_and_no_other(clients: list[httpx.Client]) -> None:
    """Whoever deletes, makes, writes and reads: at each moment all know what was answered before."""
    rounds = int(os.environ.get("LAKELOG_ROUNDS", "30"))
    for number in range(rounds):
        a, b, c = (clients[(number + step) % 3] for step in range(3))
        create(a, "r", 1 + number % 3)
        assert fetched(b, "r") == []
        written = produce(c if number % 2 else b, "r", f"life {number}")
        assert [each["offset"] for each in written] == [0]
        (at,) = [each["partition"] for each in written]
        for client in (a, b, c):
            assert fetched(client, "r", at) == [f"life {number}"]
        delete(c, "r")
        for client in (a, b, c):
            answer = client.get("/topics/r/partitions/0/records", headers={"Accept": JSON})
            assert (answer.status_code, answer.json()["error_code"]) == (404, 40401)
            refused = client.post(
                "/topics/r", json={"records": [{"value": 1}]}, headers={"Content-Type": JSON}
            )
            assert (refused.status_code, refused.json()["error_code"]) == (404, 40401)
