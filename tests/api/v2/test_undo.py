"""The undo of deletions and resets of a group by HTTP: what it shows, sets, and refuses."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.kit.gateway import RunningGateway, running_gateway


@pytest.fixture
def deleted(gateway: RunningGateway, topic: str) -> str:
    """A group named as the topic, which had committed offset 3 of partition 0, and was deleted."""
    gateway.produce(topic, *range(5), partition=0)
    commit(gateway, topic, 3)
    assert gateway.client.delete(f"/consumers/{topic}").status_code == 204
    return topic


def commit(gateway: RunningGateway, name: str, offset: int) -> None:
    named = {"offsets": [{"topic": name, "partition": 0, "offset": offset}]}
    assert gateway.client.put(f"/consumers/{name}/offsets", json=named).status_code == 204


def undo(gateway: RunningGateway, url: str) -> httpx.Response:
    return gateway.client.post(url, headers={"Content-Type": "application/json"})


def test_an_undo_is_shown_and_made(gateway: RunningGateway, deleted: str) -> None:
    url = f"/consumers/{deleted}/undo"
    change = {"topic": deleted, "partition": 0, "old": None, "new": 3}
    shown = gateway.client.get(url).json()
    assert (shown["group"], shown["offsets"], shown["left"]) == (deleted, [change], [])
    assert [act["done"] for act in shown["acts"]] == ["delete"]
    assert gateway.client.get(f"/consumers/{deleted}/offsets").status_code == 404, "it was only shown"
    assert undo(gateway, url).json()["offsets"] == [change]
    [found] = gateway.client.get(f"/consumers/{deleted}/offsets").json()["offsets"]
    assert found["offset"] == 3


def test_offsets_that_go_back_are_kept_and_a_program_that_goes_on_is_left_alone(
    gateway: RunningGateway, topic: str
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    for offset in (1, 4, 2):
        commit(gateway, topic, offset)
    shown = gateway.client.get(f"/consumers/{topic}/undo").json()
    assert [act["offsets"] for act in shown["acts"]] == [1]
    assert [(each["old"], each["new"]) for each in shown["offsets"]] == [(2, 4)]


def test_it_is_refused_while_the_group_has_members_and_where_there_is_nothing(
    gateway: RunningGateway, deleted: str
) -> None:
    made = gateway.client.post(f"/consumers/{deleted}", json={"name": "i", "auto.offset.reset": "earliest"})
    assert made.is_success
    named = {"topics": [deleted]}
    instance = f"/consumers/{deleted}/instances/i"
    assert gateway.client.post(f"{instance}/subscription", json=named).is_success
    assert undo(gateway, f"/consumers/{deleted}/undo").status_code == 409
    assert gateway.client.delete(instance).is_success
    assert undo(gateway, f"/consumers/{deleted}/undo").is_success
    assert undo(gateway, "/consumers/nobody/undo").status_code == 404
    assert gateway.client.get("/consumers/nobody/undo").json()["acts"] == []


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway that keeps nothing for an undo."""
    with running_gateway(tmp_path, group_undo_ms=0) as running:
        yield running


def test_nothing_is_kept_for_no_time(forgetful: RunningGateway) -> None:
    forgetful.client.post("/topics", json={"topic_name": "t"}).raise_for_status()
    commit(forgetful, "t", 0)
    assert forgetful.client.delete("/consumers/t").status_code == 204
    assert undo(forgetful, "/consumers/t/undo").status_code == 404
