"""A request counts as one for each name in it, and for each hundred partitions, at every door."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from api.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from coordinator.access.principal import Principal
from coordinator.access.quota_manager import QuotaKind
from log_tables.cluster.access_record import Quota, quota_record
from log_tables.cluster.admin.topic_admin import create_topic
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import KafkaServed, kafka_served
from tests.kit.secured import Secured, bearer, everything
from tests.kit.support import WAIT_S, wait_until

PARTITIONS = 200
MOST = 10
"""Of what one principal may have under way."""

RATE = 0.001
"""Requests a second: what is charged is a debt that stays."""

JSON, V2 = "application/json", "application/vnd.kafka.json.v2+json"
NAMES = [f"t{number}" for number in range(50)]
SPREAD = [{"topic": "wide", "partition": number} for number in range(PARTITIONS)]
EACH = [{"topic": name, "partition": 0} for name in NAMES]
ACL = {"resource_type": "TOPIC", "principal": "User:x", "operation": "READ", "permission": "ALLOW"}
SETTING = {"name": "retention.ms", "value": "1000000000"}
RECORDS = [{"partition": number, "value": 1} for number in range(PARTITIONS)]
V3_RECORDS = "".join(
    json.dumps({"partition_id": number, "value": {"type": "JSON", "data": 1}}) for number in range(PARTITIONS)
)
INSTANCE = "/consumers/g/instances/i"
V3 = "/v3/clusters/{cluster}"


def at(places: list[dict[str, Any]], **more: int) -> list[dict[str, Any]]:
    return [{**place, **more} for place in places]


HTTP: dict[str, tuple[str, str, Any, int]] = {
    "one topic": ("GET", "/topics/wide", None, 1),
    "partitions of one topic": ("PUT", "/consumers/g/offsets", {"offsets": at(SPREAD, offset=0)}, 2),
    "topics of offsets": ("PUT", "/consumers/g/offsets", {"offsets": at(EACH, offset=0)}, 50),
    "topics of positions": (
        "POST",
        f"{INSTANCE}/positions",
        {"offsets": at(EACH, offset=0)},
        50,
    ),
    "topics to begin": ("POST", f"{INSTANCE}/positions/beginning", {"partitions": EACH}, 50),
    "assigned partitions": ("POST", f"{INSTANCE}/assignments", {"partitions": SPREAD}, 2),
    "topics, many times": ("POST", f"{INSTANCE}/subscription", {"topics": NAMES * 3}, 50),
    "topics of a transaction": ("POST", "/consumers/g/transactions", {"offsets": at(EACH, offset=0)}, 50),
    "ACLs": ("POST", f"{V3}/acls:batch", {"data": [{**ACL, "resource_name": name} for name in NAMES]}, 50),
    "settings": ("POST", f"{V3}/topics/wide/configs:alter", {"data": [SETTING] * 250}, 2),
    "settings of a new topic": ("POST", "/topics", {"topic_name": "new", "configs": [SETTING] * 250}, 2),
    "partitions of v2": ("POST", "/topics/wide", {"records": RECORDS}, 2),
    "partitions of v3": ("POST", f"{V3}/topics/wide/records", V3_RECORDS, 2),
}
"""By what is named: a method, a path, a body, and as how many requests it counts."""


def list_offsets(*topics: str) -> ListOffsetsRequest:
    parts = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(PARTITIONS)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=parts) for name in topics])


def metadata(*names: str) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


KAFKA = {
    "a topic": (metadata("wide"), 13, 1),
    "topics": (metadata(*NAMES), 13, 50),
    "partitions": (list_offsets("wide"), 7, 2),
    "partitions of topics": (list_offsets("wide", "wide", "wide"), 7, 6),
    "all topics and their partitions": (MetadataRequest(topics=None), 13, 2),
}


@dataclass
class Scene:
    served: KafkaServed
    client: httpx.Client
    keys: dict[str, str]

    def charged(self, name: str) -> int:
        """The number of requests that the quota of this principal has been charged."""
        debt_s = self.served.gateway.access.quotas.debt_s(Principal(f"User:{name}"), QuotaKind.REQUESTS)
        return round(debt_s * RATE)

    def send(self, name: str, method: str, path: str, body: Any) -> httpx.Response:
        content = body if isinstance(body, str | None) else json.dumps(body)
        kind = V2 if path == "/topics/wide" else JSON
        headers = {"Content-Type": kind, **bearer(self.keys[name])}
        url = path.replace("{cluster}", self.served.gateway.cluster.cluster_id)
        return self.client.request(method, url, content=content, headers=headers)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("root")
    secured = Secured(root)
    create_topic(secured.cluster, "wide", PARTITIONS)
    names = [*map(principal_of, (*HTTP, *KAFKA))]
    quotas = [quota_record(f"User:{name}", Quota(request_rate=RATE)) for name in names]
    secured.cluster.metadata_log.change_access(lambda _: quotas)
    for name in (*names, "polls"):
        secured.allow(*everything(f"User:{name}"))
    keys = {name: secured.key(f"User:{name}") for name in (*names, "polls")}
    with (
        kafka_served(root, authentication_methods=("api-key",), principal_requests_max=MOST) as served,
        httpx.Client(base_url=served.gateway.cluster.url, timeout=WAIT_S) as client,
    ):
        head = bearer(keys["polls"])
        url, body = "/consumers/g", {"name": "i"}
        wait_until(lambda: client.post(url, json=body, headers=head).is_success, "the keys are known")
        yield Scene(served, client, keys)


def principal_of(case: str) -> str:
    return case.replace(" ", "-").replace(",", "")


def test_requests_of_http_count_by_what_they_name(scene: Scene) -> None:
    found = {}
    for case, (method, path, body, _) in HTTP.items():
        answer = scene.send(principal_of(case), method, path, body)
        assert answer.status_code not in (401, 403, 405, 422, 429), (case, answer.text)
        found[case] = scene.charged(principal_of(case))
    assert found == {case: count for case, (*_, count) in HTTP.items()}


def test_requests_of_kafkas_clients_count_by_what_they_name(scene: Scene) -> None:
    found = {}
    for case, (request, version, _) in KAFKA.items():
        with asker(scene.served.port) as client:
            client.key(scene.keys[principal_of(case)])
            client.ask(request, version)
        found[case] = scene.charged(principal_of(case))
    assert found == {case: count for case, (*_, count) in KAFKA.items()}


def waiting_fetch(client: Asker) -> None:
    """Have one request under way."""
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="empty", partitions=[part])]
    wait_ms = int(WAIT_S * 1_000)
    client.send(FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics), 12)


def test_what_is_under_way_counts_by_what_it_names(scene: Scene) -> None:
    asked = ("polls", "PUT", "/consumers/other/offsets")
    few, many = ({"offsets": at(EACH[:count], offset=0)} for count in (MOST - 1, MOST))
    assert scene.send("polls", "POST", "/topics", {"topic_name": "empty"}).is_success
    with asker(scene.served.port) as waiting, asker(scene.served.port) as client:
        for each in (waiting, client):
            each.key(scene.keys["polls"])
        waiting_fetch(waiting)
        wait_until(lambda: scene.send(*asked, many).status_code == 429, "the fetch is under way")
        assert scene.send(*asked, few).status_code == 404
        assert len(client.ask(metadata(*NAMES[: MOST - 1]), 13).topics) == MOST - 1
        client.send(metadata(*NAMES[:MOST]), 13)
        assert scene.send("polls", "GET", "/topics", None).status_code == 429  # behind the one that waits
        waiting.close()
        assert len(client.answer(MetadataRequest, 13).topics) == MOST
    assert scene.send(*asked, {"offsets": at(EACH, offset=0)}).status_code == 404  # alone, it has all places
