"""Values that do not fit the declared columns of a topic with value.columns.mode=refuse, at every door."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import pytest

from lakelog.client.producer.producer import Producer
from log_tables.clock import SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidValue
from log_tables.layout import STAGING, VALUE_ERROR
from log_tables.record import Record, input_batch
from log_tables.segments.staging import PartitionRecords, stage
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway
from tests.kit.produce import ARROW, BINARY, JSON, TEXT, ends, post, records, stream
from tests.kit.support import wait_until

DECLARED = "n bigint, s string"
GOOD, BAD = {"n": 1}, {"n": "x"}
WHY = {"path": "/n", "reason": "/n is text, not bigint"}
SEVERAL = 2_500
"""Records that are worked on in a thread."""


@pytest.fixture
def typed(gateway: RunningGateway, request: pytest.FixtureRequest) -> str:
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return refusing(gateway, name[:200])


def refusing(gateway: RunningGateway, name: str) -> str:
    return gateway.create_topic(name, 2, value_columns=DECLARED, value_columns_mode="refuse")


def check_refused(answer: httpx.Response, index: int, **why: str) -> None:
    assert answer.status_code == 422, answer.text
    body = answer.json()
    assert body["error_code"] == 42210
    assert {name: body[name] for name in ("index", "path", "reason")} == {"index": index, **(why or WHY)}
    assert f"record {index}" in body["message"]


def keyed(*values: Any) -> bytes:
    """A v2 body of records for both partitions."""
    return records(*({"key": number, "value": value} for number, value in enumerate(values)))


def arrow(*values: Any) -> bytes:
    texts = [json.dumps(value) for value in values]
    return stream(pa.table({"value": texts, "key": [str(number) for number in range(len(texts))]}))


def many(bad_at: int) -> list[Any]:
    return [*[GOOD] * bad_at, BAD, *[GOOD] * (SEVERAL - bad_at)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
@pytest.mark.parametrize(
    ("media_type", "body", "index"),
    [
        (JSON, keyed(GOOD, BAD, BAD), 1),
        (JSON, keyed(*many(2_000)), 2_000),
        (TEXT, records({"value": json.dumps(GOOD)}, {"value": json.dumps(BAD)}), 1),
        (ARROW, arrow(GOOD, GOOD, BAD), 2),
        (ARROW, arrow(*many(1_500)), 1_500),
    ],
    ids=["JSON", "many as JSON", "text", "Arrow", "many as Arrow"],
)
def test_a_request_is_refused_and_nothing_is_written_to_any_partition(
    gateway: RunningGateway, typed: str, media_type: str, body: bytes, index: int, acks: str
) -> None:
    check_refused(post(gateway, f"/topics/{typed}?acks={acks}", body, media_type), index)
    assert ends(gateway, typed) == [0, 0]


@pytest.mark.parametrize(
    ("media_type", "value", "reason"),
    [
        (TEXT, "no JSON", "the value is not JSON"),
        (BINARY, "/w==", "the value is not UTF-8"),
        (JSON, [1], "the value is not a JSON object"),
    ],
)
def test_a_value_that_is_no_object_has_no_path(
    gateway: RunningGateway, typed: str, media_type: str, value: Any, reason: str
) -> None:
    answer = post(gateway, f"/topics/{typed}", records({"value": value}), media_type)
    check_refused(answer, 0, path="", reason=reason)


def test_what_fits_and_tombstones_are_taken(gateway: RunningGateway, typed: str) -> None:
    body = keyed(GOOD, {"s": "a", "n": None}, None, {}, {"other": BAD})
    assert post(gateway, f"/topics/{typed}", body).status_code == 200
    assert sum(ends(gateway, typed)) == 5


def test_v3_refuses_a_stream_whole_and_a_batch_entry_by_entry(gateway: RunningGateway, typed: str) -> None:
    path = f"{gateway.cluster}/topics/{typed}/records"
    good, bad = ({"value": {"type": "JSON", "data": data}} for data in (GOOD, BAD))
    lines = "\n".join(map(json.dumps, [good, good, bad])).encode()
    check_refused(gateway.client.post(path, content=lines, headers={"Content-Type": "application/json"}), 2)
    assert ends(gateway, typed) == [0, 0]
    for count in (2, SEVERAL):
        entries = [{"id": "bad", **bad}, *({"id": f"{number}", **good} for number in range(count))]
        answer = gateway.client.post(f"{path}:batch", json={"entries": entries})
        (failure,) = answer.json()["failures"]
        assert failure.pop("message").startswith("the value: /n is text, not bigint, as topic")
        assert failure == {"id": "bad", "error_code": 42210, **WHY}
        assert len(answer.json()["successes"]) == count
    assert sum(ends(gateway, typed)) == 2 + SEVERAL


def test_a_transaction_is_refused_while_it_is_staged(
    gateway: RunningGateway, topic: str, typed: str, group: str
) -> None:
    path = f"/consumers/{group}/transactions"
    before = staged(gateway)
    of_json = records({"topic": topic, "value": 1}, {"topic": typed, "value": BAD})
    table = {"topic": [topic, typed, typed], "value": ["1", json.dumps(GOOD), json.dumps(BAD)]}
    check_refused(post(gateway, path, of_json), 1)
    check_refused(post(gateway, path, stream(pa.table(table)), ARROW), 2)
    assert ends(gateway, topic) == ends(gateway, typed) == [0, 0]
    assert staged(gateway) <= before


def staged(gateway: RunningGateway) -> set[str]:
    return {each.path for each in open_store(gateway.data).list(f"{STAGING}/")}


def test_staged_files_of_an_older_declaration_are_committed(
    gateway: RunningGateway, typed: str, group: str
) -> None:
    """Their values were checked when they were staged, by the declaration of that time."""
    store = open_store(gateway.data)
    part = Cluster.open(store, create=False).topic(typed)
    batch = input_batch([Record(json.dumps(BAD).encode())], now_us=0)
    file = stage(store, SystemClock(), group, [PartitionRecords(typed, part.topic_id, 0, [batch])])
    body = {"staged": [{"path": file.path, "runs": [run_of(run) for run in file.runs]}]}
    answer = post(gateway, f"/consumers/{group}/transactions", json.dumps(body).encode())
    assert answer.status_code == 200, answer.text
    assert ends(gateway, typed) == [1, 0]


def run_of(run: Any) -> dict[str, Any]:
    return {name: getattr(run, name) for name in run.__struct_fields__}


def test_a_repeated_transaction_is_answered_whatever_is_declared_since(
    gateway: RunningGateway, group: str
) -> None:
    name, path = gateway.create_topic(f"{group}-out", 2), f"/consumers/{group}/transactions"
    body = records({"topic": name, "value": BAD})
    first = post(gateway, path, body, Idempotency_Key="k")
    assert first.status_code == 200, first.text
    gateway.alter_topic(name, value_columns=DECLARED, value_columns_mode="refuse")
    assert post(gateway, path, body, Idempotency_Key="k").json() == first.json()
    check_refused(post(gateway, path, body, Idempotency_Key="l"), 0)


def idempotent(gateway: RunningGateway, topic: str, sequence: int, *values: Any) -> httpx.Response:
    headers = {"Producer-Id": "7", "Producer-Epoch": "0", "Producer-Seq": str(sequence)}
    body = records(*({"value": value} for value in values))
    return post(gateway, f"/topics/{topic}/partitions/0", body, **headers)


def test_a_refused_batch_uses_no_sequence(gateway: RunningGateway, typed: str) -> None:
    assert idempotent(gateway, typed, 0, GOOD).status_code == 200
    check_refused(idempotent(gateway, typed, 1, GOOD, BAD), 1)
    assert idempotent(gateway, typed, 1, GOOD).json()["offsets"][0]["offset"] == 1
    assert idempotent(gateway, typed, 5, BAD).json()["error_code"] == 40910


def test_a_repeat_of_what_was_appended_is_never_refused(gateway: RunningGateway, group: str) -> None:
    name = gateway.create_topic(group)
    first = idempotent(gateway, name, 0, BAD)
    gateway.alter_topic(name, value_columns=DECLARED, value_columns_mode="refuse")
    assert idempotent(gateway, name, 0, BAD).json() == first.json()
    check_refused(idempotent(gateway, name, 1, BAD), 0)
    assert idempotent(gateway, name, 1, GOOD).status_code == 200
    end = gateway.client.get(f"/topics/{name}/partitions/0/offsets").json()["end_offset"]
    assert end == 2


def test_the_mode_is_changed_back_and_forth_and_means_nothing_without_columns(
    gateway: RunningGateway, group: str
) -> None:
    name = gateway.create_topic(group, value_columns_mode="refuse")
    send: Callable[[], httpx.Response] = lambda: gateway.produce(name, BAD)  # noqa: E731
    assert send().status_code == 200
    gateway.alter_topic(name, value_columns=DECLARED)
    check_refused(send(), 0)
    gateway.alter_topic(name, value_columns_mode="keep")
    assert send().status_code == 200
    gateway.alter_topic(name, value_columns_mode="refuse")
    check_refused(send(), 0)
    gateway.alter_topic(name, value_columns="")
    assert send().status_code == 200
    partition = Cluster.open(open_store(gateway.data), create=False).topic(name).partition(0)
    plan = partition.plan_read(0, 1_000_000)
    errors = [text for each in partition.read(plan, [VALUE_ERROR]) for text in each[VALUE_ERROR].to_pylist()]
    assert errors == [None, WHY["reason"], None]


def test_a_producer_shows_which_record_is_refused(gateway: RunningGateway, typed: str) -> None:
    with Producer(gateway.url) as producer:
        sent = producer.send(typed, json.dumps(BAD).encode(), partition=1)
        error = sent.exception(60)
        assert isinstance(error, InvalidValue)
        assert {"index": 0, **WHY}.items() <= error.details.items()
        assert [each["index"] for each in error.details["record_errors"]] == [0]
        placed = producer.send(typed, json.dumps(GOOD).encode(), partition=1).result(60)
    assert placed.offset == 0


def test_the_gateway_asks_for_the_newest_declaration_before_it_refuses(
    gateway: RunningGateway, typed: str
) -> None:
    """Another process has altered the topic, and the gateway has not noticed yet."""
    from log_tables.cluster.admin.topic_admin import alter_topic

    check_refused(gateway.produce(typed, BAD), 0)
    alter_topic(Cluster.open(open_store(gateway.data), create=False), typed, {"value.columns.mode": "keep"})
    assert gateway.produce(typed, BAD).status_code == 200
    cluster = Cluster.open(open_store(gateway.data), create=False)
    alter_topic(cluster, typed, {"value.columns.mode": "refuse"})
    wait_until(lambda: gateway.produce(typed, BAD).status_code == 422, "the gateway follows the mode")
