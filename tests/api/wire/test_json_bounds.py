"""A few bytes of JSON do not become gigabytes, on any route."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import MalformedBody, RequestTooLarge
from api.wire.json_bounds import (
    ALONE_DEPTH,
    IN_LIST_DEPTH,
    bounded_cost,
    check_depth,
    check_utf8,
    documents,
    small_cost,
)
from log_tables.limits import (
    BODY_DEPTH_MAX,
    JSON_FIELD_BYTES,
    JSON_HEADER_BYTES,
    REQUEST_RECORDS_MAX,
    SMALL_BODY_VALUES_MAX,
    SMALL_VALUE_BYTES,
)
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.support import ROOT

JSON = {"Content-Type": "application/vnd.kafka.json.v2+json"}
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a"\\{}[],é😀\n'), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="no /proc: it tells the memory")
def test_nothing_takes_more_memory_than_was_counted_on_its_bytes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.kit.json_attacks"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""


@given(
    st.lists(st.dictionaries(st.text(max_size=3), json_values, max_size=3), max_size=4),
    st.sampled_from(["", " ", "\n"]),
)
def test_documents_one_after_the_other_are_told_apart(values: list[object], between: str) -> None:
    body = between.join(msgspec.json.encode(value).decode() for value in values).encode()
    assert [msgspec.json.decode(document) for document in documents(body)] == values


@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.none() | st.text(st.sampled_from('"\\{,[')), max_size=3)
    )
)
def test_what_stands_in_strings_does_not_count(items: list[dict[str, str | None]]) -> None:
    fields = sum(max(0, len(item) - 1) for item in items)
    marks = len(items) + max(0, len(items) - 1) + fields
    assert bounded_cost(msgspec.json.encode({"records": items}), IN_LIST_DEPTH) == marks * JSON_FIELD_BYTES


def test_headers_are_counted_and_what_values_hold_deeper_is_not() -> None:
    two = b'{"records":[{"headers":[{"key":"a"},{"key":"b"}]}]}'
    assert bounded_cost(two, IN_LIST_DEPTH) == JSON_FIELD_BYTES + 2 * JSON_HEADER_BYTES
    deep = b'{"records":[{"value":[[[{},{},{}],1,2,3]]}]}'
    assert bounded_cost(deep, IN_LIST_DEPTH) == JSON_FIELD_BYTES


@pytest.mark.parametrize(
    ("item", "begin", "depth"),
    [(b"{}", b'{"records":[', IN_LIST_DEPTH), (b"1", b'{"a":[', IN_LIST_DEPTH), (b"{}", b"", ALONE_DEPTH)],
)
def test_more_records_than_are_allowed_are_refused_before_they_are_made(
    item: bytes, begin: bytes, depth: int
) -> None:
    between = b"," if begin else b""
    bounded_cost(begin + between.join([item] * REQUEST_RECORDS_MAX), depth)
    with pytest.raises(RequestTooLarge, match=f"{REQUEST_RECORDS_MAX} are allowed"):
        bounded_cost(begin + between.join([item] * (REQUEST_RECORDS_MAX + 2)), depth)


def test_values_of_a_body_without_records_are_bounded() -> None:
    assert small_cost(b'{"a":[1,2]}') == 3 * SMALL_VALUE_BYTES
    with pytest.raises(RequestTooLarge, match=f"{SMALL_BODY_VALUES_MAX} are allowed"):
        small_cost(b"1," * (SMALL_BODY_VALUES_MAX + 1))


@given(st.integers(0, 3), st.sampled_from([b"\xff", b"\xc3", b"\xf0\x9f\x98"]))
def test_what_is_not_utf8_is_named_by_its_place(before: int, wrong: bytes) -> None:
    check_utf8(b"a" * (2**16 - before) + "😀é".encode() * 3)
    body = b"a" * (2**16 - before) + "😀".encode() + wrong + b"a"
    with pytest.raises(MalformedBody, match=f"at byte {2**16 - before + 4};"):
        check_utf8(body)


def nested(depth: int) -> bytes:
    return b'{"a":[' * (depth // 2) + b"[" * (depth % 2) + b"]" * (depth % 2) + b"]}" * (depth // 2)


@pytest.mark.parametrize("many", [0, 9_000], ids=["alone", "among many"])
def test_how_deep_a_value_may_be_is_the_same_on_every_path(
    gateway: RunningGateway, topic: str, many: int
) -> None:
    """The bound also holds for large bodies, which a thread with a smaller stack decodes."""
    records = f"{gateway.cluster}/topics/{topic}/records"

    def bodies(value: bytes) -> dict[str, tuple[bytes, str]]:
        typed = b'{"value":{"type":"JSON","data":%s}}'
        entry = b'{"id":"%d","value":{"type":"JSON","data":%s}}'
        entries = b",".join([entry % (0, value), *(entry % (number, b"1") for number in range(1, many))])
        other = b',{"topic":"%s","value":1}' % topic.encode() * many
        named = b'{"records":[{"topic":"%s","value":%s}%s]}' % (topic.encode(), value, other)
        listed = b'{"records":[{"value":%s}%s]}'
        return {
            f"/topics/{topic}": (listed % (value, b',{"value":1}' * many), "v2"),
            f"/topics/{topic}/partitions/0": (listed % (b"1", b',{"key":%s}' % value), "v2"),
            f"/consumers/{topic}/transactions": (named, "v2"),
            records: (typed % value + typed % b"1" * many, "v3"),
            f"{records}:batch": (b'{"entries":[%s]}' % entries, "v3"),
        }

    for depth, taken in ((BODY_DEPTH_MAX, True), (BODY_DEPTH_MAX + 1, False), (960, False), (9_000, False)):
        for path, (body, version) in bodies(nested(depth)).items():
            headers = JSON if version == "v2" else {"Content-Type": "application/json"}
            answer = gateway.client.post(path, content=body, headers=headers)
            assert (answer.status_code < 300) == taken, (path, depth, answer.text[:200])
            if not taken:
                assert (answer.status_code, answer.json()["error_code"]) == (400, 400), (path, depth)
                assert f"more than {BODY_DEPTH_MAX} arrays or objects" in answer.json()["message"]


def test_how_deep_a_body_without_records_may_be_is_the_same_whatever_is_in_it(
    gateway: RunningGateway, topic: str
) -> None:
    for path in (f"/consumers/{topic}", f"{gateway.cluster}/topics"):
        for depth in (BODY_DEPTH_MAX + 1, 960, 9_000):
            answer = gateway.client.post(
                path, content=nested(depth), headers={"Content-Type": "application/json"}
            )
            assert (answer.status_code, answer.json()["error_code"]) == (400, 400), (path, depth)
        assert gateway.client.post(path, content=nested(BODY_DEPTH_MAX), headers=JSON).status_code == 422


def test_brackets_in_strings_are_not_deep() -> None:
    check_depth(b'["' + b"[" * 3_000 + b'"]')
    check_depth(b"[" + b"[]," * 3_000 + b"0]")
    with pytest.raises(MalformedBody):
        check_depth(b"[" * (BODY_DEPTH_MAX + 1) + b"]" * (BODY_DEPTH_MAX + 1))


def test_records_that_could_never_fit_are_refused_and_others_are_asked_to_wait(tmp_path: Path) -> None:
    with running_gateway(
        tmp_path, linger_ms=0, buffer_memory=2_000_000, max_request_bytes=1_000_000
    ) as small:
        small.create_topic("t")
        full = b'{"value":1,"key":2,"headers":[{"key":"a"}]}'
        path = "/topics/t"

        def send(times: int) -> int:
            body = b'{"records":[' + b",".join([full] * times) + b"]}"
            return small.client.post(path, content=body, headers=JSON).status_code

        assert send(1_500) == 200
        assert send(10_000) == 413
        path, plain = f"{small.cluster}/topics/t/records", {"Content-Type": "application/json"}
        rows = small.client.post(path, content=b"{}" * 3_000, headers=plain)
        assert (rows.status_code, rows.json()["error_code"]) == (413, 413)


def test_of_a_body_with_very_many_mistakes_the_first_are_named(gateway: RunningGateway, topic: str) -> None:
    bodies = {
        f"{gateway.cluster}/topics": b'{"topic_name":"t","configs":[' + b",".join([b"1"] * 100_000) + b"]}",
        f"{gateway.cluster}/topics/{topic}/configs:alter": b"{"
        + b",".join(b'"f%d":1' % number for number in range(50_000))
        + b"}",
    }
    for path, body in bodies.items():
        answer = gateway.client.post(path, content=body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 422
        assert len(answer.content) < 1_000
