"""Groups as version 3 shows them: members, assignments, lags."""

from typing import Any

from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway


def test_v3_shows_groups_members_and_lags(gateway: RunningGateway, topic: str, group: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    gateway.produce(topic, *range(3), partition=1)
    reader = Instance(gateway.client, group, "reader")
    reader.subscribe(topic)
    assert len(reader.values(8)) == 8
    reader.commit({(topic, 0): 1, (topic, 1): 2})
    groups = f"{gateway.cluster}/consumer-groups"

    def get(path: str) -> Any:
        answer = gateway.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    assert group in {found["consumer_group_id"] for found in get(groups)["data"]}
    found = get(f"{groups}/{group}")
    assert (found["state"], found["partition_assignor"], found["is_simple"]) == ("STABLE", "sticky", False)
    (consumer,) = get(found["consumers"]["related"])["data"]
    assert consumer["consumer_id"] == "reader"
    owned = get(consumer["assignments"]["related"])["data"]
    assert [(at["topic_name"], at["partition_id"]) for at in owned] == [(topic, 0), (topic, 1)]
    assert get(owned[0]["lag"]["related"])["lag"] == 3
    lags = {entry["partition_id"]: entry for entry in get(f"{groups}/{group}/lags")["data"]}
    assert [
        (e["current_offset"], e["log_end_offset"], e["lag"], e["consumer_id"]) for e in lags.values()
    ] == [
        (2, 5, 3, "reader"),
        (3, 3, 0, "reader"),
    ]
    assert lags[0]["lag_bytes"] > 0
    assert lags[1]["lag_seconds"] == lags[1]["lag_bytes"] == 0
    gateway.client.delete(f"/topics/{topic}/partitions/0/records", params={"before": 4})
    summary = get(found["lag_summary"]["related"])
    assert (summary["max_lag"], summary["total_lag"], summary["max_lag_partition_id"]) == (1, 1, 0)
    assert gateway.client.get(f"{groups}/nobody").json()["error_code"] == 40405
    assert gateway.client.get(f"{groups}/{group}/consumers/nobody").json()["error_code"] == 40403
