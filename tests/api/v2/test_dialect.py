"""The requests of clients that were written for other REST proxies, each with the answer of Confluent's
proxy.
"""

import json
from typing import Any

import pytest

from api.v2.consumer_schema import WITHOUT_EFFECT
from tests.kit.consumers import JSON, V2, Instance
from tests.kit.gateway import RunningGateway
from tests.kit.routes import WITH_BODY, World, routes

BINARY = "application/vnd.kafka.binary.v2+json"


@pytest.fixture(params=["", "/"], ids=["", "slash"])
def end(request: pytest.FixtureRequest) -> str:
    """How every path ends: some clients write a slash."""
    return str(request.param)


class Proxied:
    """A consumer as such a client has it: it knows the media types of v2, and the paths."""

    def __init__(self, gateway: RunningGateway, group: str, end: str = "", **config: Any) -> None:
        self.client, self.end = gateway.client, end
        self.group = f"/consumers/{group}"
        made = self.ask("POST", self.group, {"format": "binary", "auto.offset.reset": "earliest", **config})
        assert made.status_code == 200, made.text
        self.name = made.json()["instance_id"]
        self.path = f"{self.group}/instances/{self.name}"
        assert made.json()["base_uri"] == gateway.url + self.path

    def ask(self, method: str, path: str, body: Any = None, query: str = "", **headers: str) -> Any:
        content = None if body is None else json.dumps(body).encode()
        path = path if path.startswith("/") else f"{self.path}/{path}"
        return self.client.request(
            method, f"{path}{self.end}{query}", content=content, headers={"Content-Type": V2, **headers}
        )

    def told(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status, and error code or body."""
        answer = self.ask(method, path, body)
        if answer.status_code >= 400:
            return answer.status_code, answer.json()["error_code"]
        return answer.status_code, answer.json() if answer.content else None


def at(topic: str, offset: int | None = None, partition: int = 0) -> dict[str, Any]:
    place = {"topic": topic, "partition": partition}
    return place if offset is None else {**place, "offset": offset}


def test_an_instance_is_made_once_and_deleted_once(gateway: RunningGateway, topic: str, end: str) -> None:
    consumer = Proxied(gateway, topic, end)
    assert consumer.told("POST", consumer.group, {"name": consumer.name}) == (409, 40902)
    assert consumer.told("POST", consumer.group, {"fetch.min.bytes": -10}) == (422, 42204)
    assert consumer.told("DELETE", consumer.path) == (204, None)
    assert consumer.told("DELETE", consumer.path) == (404, 40403)
    assert consumer.told("POST", consumer.group, {"name": consumer.name})[0] == 200
    assert consumer.told("DELETE", f"{consumer.group}/instances/nobody") == (404, 40403)


def test_an_id_is_the_name_and_wins(gateway: RunningGateway, topic: str) -> None:
    assert Proxied(gateway, topic, name="by-name").name == "by-name"
    assert Proxied(gateway, topic, name="other", id="by-id").name == "by-id"
    assert Proxied(gateway, topic).name.startswith("rest-consumer-")


def test_partitions_are_assigned_and_shown(gateway: RunningGateway, topic: str, end: str) -> None:
    consumer = Proxied(gateway, topic, end)
    assert consumer.told("GET", "assignments") == (200, {"partitions": []})
    assert consumer.told("POST", "assignments", {"partitions": [at(topic)]}) == (204, None)
    assert consumer.told("GET", "assignments") == (200, {"partitions": [at(topic)]})


def test_topics_a_pattern_and_partitions_exclude_one_another(
    gateway: RunningGateway, topic: str, end: str
) -> None:
    consumer = Proxied(gateway, topic, end)
    by_name, by_pattern = {"topics": [topic]}, {"topic_pattern": "no such.*"}
    by_hand = {"partitions": [at(topic)]}
    assert consumer.told("GET", "subscription") == (200, {"topics": []})
    assert consumer.told("POST", "subscription", by_name | by_pattern) == (409, 40903)
    ways = [("subscription", by_name), ("subscription", by_pattern), ("assignments", by_hand)]
    for path, body in ways:
        assert consumer.told("POST", path, body) == (204, None)
        assert consumer.told("POST", path, body) == (204, None)  # again: it replaces what there was
        for other, wanted in ways:
            if wanted is not body:
                assert consumer.told("POST", other, wanted) == (409, 40903)
        assert consumer.told("DELETE", "subscription") == (204, None)
    assert consumer.told("GET", "subscription") == (200, {"topics": []})


def test_a_consumer_that_has_chosen_nothing_cannot_poll(gateway: RunningGateway, topic: str) -> None:
    assert Proxied(gateway, topic).told("GET", "records") == (409, 40913)


def test_places_are_sought_in_what_is_assigned(gateway: RunningGateway, topic: str, end: str) -> None:
    consumer = Proxied(gateway, topic, end)
    consumer.ask("POST", "assignments", {"partitions": [at(topic)]})
    noted = {**at(topic, 10), "metadata": "note"}
    assert consumer.told("POST", "positions", {"offsets": [noted]}) == (204, None)
    for place in ("beginning", "end"):
        assert consumer.told("POST", f"positions/{place}", {"partitions": [at(topic)]}) == (204, None)
        other = {"partitions": [at(topic, partition=1)]}
        assert consumer.told("POST", f"positions/{place}", other) == (409, 40913)
    assert consumer.told("POST", "positions", {"offsets": [at("faulty", 10)]}) == (409, 40913)


def test_offsets_are_committed_whether_or_not_there_is_a_record(
    gateway: RunningGateway, topic: str, end: str
) -> None:
    """A commit stores the offset after the processed one, also beyond the end of the log, as in Kafka."""
    consumer = Proxied(gateway, topic, end)
    consumer.ask("POST", "assignments", {"partitions": [at(topic)]})
    assert consumer.told("GET", "offsets", {"partitions": [at(topic)]}) == (200, {"offsets": []})
    for offset in (0, 1, 2**63 - 2):
        assert consumer.told("POST", "offsets", {"offsets": [at(topic, offset)]}) == (200, [])
        found = [{**at(topic, offset + 1), "metadata": ""}]
        assert consumer.told("GET", "offsets", {"partitions": [at(topic)]}) == (200, {"offsets": found})
    assert consumer.told("POST", "offsets", {"offsets": [at(topic, 2**63 - 1)]}) == (422, 42206)
    lags = gateway.client.get(f"{gateway.cluster}/consumer-groups/{topic}/lags").json()["data"]
    assert [(each["current_offset"], each["lag"]) for each in lags] == [(2**63 - 1, 0)]


@pytest.mark.parametrize(("reset", "given"), [("earliest", ["a", "b"]), ("latest", [])])
def test_a_poll_from_beyond_the_end_goes_by_auto_offset_reset(
    gateway: RunningGateway, topic: str, reset: str, given: list[str]
) -> None:
    assert gateway.produce(topic, "a", "b", partition=0).status_code == 200
    first = Instance(gateway.client, topic, "first")
    first.send("POST", "assignments", {"partitions": [at(topic)]})
    assert first.commit({(topic, 0): 99}).status_code == 200
    first.delete()
    second = Instance(gateway.client, topic, "second", auto_offset_reset=reset)
    second.send("POST", "assignments", {"partitions": [at(topic)]})
    assert [record["value"] for record in second.poll()] == given
    assert gateway.produce(topic, "c", partition=0).status_code == 200
    assert [record["value"] for record in second.poll(timeout=5_000)] == ["c"]


@pytest.mark.parametrize("body", [None, {}, {"offsets": None}], ids=["nothing", "empty", "null"])
@pytest.mark.parametrize("query", ["", "?async=true"])
def test_without_offsets_all_that_was_given_is_committed(
    gateway: RunningGateway, topic: str, body: Any, query: str
) -> None:
    assert gateway.produce(topic, "a", "b", partition=1).status_code == 200
    consumer = Proxied(gateway, topic, **{"auto.commit.enable": "false"})
    consumer.ask("POST", "subscription", {"topics": [topic]})
    assert len(consumer.ask("GET", "records", Accept=BINARY).json()) == 2
    assert consumer.ask("POST", "offsets", body, query).json() == []
    found = consumer.ask("GET", "offsets", {"partitions": [at(topic, partition=1)]}).json()["offsets"]
    assert [each["offset"] for each in found] == [2]


def test_records_come_as_the_instance_was_made_to_give_them(
    gateway: RunningGateway, topic: str, end: str
) -> None:
    assert gateway.produce(topic, {"n": 1}, partition=0).status_code == 200
    for form, value in (("binary", "eyJuIjoxfQ=="), ("json", {"n": 1})):
        own, other = (f"application/vnd.kafka.{name}.v2+json" for name in sorted(["binary", "json"]))
        own, other = (own, other) if form == "binary" else (other, own)
        consumer = Proxied(gateway, f"{topic}-{form}", end, format=form)
        consumer.ask("POST", "assignments", {"partitions": [at(topic)]})
        refused = consumer.ask("GET", "records", Accept=other)
        assert (refused.status_code, refused.json()["error_code"]) == (406, 40601)
        answer = consumer.ask("GET", "records", Accept=own)
        assert answer.headers["content-type"] == own
        (record,) = answer.json()
        assert {name: record[name] for name in ("topic", "key", "value", "partition", "offset")} == {
            **at(topic, 0),
            "key": None,
            "value": value,
        }


@pytest.mark.parametrize("version", [".v1", ".v2", ""])
def test_the_media_types_of_every_version_mean_the_same(
    gateway: RunningGateway, topic: str, version: str
) -> None:
    typed, envelope = (f"application/vnd.kafka{form}{version}+json" for form in (".json", ""))
    records = json.dumps({"records": [{"value": {"n": 1}}]})
    path = f"/topics/{topic}/partitions/0"
    sent = gateway.client.post(path, content=records, headers={"Content-Type": typed})
    assert sent.status_code == 200, sent.text
    binary = json.dumps({"records": [{"value": "eyJuIjoxfQ=="}]})
    sent = gateway.client.post(path, content=binary, headers={"Content-Type": envelope})
    assert sent.status_code == 200, sent.text
    config = json.dumps({"name": "reader", "format": "json", "auto.offset.reset": "earliest"})
    made = gateway.client.post(f"/consumers/{topic}", content=config, headers={"Content-Type": envelope})
    assert made.status_code == 200, made.text
    reader = Instance(gateway.client, topic, "reader", create=False)
    reader.subscribe(topic)
    for accepted in (typed, envelope):
        again = reader.send("POST", "positions/beginning", {"partitions": [at(topic)]})
        assert again.status_code in (204, 409)  # 409: before the first poll it owns nothing
        answer = gateway.client.get(f"{reader.path}/records", headers={"Accept": accepted})
        assert answer.headers["content-type"] == JSON
        assert [record["value"] for record in answer.json()] == [{"n": 1}, {"n": 1}]
    fetched = gateway.client.get(f"{path}/records", headers={"Accept": typed})
    assert [record["value"] for record in fetched.json()] == [{"n": 1}, {"n": 1}]


def test_what_kafka_s_consumers_know_and_has_no_effect_is_taken(gateway: RunningGateway, topic: str) -> None:
    Proxied(gateway, topic, **dict.fromkeys(WITHOUT_EFFECT, "1000"))


@pytest.mark.parametrize(
    ("name", "hint"), [("heartbeat.interval", "heartbeat.interval.ms"), ("colour", ""), ("reset", "")]
)
def test_what_nobody_knows_is_refused(gateway: RunningGateway, topic: str, name: str, hint: str) -> None:
    answer = gateway.client.post(f"/consumers/{topic}", json={name: 1})
    assert (answer.status_code, answer.json()["error_code"]) == (422, 42204)
    assert f"'{name}'" in answer.json()["message"]
    assert (f"did you mean {hint}?" in answer.json()["message"]) == bool(hint)


def test_every_route_refuses_a_field_that_it_does_not_know(gateway: RunningGateway, topic: str) -> None:
    """A misspelt one would be passed over: a commit without its offsets is a commit of everything."""
    world = World(gateway, topic)
    before, tried = world.state(), 0
    for route in routes(gateway.client):
        body = world.body_of(route)
        if route.method in WITH_BODY and isinstance(body, dict):
            answer = world.send(route.method, route.path(**world.names), {**body, "ofsets": []})
            assert answer.status_code in (400, 422), (route, answer.text)
            tried += 1
    assert tried > 12
    assert world.state() == before
