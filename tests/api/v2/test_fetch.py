"""Fetch through a running gateway: what went in comes out, in every format, from any offset."""

import base64
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pyarrow as pa
import pytest

from log_tables.limits import READ_SEGMENTS_MAX
from log_tables.record import RECORD_SCHEMA
from tests.kit.gateway import RunningGateway, append_segments, leave_every_tenth, running_gateway
from tests.kit.produce import ARROW, BINARY, JSON, TEXT, post, records, refused, stream


def fetch(
    gateway: RunningGateway, topic: str, accept: str = JSON, partition: int = 0, **query: Any
) -> httpx.Response:
    path = f"/topics/{topic}/partitions/{partition}/records"
    return gateway.client.get(path, params=query, headers={"Accept": accept})


def values(answer: httpx.Response) -> list[Any]:
    assert answer.status_code == 200, answer.text
    return [record["value"] for record in answer.json()]


def table(answer: httpx.Response) -> pa.Table:
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == ARROW
    return pa.ipc.open_stream(answer.content).read_all()


def place(answer: httpx.Response) -> tuple[int, int, int]:
    """Log-Start-Offset, Next-Offset, High-Watermark."""
    start, following, end = (
        int(answer.headers[name]) for name in ("Log-Start-Offset", "Next-Offset", "High-Watermark")
    )
    return start, following, end


def write(gateway: RunningGateway, topic: str, *raw: bytes | None) -> None:
    """Append these bytes as they are to partition 0."""
    rows = [{"value": None if item is None else base64.b64encode(item).decode()} for item in raw]
    answer = post(gateway, f"/topics/{topic}/partitions/0", records(*rows), BINARY)
    assert answer.status_code == 200, answer.text


HEADERS = [{"key": "h", "value": "AP8="}, {"key": "h", "value": None}, {"key": "ü", "value": ""}]


@pytest.mark.parametrize(
    ("form", "key", "value"),
    [
        (JSON, {"id": 7}, {"a": [1, 2.5, None, "ü"], "b": {}}),
        (JSON, "k", False),
        (JSON, 0, ""),
        (BINARY, "AAH/", "gA=="),
        (TEXT, "schlüssel", 'line\n"quoted" \\ \u2028 \U0001f600'),
    ],
)
def test_what_was_sent_comes_back(
    gateway: RunningGateway, topic: str, form: str, key: Any, value: Any
) -> None:
    row = {"key": key, "value": value, "headers": HEADERS, "timestamp": 1_234_567_890_123}
    path = f"/topics/{topic}/partitions/1"
    assert post(gateway, path, records({"value": None}, row), form).status_code == 200
    first, second = fetch(gateway, topic, form, partition=1).json()
    assert (first["key"], first["value"], first["headers"]) == (None, None, [])
    assert second == {"topic": topic, "partition": 1, "offset": 1, **row}


def test_arrow_comes_back_with_every_column(gateway: RunningGateway, topic: str) -> None:
    sent = pa.table(
        {
            "value": pa.array([b"\x00\xff", None, b""]),
            "key": pa.array([None, b"k", b""]),
            "timestamp": pa.array([1, -1, 1_700_000_000_000_000], pa.timestamp("us", "UTC")),
            "headers": pa.array(
                [None, [("h", b"\xfe"), ("h", None)], None], RECORD_SCHEMA.field("headers").type
            ),
        }
    )
    assert post(gateway, f"/topics/{topic}/partitions/0", stream(sent), ARROW).status_code == 200
    got = table(fetch(gateway, topic, ARROW))
    assert got.schema.equals(RECORD_SCHEMA)
    assert got["offset"].to_pylist() == [0, 1, 2]
    assert all(got[name].to_pylist() == sent[name].to_pylist() for name in sent.column_names)


def test_a_tombstone_is_null_in_every_format(gateway: RunningGateway, topic: str) -> None:
    for form in (JSON, BINARY, TEXT):
        sent = records({"key": "a2V5" if form == BINARY else "k", "value": None})
        assert post(gateway, f"/topics/{topic}/partitions/0", sent, form).status_code == 200
    assert values(fetch(gateway, topic, BINARY)) == [None] * 3
    assert values(fetch(gateway, topic, TEXT)) == [None] * 3
    assert table(fetch(gateway, topic, ARROW))["value"].to_pylist() == [None] * 3


def test_records_without_a_time_get_that_of_the_gateway_once(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, 1, 2, partition=0)
    first, second = (record["timestamp"] for record in fetch(gateway, topic).json())
    assert first == second > 1_600_000_000_000
    assert [record["timestamp"] for record in fetch(gateway, topic).json()] == [first, second]


@pytest.mark.parametrize("accept", [JSON, ARROW])
def test_a_fetch_of_a_segment_with_gaps_keeps_to_its_bytes(
    gateway: RunningGateway, topic: str, accept: str
) -> None:
    gateway.produce(topic, *range(100), partition=0)
    leave_every_tenth(gateway, topic)
    found, following = [], 0
    while following < 100:
        answer = fetch(gateway, topic, accept, offset=following, max_bytes=100)
        rows = answer.json() if accept == JSON else table(answer).to_pylist()
        assert 1 <= len(rows) < 5
        found += [row["offset"] for row in rows]
        _, following, _ = place(answer)
    assert found == [*range(0, 100, 10), 99]


@pytest.mark.parametrize("accept", ["application/json", "*/*", "text/html, application/json;q=0.9", ""])
def test_json_is_the_default(gateway: RunningGateway, topic: str, accept: str) -> None:
    gateway.produce(topic, {"a": 1}, partition=0)
    answer = fetch(gateway, topic, accept)
    assert (values(answer), answer.headers["Content-Type"]) == ([{"a": 1}], JSON)


def test_an_answer_says_where_to_go_on(gateway: RunningGateway, topic: str) -> None:
    assert place(fetch(gateway, topic)) == (0, 0, 0)
    gateway.produce(topic, *range(5), partition=0)
    for accept in (JSON, ARROW):
        assert place(fetch(gateway, topic, accept)) == (0, 5, 5)
        assert place(fetch(gateway, topic, accept, offset=5)) == (0, 5, 5)
        assert place(fetch(gateway, topic, accept, offset="latest")) == (0, 5, 5)
    assert values(fetch(gateway, topic, offset=3)) == [3, 4]
    path = f"/topics/{topic}/partitions/0/records"
    assert gateway.client.delete(path, params={"before": 2}).status_code == 200
    answer = fetch(gateway, topic, offset="earliest")
    assert (values(answer), place(answer)) == ([2, 3, 4], (2, 5, 5))


@pytest.mark.parametrize("offset", [-1, 6, 2**62, 2**63])
def test_an_offset_that_is_not_there_is_refused_with_those_that_are(
    gateway: RunningGateway, topic: str, offset: int
) -> None:
    gateway.produce(topic, *range(5), partition=0)
    answer = fetch(gateway, topic, offset=offset)
    if offset < 0:
        refused(answer, 400, 40002, str(offset))
        return
    refused(answer, 416, 41601, str(offset))
    assert (answer.json()["log_start_offset"], answer.json()["high_watermark"]) == (0, 5)


def test_an_offset_whose_record_was_deleted_is_out_of_range(gateway: RunningGateway, topic: str) -> None:
    gateway.produce(topic, *range(5), partition=0)
    gateway.client.delete(f"/topics/{topic}/partitions/0/records", params={"before": 3})
    for accept in (JSON, ARROW):
        answer = fetch(gateway, topic, accept, offset=2)
        refused(answer, 416, 41601, "2")
        assert answer.json()["log_start_offset"] == 3


@pytest.mark.parametrize(
    ("path", "accept", "status", "code", "says"),
    [
        ("nowhere/partitions/0/records", JSON, 404, 40401, "'nowhere'"),
        ("T/partitions/2/records", JSON, 404, 40402, "partition 2"),
        ("T/partitions/-1/records", JSON, 404, 40402, "partition -1"),
        ("T/partitions/x/records", JSON, 400, 40002, "'x'"),
        ("T/partitions/0/records?offset=first", JSON, 400, 40002, "'first'"),
        ("T/partitions/0/records?offset=1.5", JSON, 400, 40002, "'1.5'"),
        ("T/partitions/0/records?offset=--1", JSON, 400, 40002, "'--1'"),
        ("T/partitions/0/records?offset=" + "9" * 5_000, JSON, 400, 40002, "'999"),
        ("T/partitions/0/records?timeout=-1", JSON, 400, 40002, "timeout=-1"),
        ("T/partitions/0/records?timeout=soon", JSON, 400, 40002, "'soon'"),
        ("T/partitions/0/records?max_bytes=0", JSON, 400, 40002, "max_bytes=0"),
        ("T/partitions/0/records", "application/vnd.kafka.avro.v2+json", 406, 40601, "avro"),
        ("T/partitions/0/records", "text/html", 406, 40601, "text/html"),
    ],
)
def test_a_bad_fetch_says_what_is_wrong(
    gateway: RunningGateway, topic: str, path: str, accept: str, status: int, code: int, says: str
) -> None:
    answer = gateway.client.get("/topics/" + path.replace("T/", f"{topic}/"), headers={"Accept": accept})
    refused(answer, status, code, says)


NO_JSON = [
    (b"1,2",),
    (b"[1", b"2]"),
    (b'{"a":1},{"b":2}',),
    (b'"x', b'y"'),
    (b"1]", b"[2"),
    (b"", b"1"),
    (b"1 2",),
    (b"NaN",),
    (b"'a'",),
    (b"\xff\xfe",),
    (b'"\xc3"',),
    (b"[" * 100_000 + b"]" * 100_000,),
    (b'1, "value": 2',),
    (b'1}, {"value": 2',),
]


@pytest.mark.parametrize("wrong", NO_JSON, ids=range(len(NO_JSON)))
def test_what_is_not_json_is_never_shown_as_json(
    gateway: RunningGateway, topic: str, wrong: tuple[bytes, ...]
) -> None:
    write(gateway, topic, *wrong)
    answer = fetch(gateway, topic)
    refused(answer, 422, 42203, "offset 0")
    assert topic in answer.json()["message"]
    shown = [base64.b64decode(value) for value in values(fetch(gateway, topic, BINARY))]
    assert shown == list(wrong)


@pytest.mark.parametrize("wrong", NO_JSON, ids=range(len(NO_JSON)))
def test_a_json_answer_ends_before_what_is_not_json(
    gateway: RunningGateway, topic: str, wrong: tuple[bytes, ...]
) -> None:
    write(gateway, topic, b'{"good": 1}', None, b" 2 ", *wrong, b"3")
    answer = fetch(gateway, topic)
    assert values(answer) == [{"good": 1}, None, 2]
    assert place(answer) == (0, 3, 4 + len(wrong))
    refused(fetch(gateway, topic, offset=3), 422, 42203, "offset 3")
    assert values(fetch(gateway, topic, offset=3 + len(wrong))) == [3]


def test_a_key_that_is_not_json_is_not_shown_as_json(gateway: RunningGateway, topic: str) -> None:
    body = records({"key": "a", "value": "1"}, {"key": "2", "value": "b"})
    assert post(gateway, f"/topics/{topic}/partitions/0", body, TEXT).status_code == 200
    refused(fetch(gateway, topic), 422, 42203, "offset 0")
    refused(fetch(gateway, topic, offset=1), 422, 42203, "offset 1")
    assert [record["key"] for record in fetch(gateway, topic, TEXT).json()] == ["a", "2"]


def test_text_ends_before_what_is_not_utf8(gateway: RunningGateway, topic: str) -> None:
    write(gateway, topic, b"good", b"\xff")
    answer = fetch(gateway, topic, TEXT)
    assert (values(answer), place(answer)) == (["good"], (0, 1, 2))
    refused(fetch(gateway, topic, TEXT, offset=1), 422, 42203, "offset 1")


@pytest.mark.parametrize("accept", [JSON, BINARY, TEXT, ARROW])
def test_the_smallest_max_bytes_still_makes_progress(
    gateway: RunningGateway, topic: str, accept: str
) -> None:
    for number in range(4):
        gateway.produce(topic, *(f"{number}-{place}" * 100 for place in range(3)), partition=0)
    seen, offset, rounds = [], 0, 0
    while offset < 12:
        answer = fetch(gateway, topic, accept, offset=offset, max_bytes=1)
        if accept == ARROW:
            found = table(answer)["offset"].to_pylist()
        else:
            found = [record["offset"] for record in answer.json()]
        assert found != []
        seen += found
        offset, rounds = place(answer)[1], rounds + 1
    assert seen == list(range(12))
    assert rounds > 1


def test_a_long_poll_wakes_when_records_come(gateway: RunningGateway, topic: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fetch, gateway, topic, offset=0, timeout=20_000)
        assert gateway.produce(topic, "news", partition=0).status_code == 200
        answer = waiting.result()
    assert (values(answer), place(answer)) == (["news"], (0, 1, 1))


def test_a_long_poll_ends_empty_when_nothing_comes(gateway: RunningGateway, topic: str) -> None:
    answer = fetch(gateway, topic, offset="latest", timeout=30)
    assert (values(answer), place(answer)) == ([], (0, 0, 0))


def test_a_json_answer_is_bounded_and_goes_on_where_it_ended(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    data = tmp_path_factory.mktemp("bounded")
    with running_gateway(data, fetch_json_max_bytes=10_000, linger_ms=0) as gateway:
        gateway.create_topic("t")
        sent = [f"{number:04}" * 20 for number in range(20_000)]
        body = stream(pa.table({"value": [json.dumps(value) for value in sent]}))
        assert post(gateway, "/topics/t/partitions/0", body, ARROW).status_code == 200
        seen: list[Any] = []
        while len(seen) < len(sent):
            answer = fetch(gateway, "t", offset=len(seen))
            got = values(answer)
            assert 0 < len(got) < len(sent)
            seen += got
            assert place(answer) == (0, len(seen), len(sent))
        assert seen == sent


def test_an_answer_reads_a_bounded_number_of_segments(gateway: RunningGateway, topic: str) -> None:
    append_segments(gateway, topic, READ_SEGMENTS_MAX + 4)
    first = fetch(gateway, topic)
    assert values(first) == [*range(READ_SEGMENTS_MAX)]
    assert place(first) == (0, READ_SEGMENTS_MAX, READ_SEGMENTS_MAX + 4)
    assert len(values(fetch(gateway, topic, offset=READ_SEGMENTS_MAX))) == 4
