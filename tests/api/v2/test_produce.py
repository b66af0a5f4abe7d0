"""Produce through a running gateway: every format in, every bad input refused with nothing written."""

import base64
import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from typing import Any

import httpx
import pyarrow as pa
import pytest

from tests.kit.gateway import RunningGateway

JSON = "application/vnd.kafka.json.v2+json"
BINARY = "application/vnd.kafka.binary.v2+json"
TEXT = "application/vnd.kafka.text.v2+json"
ARROW = "application/vnd.apache.arrow.stream"


def post(
    gateway: RunningGateway, path: str, body: bytes | Iterator[bytes], media_type: str = JSON, **headers: str
) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return gateway.client.post(path, content=body, headers={"Content-Type": media_type, **named})


def records(*rows: dict[str, Any]) -> bytes:
    return json.dumps({"records": rows}).encode()


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def refused(answer: httpx.Response, status: int, code: int, says: str) -> None:
    assert (answer.status_code, answer.json()["error_code"]) == (status, code), answer.text
    assert says in answer.json()["message"]


def ends(gateway: RunningGateway, topic: str) -> list[int]:
    """The next offset of each partition of a topic with two."""
    paths = (f"/topics/{topic}/partitions/{index}/offsets" for index in range(2))
    return [gateway.client.get(path).json()["end_offset"] for path in paths]


def offsets(answer: httpx.Response) -> list[tuple[int, int | None]]:
    """(partition, offset) of each record that was sent."""
    assert answer.status_code == 200, answer.text
    return [(each["partition"], each["offset"]) for each in answer.json()["offsets"]]


def test_records_get_offsets_one_after_the_other(gateway: RunningGateway, topic: str) -> None:
    assert offsets(gateway.produce(topic, "a", "b", partition=1)) == [(1, 0), (1, 1)]
    answer = gateway.produce(topic, "c", partition=1)
    assert answer.json() == {
        "offsets": [{"partition": 1, "offset": 2, "error_code": None, "error": None}],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    assert answer.headers["Content-Type"] == "application/vnd.kafka.v2+json"
    assert ends(gateway, topic) == [0, 3]


def test_a_request_over_several_partitions_is_answered_in_its_order(
    gateway: RunningGateway, topic: str
) -> None:
    rows = [{"value": number, "partition": partition} for number, partition in enumerate((1, 0, 1, 1, 0))]
    assert offsets(post(gateway, f"/topics/{topic}", records(*rows))) == [
        (1, 0),
        (0, 0),
        (1, 1),
        (1, 2),
        (0, 1),
    ]


def test_a_key_names_its_partition_in_every_format(gateway: RunningGateway, topic: str) -> None:
    for number in range(10):
        text = f"key-{number}"
        # A JSON key is stored as its text, quotes and all: so it is another key than the bare word.
        sent = [
            (TEXT, records({"key": text, "value": "x"})),
            (BINARY, records({"key": base64.b64encode(text.encode()).decode(), "value": "eA=="})),
            (ARROW, stream(pa.table({"key": [text], "value": ["x"]}))),
        ]
        answers = [post(gateway, f"/topics/{topic}", body, kind) for kind, body in sent]
        assert len({answer.json()["offsets"][0]["partition"] for answer in answers}) == 1
    assert min(ends(gateway, topic)) > 0


def test_records_without_a_key_stay_together_and_move_on(gateway: RunningGateway, topic: str) -> None:
    placed = [{partition for partition, _ in offsets(gateway.produce(topic, *range(5)))} for _ in range(6)]
    assert all(len(partitions) == 1 for partitions in placed)
    assert ends(gateway, topic) == [15, 15]


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
def test_the_acks_are_echoed(gateway: RunningGateway, topic: str, acks: str) -> None:
    answer = gateway.produce(topic, "a", "b", partition=0, acks=acks)
    assert answer.status_code == 200
    assert answer.headers["Acks"] == acks.replace("-1", "all")
    expected = [None, None] if acks == "0" else [0, 1]
    assert [each["offset"] for each in answer.json()["offsets"]] == expected
    # What comes after on the same partition comes after in the log: then the first are durable as well.
    assert gateway.produce(topic, "c", partition=0).json()["offsets"][0]["offset"] == 2


def test_arrow_is_answered_by_partition(gateway: RunningGateway, topic: str) -> None:
    table = pa.table({"value": ["a", "b", "c"], "partition": [1, 0, 1]})
    answer = post(gateway, f"/topics/{topic}", stream(table), ARROW)
    assert answer.json() == {
        "offsets": [
            {"partition": 0, "base_offset": 0, "count": 1},
            {"partition": 1, "base_offset": 0, "count": 2},
        ]
    }
    answer = post(gateway, f"/topics/{topic}/partitions/1", stream(pa.table({"value": [b"d"]})), ARROW)
    assert answer.json() == {"offsets": [{"partition": 1, "base_offset": 2, "count": 1}]}


def test_arrow_records_without_a_partition_go_where_their_keys_go(
    gateway: RunningGateway, topic: str
) -> None:
    key = "N14228"
    (placed,) = offsets(post(gateway, f"/topics/{topic}", records({"key": key, "value": "x"}), TEXT))
    table = pa.table({"value": ["a", "b"], "key": [key, key], "partition": [None, 1 - placed[0]]})
    answer = post(gateway, f"/topics/{topic}", stream(table), ARROW)
    assert answer.status_code == 200, answer.text
    assert ends(gateway, topic) == ([2, 1] if placed[0] == 0 else [1, 2])


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
        ("application/vnd.kafka.avro.v2+json", records({"value": 1}), 415, 415, JSON),
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
    rows = [{"value": "fits"}, {"value": "x" * 200}]
    refused(post(gateway, "/topics/small", records(*rows)), 413, 413, "takes 100")
    body = stream(pa.table({"value": ["fits", "x" * 200]}))
    refused(post(gateway, "/topics/small", body, ARROW), 413, 413, "takes 100")
    assert ends(gateway, "small") == [0, 0]


def test_a_request_larger_than_allowed_is_refused_before_it_is_read(
    gateway: RunningGateway, topic: str
) -> None:
    url = httpx.URL(gateway.url)
    head = f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n"
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
        head = f"POST /topics/{topic} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\n{header}"
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(head.encode() + body[:-5])
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(65_536)
            assert b" 200 " not in answer
    assert ends(gateway, topic) == [0, 0]


def stamped(
    gateway: RunningGateway,
    topic: str,
    sequence: object,
    *values: int,
    epoch: object = 0,
    producer: object = 7,
) -> httpx.Response:
    """Produce as an idempotent producer."""
    stamp = {"Producer_Id": str(producer), "Producer_Epoch": str(epoch), "Producer_Seq": str(sequence)}
    body = records(*({"value": value} for value in values))
    return post(gateway, f"/topics/{topic}/partitions/0", body, **stamp)


def test_a_repeat_of_an_idempotent_producer_is_answered_and_not_written(
    gateway: RunningGateway, topic: str
) -> None:
    first = stamped(gateway, topic, 0, 1, 2)
    assert offsets(stamped(gateway, topic, 2, 3)) == [(0, 2)]
    assert offsets(stamped(gateway, topic, 2, 3)) == [(0, 2)]
    assert offsets(first) == [(0, 0), (0, 1)]
    # An older repeat is still known as one; where it went is not.
    assert offsets(stamped(gateway, topic, 0, 1, 2)) == [(0, None), (0, None)]
    assert ends(gateway, topic) == [3, 0]


def test_a_gap_in_the_sequence_is_refused_with_the_next_one(gateway: RunningGateway, topic: str) -> None:
    assert stamped(gateway, topic, 0, 1, 2).status_code == 200
    answer = stamped(gateway, topic, 5, 3)
    refused(answer, 409, 40910, "sequence 5, and 2 is next")
    assert answer.headers["Producer-Expected-Seq"] == "2"
    assert answer.json()["expected"] == 2
    refused(stamped(gateway, topic, 3, 3, producer=8), 409, 40910, "0 is next")
    assert ends(gateway, topic) == [2, 0]


def test_a_new_epoch_fences_the_old_one(gateway: RunningGateway, topic: str) -> None:
    assert stamped(gateway, topic, 0, 1, epoch=1).status_code == 200
    answer = stamped(gateway, topic, 1, 2, epoch=0)
    refused(answer, 403, 40310, "epoch 0 is")
    assert answer.json()["current"] == 1
    assert offsets(stamped(gateway, topic, 0, 2, epoch=2)) == [(0, 1)]
    assert ends(gateway, topic) == [2, 0]


@pytest.mark.parametrize(
    "headers",
    [
        {"Producer_Id": "1"},
        {"Producer_Id": "1", "Producer_Epoch": "0"},
        {"Producer_Id": "-1", "Producer_Epoch": "0", "Producer_Seq": "0"},
        {"Producer_Id": str(2**63), "Producer_Epoch": "0", "Producer_Seq": "0"},
        {"Producer_Id": "1", "Producer_Epoch": str(2**31), "Producer_Seq": "0"},
        {"Producer_Id": "1", "Producer_Epoch": "0", "Producer_Seq": "1.5"},
        {"Producer_Id": "1", "Producer_Epoch": "0", "Producer_Seq": "9" * 5_000},
        {"Expected_Offset": "-1"},
        {"Expected_Offset": "end"},
    ],
)
def test_headers_that_are_no_numbers_are_refused(
    gateway: RunningGateway, topic: str, headers: dict[str, str]
) -> None:
    answer = post(gateway, f"/topics/{topic}/partitions/0", records({"value": 1}), **headers)
    refused(answer, 400, 40002, "Producer-" if "Producer_Id" in headers else "Expected-Offset")
    assert ends(gateway, topic) == [0, 0]


def test_an_append_expecting_another_end_is_refused(gateway: RunningGateway, topic: str) -> None:
    path = f"/topics/{topic}/partitions/0"
    assert offsets(post(gateway, path, records({"value": 1}), Expected_Offset="0")) == [(0, 0)]
    answer = post(gateway, path, records({"value": 2}), Expected_Offset="0")
    refused(answer, 412, 41201, "ends at offset 1, not at the expected 0")
    assert answer.json()["log_end_offset"] == 1
    assert ends(gateway, topic) == [1, 0]


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
        (b'{"value": null} {"value": {"type": "AVRO"}}', 422, 42206, "record 1"),
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
        {"id": "kind", "value": typed("AVRO", "x")},
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
