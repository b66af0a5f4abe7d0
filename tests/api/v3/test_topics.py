"""v3 clusters, topics and settings, through a running gateway."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.gateway import RunningGateway


def test_the_cluster_is_a_list_of_one(gateway: RunningGateway) -> None:
    listed = gateway.client.get("/v3/clusters").json()
    assert listed["kind"] == "KafkaClusterList"
    assert listed["metadata"] == {"self": f"{gateway.url}/v3/clusters", "next": None}
    (cluster,) = listed["data"]
    assert cluster == gateway.client.get(gateway.cluster).json()
    assert cluster["metadata"]["self"] == gateway.url + gateway.cluster
    assert cluster["topics"]["related"] == f"{gateway.url}{gateway.cluster}/topics"


def test_a_topic_lives_from_creation_to_deletion(gateway: RunningGateway) -> None:
    topics = f"{gateway.cluster}/topics"
    created = gateway.client.post(
        topics, json={"topic_name": "life", "partitions_count": 3, "replication_factor": 3}
    )
    assert created.status_code == 201
    topic = created.json()
    assert topic["kind"] == "KafkaTopic"
    assert topic["metadata"] == {
        "self": f"{gateway.url}{topics}/life",
        "resource_name": f"crn:///kafka={topic['cluster_id']}/topic=life",
    }
    assert (topic["partitions_count"], topic["replication_factor"]) == (3, 1)
    assert topic["is_internal"] is False
    assert gateway.client.get(f"{topics}/life").json() == topic
    assert topic in gateway.client.get(topics).json()["data"]
    assert gateway.client.delete(f"{topics}/life").status_code == 204
    assert gateway.client.get(f"{topics}/life").json()["error_code"] == 40401
    assert "life" not in gateway.client.get("/topics").json()


def test_a_recreated_topic_is_empty(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, 1, 2, 3, partition=0)
    gateway.client.delete(f"{gateway.cluster}/topics/{topic}")
    gateway.create_topic(topic)
    offsets = gateway.client.get(f"/topics/{topic}/partitions/0/offsets").json()
    assert offsets == {"beginning_offset": 0, "end_offset": 0}
    assert gateway.produce(topic, "first", partition=0).json()["offsets"][0]["offset"] == 0


def test_a_topic_without_a_count_gets_the_configured_one(gateway: RunningGateway) -> None:
    created = gateway.client.post(f"{gateway.cluster}/topics", json={"topic_name": "uncounted"})
    assert created.json()["partitions_count"] == 1


def test_partitions_can_be_added_and_not_taken(gateway: RunningGateway, topic: str) -> None:
    path = f"{gateway.cluster}/topics/{topic}"
    gateway.produce(topic, "before", partition=1)
    grown = gateway.client.patch(path, json={"partitions_count": 4})
    assert (grown.status_code, grown.json()["partitions_count"]) == (200, 4)
    listed = gateway.client.get(f"{path}/partitions").json()["data"]
    assert [entry["partition_id"] for entry in listed] == [0, 1, 2, 3]
    assert gateway.client.get(f"{path}/partitions/3").json() == listed[3]
    assert gateway.produce(topic, "after", partition=3).status_code == 200
    for count in (4, 2, 0):
        answer = gateway.client.patch(path, json={"partitions_count": count})
        assert (answer.status_code, answer.json()["error_code"]) == (400, 40002), answer.text
    offsets = gateway.client.get(f"/topics/{topic}/partitions/1/offsets").json()
    assert offsets["end_offset"] == 1


def alter(gateway: RunningGateway, topic: str, *changes: dict[str, Any]) -> Any:
    path = f"{gateway.cluster}/topics/{topic}/configs:alter"
    return gateway.client.post(path, json={"data": list(changes)})


def test_settings_are_altered_and_put_back(gateway: RunningGateway, topic: str) -> None:
    path = f"{gateway.cluster}/topics/{topic}/configs"
    by_default = gateway.client.get(f"{path}/compression.type").json()
    assert (by_default["value"], by_default["is_default"]) == ("zstd", True)
    assert by_default["source"] == "DEFAULT_CONFIG"
    change = {"name": "compression.type", "operation": "SET", "value": "lz4"}
    assert alter(gateway, topic, change).status_code == 204
    altered = gateway.client.get(f"{path}/compression.type").json()
    assert (altered["value"], altered["is_default"]) == ("lz4", False)
    assert altered["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert altered in gateway.client.get(path).json()["data"]
    change = {"name": "compression.type", "operation": "DELETE"}
    assert alter(gateway, topic, change).status_code == 204
    assert gateway.client.get(f"{path}/compression.type").json() == by_default


def test_settings_are_altered_all_or_none(gateway: RunningGateway, topic: str) -> None:
    good = {"name": "compression.type", "value": "lz4"}
    bad = {"name": "max.message.bytes", "value": "many"}
    answer = alter(gateway, topic, good, bad)
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    shown = gateway.client.get(f"/topics/{topic}").json()["configs"]
    assert shown["compression.type"] == "zstd"


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"topic_name": "T"}, 400, 40002, "exists already"),
        ({"topic_name": "../etc"}, 400, 40002, "'../etc'"),
        ({"topic_name": ".."}, 400, 40002, "'..'"),
        ({"topic_name": ""}, 400, 40002, "''"),
        ({"topic_name": "x" * 250}, 400, 40002, "250 characters"),
        ({"topic_name": "a b"}, 400, 40002, "'a b'"),
        ({"topic_name": "__lakelog_mine"}, 400, 40002, "'__lakelog_mine'"),
        ({"topic_name": "new", "partitions_count": 0}, 400, 40002, "0 partitions"),
        ({"topic_name": "new", "partitions_count": 10**6}, 400, 40002, "1000000 partitions"),
        ({"topic_name": "new", "partitions_count": "two"}, 422, 42206, "partitions_count = 'two'"),
        ({"topic_name": "new", "replication_factor": 0}, 422, 42206, "replication_factor = 0"),
        ({"topic_name": "new", "colour": "red"}, 422, 42206, "colour = 'red'"),
        ({}, 422, 42206, "topic_name is missing"),
        ([], 422, 42206, "body"),
        (
            {"topic_name": "new", "configs": [{"name": "color", "value": "1"}]},
            400,
            40002,
            "'color'",
        ),
        (
            {"topic_name": "new", "configs": [{"name": "compression.type", "value": "rar"}]},
            400,
            40002,
            "'rar'",
        ),
    ],
)
def test_a_topic_that_cannot_be_created_leaves_nothing(
    gateway: RunningGateway, topic: str, body: Any, status: int, code: int, says: str
) -> None:
    if isinstance(body, dict) and body.get("topic_name") == "T":
        body = {"topic_name": topic}
    answer = gateway.client.post(f"{gateway.cluster}/topics", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert says in answer.json()["message"]
    assert "new" not in gateway.client.get("/topics").json()


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v3/clusters/other", None, 404, 404),
        ("POST", "/v3/clusters/other/topics", {"topic_name": "x"}, 404, 404),
        ("GET", "C/topics/nowhere", None, 404, 40401),
        ("GET", "C/topics/nowhere/configs", None, 404, 40401),
        ("GET", "C/topics/T/configs/color", None, 404, 404),
        ("GET", "C/topics/T/partitions/9", None, 404, 40402),
        ("DELETE", "C/topics/nowhere", None, 404, 40401),
        ("DELETE", "C/topics/__cluster_metadata", None, 400, 40002),
        ("PATCH", "C/topics/nowhere", {"partitions_count": 3}, 404, 40401),
        (
            "POST",
            "C/topics/nowhere/configs:alter",
            {"data": [{"name": "a", "value": "b"}]},
            404,
            40401,
        ),
        ("POST", "C/topics/T/configs:alter", {"data": []}, 422, 42206),
        ("POST", "C/topics/T/configs:alter", {"data": [{"name": "compression.type"}]}, 422, 42206),
        (
            "POST",
            "C/topics/T/configs:alter",
            {"data": [{"name": "color", "value": "b"}]},
            400,
            40002,
        ),
        ("PUT", "C/topics/T", {}, 405, 405),
    ],
)
def test_a_bad_request_has_the_right_code(
    gateway: RunningGateway, topic: str, method: str, path: str, body: Any, status: int, code: int
) -> None:
    path = path.replace("C/", f"{gateway.cluster}/").replace("/T", f"/{topic}")
    answer = gateway.client.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text


def test_a_large_body_is_refused(gateway: RunningGateway) -> None:
    def body() -> Iterator[bytes]:
        yield b'{"topic_name": "'
        for _ in range(20):
            yield b"x" * 100_000

    headers = {"Content-Type": "application/json"}
    answer = gateway.client.post(f"{gateway.cluster}/topics", content=body(), headers=headers)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413)
    assert "1048576 are allowed" in answer.json()["message"]


def test_a_body_that_is_not_json_is_refused(gateway: RunningGateway) -> None:
    answer = gateway.client.post(
        f"{gateway.cluster}/topics",
        content=b'{"topic_name": ',
        headers={"Content-Type": "application/json"},
    )
    assert (answer.status_code, answer.json()["error_code"]) == (400, 400)
