"""Records behind schemas as JSON: in fetches and polls of the REST Proxy's formats with schemas."""

import json
from typing import Any

import httpx
import pytest

from log_tables.record import Record
from log_tables.schemas.framing import prefixed
from tests.kit.avro_values import written
from tests.kit.consumers import Instance
from tests.kit.gateway import RunningGateway
from tests.kit.produce import BINARY, JSON, refused
from tests.kit.registry_records import send_records
from tests.kit.rest_schemas import AVRO, FLIGHT, JSON_SCHEMA, PROTOBUF, schemas_in

ROW = {"carrier": "UA", "delay": 1.5}
SOURCE = "read_schemas"


@pytest.fixture(scope="module")
def registry(gateway: RunningGateway) -> str:
    return schemas_in(gateway, SOURCE, "read")


def made(gateway: RunningGateway, registry: str, name: str, *records: Record, **configs: str) -> str:
    gateway.create_topic(name, 1, value_columns_schemas=registry, **configs)
    send_records(gateway, name, records)
    return name


def fetch(gateway: RunningGateway, topic: str, form: str, offset: int = 0) -> httpx.Response:
    path = f"/topics/{topic}/partitions/0/records"
    return gateway.client.get(path, params={"offset": offset}, headers={"Accept": form})


def poll(reader: Instance, form: str) -> httpx.Response:
    path = f"{reader.path}/records"
    return reader.client.get(path, params={"timeout": 1_000}, headers={"Accept": form})


def avro(row: object = ROW) -> bytes:
    return prefixed(17, written(FLIGHT, row))


def test_avro_is_fetched_as_json(gateway: RunningGateway, registry: str) -> None:
    records = (Record(avro(), prefixed(21, b"\x04UA")), Record(None, b'"plain"'), Record(avro()))
    topic = made(gateway, registry, "read-avro", *records)
    answer = fetch(gateway, topic, AVRO)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Content-Type"] == AVRO
    shown = [(each["key"], each["value"]) for each in answer.json()]
    assert shown == [("UA", ROW), ("plain", None), (None, ROW)]


def test_other_languages_are_fetched_as_json(gateway: RunningGateway, registry: str) -> None:
    proto = made(gateway, registry, "read-proto", Record(prefixed(19, b"\0\x08\x07")))
    [found] = fetch(gateway, proto, PROTOBUF).json()
    assert found["value"]["id"] == 7
    text = made(gateway, registry, "read-json", Record(prefixed(20, b'{"a": 1}')))
    [found] = fetch(gateway, text, JSON_SCHEMA).json()
    assert found["value"] == {"a": 1}
    refused(fetch(gateway, proto, AVRO), 422, 42203, "schema 19: it is PROTOBUF, not AVRO")


def test_a_schema_of_the_topic_decodes_values_without_an_id(gateway: RunningGateway) -> None:
    gateway.create_topic("read-own", 1, value_columns_format="avro", value_columns_schema=json.dumps(FLIGHT))
    send_records(gateway, "read-own", [Record(written(FLIGHT, ROW))])
    [found] = fetch(gateway, "read-own", AVRO).json()
    assert found["value"] == ROW
    refused(fetch(gateway, "read-own", PROTOBUF), 406, 40601, "set value.columns.schemas")


@pytest.mark.parametrize(
    ("name", "bad", "why"),
    [
        ("bare", Record(b"bare"), "the value names no schema"),
        ("unknown", Record(prefixed(77, b"x")), f"schema 77 is not known: topic {SOURCE} has no schema 77"),
        ("cut", Record(prefixed(17, b"\x04U")), "schema 17: /carrier"),
        ("key", Record(avro(), prefixed(78, b"x")), "its key: schema 78 is not known"),
        ("text", Record(avro(), b"no JSON"), "cannot be shown"),
    ],
)
def test_a_record_that_cannot_be_decoded_ends_the_answer_and_is_named(
    gateway: RunningGateway, registry: str, name: str, bad: Record, why: str
) -> None:
    topic = made(gateway, registry, f"read-{name}", Record(avro()), bad, Record(avro()))
    answer = fetch(gateway, topic, AVRO)
    assert [each["value"] for each in answer.json()] == [ROW]
    assert answer.headers["Next-Offset"] == "1"
    wrong = fetch(gateway, topic, AVRO, 1)
    refused(wrong, 422, 42203, f"the record at offset 1 of topic '{topic}', partition 0, cannot be shown")
    assert why in wrong.json()["message"]
    assert fetch(gateway, topic, AVRO, 2).json()[0]["value"] == ROW


def test_many_records_are_decoded_in_order(gateway: RunningGateway, registry: str) -> None:
    rows = [{"carrier": "UA" * 50, "delay": float(number)} for number in range(10_000)]
    topic = made(gateway, registry, "read-many", *(Record(avro(row)) for row in rows))
    found, offset = list[Any](), 0
    while offset < len(rows):
        answer = fetch(gateway, topic, AVRO, offset)
        found += answer.json()
        offset = int(answer.headers["Next-Offset"])
    assert [each["value"] for each in found] == rows
    assert [each["offset"] for each in found] == [*range(len(rows))]


def test_an_instance_polls_in_its_format(gateway: RunningGateway, registry: str, group: str) -> None:
    topic = made(gateway, registry, "poll-avro", Record(avro()), Record(prefixed(77, b"")))
    reader = Instance(gateway.client, group, "reader", format="avro")
    reader.subscribe(topic)
    assert reader.values(1) == [ROW]
    refused(poll(reader, AVRO), 422, 42203, "offset 1 of topic 'poll-avro', partition 0")
    refused(poll(reader, JSON), 406, 40601, AVRO)


def test_a_topic_without_schemas_says_which_setting_it_needs(
    gateway: RunningGateway, topic: str, group: str
) -> None:
    refused(fetch(gateway, topic, AVRO), 406, 40601, "set value.columns.schemas")
    send_records(gateway, topic, [Record(avro())])
    reader = Instance(gateway.client, group, "reader", format="Protobuf")
    reader.subscribe(topic)
    refused(poll(reader, PROTOBUF), 406, 40601, "set value.columns.schemas")
    assert fetch(gateway, topic, BINARY).status_code == 200
