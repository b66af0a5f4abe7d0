"""Bare values through a running gateway: every format in, their keys, what is refused, and repeats."""

import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from tests.kit.gateway import RunningGateway
from tests.kit.produce import ARROW, BINARY, ends, refused

NDJSON, JSON, CSV, BYTES = "application/x-ndjson", "application/json", "text/csv", "application/octet-stream"
LINES = b'{"tailnum":"N1","delay": 1.50}\n{"tailnum":null}\n\n{"tailnum":"N2"}\n'


def send(
    gateway: RunningGateway,
    topic: str,
    body: bytes,
    media_type: str = NDJSON,
    query: str = "",
    **headers: str,
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"/topics/{topic}/values{query}"
    return gateway.client.post(path, content=body, headers={"Content-Type": media_type, **named})


def stored(gateway: RunningGateway, topic: str, form: str = JSON) -> list[tuple[Any, Any]]:
    """(key, value) of each record, partition after partition."""
    found = []
    for partition in range(2):
        path = f"/topics/{topic}/partitions/{partition}/records"
        answer = gateway.client.get(path, headers={"Accept": form})
        assert answer.status_code == 200, answer.text
        found += [(each["key"], each["value"]) for each in answer.json()]
    return found


def counts(answer: httpx.Response) -> Mapping[int, tuple[int, int]]:
    """The first offset and the number of the records in each partition."""
    assert answer.status_code == 200, answer.text
    return {each["partition"]: (each["base_offset"], each["count"]) for each in answer.json()["offsets"]}


@pytest.mark.parametrize(
    ("media_type", "body", "values"),
    [
        (NDJSON, LINES, [{"tailnum": "N1", "delay": 1.5}, {"tailnum": None}, {"tailnum": "N2"}]),
        ("application/jsonl; charset=UTF-8", b"1\n2", [1, 2]),
        (JSON, b'[{"a": 1}, "x"]', [{"a": 1}, "x"]),
        (JSON, b'{"a": 1}', [{"a": 1}]),
        ("application/cloudevents+json", b'{"id": "e"}', [{"id": "e"}]),
        (CSV, b'a,b\r\n1,"x, y"\r\n,z\r\n', [{"a": "1", "b": "x, y"}, {"a": None, "b": "z"}]),
        ("text/csv; header=present; charset=utf-8", b"a\n1\n", [{"a": "1"}]),
        (BYTES, b'"as it is"', ["as it is"]),
        ("image/svg+xml", b"7", [7]),
    ],
)
def test_values_come_in_in_the_format_that_the_media_type_names(
    gateway: RunningGateway, topic: str, media_type: str, body: bytes, values: list[Any]
) -> None:
    answer = send(gateway, topic, body, media_type, "?partition=1")
    assert answer.json() == {"offsets": [{"partition": 1, "base_offset": 0, "count": len(values)}]}
    assert answer.headers["Acks"] == "all"
    assert stored(gateway, topic) == [(None, value) for value in values]


def test_a_value_is_the_text_that_was_sent(gateway: RunningGateway, topic: str) -> None:
    assert send(gateway, topic, b'{"a": 1.50}\r\n{ }', query="?partition=0").status_code == 200
    text = "application/vnd.kafka.text.v2+json"
    assert stored(gateway, topic, text) == [(None, '{"a": 1.50}'), (None, "{ }")]


def test_one_value_may_be_any_bytes(gateway: RunningGateway, topic: str) -> None:
    send(gateway, topic, b"\x00\xff", BYTES, "?key_header=X-Key", X_Key="k")
    assert stored(gateway, topic, BINARY) == [("aw==", "AP8=")]


def test_a_key_from_a_value_or_a_header_goes_where_the_same_key_of_a_record_goes(
    gateway: RunningGateway, topic: str
) -> None:
    for number in range(8):
        key, before = f"key-{number}", ends(gateway, topic)
        line = json.dumps({"in": {"key": key}}).encode()
        assert send(gateway, topic, line, query="?key=/in/key").status_code == 200
        assert send(gateway, topic, b"1", query="?key_header=x-Key", X_Key=key).status_code == 200
        record = {"records": [{"key": key, "value": 1}]}
        assert gateway.client.post(f"/topics/{topic}", json=record).status_code == 200
        assert sorted(map(int.__sub__, ends(gateway, topic), before)) == [0, 3]
    assert min(ends(gateway, topic)) > 0
    assert {key for key, _ in stored(gateway, topic)} == {f"key-{number}" for number in range(8)}


def test_null_is_a_tombstone_and_a_key_that_is_null_or_absent_is_none(
    gateway: RunningGateway, topic: str
) -> None:
    send(gateway, topic, b"null", JSON, "?partition=0&key_header=X-Key", X_Key="gone")
    send(gateway, topic, b'{"k":null}\n{"x":1}\n[1]', query="?partition=0&key=/k")
    found = stored(gateway, topic)
    assert found == [("gone", None), (None, {"k": None}), (None, {"x": 1}), (None, [1])]


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
def test_the_acks_are_those_of_produce(gateway: RunningGateway, topic: str, acks: str) -> None:
    answer = send(gateway, topic, b"1\n2", query=f"?partition=0&acks={acks}")
    assert counts(answer) == {0: (None if acks == "0" else 0, 2)}
    assert answer.headers["Acks"] == ("all" if acks == "-1" else acks)


@pytest.mark.parametrize(
    ("media_type", "body", "query", "status", "code", "says"),
    [
        (NDJSON, b'1\n\n{"a":\n2', "", 400, 400, "line 3 is not JSON"),
        (NDJSON, b"", "", 422, 42206, "no records"),
        (JSON, b"[]", "", 422, 42206, "no records"),
        (JSON, b"[1,", "", 400, 400, "not JSON"),
        (CSV, b"a,b\n1,2\n3", "", 400, 400, "line 3 has 1 fields"),
        (CSV, b"a\n", "", 422, 42206, "no records"),
        (BYTES, b"", "", 422, 42206, "no records"),
        (BYTES, b"x" * 2_000_000, "", 413, 413, "max.message.bytes"),
        (BYTES, b"1", "?key=/a", 400, 40002, "key_header"),
        (NDJSON, b"1", "?key=a", 400, 40002, "'a' is no JSON pointer"),
        (NDJSON, b"1", '?key=/"', 400, 40002, "JSON pointer"),
        (NDJSON, b"1", "?keys=/a", 400, 40002, "did you mean key"),
        (NDJSON, b"1", "?key=/a&key_header=X-Key", 400, 40002, "give one"),
        (NDJSON, b"1", "?key_header=X-None", 400, 40002, "0 headers 'X-None'"),
        (NDJSON, b"1", "?key_header=Authorization", 400, 40002, "no header that a key can be in"),
        (NDJSON, b"1", "?key_header=x%0Ay", 400, 40002, "no header that a key can be in"),
        (NDJSON, b"1", "?partition=2", 404, 40402, "no partition 2"),
        (NDJSON, b"1", "?partition=-1", 404, 40402, "no partition -1"),
        (NDJSON, b"1", "?partition=x", 400, 40002, "not a whole number"),
        (NDJSON, b"1", "?acks=2", 400, 40002, "acks"),
        (ARROW, b"1", "", 415, 415, "/topics/{topic}"),
        (BINARY, b'{"records":[]}', "", 415, 415, "/topics/{topic}"),
        ("application/vnd.kafka+json", b'{"records":[]}', "", 415, 415, "/topics/{topic}"),
        ("text/csv; header=absent", b"1\n", "", 415, 415, "header line"),
        ("text/csv; charset=latin-1", b"a\n1\n", "", 415, 415, "charset 'latin-1'"),
        ('application/x-ndjson; charset="utf-16"', b"1", "", 415, 415, "charset"),
        ("text/plain", b"1", "", 415, 415, BYTES),
        ("TEXT/PLAIN; x=y", b"1", "", 415, 415, BYTES),
        ("multipart/form-data; boundary=x", b"1", "", 415, 415, NDJSON),
        ("application/x-www-form-urlencoded", b"1", "", 415, 415, NDJSON),
        ("", b"1", "", 415, 415, NDJSON),
        ("no type", b"1", "", 415, 415, NDJSON),
    ],
)
def test_a_request_that_is_refused_writes_nothing(
    gateway: RunningGateway,
    topic: str,
    media_type: str,
    body: bytes,
    query: str,
    status: int,
    code: int,
    says: str,
) -> None:
    refused(send(gateway, topic, body, media_type, query), status, code, says)
    assert ends(gateway, topic) == [0, 0]


@pytest.mark.parametrize("name", ["Producer-Id", "Producer-Epoch", "Producer-Seq", "Expected-Offset"])
def test_headers_of_one_partition_are_refused(gateway: RunningGateway, topic: str, name: str) -> None:
    refused(send(gateway, topic, b"1", **{name.replace("-", "_"): "0"}), 400, 40002, name)
    assert ends(gateway, topic) == [0, 0]


def test_declared_columns_hold_and_say_what_csv_cannot(gateway: RunningGateway, topic: str) -> None:
    gateway.alter_topic(topic, value_columns="n bigint, s string", value_columns_mode="refuse")
    answer = send(gateway, topic, b'{"n":1}\n{"n":"2"}')
    refused(answer, 422, 42210, "record 1: /n is text, not bigint")
    assert answer.json()["index"] == 1
    refused(send(gateway, topic, b"n,s\n1,2\nx,y\n", CSV), 422, 42210, "record 1: /n is text, not bigint")
    assert ends(gateway, topic) == [0, 0]
    assert send(gateway, topic, b"n,s\n1,2\n,\n", CSV, "?partition=0").status_code == 200
    assert stored(gateway, topic) == [(None, {"n": 1, "s": "2"}), (None, {"n": None, "s": None})]


def test_a_repeat_with_the_same_key_and_body_appends_nothing(gateway: RunningGateway, topic: str) -> None:
    lines = b"".join(b'{"k":%d}\n' % number for number in range(40))
    first = send(gateway, topic, lines, query="?key=/k", Idempotency_Key="a")
    before = ends(gateway, topic)
    assert sum(before) == 40
    assert min(before) > 0
    gateway.produce(topic, "between", partition=0)
    again = send(gateway, topic, lines, query="?key=/k&acks=1", Idempotency_Key="a")
    assert counts(again) == counts(first)
    assert ends(gateway, topic) == [before[0] + 1, before[1]]


def test_values_without_a_key_are_found_again_by_their_repeat(gateway: RunningGateway, topic: str) -> None:
    for number in range(6):
        first, again = (
            counts(send(gateway, topic, b"1\n2\n3", Idempotency_Key=f"key {number}")) for _ in range(2)
        )
        assert again == first, "the sticky partition would have moved on"
    assert sum(ends(gateway, topic)) == 18
    assert min(ends(gateway, topic)) > 0, "requests are not all in one partition"


@pytest.mark.parametrize(
    "change",
    [
        {"body": b"1"},
        {"body": b"1\n2\n3"},
        {"body": b"2\n1"},
        {"Idempotency_Key": "b"},
        {"query": "?partition=0&key_header=X-Key", "X_Key": "x"},
        {"media_type": BYTES},
    ],
)
def test_the_same_key_with_other_content_is_another_request(
    gateway: RunningGateway, topic: str, change: dict[str, Any]
) -> None:
    request: dict[str, Any] = {"body": b"1\n2", "query": "?partition=0", "Idempotency_Key": "a"}
    first = counts(send(gateway, topic, **request))
    assert first == {0: (0, 2)}
    assert counts(send(gateway, topic, **{**request, **change}))[0][0] == 2
    assert counts(send(gateway, topic, **request)) == first


@pytest.mark.parametrize("keys", [["k", "l"], ["é"], ["x" * 250], ["a\tb"]])
def test_a_key_that_is_none_is_refused(gateway: RunningGateway, topic: str, keys: list[str]) -> None:
    headers = [(b"Content-Type", NDJSON.encode()), *((b"Idempotency-Key", key.encode()) for key in keys)]
    answer = gateway.client.post(f"/topics/{topic}/values", content=b"1", headers=headers)
    refused(answer, 400, 40002, "")
    assert ends(gateway, topic) == [0, 0]
