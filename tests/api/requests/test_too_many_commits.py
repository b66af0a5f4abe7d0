"""Over HTTP, when commits take more of the processor than the settings allow: produce hears 429, and groups
and transactions go on.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.transaction_scene import Scene


@pytest.fixture(scope="module")
def overdrawn(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway whose first commit takes more than it may for years."""
    with running_gateway(tmp_path_factory.mktemp("overdrawn") / "root", commits_cores_max=1e-12) as running:
        yield running


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_a_produce_request_hears_when_to_come_again(overdrawn: RunningGateway, acks: str) -> None:
    topic = overdrawn.create_topic(f"refused-{acks}")
    overdrawn.produce(topic, "first", partition=0)  # whoever claims a partition may be the first of all
    before = overdrawn.client.get(f"/topics/{topic}/partitions/0/records", params={"offset": 0}).json()
    answer = overdrawn.produce(topic, "x", acks=acks)
    assert (answer.status_code, answer.json()["error_code"]) == (429, 42901)
    assert answer.headers["retry-after"] == "1"
    assert "commits_cores_max" in answer.json()["message"]
    after = overdrawn.client.get(f"/topics/{topic}/partitions/0/records", params={"offset": 0}).json()
    assert after == before


def test_polls_and_transactions_go_on(overdrawn: RunningGateway, request: pytest.FixtureRequest) -> None:
    scene = Scene.of(overdrawn, request)
    answer = scene.transact(scene.body(0))
    assert answer.status_code == 200, answer.text
    assert scene.values() == [[[0, 0]], [[1, 0]]]
    assert scene.instance.poll() == []
    assert overdrawn.produce(scene.source, "x").status_code == 429


def test_a_stop_in_order_waits_for_no_budget(tmp_path: Path) -> None:
    with running_gateway(tmp_path / "root", commits_cores_max=1e-12, linger_ms=60_000) as running:
        topic = running.create_topic("t")
        assert running.produce(topic, "x", acks="1").status_code == 200
        assert running.stop() == 0
    with running_gateway(tmp_path / "root") as again:
        found = again.client.get("/topics/t/partitions/0/records", params={"offset": 0}).json()
        assert [record["value"] for record in found] == ["x"]
