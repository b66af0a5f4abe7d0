"""Deleted topics and records come back over HTTP, with the offsets of groups."""

from pathlib import Path

import pytest

from lakelog.client.client import Client
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.errors import UnknownTopic
from tests.kit.gateway import RunningGateway, running_gateway, two_gateways
from tests.kit.secured import Secured, acl, bearer
from tests.kit.support import wait_until

OFFSETS = "/consumers/undo/offsets"


def committed(gateway: RunningGateway, topic: str) -> int | None:
    found = gateway.client.get(OFFSETS).json().get("offsets", [])
    return next((each["offset"] for each in found if each["topic"] == topic), None)


def test_a_topic_comes_back_with_the_offsets_of_groups_also_under_another_name(
    gateway: RunningGateway,
) -> None:
    name = gateway.create_topic("gone")
    with Client(gateway.url) as client:
        gateway.produce(name, "a", "b").raise_for_status()
        offsets = {"offsets": [{"topic": name, "partition": 0, "offset": 1}]}
        gateway.client.put(OFFSETS, json=offsets).raise_for_status()
        doomed = client.deletion(name)
        assert (doomed["partitions"], doomed["records"], doomed["groups"]) == (1, 2, ["undo"])
        assert doomed["kept_ms"] == 24 * 60 * 60 * 1000
        client.delete_topic(name)
        (found,) = [each for each in client.deleted_topics() if each["topic"] == name]
        assert found["records"] == 2
        held = float(sum(each["bytes"] for each in client.deleted_topics()))
        assert f"lakelog_deleted_topics_bytes {held}" in gateway.client.get("/metrics").text
        wait_until(lambda: committed(gateway, name) is None, "the group forgets it")
        assert client.undelete_topic(name)["id"] == found["id"]
        wait_until(lambda: committed(gateway, name) == 1, "the offset comes back")
        gateway.produce(name, "c").raise_for_status()
        client.delete_topic(name)
        client.create_topic(name)
        taken = gateway.client.post(f"/deleted-topics/{name}/undelete", json={})
        assert (taken.status_code, taken.json()["error_code"]) == (400, 40002)
        assert client.undelete_topic(name, new_name="back")["topic"] == "back"
        assert [each.value for each in client.read("back", 0)] == [b'"a"', b'"b"', b'"c"']
        assert [*client.read(name, 0)] == []
        wait_until(lambda: committed(gateway, "back") == 1, "the offset goes with it")
        assert committed(gateway, name) is None
        client.delete_topic("back")
        assert client.purge_topic("back")["records"] == 3
        assert gateway.client.post("/deleted-topics/back/undelete", json={}).status_code == 404


def test_the_topic_that_was_shown_is_deleted_and_no_newer_one(gateway: RunningGateway) -> None:
    name = gateway.create_topic("shown")
    with Client(gateway.url) as client:
        shown = client.deletion(name)["id"]
        client.delete_topic(name, topic_id=shown)
        client.create_topic(name)
        with pytest.raises(UnknownTopic, match="another id"):
            client.delete_topic(name, topic_id=shown)
        client.delete_topic(name, topic_id=client.deletion(name)["id"])
        with pytest.raises(UnknownTopic, match="no topic"):
            client.deletion(name)


def test_deleted_records_come_back(gateway: RunningGateway) -> None:
    name = gateway.create_topic("emptied")
    with Client(gateway.url) as client:
        gateway.produce(name, "a").raise_for_status()
        gateway.produce(name, "b").raise_for_status()
        (now,) = client.restore_topic(name, time="2100-01-01", dry_run=True)
        assert (now["records"], now["oldest_version"]) == (0, 0)
        before = gateway.client.get(f"/topics/{name}/partitions/0/offsets").json()
        client.delete_records(name, 0, 2)
        assert [*client.read(name, 0, 2)] == []
        refused = gateway.client.post(f"/topics/{name}/restore", json={"time": "1"})
        assert (refused.status_code, "reaches back to version 0" in refused.text) == (409, True)
        (found,) = client.restore_topic(name, version=3, partition=0)
        assert (found["log_start_before"], found["log_start"], found["records"]) == (2, 0, 2)
        assert [each.value for each in client.read(name, 0)] == [b'"a"', b'"b"']
        assert gateway.client.get(f"/topics/{name}/partitions/0/offsets").json() == before


def test_who_may_not_read_a_topic_cannot_bring_it_back_under_a_name_of_theirs(tmp_path: Path) -> None:
    root = Secured(tmp_path)
    create_topic(root.cluster, "secret")
    delete_topic(root.cluster, "secret")
    root.allow(
        acl("User:bob", Operation.DELETE, ResourceType.TOPIC, "secret"),
        acl("User:bob", Operation.CREATE, ResourceType.CLUSTER),
    )
    bob = bearer(root.key("User:bob"))
    with running_gateway(tmp_path, authentication_methods="api-key") as gateway:

        def asked(body: dict[str, str]) -> int:
            return gateway.client.post("/deleted-topics/secret/undelete", headers=bob, json=body).status_code

        assert asked({"topic_name": "mine"}) == 403
        assert asked({}) == 200
        delete_topic(root.cluster, "secret")
        root.allow(acl("User:bob", Operation.READ, ResourceType.TOPIC, "secret"))
        wait_until(lambda: asked({"topic_name": "mine"}) == 200, "the gateway knows the right")


def test_a_gateway_that_another_one_undeleted_behind_goes_on(tmp_path: Path) -> None:
    """It has led and cached the topic of before, and is told nothing."""
    with two_gateways(tmp_path) as (first, second):
        name = second.create_topic("t")
        second.produce(name, "a").raise_for_status()
        with Client(first.url) as client, Client(second.url) as other:
            for number, value in enumerate("bcd"):
                client.delete_topic(name)
                client.undelete_topic(name)
                second.produce(name, value).raise_for_status()
                assert len([*other.read(name, 0)]) == number + 2
            client.delete_topic(name)
            client.create_topic(name)
            client.undelete_topic(name, new_name="u")
            second.produce(name, "x").raise_for_status()
            second.produce("u", "e").raise_for_status()
            for each in (client, other):
                assert [record.value for record in each.read("u", 0)] == [b'"%c"' % byte for byte in b"abcde"]
                assert [record.value for record in each.read(name, 0)] == [b'"x"']
