"""Produce by version 3: record by record, and batches whose entries stand or fail one by one."""

import json
from typing import Any

import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.produce import ends, post, refused


def typed(kind: str, data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data}


def test_v3_records_are_answered_one_by_one_in_order(gateway: RunningGateway, topic: str) -> None:
    rows: list[dict[str, Any]] = [
        {"partition_id": 0, "value": typed("JSON", {"a": 1}), "timestamp": 1_000},
        {"partition_id": 1, "key": typed("STRING", "k"), "value": typed("BINARY", "AAE=")},
        {"partition_id": 0, "value": None, "headers": [{"name": "h", "value": "eA=="}]},
    ]
    body = "".join(map(json.dumps, rows)).encode()
    answer = post(gateway, f"{gateway.cluster}/topics/{topic}/records", body, "application/json")
    assert answer.status_code == 200, answer.text
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["partition_id"], line["offset"]) for line in lines] == [(0, 0), (1, 0), (0, 1)]
    assert lines[0]["timestamp"] == "1970-01-01T00:00:01.000Z"
    assert lines[0]["value"] == {"type": "JSON", "size": len('{"a": 1}')}
    assert (lines[1]["key"], lines[1]["value"]) == (
        {"type": "STRING", "size": 1},
        {"type": "BINARY", "size": 2},
    )


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        (b"", 422, 42206, "no records"),
        (b'{"value": ', 400, 400, "not JSON"),
        (b'{"value": null}\xff', 400, 400, "not UTF-8"),
        (b"[" * 100_000, 400, 400, "not JSON"),
        (b'{"value": {"type": "JSON", "data": ' + b"1" * 5_000 + b"}}{", 400, 400, "not JSON"),
        (b'{"value": null} {"value": {"type": "XML"}}', 422, 42206, "record 1"),
        (b'{"value": {"type": "BINARY", "data": "?"}}', 422, 42206, "value.data"),
        (b'{"value": {"type": "BINARY", "data": "\xc3\xa9"}}', 422, 42206, "value.data"),
        (b'{"key": {"type": "STRING", "data": 1}}', 422, 42206, "key.data"),
        (b'{"partition_id": 2}', 422, 42206, "no partition 2"),
        (b'{"timestamp": 100000000000000000}', 422, 42206, "timestamp"),
        (b'{"timestamp": "0001-01-01T00:00:00+14:00"}', 422, 42206, "timestamp"),
        (b'{"timestamp": "yesterday"}', 422, 42206, "timestamp"),
    ],
)
def test_bad_v3_records_are_refused_and_nothing_is_written(
    gateway: RunningGateway, topic: str, body: bytes, status: int, code: int, says: str
) -> None:
    path = f"{gateway.cluster}/topics/{topic}/records"
    refused(post(gateway, path, body, "application/json"), status, code, says)
    assert ends(gateway, topic) == [0, 0]


def test_entries_of_a_v3_batch_stand_or_fail_one_by_one(gateway: RunningGateway, topic: str) -> None:
    entries = [
        {"id": "good", "partition_id": 1, "value": typed("STRING", "x")},
        {"id": "base64", "value": typed("BINARY", "?")},
        {"id": "lost", "partition_id": 5, "value": None},
        {"id": "old", "timestamp": -(10**17)},
        {"id": "kind", "value": typed("XML", "x")},
        {"id": "also", "partition_id": 1, "value": typed("JSON", [1])},
    ]
    body = json.dumps({"entries": entries}).encode()
    answer = post(gateway, f"{gateway.cluster}/topics/{topic}/records:batch", body, "application/json")
    assert answer.status_code == 207, answer.text
    done = answer.json()
    assert [(each["id"], each["offset"]) for each in done["successes"]] == [("good", 0), ("also", 1)]
    failures = {each["id"]: each for each in done["failures"]}
    assert failures.keys() == {"base64", "lost", "old", "kind"}
    assert {each["error_code"] for each in failures.values()} == {42206}
    assert "no partition 5" in failures["lost"]["message"]
    assert ends(gateway, topic) == [0, 2]


@pytest.mark.parametrize(
    ("body", "status", "code", "says"),
    [
        (b'{"entries": [', 400, 400, "not JSON"),
        (b'{"entries": []}', 422, 42206, "no entries"),
        (b'{"entries": [{"value": null}]}', 422, 42206, "`id`"),
        (b'{"entries": [{"id": "a"}, {"id": "a"}]}', 422, 42206, "same id"),
        (
            b'{"entries": [{"id": "a", "value": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
            400,
            400,
            "arrays or objects within",
        ),
    ],
)
def test_a_bad_v3_batch_is_refused_and_nothing_is_written(
    gateway: RunningGateway, topic: str, body: bytes, status: int, code: int, says: str
) -> None:
    path = f"{gateway.cluster}/topics/{topic}/records:batch"
    refused(post(gateway, path, body, "application/json"), status, code, says)
    assert ends(gateway, topic) == [0, 0]
