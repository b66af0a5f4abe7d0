"""Large v3 batches: every entry stands or fails by itself, and one request holds up no other."""

from typing import Any

from tests.kit.gateway import RunningGateway


def test_each_bad_entry_of_a_batch_fails_by_itself(gateway: RunningGateway) -> None:
    name = gateway.create_topic("v3-entries", partitions=2, max_message_bytes="100")
    value = {"type": "JSON", "data": 1}
    bad: dict[str, dict[str, Any]] = {
        "large": {"value": {"type": "STRING", "data": "x" * 101}},
        "elsewhere": {"value": value, "partition_id": 2},
        "late": {"value": value, "timestamp": "9999-12-31T23:59:59-23:59"},
        "early": {"value": value, "timestamp": -(10**17)},
        "base64": {"value": {"type": "BINARY", "data": "AAA"}},
        "misspelt": {"vlaue": value},
        "xml": {"value": {"type": "XML", "data": 1}},
    }
    good = [{"id": f"good {index}", "value": value} for index in range(3_000)]
    entries = [{"id": "first", "value": value}, *({"id": i, **entry} for i, entry in bad.items()), *good]
    answer = gateway.client.post(f"{gateway.cluster}/topics/{name}/records:batch", json={"entries": entries})
    assert answer.status_code == 207, answer.text
    failures = {failure["id"]: failure["error_code"] for failure in answer.json()["failures"]}
    assert failures == {name: 413 if name == "large" else 42206 for name in bad}
    successes = answer.json()["successes"]
    assert [success["id"] for success in successes] == ["first", *(entry["id"] for entry in good)]
    assert {success["error_code"] for success in successes} == {200}


def test_a_time_before_1970_keeps_its_fraction(gateway: RunningGateway, topic: str) -> None:
    record = {"timestamp": "1969-12-31T23:59:59.500Z", "partition_id": 0}
    answer = gateway.client.post(f"{gateway.cluster}/topics/{topic}/records", json=record)
    assert answer.json()["timestamp"] == "1969-12-31T23:59:59.500Z"
    assert gateway.client.get(f"/topics/{topic}/partitions/0/records").json()[0]["timestamp"] == -500
