"""Produce requests that are refused, with nothing written."""

import base64
import json
import socket
from http.client import HTTPResponse

import httpx
import pyarrow as pa
import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.produce import ARROW, BINARY, JSON, TEXT, ends, post, records, refused, stream
from tests.kit.run_credential import credential_line

BASE64 = base64.b64encode(b"x" * 10).decode()

V = pa.array([b"v"])


@pytest.mark.parametrize(
    ("media_type", "body", "status", "code", "says"),
    [
        (JSON, b"", 400, 400, "not JSON"),
        (JSON, b'{"records": [{"value": 1}', 400, 400, "not JSON"),
        (JSON, b'{"records": [{"value": 1}]} x', 400, 400, "not JSON"),
        (JSON, b'{"records": [{"value": NaN}]}', 400, 400, "not JSON"),
        (JSON, b'{"records": [{"value": "\xff"}]}', 400, 400, "not UTF-8 at byte 24"),
        (TEXT, b'{"records": [{"value": "\xc3"}]}', 400, 400, "not UTF-8"),
        (JSON, b'{"records": [{"value": ' + b"[" * 50_000, 400, 400, ""),
        (
            JSON,
            b'{"records": [{"value": ' + b"[" * 50_000 + b"]" * 50_000 + b"}]}",
            400,
            400,
            "arrays or objects within",
        ),
        (JSON, b"{}", 422, 42206, "`records`"),
        (JSON, b"[]", 422, 42206, "array"),
        (JSON, b'{"records": []}', 422, 42206, "no records"),
        (JSON, b'{"records": [3]}', 422, 42206, "records[0]"),
        (JSON, records({"value": 1}, {"value": 1, "partition": "0"}), 422, 42206, "records[1].partition"),
        (JSON, records({"value": 1, "headers": [{"value": "eA=="}]}), 422, 42206, "`key`"),
        (JSON, records({"value": 1, "headers": [{"key": "k", "value": "?"}]}), 422, 42206, "base64"),
        (JSON, records({"value": 1, "timestamp": "now"}), 422, 42206, "timestamp"),
        (JSON, records({"value": 1, "timestamp": 10**17}), 422, 42206, "timestamp"),
        (JSON, records({"value": 1, "timestamp": -(10**17)}), 422, 42206, "timestamp"),
        (JSON, records({"value": 1, "timestamp": 10**30}), 422, 42206, "timestamp"),
        (JSON, records({"value": 1}, {"value": 1, "partition": 2}), 422, 42206, "record 1"),
        (JSON, records({"value": 1, "partition": -1}), 422, 42206, "no partition -1"),
        (JSON, records({"value": 1, "partition": 10**30}), 422, 42206, "partition"),
        (BINARY, records({"value": BASE64}, {"value": "!!!"}), 422, 42206, "records[1].value"),
        (BINARY, records({"value": BASE64, "key": "eA="}), 422, 42206, "records[0].key"),
        (BINARY, records({"value": "é"}), 422, 42206, "records[0].value"),
        (BINARY, records({"value": 7}), 422, 42206, "records[0].value"),
        (TEXT, records({"value": 7}), 422, 42206, "records[0].value"),
        (TEXT, b'{"records": [{"value": "\\ud800"}]}', 400, 400, "not JSON"),
        ("application/vnd.kafka.xml.v2+json", records({"value": 1}), 415, 415, JSON),
        ("text/html; charset=utf-8", records({"value": 1}), 415, 415, "'text/html'"),
        (ARROW, b"", 400, 400, "Arrow"),
        (ARROW, b"not an arrow stream", 400, 400, "Arrow"),
        (ARROW, records({"value": 1}), 400, 400, "Arrow"),
        (ARROW, stream(pa.table({"value": [b"x"] * 100}))[:-150], 400, 400, "whole Arrow"),
        (ARROW, stream(pa.table({"key": V})), 422, 42206, "no column 'value', only key"),
        (ARROW, stream(pa.table({})), 422, 42206, "only none"),
        (ARROW, stream(pa.table({"value": V, "colour": V})), 422, 42206, "colour"),
        (ARROW, stream(pa.table([V, V], names=["value", "value"])), 422, 42206, "at most once"),
        (ARROW, stream(pa.table({"value": pa.array([], pa.binary())})), 422, 42206, "no records"),
        (ARROW, stream(pa.table({"value": [1, 2]})), 422, 42206, "int64"),
        (ARROW, stream(pa.table({"value": V, "key": [1.5]})), 422, 42206, "double"),
        (ARROW, stream(pa.table({"value": V, "partition": ["x"]})), 422, 42206, "'partition'"),
        (ARROW, stream(pa.table({"value": V, "partition": [0.5]})), 422, 42206, "'partition'"),
        (ARROW, stream(pa.table({"value": V, "partition": [2]})), 422, 42206, "no partition 2"),
        (ARROW, stream(pa.table({"value": V, "partition": [-1]})), 422, 42206, "no partition -1"),
        (ARROW, stream(pa.table({"value": V, "timestamp": ["now"]})), 422, 42206, "timestamp"),
        (ARROW, stream(pa.table({"value": V, "timestamp": [2**62]})), 422, 42206, "timestamp"),
        (ARROW, stream(pa.table({"value": V, "headers": ["h"]})), 422, 42206, "'headers' has type string"),
    ],
)
def test_bad_records_are_refused_and_nothing_is_written(
    gateway: RunningGateway, topic: str, media_type: str, body: bytes, status: int, code: int, says: str
) -> None:
    refused(post(gateway, f"/topics/{topic}", body, media_type), status, code, says)
    assert ends(gateway, topic) == [0, 0]


@pytest.mark.parametrize(
    ("path", "status", "code", "says"),
    [
        ("/topics/nowhere", 404, 40401, "'nowhere'"),
        ("/topics/nowhere/partitions/0", 404, 40401, "'nowhere'"),
        ("/topics/T/partitions/2", 404, 40402, "no partition 2"),
        ("/topics/T/partitions/-1", 404, 40402, "no partition -1"),
        ("/topics/T/partitions/one", 400, 40002, "'one'"),
        ("/topics/T?acks=2", 400, 40002, "'2'"),
        ("/topics/T?acks=", 400, 40002, "''"),
        ("/topics/..%2F..%2Fetc", 404, 404, ""),
        ("/topics/" + "x" * 250, 400, 40002, "250 characters"),
        ("/topics/a%20b", 400, 40002, "'a b'"),
        ("/topics/__cluster_metadata", 400, 40002, "'__cluster_metadata'"),
    ],
)
def test_a_bad_address_is_refused_and_nothing_is_written(
    gateway: RunningGateway, topic: str, path: str, status: int, code: int, says: str
) -> None:
    path = path.replace("/T", f"/{topic}")
    refused(post(gateway, path, records({"value": 1})), status, code, says)
    assert ends(gateway, topic) == [0, 0]


def test_a_record_sent_to_one_partition_may_not_name_another(gateway: RunningGateway, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0"
    refused(post(gateway, path, records({"value": 1, "partition": 1})), 422, 42206, "'partition'")
    body = stream(pa.table({"value": V, "partition": [1]}))
    refused(post(gateway, path, body, ARROW), 422, 42206, "'partition'")
    assert ends(gateway, topic) == [0, 0]


def test_a_record_larger_than_the_topic_takes_is_refused(gateway: RunningGateway) -> None:
    gateway.create_topic("small", 2, max_message_bytes="100")
    values = ["fits", "x" * 200, "fits", "y" * 99]
    v3 = b"".join(b'{"value": {"type": "JSON", "data": "%b"}}\n' % each.encode() for each in values)
    answers = [
        post(gateway, "/topics/small", records(*({"value": each} for each in values))),
        post(gateway, "/topics/small", stream(pa.table({"value": [f'"{each}"' for each in values]})), ARROW),
        post(gateway, "/topics/small/values", json.dumps(values).encode(), "application/json"),
        post(gateway, f"{gateway.cluster}/topics/small/records", v3, "application/json"),
    ]
    for answer in answers:
        refused(answer, 413, 413, "record 1: it has 202 bytes, topic 'small' takes 100")
        assert [each["index"] for each in answer.json()["record_errors"]] == [1, 3]
    assert ends(gateway, "small") == [0, 0]


def test_a_request_larger_than_allowed_is_refused_before_it_is_read(
    gateway: RunningGateway, topic: str
) -> None:
    url = httpx.URL(gateway.url)
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
    head += credential_line()
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(f"{head}Content-Length: {10**9}\r\n\r\n".encode())
        answer = HTTPResponse(connection)
        answer.begin()
        assert answer.status == 413
        assert "1000000000 bytes" in json.loads(answer.read())["message"]
    assert ends(gateway, topic) == [0, 0]


def test_half_a_body_writes_nothing(gateway: RunningGateway, topic: str) -> None:
    url, body = httpx.URL(gateway.url), records({"value": 1}, {"value": 2})
    for header in (f"Content-Length: {len(body)}\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1000\r\n"):
        head = f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
        head += credential_line() + header
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(head.encode() + body[:-5])
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
            assert b" 200 " not in answer
    assert ends(gateway, topic) == [0, 0]
