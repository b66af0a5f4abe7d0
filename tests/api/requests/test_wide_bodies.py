"""The widest bodies of HTTP routes: none holds the event loop, and `/health` is answered meanwhile."""

import json
import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count as numbers_from
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi.dependencies.models import Dependant

from api.media import EVENT_STREAM
from api.process.app import CONSOLE
from api.requests.strict import StrictRoute
from api.v3.acls import BATCH_MAX_ACLS
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.limits import HEAD_MAX_BYTES, MIB, REQUEST_RECORDS_MAX, SMALL_BODY_MAX_BYTES
from tests.kit.kafka_served import kafka_served
from tests.kit.loop_holds import HELD_MAX_S, Hold, Holds, loop_holds, shortest
from tests.kit.secured import Secured, bearer
from tests.kit.support import WAIT_S

PARTITIONS = 100
V3_RECORDS = 50_000
TRANSACTION_RECORDS = 155_000
"""About as many as there is room for."""

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
V2 = "application/vnd.kafka.json.v2+json"


@dataclass(frozen=True)
class Wide:
    """A request with a wide body; `group` has an instance `i`, to which the topic belongs."""

    method: str
    path: str
    body: bytes
    media_type: str = JSON
    status: int | None = None
    """That of the answer to who may do everything."""

    accept: str = "*/*"


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


def unknown(name: str, **more: int) -> bytes:
    """A body that names as many non-existing topics as fit."""
    each = [{"topic": f"none-{number}", "partition": 0, **more} for number in range(30_000)]
    texts = [json.dumps(place, separators=(",", ":")) for place in each]
    count = (SMALL_BODY_MAX_BYTES - 100) // (max(map(len, texts)) + 1)
    return b'{"%b":[%b]}' % (name.encode(), ",".join(texts[:count]).encode())


def records(each: bytes, count: int = REQUEST_RECORDS_MAX) -> bytes:
    return b'{"records":[%b]}' % b",".join([each] * count)


ACL = {"resource_type": "TOPIC", "resource_name": "x", "principal": "User:x", "operation": "READ"}
INSTANCE = "/consumers/g/instances/i"
RECORDS = "/topics/wide/partitions/0/records?offset=0"
ACCEPT = f"{EVENT_STREAM},{'a,' * 30_000}"
V3 = "/v3/clusters/{cluster}"
RECORD = b'{"value":{"type":"JSON","data":1}}'
ENTRIES = [b'{"id":"%d","value":{"type":"JSON","data":1}}' % number for number in range(V3_RECORDS)]
FIELD = quote("a=1,b=2\n") * 2_500
IN_TOPIC = b'{"topic":"wide","value":1}'
CSV = b"a\n" + b"1\n" * (REQUEST_RECORDS_MAX - 2)
HEADERS = b'{"value":1,"headers":[{"key":"a","value":"YQ=="},{"key":"b"}]}'
NAMED = array(
    "configs", {"name": "retention.ms", "value": "1000000000"}, 60_000, SMALL_BODY_MAX_BYTES - 100
).replace(b"{", b'{"topic_name":"made-0",', 1)
WIDE = [
    Wide("POST", "/topics/wide", records(b'{"value":1}'), V2, status=200),
    Wide("POST", "/topics/wide/partitions/0", records(HEADERS, V3_RECORDS), V2, status=200),
    Wide("POST", "/topics/wide/values", b"1\n" * REQUEST_RECORDS_MAX, "application/x-ndjson", status=200),
    Wide("POST", "/topics/wide/values", CSV, "text/csv", status=200),
    Wide("POST", "/topics/wide/values", b"x" * MIB, "application/octet-stream", status=200),
    Wide("POST", "/consumers/h/transactions", records(IN_TOPIC, TRANSACTION_RECORDS), status=200),
    Wide("POST", "/consumers/h/transactions", unknown("offsets", offset=0), status=404),
    Wide("POST", f"{V3}/topics/wide/records", RECORD * V3_RECORDS, status=200),
    Wide("POST", f"{V3}/topics/wide/records:batch", b'{"entries":[%b]}' % b",".join(ENTRIES), status=207),
    Wide(
        "POST", f"{V3}/acls:batch", array("data", {**ACL, "permission": "ALLOW"}, BATCH_MAX_ACLS), status=201
    ),
    Wide("POST", f"{V3}/acls:batch", array("data", {**ACL, "permission": "ALLOW"}, 30_000), status=422),
    Wide(
        "POST",
        f"{V3}/topics/wide/configs:alter",
        array("data", {"name": "retention.ms", "value": "1000000000"}, 60_000),
        status=204,
    ),
    Wide("POST", f"{V3}/topics", NAMED, status=201),
    Wide("POST", f"{INSTANCE}/positions", places("offsets", offset=0), status=409),
    Wide("POST", f"{INSTANCE}/positions/beginning", places("partitions"), status=409),
    Wide("POST", f"{INSTANCE}/positions/end", places("partitions"), status=409),
    Wide("POST", f"{INSTANCE}/offsets", places("offsets", offset=0), status=422),
    Wide("POST", f"{INSTANCE}/offsets", unknown("offsets", offset=0), status=404),
    Wide("PUT", "/consumers/other/offsets", places("offsets", offset=0), status=422),
    Wide("PUT", "/consumers/other/offsets", unknown("offsets", offset=0), status=404),
    Wide("POST", "/consumers/g/instances/j/assignments", places("partitions"), status=204),
    Wide("POST", "/consumers/g/instances/j/assignments", unknown("partitions"), status=404),
    Wide("POST", "/consumers/g/instances/k/subscription", array("topics", "wide", 120_000), status=204),
    *(Wide("GET", path, b"", status=406, accept=ACCEPT) for path in (RECORDS, f"{INSTANCE}/records")),
    Wide("GET", "/console/topics", b"", status=200, accept=ACCEPT),
    Wide(
        "POST", "/console/sql", json.dumps({"sql": "1" * (SMALL_BODY_MAX_BYTES - 100)}).encode(), status=422
    ),
    Wide("POST", "/console/login", b"a=1&" * (SMALL_BODY_MAX_BYTES // 4), FORM, status=400),
    Wide("POST", "/console/logout", b"a=1&" * (SMALL_BODY_MAX_BYTES // 4), FORM, status=303),
]


@dataclass
class Scene:
    url: str
    holds: Holds
    cluster: str
    keys: dict[str, str]

    def send_small(self, wide: Wide) -> None:
        with httpx.Client(base_url=self.url, timeout=WAIT_S) as client:
            self.send(client, wide, "rich")

    def send(self, client: httpx.Client, wide: Wide, key: str) -> httpx.Response:
        path = wide.path.replace("{cluster}", self.cluster)
        headers = {"Content-Type": wide.media_type, "Accept": wide.accept, **bearer(self.keys[key])}
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


def held_by(scene: Scene, requests: Iterable[Wide]) -> dict[tuple[str, ...], Hold]:
    """The holds of the event loop beyond HELD_MAX_S during each of `requests`, which a client without any
    right sends, and a client with all rights. `/health` is answered meanwhile.
    """
    held: dict[tuple[str, ...], Hold] = {}
    with httpx.Client(base_url=scene.url, timeout=WAIT_S) as client, ThreadPoolExecutor(1) as thread:
        for wide in requests:
            for key in scene.keys:
                longest = shortest(partial(_hold_of, scene, client, thread, wide, key, numbers_from(0)))
                if longest[0] > HELD_MAX_S:
                    held[wide.path[:100], wide.media_type, key] = longest
    return held


def _hold_of(
    scene: Scene,
    client: httpx.Client,
    thread: ThreadPoolExecutor,
    wide: Wide,
    key: str,
    numbers: Iterator[int],
) -> Hold:
    """The longest hold while the request is sent; a topic that it makes has the next of `numbers`."""
    made = replace(wide, body=wide.body.replace(b'"made-0"', b'"made-%s-%d"' % (key.encode(), next(numbers))))
    scene.holds.take()
    answer = thread.submit(scene.send, client, made, key)
    while not answer.done():
        assert client.get("/health").status_code == 200
    if key == "rich" and wide.status is not None:
        found = answer.result()
        assert found.status_code == wide.status, (wide.path, found.text[:1_000])
    return scene.holds.take()


def test_the_widest_bodies_hold_nobody_up(scene: Scene) -> None:
    for wide in WIDE:  # the first request loads modules
        scene.send_small(replace(wide, body=b"{}"))
    assert held_by(scene, WIDE) == {}


def pages() -> Iterator[Wide]:
    """Each page of the console, with each of its fields as long as a head may be."""
    filled = {"topic": "wide", "partition": "0", "group": "g", "run": "r", "name": "x", "version": "v"}
    filled["mirror"] = "m"
    for router in CONSOLE:
        for route in router.routes:
            if not isinstance(route, StrictRoute) or "GET" not in (route.methods or ()):
                continue
            path = re.sub(r"\{(\w+)\}", lambda found: filled[found[1]], route.path)
            for name in _query_of(route.dependant):
                yield Wide(
                    "GET", f"{path}?{name}={quote('a=1,' * 3 + chr(10)) * 2_500}"[: HEAD_MAX_BYTES // 2], b""
                )


def _query_of(dependant: Dependant) -> Iterator[str]:
    yield from (field.alias for field in dependant.query_params)
    for each in dependant.dependencies:
        yield from _query_of(each)


def test_the_longest_fields_of_pages_hold_nobody_up(scene: Scene) -> None:
    found = [*pages()]
    assert len(found) > 50
    for path in dict.fromkeys(wide.path.partition("?")[0] for wide in found):  # the first loads a template
        scene.send_small(Wide("GET", path, b""))
    assert held_by(scene, found) == {}
