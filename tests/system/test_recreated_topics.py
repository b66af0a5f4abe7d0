"""A topic that is deleted and re-created through one gateway, used through the others meanwhile."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import httpx
import pytest

from lakelog import Client, Producer
from log_tables.errors import OffsetOutOfRange
from tests.kit.consumers import JSON
from tests.kit.gateway import RunningGateway
from tests.kit.routes import WITH_BODY, Route, World, routes
from tests.kit.several import LONG_S, Several
from tests.kit.support import wait_until

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
    rounds = int(os.environ.get("LAKELOG_ROUNDS", "9"))
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


def test_what_is_sent_with_acks_0_goes_to_the_topic_that_is_there(several: Several) -> None:
    """Nobody leads the old one: who does may take the records for it, and they go with it."""
    first, second = several.gateways[:2]
    first.create_topic("unheard", 1)
    assert fetched(second.client, "unheard") == []
    recreated(several, "unheard", there=True)
    for value in ("1", "2"):
        assert second.produce("unheard", value, partition=0, acks="0").status_code == 200
    assert second.produce("unheard", "3", partition=0).json()["offsets"][0]["offset"] == 3
    assert fetched(second.client, "unheard") == ["new", "1", "2", "3"]


# The clients of Python, and what is answered early, at each gateway.


@pytest.mark.parametrize("acks", ["0", "1"])
def test_what_is_answered_early_is_where_it_was_said_or_lost_and_the_next_is_not(
    several: Several, clients: list[httpx.Client], acks: str
) -> None:
    """A leader that does not know that the topic is gone takes one such request, as any that was fenced."""
    for number, gateway in enumerate(several.gateways):
        name = f"acks-{acks}-{number}"
        known_to_the_second(several, name)
        assert gateway.produce(name, "old too", partition=0).status_code == 200
        recreated(several, name, there=True)
        early = gateway.produce(name, "early", partition=0, acks=acks).json()["offsets"][0]["offset"]
        wait_until(lambda: not held(gateway), "nothing is under way", LONG_S)  # noqa: B023
        sure = gateway.produce(name, "sure", partition=0).json()["offsets"][0]["offset"]
        found = fetched(clients[0], name)
        assert found == (["new", "early", "sure"] if sure == 2 else ["new", "sure"])
        assert early in ((None,) if acks == "0" else (1,) if sure == 2 else (1, 2))


def held(gateway: RunningGateway) -> float:
    """Bytes that wait to be appended."""
    metrics = gateway.client.get("/metrics").text
    found = re.search(r"^lakelog_buffer_used_bytes (\S+)$", metrics, re.MULTILINE)
    assert found is not None
    return float(found[1])


def test_a_producer_begins_its_sequences_anew(several: Several, clients: list[httpx.Client]) -> None:
    for number, url in enumerate(several.urls):
        name = f"sequences-{number}"
        create(clients[0], name)
        with Producer(url, linger_ms=0) as producer:
            assert [producer.send(name, b"%d" % each).result().offset for each in range(3)] == [0, 1, 2]
            recreated(several, name, there=True)
            sent = [producer.send(name, b"%d" % each, partition=0) for each in range(3, 6)]
            assert [each.result().offset for each in sent] == [1, 2, 3]
        assert fetched(clients[0], name) == ["new", 3, 4, 5]


def test_who_follows_a_topic_by_offsets_reads_on_or_hears_that_it_is_shorter(
    several: Several, clients: list[httpx.Client]
) -> None:
    for number, url in enumerate(several.urls):
        name = f"follow-{number}"
        create(clients[0], name)
        produce(clients[0], name, "old")
        with Client(url, timeout_s=LONG_S) as client:
            following = client.read(name, 0, follow=True)
            assert next(following).value == b'"old"'
            recreated(several, name, there=True)
            assert several.gateways[0].produce(name, "newer", "newest", partition=0).status_code == 200
            assert [next(following).value for _ in range(2)] == [b'"newer"', b'"newest"']
            recreated(several, name, there=True)
            with pytest.raises(OffsetOutOfRange):
                next(following)


# Every route, of a gateway that knows the topic as it was.


def recreated(several: Several, name: str, *, there: bool) -> None:
    """Let the first gateway make the topic `name` anew, or only delete it, behind the second one's back."""
    first = several.gateways[0]
    assert first.client.delete(f"{first.cluster}/topics/{name}").status_code == 204
    if there:
        first.create_topic(name, 2)
        assert first.produce(name, "new", partition=0).status_code == 200


def known_to_the_second(several: Several, name: str) -> None:
    """A topic with one record, "old", that the second gateway has served."""
    several.gateways[0].create_topic(name, 1, compression_type="gzip")
    second = several.gateways[1]
    assert second.produce(name, "old", partition=0).status_code == 200
    assert fetched(second.client, name) == ["old"]


def seen(several: Several, name: str) -> list[Any]:
    """The first gateway's answers about the topic: its settings, partitions and offsets."""
    first = several.gateways[0]
    paths = [f"{first.cluster}/topics/{name}/configs", f"{first.cluster}/topics/{name}/partitions"]
    paths += [f"/topics/{name}/partitions/{index}/offsets" for index in range(3)]
    return [first.client.get(path).json() for path in paths]


def plain(answer: httpx.Response) -> str:
    """An answer without what differs between gateways: URLs, and who they think leads."""
    return re.sub(r'"(leader|broker)":\s*\d+|127\.0\.0\.1:\d+', "", answer.text)


def ask(gateway: RunningGateway, route: Route, name: str) -> httpx.Response:
    path = route.path(
        cluster_id=gateway.cluster.rsplit("/", 1)[1],
        topic=name,
        partition="0",
        name="compression.type",
        schema_id="17",
    )
    body = {
        "PATCH": {"partitions_count": 3},
        "/values": [1],
        "/records": {"value": {"type": "JSON", "data": 1}},
        "/records:batch": {"entries": [{"id": "1", "value": {"type": "JSON", "data": 1}}]},
        "/configs:alter": {"data": [{"name": "compression.type", "value": "lz4"}]},
    }
    sent = body.get(route.method, body.get(path[path.rindex("/") :], {"records": [{"value": 1}]}))
    if route.method == "DELETE" and path.endswith("/records"):
        path += "?before=1"
    if route.method not in WITH_BODY:
        return gateway.client.request(route.method, path, headers={"Accept": JSON})
    kind = "application/json" if "/v3/" in path or path.endswith("/values") else JSON
    return gateway.client.request(
        route.method, path, content=json.dumps(sent), headers={"Content-Type": kind}
    )


def of_topics(client: httpx.Client) -> list[Route]:
    found = [route for route in routes(client) if "{topic}" in route.template]
    found = [route for route in found if not of_the_past(route)]
    return [route for route in found if "{group}" not in route.template]


def of_the_past(route: Route) -> bool:
    """Whether it is about what was: it knows topics that are gone."""
    ends = route.template.endswith(("/restore", "/history", "configs:revert"))
    return ends or route.template.startswith("/deleted-topics/")


def test_each_route_answers_for_the_topic_that_is_there(several: Several) -> None:
    second, name = several.gateways[1], "each"
    listed = of_topics(second.client)
    assert len(listed) > 15
    for route in listed:
        known_to_the_second(several, name)
        recreated(several, name, there=True)
        before = seen(several, name)
        answer = ask(second, route, name)
        without_schemas = "/schemas" in route.template and answer.json()["error_code"] == 40002
        assert answer.is_success or without_schemas, (route, answer.text)
        assert not re.search("gzip|old", answer.text), (route, answer.text)
        if route.method == "GET":
            assert plain(answer) == plain(ask(several.gateways[0], route, name)), route
        else:
            assert seen(several, name) != before, (route, answer.text)
        if several.gateways[0].client.get(f"/topics/{name}").status_code == 200:
            delete(several.gateways[0].client, name)


def test_each_route_says_that_a_topic_is_gone(several: Several) -> None:
    second, name = several.gateways[1], "gone"
    for route in of_topics(second.client):
        known_to_the_second(several, name)
        recreated(several, name, there=False)
        answer = ask(second, route, name)
        assert (answer.status_code, answer.json()["error_code"]) == (404, 40401), (route, answer.text)


@pytest.mark.parametrize("there", [True, False])
def test_no_route_of_a_group_gives_or_keeps_anything_of_the_topic_before(
    several: Several, there: bool
) -> None:
    first, second = several.gateways[0], several.gateways[1]
    of_groups = [route for route in routes(second.client) if "{group}" in route.template]
    for number, route in enumerate(route for route in of_groups if "{topic}" not in route.template):
        name = f"group-{number}-{there}"
        first.create_topic(name)
        world = World(second, name)
        recreated(several, name, there=there)
        answer = world.send(route.method, route.path(**world.names), world.body_of(route))
        assert answer.status_code < 500, (route, answer.text)
        assert '"first"' not in answer.text, (route, answer.text)
        if route.template.endswith("{group}/offsets") and route.method == "PUT":
            assert answer.status_code == (204 if there else 404)
        if route.template.endswith("/transactions"):
            assert answer.status_code == (200 if there else 404), answer.text
        if there:
            end = first.client.get(f"/topics/{name}/partitions/0/offsets").json()["end_offset"]
            end += first.client.get(f"/topics/{name}/partitions/1/offsets").json()["end_offset"]
            assert end == 1 + route.template.endswith("/transactions"), route
        kept = first.client.get(f"/consumers/{name}/offsets")
        if kept.status_code == 200:
            committed = route.template.endswith("/offsets") and route.method in ("PUT", "POST")
            assert [each["offset"] for each in kept.json()["offsets"]] == (
                [int(route.method == "POST")] if committed and answer.is_success else []
            ), route
