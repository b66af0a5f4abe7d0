"""Requests that nobody should send: each is refused with what was wrong, and nothing of it is written."""

import base64
import json
import socket
from typing import Any

import httpx
import pytest

from log_tables.limits import REQUEST_RECORDS_MAX
from tests.kit.gateway import RunningGateway

JSON, BINARY, TEXT = (f"application/vnd.kafka.{name}.v2+json" for name in ("json", "binary", "text"))
NESTED = "[" * 100_000 + "]" * 100_000


def post(gateway: RunningGateway, path: str, body: str | bytes, media_type: str = JSON) -> httpx.Response:
    return gateway.client.post(path, content=body, headers={"Content-Type": media_type})


def end_offsets(gateway: RunningGateway, topic: str) -> list[int]:
    paths = (f"/topics/{topic}/partitions/{index}/offsets" for index in range(2))
    return [gateway.client.get(path).json()["end_offset"] for path in paths]


@pytest.mark.parametrize(
    ("body", "media_type", "status", "code", "says"),
    [
        (f'{{"records":[{{"value":{NESTED}}}]}}', JSON, 400, 400, "arrays or objects within"),
        (
            '{"records":[{"value":1,"timestamp":1000000000000000000}]}',
            JSON,
            422,
            42206,
            "records[0].timestamp",
        ),
        (f'{{"records":[{{"value":1,"timestamp":{10**30}}}]}}', JSON, 422, 42206, "records[0].timestamp"),
        ('{"records":[{"value":1},{"vlaue":1}]}', JSON, 422, 42206, "vlaue` - at `$.records[1]"),
        ('{"records":[{"value":1,"headers":[{"name":"a"}]}]}', JSON, 422, 42206, "headers[0]"),
        ('{"records":[{"value":1},{"value":1,"partition":2}]}', JSON, 422, 42206, "record 1"),
        ('{"records":[{"value":"AAA"}]}', BINARY, 422, 42206, "records[0].value"),
        ('{"records":[{"value":1}]}', TEXT, 422, 42206, "records[0].value"),
        ('{"records":[]}', JSON, 422, 42206, "no records"),
        ("", JSON, 400, 400, "not JSON"),
        ('{"records":[{"value":"\\ud800"}]}', JSON, 400, 400, "not JSON"),
        (b'{"records":[{"value":"\xff"}]}', JSON, 400, 400, "UTF-8"),
        ("a=1", "application/x-www-form-urlencoded", 415, 415, JSON),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_body_is_refused_whole(
    gateway: RunningGateway,
    topic: str,
    body: str | bytes,
    media_type: str,
    status: int,
    code: int,
    says: str,
) -> None:
    answer = post(gateway, f"/topics/{topic}", body, media_type)
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert says in answer.json()["message"]
    assert end_offsets(gateway, topic) == [0, 0]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("records", f'{{"value":{{"type":"JSON","data":{NESTED}}}}}', 400, "arrays or objects within"),
        ("records", '{"vlaue":{"type":"JSON","data":1}}', 422, "vlaue"),
        ("records", '{"timestamp":1000000000000000000,"value":{"type":"JSON","data":1}}', 422, "timestamp"),
        (
            "records:batch",
            f'{{"entries":[{{"id":"1","value":{{"type":"JSON","data":{NESTED}}}}}]}}',
            400,
            "arrays or objects within",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_bad_v3_body_is_refused(
    gateway: RunningGateway, topic: str, path: str, body: str, status: int, says: str
) -> None:
    answer = post(gateway, f"{gateway.cluster}/topics/{topic}/{path}", body, "application/json")
    assert answer.status_code == status, answer.text
    assert says in answer.json()["message"]
    assert end_offsets(gateway, topic) == [0, 0]


MANY = ",".join(["{}"] * (REQUEST_RECORDS_MAX + 1))


@pytest.mark.parametrize(
    ("path", "body", "media_type"),
    [
        ("/topics/T", f'{{"records":[{MANY}]}}', JSON),
        ("/topics/T", f'{{"records":[{MANY}]}}', TEXT),
        ("C/topics/T/records", MANY.replace(",", " "), "application/json"),
        ("C/topics/T/records:batch", f'{{"entries":[{MANY}]}}', "application/json"),
    ],
    ids=["json", "text", "v3", "v3 batch"],
)
def test_a_request_of_very_many_tiny_records_is_too_large(
    gateway: RunningGateway, topic: str, path: str, body: str, media_type: str
) -> None:
    path = path.replace("C/", f"{gateway.cluster}/").replace("/T", f"/{topic}")
    answer = post(gateway, path, body, media_type)
    assert (answer.status_code, answer.json()["error_code"]) == (413, 413), answer.text
    assert "200000 are allowed" in answer.json()["message"]
    assert end_offsets(gateway, topic) == [0, 0]


def test_a_value_of_very_many_objects_is_one_record(gateway: RunningGateway) -> None:
    name = gateway.create_topic("many-objects", partitions=2)
    assert post(gateway, f"/topics/{name}", f'{{"records":[{{"value":[{MANY}]}}]}}').status_code == 200


@pytest.mark.parametrize("value", [NESTED.encode(), b"", b"{", b"1,2", b'"\xff"'], ids=lambda v: repr(v[:8]))
def test_a_record_that_is_not_json_ends_a_json_answer_before_it(
    gateway: RunningGateway, topic: str, value: bytes
) -> None:
    path = f"/topics/{topic}/partitions/0"
    records = [{"value": base64.b64encode(part).decode()} for part in (b"1", value, b"3")]
    body: dict[str, Any] = {"records": records}
    assert gateway.client.post(path, json=body, headers={"Content-Type": BINARY}).status_code == 200
    before = gateway.client.get(f"{path}/records", params={"offset": 0}, headers={"Accept": JSON})
    assert ([row["value"] for row in before.json()], before.headers["Next-Offset"]) == ([1], "1")
    refused = gateway.client.get(f"{path}/records", params={"offset": 1}, headers={"Accept": JSON})
    assert (refused.status_code, refused.json()["error_code"]) == (422, 42203)
    assert "offset 1" in refused.json()["message"]
    after = gateway.client.get(f"{path}/records", params={"offset": 2}, headers={"Accept": JSON})
    assert [row["value"] for row in after.json()] == [3]


@pytest.mark.parametrize("name", ["Producer-Id", "Producer-Epoch", "Producer-Seq", "Expected-Offset"])
def test_what_counts_within_a_partition_is_refused_for_a_topic(
    gateway: RunningGateway, topic: str, name: str
) -> None:
    answer = gateway.client.post(f"/topics/{topic}", json={"records": [{"value": 1}]}, headers={name: "0"})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
    assert name in answer.json()["message"]
    assert end_offsets(gateway, topic) == [0, 0]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01 hello\r\n\r\n",
        b"FROB /topics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /topics/\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /topics HTTP/1.1\r\nHost: localhost\r\n\xff: y\r\n\r\n",
        b"POST /topics/t HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /topics/t HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    ],
    ids=lambda sent: repr(sent[:20]),
)
def test_what_is_not_http_is_answered_as_an_error(gateway: RunningGateway, request_bytes: bytes) -> None:
    host, port = gateway.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request_bytes)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    head, body = answer.split(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body)["error_code"] == 400
