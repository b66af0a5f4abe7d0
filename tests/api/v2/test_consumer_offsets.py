"""Offsets of groups and positions of consumer instances: committed, set, reset."""

from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway
from tests.kit.support import wait_until


def test_auto_commit_commits_what_was_done_with(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, 1, 2, partition=0)
    reader = Instance(gateway.client, group, "reader", auto_commit_enable="true", auto_commit_interval_ms=0)
    reader.subscribe(topic)
    assert reader.values(2) == [1, 2]
    assert reader.committed(topic, 0) == {}, "nobody has asked for more"
    reader.poll()
    wait_until(lambda: reader.committed(topic, 0) == {0: 2}, "the commit is there")
    gateway.produce(topic, 3, partition=0)
    assert reader.values(1) == [3]
    reader.delete()
    following = Instance(gateway.client, group, "following")
    following.subscribe(topic)
    assert following.committed(topic, 0) == {0: 3}


def test_positions(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *range(10), partition=0)
    reader = Instance(gateway.client, group, "reader")
    reader.send("POST", "assignments", {"partitions": [{"topic": topic, "partition": 0}]})
    at = {"topic": topic, "partition": 0}
    assert reader.send("POST", "positions", {"offsets": [{**at, "offset": 7}]}).status_code == 204
    assert reader.values(3) == [7, 8, 9]
    assert reader.send("POST", "positions/beginning", {"partitions": [at]}).status_code == 204
    assert reader.values(10) == [*range(10)]
    assert reader.send("POST", "positions/end", {"partitions": [at]}).status_code == 204
    assert reader.poll() == []
    assert reader.send("POST", "positions", {"timestamps": [{**at, "timestamp": 0}]}).status_code == 204
    assert reader.values(10) == [*range(10)]
    late = {"timestamps": [{**at, "timestamp": "2999-01-01T00:00:00Z"}]}
    assert reader.send("POST", "positions", late).status_code == 204
    assert reader.poll() == []


def test_who_begins_at_latest_misses_nothing_after_that(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    gateway.produce(topic, "before", partition=0)
    short = Instance(gateway.client, group, "short", auto_offset_reset="latest")
    short.subscribe(topic)
    assert short.poll() == []
    assert short.committed(topic, 0, 1) == {0: 1, 1: 0}
    gateway.produce(topic, "between", partition=0)
    short.delete()
    following = Instance(gateway.client, group, "following", auto_offset_reset="latest")
    following.subscribe(topic)
    assert following.values(1) == ["between"]


def test_a_groups_offsets_without_an_instance(gateway: RunningGateway, topic: str, group: str) -> None:
    path = f"/consumers/{group}/offsets"
    assert gateway.client.get(path).json()["error_code"] == 40405
    gateway.produce(topic, *range(4), partition=0)
    body = {"offsets": [{"topic": topic, "partition": 0, "offset": 3, "metadata": "note"}]}
    assert gateway.client.put(path, json=body).status_code == 204
    assert gateway.client.get(path).json() == body
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert reader.values(1) == [3]
    refused = gateway.client.put(path, json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40914)
    body["offsets"][0]["offset"] = 1
    assert gateway.client.put(path, json=body, params={"force": "true"}).status_code == 204
    assert reader.values(3) == [1, 2, 3]
    assert gateway.client.delete(f"/consumers/{group}").json()["error_code"] == 40914
    assert gateway.client.delete(f"/consumers/{group}", params={"force": "true"}).status_code == 204
    assert gateway.client.get(path).json()["error_code"] == 40405
    assert reader.send("GET", "assignments").json()["error_code"] == 40403
