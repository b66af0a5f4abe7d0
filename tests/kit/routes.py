"""Every route of a gateway, as its own OpenAPI document has it, with something to send to it."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import httpx

from tests.kit.gateway import RunningGateway

JSON = "application/json"
WITH_BODY = frozenset(["POST", "PUT", "PATCH"])
BRINGS_RECORDS = frozenset(
    (
        "/topics/{topic}",
        "/topics/{topic}/partitions/{partition}",
        "/topics/{topic}/values",
        "/consumers/{group}/transactions",
        "/consumers/{group}/instances/{instance}/transactions",
        "/v3/clusters/{cluster_id}/topics/{topic}/records",
        "/v3/clusters/{cluster_id}/topics/{topic}/records:batch",
    )
)
"""Paths that records are posted to."""


class Route(NamedTuple):
    method: str
    template: str
    query: tuple[str, ...]
    numbers: tuple[str, ...] = ()
    """Parameters that are whole numbers, of the path or the query."""

    def path(self, **names: str) -> str:
        """The path with `names` in its places."""
        return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], self.template)


def routes(client: httpx.Client) -> Iterator[Route]:
    """All routes of the gateway of `client`."""
    for template, methods in client.get("/openapi.json").json()["paths"].items():
        for method, route in methods.items():
            named = [each["name"] for each in route.get("parameters", []) if each["in"] == "query"]
            yield Route(method.upper(), template, tuple(named), tuple(_numbers(route)))


def _numbers(route: Any) -> Iterator[str]:
    for each in route.get("parameters", []):
        kinds = [each["schema"], *each["schema"].get("anyOf", [])]
        if any(kind.get("type") == "integer" for kind in kinds):
            yield each["name"]


class World:
    """A topic with a record, and a group with an instance: what the places of every path are filled with."""

    def __init__(self, gateway: RunningGateway, topic: str) -> None:
        self.gateway, self.topic = gateway, topic
        assert gateway.produce(topic, "first", partition=0).status_code == 200
        self.names = {
            "cluster_id": gateway.cluster.rsplit("/", 1)[1],
            "topic": topic,
            "partition": "0",
            "schema_id": "17",
            "group": topic,
            "instance": "reader",
            "mirror": "shop",
            "consumer": "reader",
            "name": "compression.type",
            "broker": "1",
        }
        config = {"name": "reader", "format": "json", "auto.offset.reset": "earliest"}
        assert self.send("POST", f"/consumers/{topic}", config).status_code == 200
        subscribed = self.send("POST", f"{self.instance}/assignments", self.body("partitions"))
        assert subscribed.status_code == 204, subscribed.text
        assert self.send("PUT", f"/consumers/{topic}/offsets", self.body("offsets", 0)).status_code == 204

    @property
    def instance(self) -> str:
        return f"/consumers/{self.topic}/instances/reader"

    def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        content = None if body is None else json.dumps(body)
        return self.gateway.client.request(method, path, content=content, headers={"Content-Type": JSON})

    def body(self, field: str, offset: int | None = None) -> dict[str, Any]:
        """One field that names partition 0 of the topic."""
        at: dict[str, Any] = {"topic": self.topic, "partition": 0}
        return {field: [at if offset is None else {**at, "offset": offset}]}

    def body_of(self, route: Route) -> Any:
        """A valid body for a request to `route`; None where it needs none."""
        records = {"records": [{"value": 1}]}
        acl = {"resource_type": "TOPIC", "resource_name": self.topic, "principal": "User:ann"}
        acl |= {"operation": "READ", "permission": "ALLOW"}
        by_end = {
            "/consumers/{group}": {"name": "second"},
            "/subscription": {"topics": [self.topic]},
            "/assignments": self.body("partitions"),
            "/beginning": self.body("partitions"),
            "/end": self.body("partitions"),
            "/positions": self.body("offsets", 0),
            "/offsets": self.body("offsets", 0),
            "/transactions": {"records": [{"topic": self.topic, "value": 1}]},
            "/records": {"value": {"type": "JSON", "data": 1}},
            "/records:batch": {"entries": [{"id": "1", "value": {"type": "JSON", "data": 1}}]},
            "/topics": {"topic_name": f"{self.topic}-{len(route.template)}", "partitions_count": 1},
            "/configs:alter": {"data": [{"name": "compression.type", "value": "lz4"}]},
            "/values": [1],
            "/topics/{topic}": {"partitions_count": 3} if route.method == "PATCH" else records,
            "/partitions/{partition}": records,
            "/acls": acl,
            "/acls:batch": {"data": [acl]},
        }
        return next((body for end, body in by_end.items() if route.template.endswith(end)), None)

    def state(self) -> dict[str, Any]:
        """Everything that a client may have changed: topics, settings, ends, groups, members, offsets,
        positions.
        """
        client, cluster = self.gateway.client, self.gateway.cluster
        paths = [
            f"{cluster}/topics",
            f"{cluster}/topics/{self.topic}/configs",
            f"/topics/{self.topic}/partitions/0/offsets",
            f"/topics/{self.topic}/partitions/1/offsets",
            f"/consumers/{self.topic}/offsets",
            f"{cluster}/consumer-groups/{self.topic}/consumers",
            f"{cluster}/consumer-groups/{self.topic}/consumers/reader/assignments",
            f"{cluster}/acls",
        ]
        return {path: client.get(path).json() for path in paths}
