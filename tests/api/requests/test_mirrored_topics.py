"""A topic that a mirror makes is read-only over HTTP: whatever changes a topic is refused, and nothing else.

The requests are made from the application's own routes (tests/kit/every_route.py). Each is sent with a topic
of its own first, which says whether it changes one.
"""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable
from fastapi import FastAPI

from api.process.app import create_app
from api.process.server import open_gateway
from ingest.settings import Settings
from log_tables.cluster.cluster import Cluster
from log_tables.errors import MirroredTopic
from log_tables.store.store import open_store
from tests.kit.every_route import Request, requests_of, routes
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.mirrored import END, MIRROR, OFFSETS, copy, mirrored_topic, promote, state_of
from tests.kit.support import wait_until

COPY = "copy"
INSTANCE = "/consumers/g/instances/i"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """The application, to be asked for its routes."""
    return create_app(open_gateway(Settings(data=str(tmp_path_factory.mktemp("routes"))), "http://test"))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator["World"]:
    with running_gateway(tmp_path_factory.mktemp("mirrored"), linger_ms=0) as gateway:
        yield World(gateway)


class World:
    """A gateway on a root with a mirrored topic and others."""

    def __init__(self, gateway: RunningGateway) -> None:
        self.gateway, self.client, self._topics = gateway, gateway.client, 0
        self.cluster = Cluster.open(open_store(gateway.data))
        mirrored_topic(self.cluster, COPY)
        self.topic = self.new_topic()

    def new_topic(self) -> str:
        """A topic of its own, with records up to END."""
        self._topics += 1
        name = self.gateway.create_topic(f"t{self._topics}")
        self.gateway.produce(name, *range(END), partition=0).raise_for_status()
        return name

    def ready(self, route: str, topic: str) -> None:
        """Let there be the group and the instance of paths, and the latter have what `route` needs."""
        self.client.post("/consumers/g", json={"name": "i", "auto.commit.enable": "false"})
        self.client.delete(f"{INSTANCE}/subscription").raise_for_status()
        if not route.endswith("subscription"):
            partitions = [{"topic": topic, "partition": 0}]
            self.client.post(f"{INSTANCE}/assignments", json={"partitions": partitions}).raise_for_status()
            at = [{**partitions[0], "offset": 9}]
            self.client.put("/consumers/g/offsets", json={"offsets": at}).raise_for_status()

    def send(self, request: Request, name: str) -> httpx.Response:
        if "{group}" in request.route:
            self.ready(request.route, name)
        headers = {"Content-Type": request.media_type} if request.media_type else {}
        content = request.content(name)
        return self.client.request(request.method, request.url(name), content=content, headers=headers)


def test_what_changes_a_topic_is_refused_and_nothing_else(world: World, app: FastAPI) -> None:
    before, refused, served = state_of(world.cluster, COPY), set(), 0
    for method, route in routes(app):
        for request in requests_of(app, method, route, world.gateway.cluster.rsplit("/", 1)[1]):
            if request.place == "topic_name":
                continue  # it is the name of a new one
            if route in ("/topics/{topic}/deletion", "/topics/{topic}/restore"):
                continue  # they say what a change would say: 409
            topic = world.new_topic()
            known = state_of(world.cluster, topic)
            control = world.send(request, topic)
            answer = world.send(request, COPY)
            shown = f"{request}: {answer.status_code} {answer.text}; of its own {control.text}"
            if state_of(world.cluster, topic) != known:
                assert (answer.status_code, answer.json()["error_code"]) == (409, 409), shown
                assert f"the mirror {MIRROR} makes, and read-only" in answer.json()["message"], shown
                assert answer.json()["error"] == "mirrored_topic"
                refused.add(f"{method} {route}")
            else:
                refuses_both = not (control.is_success or answer.is_success)  # there are no schemas
                assert refuses_both or answer.status_code == control.status_code, shown
                served += control.is_success
    assert state_of(world.cluster, COPY) == before
    assert len(refused) >= 12, refused
    assert served > 30


def test_after_its_promotion_it_is_like_any_other(world: World) -> None:
    mirrored_topic(world.cluster, "promoted")
    world.gateway.client.get("/topics/promoted").raise_for_status()
    assert world.gateway.produce("promoted", "x", partition=0).status_code == 409
    promote(world.cluster, "promoted")
    # At once, though the gateway has not heard of it.
    answer = world.gateway.produce("promoted", "x", partition=0)
    assert answer.json()["offsets"][0]["offset"] == END
    assert world.client.delete("/topics/promoted").status_code == 204


def test_nobody_but_its_mirror_claims_it(tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path))
    topic = mirrored_topic(cluster, "t")
    epoch = topic.partition(0).snapshot.leader_epoch
    for mirror in ("", "another"):
        with pytest.raises(MirroredTopic):
            cluster.claim(topic, 0, mirror=mirror)
    assert topic.partition(0).refresh().leader_epoch == epoch
    promote(Cluster.open(open_store(tmp_path)), "t")
    with pytest.raises(MirroredTopic, match="it was promoted"):
        cluster.claim(topic, 0, mirror=MIRROR)


def test_the_table_over_it_follows_though_no_gateway_appends_to_it(world: World) -> None:
    topic = mirrored_topic(world.cluster, "folded")
    location, _ = world.cluster.store.delta_location(topic.directory)

    def has(*offsets: int) -> bool:
        found = DeltaTable(location).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
        return sorted(found) == [*offsets]

    wait_until(lambda: has(*OFFSETS), "it is folded")
    copy(world.cluster, topic, 0, [23], 25)
    wait_until(lambda: has(*OFFSETS, 23), "it is folded on")
