"""The audit log of gateways: each kind of event, from real requests, and a store that does not take them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from log_tables.cluster.acl import Operation, ResourceType
from log_tables.layout import AUDIT, partition_directory, topic_directory
from tests.kit.audits import audit_rows, short, wait_for_audit
from tests.kit.gateway import RunningGateway, running_gateway, two_gateways
from tests.kit.secured import ADMIN, Secured, acl, bearer, error_code
from tests.kit.support import wait_until

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json", "Accept": "application/vnd.kafka.json.v2+json"}
ANN, BOB, PASSWORD = "User:ann", "User:bob", "password-of-bob"
RECORD = {"records": [{"value": 1}]}
HERE = "127.0.0.1"


class Scene(NamedTuple):
    """A gateway that audits; ann may write to t, and bob is a user with a password."""

    data: Path
    root: Secured
    gateway: RunningGateway
    admin: httpx.Client
    ann: httpx.Client

    def client(self, key: str, gateway: RunningGateway | None = None) -> httpx.Client:
        url = (gateway or self.gateway).url
        return httpx.Client(base_url=url, headers=bearer(key) | JSON, timeout=60)


def scene_of(data: Path, gateway: RunningGateway, root: Secured, admin: str, ann: str) -> Scene:
    clients = [
        httpx.Client(base_url=gateway.url, headers=bearer(key) | JSON, timeout=60) for key in (admin, ann)
    ]
    wait_until(lambda: gateway.client.get("/topics", headers=bearer(ann)).is_success, "the keys are known")
    return Scene(data, root, gateway, *clients)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    data = tmp_path_factory.mktemp("audit")
    root = Secured(data)
    admin, ann = root.key(), root.key(ANN)
    root.user("bob", PASSWORD)
    root.allow(acl(ANN, Operation.WRITE, ResourceType.TOPIC, "t"))
    with running_gateway(data, linger_ms=0, authentication_methods="api-key,scram") as gateway:
        found = scene_of(data, gateway, root, admin, ann)
        found.admin.post("/topics", json={"topic_name": "t"}).raise_for_status()
        yield found


def test_a_change_has_what_was_asked_for_and_a_failed_one_its_code(scene: Scene) -> None:
    admin, cluster = scene.admin, f"/v3/clusters/{scene.root.cluster.cluster_id}"
    made = {
        "topic_name": "made",
        "partitions_count": 2,
        "configs": [{"name": "retention.ms", "value": "1000"}],
    }
    named = {"resource_type": "TOPIC", "resource_name": "made", "operation": "READ", "permission": "ALLOW"}
    offsets = {"offsets": [{"topic": "made", "partition": 0, "offset": 0, "metadata": "m"}]}
    chosen = "resource_type=TOPIC&pattern_type=ANY&operation=ANY&permission=ANY&principal=User:eve"
    asked: list[tuple[str, str, Any]] = [
        ("POST", f"{cluster}/topics", made),
        ("PATCH", f"{cluster}/topics/made", {"partitions_count": 3}),
        ("POST", f"{cluster}/topics/made/configs:alter", {"data": [{"name": "retention.ms", "value": "5"}]}),
        ("DELETE", "/topics/made/partitions/0/records?before=0", None),
        ("PUT", "/consumers/g/offsets", offsets),
        ("DELETE", "/consumers/g", None),
        ("POST", f"{cluster}/acls", {**named, "principal": "User:eve"}),
        ("DELETE", f"{cluster}/acls?{chosen}", None),
        ("DELETE", "/topics/made", None),
    ]
    for method, path, body in asked:
        answer = admin.request(method, path, json=body)
        assert answer.is_success, (path, answer.text)
    assert error_code(admin.delete("/topics/made")) == 40401
    found = wait_for_audit(scene.data, "kind = 'change' and resource_name <> 't'", len(asked) + 1)
    acls = ["ALLOW READ on LITERAL TOPIC made to User:eve from *"]
    data = [json.loads(row["event"])["api"].get("request", {}).get("data") for row in found]
    shown = short(found, "operation", "resource_type", "resource_name", "error_code")
    assert list(zip(shown, data, strict=True)) == [
        (("CreateTopics", "TOPIC", "made", None), {"partitions": 2, "configs": {"retention.ms": "1000"}}),
        (("CreatePartitions", "TOPIC", "made", None), {"partitions": 3}),
        (("AlterConfigs", "TOPIC", "made", None), {"configs": {"retention.ms": "5"}}),
        (("DeleteRecords", "TOPIC", "made", None), {"partition": 0, "before": 0}),
        (("AlterConsumerGroupOffsets", "GROUP", "g", None), {"offsets": ["made-0 0"], "count": 1}),
        (("DeleteGroups", "GROUP", "g", None), None),
        (("CreateAcls", "CLUSTER", "kafka-cluster", None), {"acls": acls}),
        (("DeleteAcls", "CLUSTER", "kafka-cluster", None), {"acls": acls}),
        (("DeleteTopics", "TOPIC", "made", None), None),
        (("DeleteTopics", "TOPIC", "made", 40401), None),
    ]
    url = scene.gateway.url
    assert set(short(found, "principal", "address", "gateway", "count")) == {(ADMIN, HERE, url, 1)}
    assert [row["outcome"] for row in found] == ["Success"] * len(asked) + ["Failure"]


def test_a_denial_is_told_once_and_counted_when_its_minute_ends(scene: Scene) -> None:
    for _ in range(3):
        assert error_code(scene.ann.get("/topics/t/partitions/0/records")) == 40301
        assert error_code(scene.ann.delete("/topics/t")) == 40301
    found = wait_for_audit(scene.data, f"kind = 'denial' and principal = '{ANN}'", 2)
    named = ("operation", "resource_type", "resource_name", "error_code", "address", "outcome")
    assert dict.fromkeys(short(found, *named), 1) == {
        ("READ", "TOPIC", "t", 40301, HERE, "Failure"): 1,
        ("DELETE", "TOPIC", "t", 40301, HERE, "Failure"): 1,
    }


def test_a_refused_credential_names_a_user_only_if_there_is_one(scene: Scene) -> None:
    with httpx.Client(base_url=scene.gateway.url) as client:
        for password in ((PASSWORD, "x"), ("bob", "wrong"), ("bob", "wrong")):
            assert client.get("/topics", auth=password).status_code == 401
        assert client.get("/topics").status_code == 401
    found = wait_for_audit(scene.data, "kind = 'refusal'", 2)
    assert set(short(found, "principal", "address", "operation", "error_code")) == {
        (None, HERE, "LOGON", 40101),
        (BOB, HERE, "LOGON", 40101),
    }
    assert PASSWORD not in str(found)


def test_the_first_access_of_an_hour_is_told_for_reading_and_for_writing(scene: Scene) -> None:
    for _ in range(3):
        scene.ann.post("/topics/t", json=RECORD).raise_for_status()
        scene.admin.get("/topics/t/partitions/0/records").raise_for_status()
    scene.admin.post("/consumers/poll", json={"name": "i", "format": "json"}).raise_for_status()
    scene.admin.post(
        "/consumers/poll/instances/i/subscription", json={"topic_pattern": "t"}
    ).raise_for_status()
    found = wait_for_audit(scene.data, "kind = 'access' and resource_name = 't'", 2)
    # The hour may have ended in between.
    assert set(short(found, "principal", "operation", "address")) == {
        (ANN, "WRITE", HERE),
        (ADMIN, "READ", HERE),
    }
    assert len(found) <= 4


def test_a_poll_by_a_pattern_is_an_access_to_what_it_gets(scene: Scene) -> None:
    scene.admin.post("/topics", json={"topic_name": "of-pattern"}).raise_for_status()
    instance = "/consumers/pattern/instances/i"
    config = {"name": "i", "format": "json", "auto.offset.reset": "earliest"}
    scene.admin.post("/consumers/pattern", json=config).raise_for_status()
    scene.admin.post(f"{instance}/subscription", json={"topic_pattern": "of-.*"}).raise_for_status()
    scene.admin.post("/topics/of-pattern", json=RECORD).raise_for_status()
    wait_until(lambda: bool(scene.admin.get(f"{instance}/records").json()), "the instance has the partition")
    found = wait_for_audit(scene.data, "kind = 'access' and resource_name = 'of-pattern'", 2)
    assert {row["operation"] for row in found} == {"READ", "WRITE"}


def test_the_audit_log_is_read_by_those_who_may_describe_the_cluster_and_written_by_nobody(
    scene: Scene,
) -> None:
    reader = "User:reader"
    scene.root.allow(acl(reader, Operation.ALL, ResourceType.TOPIC, "*"))
    client = scene.client(scene.root.key(reader))
    path = f"/topics/{AUDIT}/partitions/0/records"
    wait_until(lambda: client.get("/topics/t").is_success, "the reader is known")
    assert AUDIT not in client.get("/topics").json()
    assert error_code(client.get(path)) == 40301
    scene.root.allow(acl(reader, Operation.DESCRIBE, ResourceType.CLUSTER))
    wait_until(lambda: client.get(path).is_success, "the new ACL holds")
    assert {"metadata", "class_uid"} <= client.get(path).json()[0]["value"].keys()
    found = wait_for_audit(scene.data, f"principal = '{reader}' and resource_name = '{AUDIT}'", 2)
    assert set(short(found, "kind", "operation")) >= {("denial", "READ"), ("access", "READ")}
    admin, cluster = scene.admin, f"/v3/clusters/{scene.root.cluster.cluster_id}"
    for method, refused, body in (
        ("POST", f"/topics/{AUDIT}", RECORD),
        ("DELETE", f"/topics/{AUDIT}", None),
        ("DELETE", f"/topics/{AUDIT}/partitions/0/records?before=1", None),
        (
            "POST",
            f"{cluster}/topics/{AUDIT}/configs:alter",
            {"data": [{"name": "retention.ms", "value": "1"}]},
        ),
        ("PATCH", f"{cluster}/topics/{AUDIT}", {"partitions_count": 2}),
        ("PUT", "/consumers/g/offsets", {"offsets": [{"topic": AUDIT, "partition": 0, "offset": 0}]}),
        ("POST", "/consumers/poll/instances/none/subscription", {"topics": [AUDIT]}),
    ):
        assert not admin.request(method, refused, json=body).is_success, refused
    shown = admin.get(f"/topics/{AUDIT}").json()["configs"]
    assert (shown["retention.ms"], shown["retention.bytes"]) == (str(90 * 24 * 3_600_000), str(256 << 20))


def test_a_forwarded_request_is_audited_once_where_the_client_has_spoken(tmp_path: Path) -> None:
    root = Secured(tmp_path)
    admin, ann = root.key(), root.key(ANN)
    root.allow(acl(ANN, Operation.READ, ResourceType.GROUP, "*"))
    settings = {"linger_ms": 0, "authentication_methods": "api-key", "offsets_topic_num_partitions": 1}
    with two_gateways(tmp_path, **settings) as gateways:
        first = scene_of(tmp_path, gateways[0], root, admin, ann)
        second = scene_of(tmp_path, gateways[1], root, admin, ann)
        first.admin.post("/topics", json={"topic_name": "t"}).raise_for_status()
        offsets = {"offsets": [{"topic": "t", "partition": 0, "offset": 0}]}
        for number, each in enumerate((first, second)):
            group = f"g{number}"
            each.admin.put(f"/consumers/{group}/offsets", json=offsets).raise_for_status()
            assert error_code(each.ann.put(f"/consumers/{group}/offsets", json=offsets)) == 40301
            each.admin.delete(f"/consumers/{group}").raise_for_status()
            each.admin.delete(f"/consumers/{group}")
        forwarded = [
            line
            for each in (first, second)
            for line in each.admin.get("/metrics").text.splitlines()
            if line.startswith("lakelog_forwarded_total") and not line.endswith(" 0.0")
        ]
        assert forwarded, "one of the gateways forwards"
    changes = audit_rows(tmp_path, "kind = 'change' and resource_type = 'GROUP'")
    expected = [
        (operation, f"g{number}", gateway.url, outcome)
        for number, gateway in enumerate(gateways)
        for operation, outcome in (
            ("AlterConsumerGroupOffsets", "Success"),
            ("DeleteGroups", "Success"),
            ("DeleteGroups", "Failure"),
        )
    ]
    assert sorted(short(changes, "operation", "resource_name", "gateway", "outcome")) == sorted(expected)
    resets = [row for row in changes if row["operation"] == "AlterConsumerGroupOffsets"]
    assert ['"offsets":["t-0 0"]' in row["event"] for row in resets] == [True, True]
    assert set(short(changes, "principal", "address")) == {(ADMIN, HERE)}
    denials = audit_rows(tmp_path, f"kind = 'denial' and principal = '{ANN}'")
    assert sum(row["count"] for row in denials) == 2
    assert set(short(denials, "operation", "resource_name", "address")) == {("READ", "t", HERE)}


def test_a_store_that_does_not_take_events_stops_the_audit_and_no_request(tmp_path: Path) -> None:
    root = Secured(tmp_path)
    admin, ann = root.key(), root.key(ANN)
    log = tmp_path / partition_directory(topic_directory(AUDIT), 0)
    with running_gateway(tmp_path, linger_ms=0, authentication_methods="api-key") as gateway:
        scene = scene_of(tmp_path, gateway, root, admin, ann)
        scene.admin.post("/topics", json={"topic_name": "t"}).raise_for_status()
        wait_for_audit(tmp_path, "operation = 'CreateTopics'")
        log.rename(tmp_path / "away")
        log.write_bytes(b"no directory")

        def metric(line: str) -> bool:
            return line in scene.admin.get("/metrics").text

        scene.admin.post("/topics", json={"topic_name": "u"}).raise_for_status()
        for name in ("t", "u"):
            scene.admin.post(f"/topics/{name}", json=RECORD).raise_for_status()
            assert error_code(scene.ann.delete(f"/topics/{name}")) == 40301
        wait_until(lambda: metric('lakelog_duty_failures_total{duty="audit"}'), "the audit fails")
        scene.admin.delete("/topics/u").raise_for_status()
        log.unlink()
        (tmp_path / "away").rename(log)
        found = wait_for_audit(tmp_path, "resource_name = 'u' and kind <> 'access'", 3)
        assert short(found, "kind", "operation") == [
            ("change", "CreateTopics"),
            ("denial", "DELETE"),
            ("change", "DeleteTopics"),
        ]


def test_a_flood_is_bounded_and_the_rest_is_counted(tmp_path: Path) -> None:
    root = Secured(tmp_path)
    admin, ann = root.key(), root.key(ANN)
    settings = {"authentication_methods": "api-key", "audit_records_per_s_max": 5}
    with running_gateway(tmp_path, linger_ms=0, **settings) as gateway:
        scene = scene_of(tmp_path, gateway, root, admin, ann)
        for number in range(60):
            assert error_code(scene.ann.delete(f"/topics/t{number}")) == 40301
        scene.admin.post("/topics", json={"topic_name": "t"}).raise_for_status()
        wait_for_audit(tmp_path, "operation = 'CreateTopics'")
        waiting = 60 - len(audit_rows(tmp_path, "kind = 'denial'"))
        assert waiting > 0, "the change is before the denials that wait"
    assert len(audit_rows(tmp_path, "kind = 'denial'")) == 60


def test_a_gateway_that_is_told_not_to_or_is_open_does_not_audit(tmp_path: Path) -> None:
    for name, settings in (
        ("open", {}),
        ("off", {"authentication_methods": "api-key", "audit_enable": "false"}),
    ):
        root = Secured(tmp_path / name)
        key = root.key()
        with running_gateway(tmp_path / name, linger_ms=0, **settings) as gateway:
            gateway.client.post("/topics", json={"topic_name": "t"}, headers=bearer(key)).raise_for_status()
        assert audit_rows(tmp_path / name) == []
        root.cluster.refresh()
        assert root.cluster.cached_topic(AUDIT) is None
