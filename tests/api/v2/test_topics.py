"""v2 topics, partitions, offsets and deleting records, through a running gateway."""

from typing import Any

import pytest

from lakelog.client.client import Client
from tests.kit.gateway import RunningGateway

V2 = "application/vnd.kafka.v2+json"
PARTITION_0 = {
    "partition": 0,
    "leader": 1,
    "replicas": [{"broker": 1, "leader": True, "in_sync": True}],
}


def test_a_created_topic_is_listed_and_internal_ones_are_not(gateway: RunningGateway, topic: str) -> None:
    answer = gateway.client.get("/topics", headers={"Accept": V2})
    assert answer.headers["Content-Type"] == V2
    assert topic in answer.json()
    assert not [name for name in answer.json() if name.startswith("__")]


def test_a_topic_shows_its_settings_and_partitions(gateway: RunningGateway) -> None:
    name = gateway.create_topic("shown", partitions=2, compression_type="lz4")
    shown = gateway.client.get(f"/topics/{name}").json()
    assert shown["name"] == name
    assert shown["configs"]["compression.type"] == "lz4"
    assert shown["partitions"] == [PARTITION_0, {**PARTITION_0, "partition": 1}]
    assert gateway.client.get(f"/topics/{name}/partitions").json() == shown["partitions"]
    assert gateway.client.get(f"/topics/{name}/partitions/0").json() == PARTITION_0


def test_a_topic_is_created_and_deleted_without_a_cluster_id(gateway: RunningGateway) -> None:
    configs = [{"name": "compression.type", "value": "lz4"}]
    new = {"topic_name": "plain", "partitions_count": 2, "configs": configs}
    created = gateway.client.post("/topics", json=new)
    assert (created.status_code, created.headers["Content-Type"]) == (201, V2)
    assert created.json() == gateway.client.get("/topics/plain").json()
    assert created.json()["configs"]["compression.type"] == "lz4"
    assert len(created.json()["partitions"]) == 2
    assert gateway.client.get(f"{gateway.cluster}/topics/plain").json()["partitions_count"] == 2
    assert gateway.client.delete("/topics/plain").status_code == 204
    assert gateway.client.get("/topics/plain").json()["error_code"] == 40401
    assert gateway.client.delete("/topics/plain").json()["error_code"] == 40401


def test_a_topic_created_without_a_count_gets_the_configured_one(gateway: RunningGateway) -> None:
    created = gateway.client.post("/topics", json={"topic_name": "plain-uncounted"})
    assert len(created.json()["partitions"]) == 1


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        ({"topic_name": "T"}, 400, 40002, "exists already"),
        ({"topic_name": "__lakelog_mine"}, 400, 40002, "'__lakelog_mine'"),
        ({"topic_name": "a b"}, 400, 40002, "'a b'"),
        ({"topic_name": "new", "partitions_count": 0}, 400, 40002, "0 partitions"),
        ({"topic_name": "new", "colour": "red"}, 422, 42206, "colour = 'red'"),
        ({"name": "new"}, 422, 42206, "topic_name is missing"),
        ({"topic_name": "new", "configs": [{"name": "color", "value": "1"}]}, 400, 40002, "'color'"),
    ],
)
def test_a_topic_that_cannot_be_created_is_refused(
    gateway: RunningGateway, topic: str, body: dict[str, Any], status: int, code: int, says: str
) -> None:
    if body.get("topic_name") == "T":
        body = {"topic_name": topic}
    answer = gateway.client.post("/topics", json=body)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert says in answer.json()["message"]
    assert "new" not in gateway.client.get("/topics").json()


def test_offsets_move_when_records_come(gateway: RunningGateway, topic: str) -> None:
    path = f"/topics/{topic}/partitions/1/offsets"
    assert gateway.client.get(path).json() == {"beginning_offset": 0, "end_offset": 0}
    gateway.produce(topic, 1, 2, 3, partition=1)
    assert gateway.client.get(path).json() == {"beginning_offset": 0, "end_offset": 3}


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        ("0", 0),
        ("1700000000000", 0),
        ("1700000000001", 1),
        ("1700000060000", 1),
        ("1700000060001", None),
        ("2023-11-14T22:13:20Z", 0),
        ("2023-11-14T22:13:20.001", 1),
        ("2023-11-14T23:14:20+01:00", 1),
        ("2023-11-14 22:14:21", None),
    ],
)
def test_the_offset_of_a_time_is_the_earliest_not_before_it(
    gateway: RunningGateway, topic: str, timestamp: str, offset: int | None
) -> None:
    records = [{"value": i, "timestamp": 1_700_000_000_000 + 60_000 * i} for i in range(2)]
    gateway.client.post(f"/topics/{topic}/partitions/0", json={"records": records})
    path = f"/topics/{topic}/partitions/0/offsets"
    expected = {"beginning_offset": 0, "end_offset": 2, "offset": offset}
    assert gateway.client.get(path, params={"timestamp": timestamp}).json() == expected
    # Unescaped, the + of a time zone arrives as a space.
    assert gateway.client.get(f"{path}?timestamp={timestamp}").json() == expected


def test_deleted_records_are_gone_and_the_offsets_stay(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(10), partition=0)
    path = f"/topics/{topic}/partitions/0"
    delete = gateway.client.delete(f"{path}/records", params={"before": 4})
    assert (delete.status_code, delete.json()) == (200, {"log_start_offset": 4})
    offsets = gateway.client.get(f"{path}/offsets").json()
    assert offsets == {"beginning_offset": 4, "end_offset": 10}
    again = gateway.client.delete(f"{path}/records", params={"before": 2})
    assert again.json() == {"log_start_offset": 4}
    assert gateway.produce(topic, "next", partition=0).json()["offsets"][0]["offset"] == 10


def test_a_gateway_alone_is_the_one_broker(gateway: RunningGateway) -> None:
    answer = gateway.client.get("/brokers")
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
    assert answer.json() == {"brokers": [1]}


def test_what_is_known_of_a_broker_is_a_resource_of_v3(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, 1, partition=0)
    path = f"{gateway.cluster}/brokers"
    (listed,) = gateway.client.get(path).json()["data"]
    assert gateway.client.get(f"{path}/1").json().keys() == listed.keys()
    assert (listed["kind"], listed["broker_id"], listed["alive"]) == ("KafkaBroker", 1, True)
    assert listed["url"] == f"http://{listed['host']}:{listed['port']}" == gateway.url
    assert listed["metadata"]["self"] == f"{gateway.url}{path}/1"
    assert gateway.client.get(f"{path}/7").json()["error_code"] == 404
    with Client(gateway.url) as client:
        (told,) = client.brokers()
    assert told.keys() == {"broker", "url", "since", "alive", "leads", "rack"}
    assert (told["broker"], told["url"], told["since"]) == (1, gateway.url, listed["since"])


OFFSETS = "/topics/T/partitions/0/offsets"


@pytest.mark.parametrize(
    ("method", "path", "status", "code", "says"),
    [
        ("GET", "/topics/nowhere", 404, 40401, "no topic 'nowhere'"),
        ("GET", "/topics/nowhere/partitions", 404, 40401, "no topic 'nowhere'"),
        ("GET", "/topics/nowhere/partitions/0/offsets", 404, 40401, "no topic 'nowhere'"),
        ("GET", "/topics/T/partitions/7", 404, 40402, "no partition 7"),
        ("GET", "/topics/T/partitions/-1", 404, 40402, "no partition -1"),
        ("GET", "/topics/T/partitions/7/offsets", 404, 40402, "no partition 7"),
        ("GET", "/topics/T/partitions/zero", 400, 40002, "partition = 'zero'"),
        ("GET", "/topics/T/partitions/0/offsets?timestamp=noon", 400, 40002, "'noon'"),
        ("GET", "/topics/T/partitions/0/offsets?timestamp=" + "9" * 30, 400, 40002, "999"),
        ("GET", f"{OFFSETS}?timestamp=9999-12-31T23:59:59-14:00", 400, 40002, "'9999-12-31T23:59:59-14:00'"),
        (
            "GET",
            f"{OFFSETS}?timestamp=0001-01-01T00:00:00%2B14:00",
            400,
            40002,
            "'0001-01-01T00:00:00+14:00'",
        ),
        ("DELETE", "/topics/T/partitions/0/records", 400, 40002, "before is missing"),
        ("DELETE", "/topics/T/partitions/0/records?before=-1", 400, 40002, "-1 is negative"),
        ("DELETE", "/topics/T/partitions/0/records?before=1", 416, 41601, "high watermark 0"),
        ("DELETE", "/topics/T/partitions/7/records?before=0", 404, 40402, "no partition 7"),
        ("GET", "/topics/" + "x" * 250, 404, 40401, "no topic"),
        ("GET", "/topics/..%2F..%2Fetc", 404, 404, "Not Found"),
        ("GET", "/topics/%2e%2e", 404, 40401, "no topic"),
        ("GET", "/topics/a%00b", 404, 40401, "no topic"),
        ("GET", "/nowhere", 404, 404, "GET /nowhere"),
        ("PUT", "/topics/T", 405, 405, "Method Not Allowed"),
        ("DELETE", "/topics/nowhere", 404, 40401, "no topic 'nowhere'"),
        ("DELETE", "/topics/__consumer_offsets", 400, 40002, "is internal"),
        ("DELETE", "/topics/__lakelog_nowhere", 400, 40002, "is internal"),
        ("DELETE", "/topics", 405, 405, "Method Not Allowed"),
    ],
)
def test_a_bad_request_says_what_was_wrong(
    gateway: RunningGateway, topic: str, method: str, path: str, status: int, code: int, says: str
) -> None:
    answer = gateway.client.request(method, path.replace("/T", f"/{topic}"))
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert says in answer.json()["message"]
    assert gateway.data not in answer.text
