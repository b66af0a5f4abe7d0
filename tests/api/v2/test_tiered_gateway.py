"""Fetches and groups read a tiered topic over HTTP while its segments move, and while the rest is away."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from deltalake import DeltaTable

from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.cluster import Cluster
from log_tables.store.store import open_store
from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.tiers import move_topic

ALL = [*range(6)]


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[RunningGateway]:
    """A gateway with a tiered topic `t` of six records, a commit each; nothing has moved yet."""
    set_remote_root(Cluster.open(open_store(tmp_path / "here")), tmp_path / "away")
    with running_gateway(tmp_path / "here", linger_ms=0) as running:
        running.create_topic("t", remote_storage_enable="true")
        for value in ALL:
            assert running.produce("t", value, partition=0).status_code == 200
        yield running


def move(gateway: RunningGateway, count: int) -> None:
    """Move so many segments to the remote tier, as a maintenance run in another process does."""
    move_topic(Cluster.open(open_store(gateway.data), create=False), "t", [count])


def fetch(gateway: RunningGateway, offset: int | str) -> httpx.Response:
    accept = {"Accept": "application/vnd.kafka.json.v2+json"}
    return gateway.client.get("/topics/t/partitions/0/records", params={"offset": offset}, headers=accept)


def values(answer: httpx.Response) -> list[int]:
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()]


def test_history_is_read_over_http_while_it_moves(gateway: RunningGateway) -> None:
    early, late = (Instance(gateway.client, "readers", name) for name in ("early", "late"))
    early.subscribe("t")
    assert early.values(6) == ALL
    early.send("DELETE", "")
    for count in (2, 2, 1):
        move(gateway, count)
        assert values(fetch(gateway, 0)) == ALL
        assert values(fetch(gateway, 3)) == [3, 4, 5]
        assert values(fetch(gateway, "earliest")) == ALL
    late.subscribe("t")
    assert late.values(6) == ALL
    assert gateway.produce("t", 6, partition=0).status_code == 200
    assert late.values(1) == [6]


def test_a_topic_says_where_both_of_its_tables_are(gateway: RunningGateway, tmp_path: Path) -> None:
    gateway.create_topic("near")

    def locations(topic: str) -> list[str | None]:
        found = gateway.client.get(f"/topics/{topic}").json()
        return [found["location"], found["remote_location"]]

    both = [str(tmp_path / side / "topics/t") for side in ("here", "away")]
    assert locations("t") == both
    assert locations("near") == [str(tmp_path / "here/topics/near"), None]
    off = {"data": [{"name": "remote.storage.enable", "operation": "DELETE"}]}
    cluster = gateway.client.get("/v3/clusters").json()["data"][0]["cluster_id"]
    altered = gateway.client.post(f"/v3/clusters/{cluster}/topics/t/configs:alter", json=off)
    assert altered.status_code == 204, altered.text
    assert locations("t") == [both[0], None]
    move(gateway, 2)
    assert values(fetch(gateway, 0)) == ALL
    gateway.produce("t", 6, partition=0)
    (tmp_path / "away").rename(tmp_path / "gone")
    assert locations("t") == both
    (tmp_path / "gone").rename(tmp_path / "away")
    assert DeltaTable(both[1]).to_pyarrow_dataset().count_rows() == 2


def test_a_remote_root_that_is_away_is_an_error_to_repeat_and_the_rest_goes_on(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    move(gateway, 4)
    (tmp_path / "away").rename(tmp_path / "gone")
    refused = fetch(gateway, 3)
    assert (refused.status_code, refused.json()["error_code"]) == (503, 50003)
    assert "the remote root" in refused.json()["message"]
    assert str(tmp_path) not in refused.text
    assert values(fetch(gateway, 4)) == [4, 5]
    assert gateway.produce("t", 6, partition=0).status_code == 200
    (tmp_path / "gone").rename(tmp_path / "away")
    assert values(fetch(gateway, 0)) == [*ALL, 6]


def test_a_member_is_given_what_is_here_while_the_remote_root_is_away(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    gateway.create_topic("near")
    assert gateway.produce("near", "here").status_code == 200
    move(gateway, 4)
    (tmp_path / "away").rename(tmp_path / "gone")
    member = Instance(gateway.client, "readers", "member")
    member.subscribe("t", "near")
    assert member.values(1) == ["here"]
    (tmp_path / "gone").rename(tmp_path / "away")
    assert member.values(6) == ALL
