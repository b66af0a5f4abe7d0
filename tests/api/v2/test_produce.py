"""Produce through a running gateway: every format in, and where the records go."""

import base64

import httpx
import pyarrow as pa
import pytest

from log_tables.limits import PRODUCER_BATCHES
from tests.kit.gateway import RunningGateway
from tests.kit.produce import ARROW, BINARY, TEXT, ends, offsets, post, records, refused, stream


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
    assert offsets(stamped(gateway, topic, 0, 1, 2)) == [(0, 0), (0, 1)]
    for number in range(PRODUCER_BATCHES):
        stamped(gateway, topic, 3 + number, number)
    # One that is older than so many batches is still known as a repeat; where it went is not.
    assert offsets(stamped(gateway, topic, 0, 1, 2)) == [(0, None), (0, None)]
    assert ends(gateway, topic) == [3 + PRODUCER_BATCHES, 0]


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
