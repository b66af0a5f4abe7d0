"""The widest bodies of HTTP routes: none holds the event loop, and `/health` is answered meanwhile."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest

from api.v3.acls import BATCH_MAX_ACLS
from log_tables.cluster.topic_admin import create_topic
from log_tables.limits import MIB, REQUEST_RECORDS_MAX, SMALL_BODY_MAX_BYTES
from tests.kit.kafka_served import kafka_served
from tests.kit.loop_holds import HELD_MAX_S, Holds, loop_holds
from tests.kit.secured import Secured, bearer
from tests.kit.support import WAIT_S

PARTITIONS = 100
RECORDS = 20_000
"""A tenth of what one request may have, so that the test is quick."""

JSON = "application/json"
V2 = "application/vnd.kafka.json.v2+json"


@dataclass(frozen=True)
class Wide:
    """A request with a wide body; `group` has an instance `i`, to which the topic belongs."""

    method: str
    path: str
    body: bytes
    media_type: str = JSON


def array(name: str, item: Any, most: int, size: int = SMALL_BODY_MAX_BYTES) -> bytes:
    """The body with the longest array `name` of at most so many items like `item`, and of at most `size`."""
    text = item if isinstance(item, bytes) else json.dumps(item, separators=(",", ":")).encode()
    count = min(most, (size - len(name) - 8) // (len(text) + 1))
    return b'{"%b":[%b]}' % (name.encode(), b",".join([text] * count))


def places(name: str, **more: int) -> bytes:
    """As many partitions of the topic as fit, each of them many times."""
    each = [{"topic": "wide", "partition": number % PARTITIONS, **more} for number in range(30_000)]
    texts = [json.dumps(place, separators=(",", ":")) for place in each]
    count = (SMALL_BODY_MAX_BYTES - 100) // (max(map(len, texts)) + 1)
    return b'{"%b":[%b]}' % (name.encode(), ",".join(texts[:count]).encode())


def records(each: bytes) -> bytes:
    return array("records", each, RECORDS, REQUEST_RECORDS_MAX * len(each))


ACL = {"resource_type": "TOPIC", "resource_name": "x", "principal": "User:x", "operation": "READ"}
INSTANCE = "/consumers/g/instances/i"
V3 = "/v3/clusters/{cluster}"
RECORD = b'{"value":{"type":"JSON","data":1}}'
ENTRIES = [b'{"id":"%d","value":{"type":"JSON","data":1}}' % number for number in range(RECORDS)]
WIDE = [
    Wide("POST", "/topics/wide", records(b'{"value":1}'), V2),
    Wide("POST", "/topics/wide/partitions/0", records(b'{"value":1}'), V2),
    Wide("POST", "/topics/wide/values", b"1\n" * RECORDS, "application/x-ndjson"),
    Wide("POST", "/topics/wide/values", b"a\n" + b"1\n" * RECORDS, "text/csv"),
    Wide("POST", "/topics/wide/values", b"x" * MIB, "application/octet-stream"),
    Wide("POST", "/consumers/h/transactions", records(b'{"topic":"wide","value":1}')),
    Wide("POST", f"{V3}/topics/wide/records", RECORD * RECORDS),
    Wide("POST", f"{V3}/topics/wide/records:batch", b'{"entries":[%b]}' % b",".join(ENTRIES)),
    Wide("POST", f"{V3}/acls:batch", array("data", {**ACL, "permission": "ALLOW"}, BATCH_MAX_ACLS)),
    Wide("POST", f"{V3}/acls:batch", array("data", {**ACL, "permission": "ALLOW"}, 30_000)),
    Wide(
        "POST",
        f"{V3}/topics/wide/configs:alter",
        array("data", {"name": "retention.ms", "value": "1000000000"}, 60_000),
    ),
    Wide("POST", f"{V3}/topics", array("configs", {"name": "retention.ms", "value": "1000000000"}, 60_000)),
    Wide("POST", f"{INSTANCE}/positions", places("offsets", offset=0)),
    Wide("POST", f"{INSTANCE}/positions/beginning", places("partitions")),
    Wide("POST", f"{INSTANCE}/positions/end", places("partitions")),
    Wide("POST", f"{INSTANCE}/offsets", places("offsets", offset=0)),
    Wide("PUT", "/consumers/other/offsets", places("offsets", offset=0)),
    Wide("POST", "/consumers/g/instances/j/assignments", places("partitions")),
    Wide("POST", "/consumers/g/instances/k/subscription", array("topics", "wide", 120_000)),
]


@dataclass
class Scene:
    url: str
    holds: Holds
    cluster: str
    keys: dict[str, str]

    def send(self, client: httpx.Client, wide: Wide, key: str) -> httpx.Response:
        path = wide.path.replace("{cluster}", self.cluster)
        headers = {"Content-Type": wide.media_type, **bearer(self.keys[key])}
        return client.request(wide.method, path, content=wide.body, headers=headers)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    root = tmp_path_factory.mktemp("root")
    secured = Secured(root)
    create_topic(secured.cluster, "wide", PARTITIONS)
    keys = {"poor": secured.key("User:bob"), "rich": secured.key()}
    methods = ("api-key",)
    with kafka_served(root, authentication_methods=methods) as served, loop_holds(served.loop) as holds:
        url = served.gateway.cluster.url
        cluster = served.gateway.cluster.cluster_id
        with httpx.Client(base_url=url, headers=bearer(keys["rich"]), timeout=WAIT_S) as client:
            client.get("/health").raise_for_status()
            for name in "ijk":
                client.post("/consumers/g", json={"name": name}).raise_for_status()
            client.post(f"{INSTANCE}/subscription", json={"topics": ["wide"]}).raise_for_status()
        yield Scene(url, holds, cluster, keys)


def test_the_widest_bodies_hold_nobody_up(scene: Scene) -> None:
    held = {}
    with httpx.Client(base_url=scene.url, timeout=WAIT_S) as client, ThreadPoolExecutor(1) as thread:
        for wide in WIDE:
            for key in scene.keys:
                scene.send(client, replace(wide, body=b"{}"), key)  # the first request loads modules
                scene.holds.take()
                answer = thread.submit(scene.send, client, wide, key)
                while not answer.done():
                    assert client.get("/health").status_code == 200
                each = scene.holds.take()
                if each[0] > HELD_MAX_S:
                    held[wide.path, wide.media_type, key] = each
    assert held == {}
