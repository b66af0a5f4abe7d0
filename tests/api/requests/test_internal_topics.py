"""Internal topics: no request of a client gets at what is in them, whatever route it takes.

The requests are made from the application's own routes (tests/kit/every_route.py). Each is sent with an
ordinary topic first, so that what refuses it then is the name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from api.media import Format
from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from log_tables.cluster.admin.run_log import JobRun, record_runs
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    GroupKey,
    GroupValue,
    MemberConfig,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
)
from log_tables.cluster.metadata_log import TopicRecord, decode
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CLUSTER_METADATA, CONSUMER_OFFSETS, MAINTENANCE, TOPICS
from log_tables.partition.partition import Partition
from log_tables.record import Record, to_records
from log_tables.store.store import open_store
from tests.kit.every_route import METHODS, TOPIC, Request, requests_of, routes, without_topic
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.groups import say
from tests.kit.support import ROOT

INTERNAL = (CLUSTER_METADATA, CONSUMER_OFFSETS, MAINTENANCE, "__lakelog_x")
SECRET = "a note that only the group should see"
INSTANCE = "/consumers/g/instances/i"

DESCRIPTIONS = {
    "/topics/{topic}",
    "/topics/{topic}/partitions",
    "/topics/{topic}/partitions/{partition}",
    "/v3/clusters/{cluster_id}/topics/{topic}",
    "/v3/clusters/{cluster_id}/topics/{topic}/partitions",
    "/v3/clusters/{cluster_id}/topics/{topic}/partitions/{partition}",
    "/v3/clusters/{cluster_id}/topics/{topic}/configs",
    "/v3/clusters/{cluster_id}/topics/{topic}/configs/{name}",
}
"""What GET may answer of an internal topic, if there is one: no record, no offset."""

OF_SCHEMAS = {form.value for form in Format if form.kind is not None}
"""Formats that are refused for a topic without schemas."""

NEVER_THERE = ("staged.0.runs.0.topic",)
"""Places in requests that are refused for any topic, but for another reason: no such file was staged."""


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The application, to be asked for its routes."""
    return create_app(open_gateway(Settings(data=str(tmp_path_factory.mktemp("routes"))), "http://test"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator["World"]:
    with running_gateway(tmp_path_factory.mktemp("internal"), linger_ms=0) as gateway:
        yield World(gateway)


class World:
    """A gateway on a root that has every internal topic, with something in it."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway, self.client, self._topics = gateway, gateway.client, 0
        self.topic = self.new_topic()
        self.ready("", self.topic)
        offsets = [{"topic": self.topic, "partition": 0, "offset": 0, "metadata": SECRET}]
        self.client.put("/consumers/g/offsets", json={"offsets": offsets}).raise_for_status()
        records = [{"topic": self.topic, "partition": 0, "value": "paid"}]
        headers = {"Content-Type": "application/vnd.kafka.json.v2+json"}
        sent = self.client.post("/consumers/g/transactions", json={"records": records}, headers=headers)
        sent.raise_for_status()
        run = JobRun(run="r", started_ms=0, job="merge", topic=self.topic, partition=0, error=SECRET)
        record_runs(Cluster.open(open_store(gateway.data)), [run])

    def new_topic(self) -> str:
        """An ordinary topic with a record."""
        self._topics += 1
        name = self.gateway.create_topic(f"t{self._topics}")
        self.gateway.produce(name, "x", partition=0).raise_for_status()
        return name

    def ready(self, route: str, topic: str) -> None:
        """Let there be the group and the instance of paths, and the latter have what `route` needs."""
        self.client.post("/consumers/g", json={"name": "i", "auto.commit.enable": "false"})
        self.client.delete(f"{INSTANCE}/subscription").raise_for_status()
        if not route.endswith("subscription"):
            partitions = [{"topic": topic, "partition": 0}]
            self.client.post(f"{INSTANCE}/assignments", json={"partitions": partitions}).raise_for_status()
            at = [{**partitions[0], "offset": 0}]
            self.client.put("/consumers/g/offsets", json={"offsets": at}).raise_for_status()

    def send(self, request: Request, name: str) -> httpx.Response:
        headers = {"Content-Type": request.media_type} if request.media_type else {}
        content = request.content(name)
        return self.client.request(request.method, request.url(name), content=content, headers=headers)

    def polled(self) -> str:
        """The answer of the instance's next poll, as text."""
        headers = {"Accept": "application/vnd.kafka.binary.v2+json"}
        return self.client.get(f"{INSTANCE}/records?timeout=0", headers=headers).text

    def internal(self) -> "Held":
        cluster = Cluster.open(open_store(self.gateway.data))
        return Held(cluster)


class Held:
    """The content of the internal topics: every record, and the internal topics in the metadata log."""

    def __init__(self, cluster: Cluster) -> None:
        self.directories = {
            item.path.split("/")[1] for item in cluster.store.list(f"{TOPICS}/") if "/__" in item.path
        }
        self.metadata = cluster.metadata_log.partition
        told = [decode(record) for record in records(self.metadata)]
        self.topics = [found for found in told if isinstance(found, TopicRecord) and found.name[:2] == "__"]
        self.partitions = {name: cluster.topic(name).partition(0) for name in (CONSUMER_OFFSETS, MAINTENANCE)}
        self.records = {name: records(partition) for name, partition in self.partitions.items()}

    def starts(self) -> list[int]:
        return [partition.log_start for partition in (self.metadata, *self.partitions.values())]

    def version(self, name: str) -> int:
        return self.partitions[name].snapshot.version


def records(partition: Partition) -> list[Record]:
    return list(to_records(partition.fetch(partition.log_start, 1 << 30)))


def untouched(before: Held, after: Held) -> None:
    """Nothing but what groups do has been written, and nothing was taken away."""
    assert after.directories == before.directories == {*INTERNAL} - {"__lakelog_x"}
    assert after.topics == before.topics
    assert after.starts() == before.starts() == [0, 0, 0]
    assert after.version(MAINTENANCE) == before.version(MAINTENANCE)
    assert after.records[MAINTENANCE] == before.records[MAINTENANCE]
    there = before.records[CONSUMER_OFFSETS]
    assert after.records[CONSUMER_OFFSETS][: len(there)] == there
    for record in after.records[CONSUMER_OFFSETS][len(there) :]:
        said = (record.key or b"") + (record.value or b"")
        assert b'"__' not in said.replace(b'"pattern":"__', b""), "a group has to do with one"


def check_refused(request: Request, name: str, answer: httpx.Response) -> None:
    """400 with 40002, or for a description what there is to say; and never a record."""
    assert SECRET not in answer.text
    assert '"producer_id"' not in answer.text
    if request.method == "GET" and request.route in DESCRIPTIONS:
        assert answer.status_code in (200, 404), f"{request} of {name}: {answer.text}"
        return
    if request.place == "topic_pattern":
        assert answer.status_code == 204
        return
    code = answer.json()["error_code"]
    absent = name not in (CONSUMER_OFFSETS, MAINTENANCE) and request.route.startswith("/v3")
    assert (answer.status_code, code) == (400, 40002) or (absent and code == 40401), (
        f"{request} of {name}: {answer.status_code} {answer.text}"
    )


def test_no_route_gets_at_an_internal_topic(world: World, app: FastAPI) -> None:
    """Every route, every method, every place in it where a topic can stand, every internal name."""
    before, tried = world.internal(), 0
    for method, route in routes(app):
        for request in requests_of(app, method, route, world.gateway.cluster.rsplit("/", 1)[1]):
            topic = world.new_topic() if method in ("DELETE", "PATCH") else world.topic
            if "{group}" in route:
                world.ready(route, topic)
            control = world.send(request, topic if request.place != "topic_name" else f"{topic}-{tried}")
            # The topic has none.
            of_schemas = "/schemas" in route or request.media_type in OF_SCHEMAS
            of_mirrors = route.startswith(("/mirrors", "/deleted-topics"))  # there is none
            if request.place not in NEVER_THERE and not of_schemas and not of_mirrors:
                assert control.is_success, f"{request} of an ordinary topic: {control.text}"
            names = [*INTERNAL]
            if request.place == "path":
                names += ["%5F%5Fconsumer_offsets"]
            for name in names:
                check_refused(request, name, world.send(request, name))
                if request.place == "topic_pattern" or (name == CONSUMER_OFFSETS and "{instance}" in route):
                    assert not any(f'"topic":"{name}"' in world.polled() for name in INTERNAL)
                tried += 1
    untouched(before, world.internal())
    assert tried > 250


def test_what_a_route_does_not_offer_gets_at_nothing_either(world: World, app: FastAPI) -> None:
    """Methods that are not there, and a slash behind the path."""
    before, cluster_id = world.internal(), world.gateway.cluster.rsplit("/", 1)[1]
    for path in sorted({path for _, path in routes(app)}):
        if without_topic(app, "GET", path, cluster_id) is not None:
            continue
        request = Request("GET", path, "path", path_of(app, path, cluster_id))
        for method in METHODS:
            for end in ("", "/"):
                answer = world.client.request(method, request.url(CONSUMER_OFFSETS) + end)
                described = method in ("GET", "HEAD") and path in DESCRIPTIONS
                assert described or answer.status_code >= 400, f"{method} {path}{end}: {answer.text}"
                assert SECRET not in answer.text
    untouched(before, world.internal())
    assert before.version(CONSUMER_OFFSETS) == world.internal().version(CONSUMER_OFFSETS)


def path_of(app: FastAPI, path: str, cluster_id: str) -> str:
    """`path` with everything but the topic filled in."""
    method = next(method for method, found in routes(app) if found == path)
    return next(iter(requests_of(app, method, path, cluster_id))).path


def test_no_view_of_everything_shows_what_is_in_them(world: World, app: FastAPI) -> None:
    for method, route in routes(app):
        path = without_topic(app, method, route, world.gateway.cluster.rsplit("/", 1)[1])
        if method == "GET" and path is not None and TOPIC not in path and not route.endswith("/records"):
            text = world.client.get(path).text
            assert SECRET not in text or route == "/consumers/{group}/offsets"
            assert '"producer_id"' not in text
            assert "incarnation" not in text


def test_who_is_refused_hears_where_to_look(world: World) -> None:
    def says(name: str) -> str:
        answer = world.client.get(f"/topics/{name}/partitions/0/records")
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
        return str(answer.json()["message"])

    assert "GET /consumers/{group}/offsets" in says(CONSUMER_OFFSETS)
    assert "consumer_offsets of `lakelog sql`" in says(CONSUMER_OFFSETS)
    assert "maintenance_runs" in says(MAINTENANCE)
    assert "'__lakelog_x' is internal" in says("__lakelog_x")


@pytest.mark.parametrize("by_hand", [True, False])
def test_what_an_older_gateway_let_a_group_do_gives_no_records(tmp_path: Path, by_hand: bool) -> None:
    """A root may hold members and offsets of internal topics: they read nothing, and the offsets go."""
    cluster = Cluster.open(open_store(tmp_path / "root"))
    say(cluster, (GroupKey("g"), GroupValue(1)))
    config, topic_id = MemberConfig(auto_offset_reset="earliest"), cluster.topic(CONSUMER_OFFSETS).topic_id
    owned, topics = {CONSUMER_OFFSETS: [0, 1]}, [] if by_hand else [CONSUMER_OFFSETS]
    ids = {CONSUMER_OFFSETS: topic_id}
    member = MemberValue(config, topics, assigned=by_hand, owned=owned, epoch=1, topic_ids=ids)
    index = partition_for_key(b"g", 2, MURMUR3)
    say(cluster, (MemberKey("g", "i"), member), index=index)
    say(cluster, (OffsetKey("g", CONSUMER_OFFSETS, 0), OffsetValue(0, topic_id)), index=index)
    with running_gateway(tmp_path / "root") as gateway:
        headers = {"Accept": "application/vnd.kafka.binary.v2+json"}
        answer = gateway.client.get(f"{INSTANCE}/records?timeout=0", headers=headers)
        assert answer.json() == []
        assert gateway.client.get("/consumers/g/offsets").json() == {"offsets": []}


def test_only_the_gate_leads_from_a_name_to_a_topic() -> None:
    """A route that asks the cluster itself would get at any topic."""
    allowed = {
        "client_topics.py",
        "peer.py",
        "peer_door.py",
        "process/duties.py",
        "process/lag_metrics.py",
        "process/ops.py",
    }
    asked = ("topic", "cached_topic", "topics", "claim", "with_current_topic", "current_topic", "name_of")
    for path in sorted(Path(ROOT / "api").rglob("*.py")):
        place = path.relative_to(ROOT / "api").as_posix()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in asked and place not in allowed:
                held = node.value
                name = held.attr if isinstance(held, ast.Attribute) else getattr(held, "id", "")
                assert name != "cluster", f"{place}:{node.lineno} asks the cluster for a topic"
