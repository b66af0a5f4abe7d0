"""Records of version 3 whose keys and values have schemas, which a topic of this very log has."""

import json
from base64 import b64decode
from typing import Any

import pytest

from log_tables.schemas.framing import prefixed
from tests.kit.avro_values import written
from tests.kit.gateway import RunningGateway
from tests.kit.produce import BINARY, post, refused
from tests.kit.registry_records import registers
from tests.kit.rest_schemas import FLIGHT, schemas_in

LONGER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "gate", "type": "string", "default": "x" * 1_000}]}
ROW = {"carrier": "UA", "delay": None}
BYTES = written(FLIGHT, ROW)
SOURCE = "v3_schemas"


@pytest.fixture(scope="module")
def flights(gateway: RunningGateway) -> str:
    """A topic whose schemas are in another one: two versions, one of keys, and one of each language."""
    newer = registers("v3-flights-value", 2, 18, json.dumps(LONGER))
    source = schemas_in(gateway, SOURCE, "v3-flights", newer)
    return gateway.create_topic("v3-flights", 1, value_columns_schemas=source)


def end(gateway: RunningGateway) -> int:
    found: int = gateway.client.get("/topics/v3-flights/partitions/0/offsets").json()["end_offset"]
    return found


def send(gateway: RunningGateway, *records: dict[str, Any]) -> list[dict[str, Any]]:
    body = "\n".join(map(json.dumps, records)).encode()
    answer = post(gateway, f"{gateway.cluster}/topics/v3-flights/records", body, "application/json")
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def stored(gateway: RunningGateway, offset: int) -> tuple[bytes | None, bytes | None]:
    """The key and the value of a record."""
    path = "/topics/v3-flights/partitions/0/records"
    answer = gateway.client.get(path, params={"offset": offset}, headers={"Accept": BINARY})
    found = answer.json()[0]
    key, value = (None if found[name] is None else b64decode(found[name]) for name in ("key", "value"))
    return key, value


@pytest.mark.parametrize(
    ("value", "bytes_", "facts"),
    [
        (
            {"type": "AVRO", "schema_id": 17, "data": ROW},
            prefixed(17, BYTES),
            {"type": "AVRO", "schema_id": 17},
        ),
        ({"schema_id": 17, "data": ROW}, prefixed(17, BYTES), {"type": "AVRO"}),
        (
            {"schema_id": 17, "subject": "v3-flights-value", "data": ROW},
            prefixed(17, BYTES),
            {"subject": "v3-flights-value", "schema_version": 1},
        ),
        (
            {"type": "AVRO", "schema": json.dumps(FLIGHT), "data": ROW},
            prefixed(17, BYTES),
            {"subject": "v3-flights-value", "schema_version": 1, "schema_id": 17},
        ),
        (
            {"subject_name_strategy": "TOPIC_NAME", "schema_version": 1, "data": ROW},
            prefixed(17, BYTES),
            {"schema_version": 1},
        ),
        (
            {"data": {**ROW, "gate": "A1"}},
            prefixed(18, BYTES + b"\x04A1"),
            {"schema_version": 2, "schema_id": 18},
        ),
        (
            {
                "type": "PROTOBUF",
                "subject": "v3-flights-proto-value",
                "schema_version": 1,
                "data": {"id": "7"},
            },
            prefixed(19, b"\0\x08\x07"),
            {"type": "PROTOBUF", "subject": "v3-flights-proto-value"},
        ),
        (
            {"type": "JSONSCHEMA", "schema_id": 20, "data": {"a": [1]}},
            prefixed(20, b'{"a": [1]}'),
            {"type": "JSONSCHEMA"},
        ),
        ({"type": "AVRO", "schema_id": 17, "data": None}, None, {"type": "AVRO", "size": 0}),
    ],
)
def test_a_value_is_written_by_the_schema_that_it_names(
    gateway: RunningGateway, flights: str, value: dict[str, Any], bytes_: bytes | None, facts: dict[str, Any]
) -> None:
    [said] = send(gateway, {"key": {"type": "AVRO", "schema_id": 21, "data": "UA"}, "value": value})
    assert stored(gateway, said["offset"]) == (prefixed(21, b"\x04UA"), bytes_)
    assert said["value"].items() >= {**facts, "size": len(bytes_ or b"")}.items()
    assert said["key"] == {"type": "AVRO", "schema_id": 21, "size": 8}


DEEP = '{"carrier":' * 400 + "1" + "}" * 400


@pytest.mark.parametrize(
    ("value", "code", "says"),
    [
        ({"type": "AVRO", "schema_id": 99}, 42205, f"record 1: topic {SOURCE} has no schema 99"),
        ({"schema_id": 2**60}, 42205, "has no schema"),
        ({"schema_id": "17"}, 42206, "schema_id"),
        ({"schema_id": 17, "schema_version": 1}, 42206, "names its schema twice"),
        ({"schema_version": 9}, 42205, "no version of the subject 'v3-flights-value' has the number 9"),
        ({"subject": "none"}, 42205, "no version of the subject 'none' is known"),
        (
            {"schema_id": 17, "subject": "v3-flights-json-value"},
            42205,
            "schema 17 is no version of the subject 'v3-flights-json-value'",
        ),
        ({"type": "PROTOBUF", "schema_id": 17}, 42205, "schema 17 is AVRO, not PROTOBUF"),
        ({"type": "AVRO", "schema": '"int"'}, 42205, "which lakelog does not do"),
        ({"schema": '"int"'}, 42206, "needs the type"),
        ({"type": "JSON", "schema_id": 17}, 42206, "the type JSON has no schema"),
        ({"subject_name_strategy": "RECORD_NAME"}, 42206, "'RECORD_NAME' is not taken; use TOPIC_NAME"),
        ({"subject_name_strategy": "TOPIC_NAME", "subject": "v3-flights-json-value"}, 42206, "one of them"),
        ({"schema_id": 17, "data": {"carrier": 3}}, 42210, "record 1: the value is no value of schema 17"),
        ({"schema_id": 17, "data": json.loads(DEEP)}, 42210, "/carrier"),
    ],
)
def test_a_wrong_value_is_named_and_nothing_is_written(
    gateway: RunningGateway, flights: str, value: dict[str, Any], code: int, says: str
) -> None:
    before = end(gateway)
    good, bad = {"value": {"schema_id": 17, "data": ROW}}, {"value": {"data": ROW, **value}}
    body = (json.dumps(good) + json.dumps(bad)).encode()
    answer = post(gateway, f"{gateway.cluster}/topics/v3-flights/records", body, "application/json")
    refused(answer, 422, code, says)
    if code == 42210:
        assert (answer.json()["index"], answer.json()["path"]) == (1, "/carrier")
    assert end(gateway) == before


def test_entries_of_a_batch_stand_or_fail_one_by_one(gateway: RunningGateway, flights: str) -> None:
    values = {
        "good": {"schema_id": 17, "data": ROW},
        "unknown": {"schema_id": 99, "data": ROW},
        "wrong": {"schema_id": 17, "data": {"carrier": 3}},
        "latest": {"data": {**ROW, "gate": ""}},
        "plain": {"type": "JSON", "data": 1},
    }
    entries = [{"id": name, "value": value} for name, value in values.items()]
    path = f"{gateway.cluster}/topics/v3-flights/records:batch"
    answer = gateway.client.post(path, json={"entries": entries}).json()
    assert [each["id"] for each in answer["successes"]] == ["good", "latest", "plain"]
    failures = {each["id"]: each for each in answer["failures"]}
    assert {name: each["error_code"] for name, each in failures.items()} == {"unknown": 42205, "wrong": 42210}
    assert (failures["wrong"]["path"], failures["wrong"]["reason"]) == ("/carrier", "is no text")


def test_a_request_names_few_schemas(gateway: RunningGateway, flights: str) -> None:
    before = end(gateway)
    body = "".join(json.dumps({"value": {"schema_id": each, "data": 1}}) for each in range(1_000)).encode()
    answer = post(gateway, f"{gateway.cluster}/topics/v3-flights/records", body, "application/json")
    refused(answer, 422, 42206, "names more than 20 schemas")
    assert end(gateway) == before


def test_many_records_are_written(gateway: RunningGateway, flights: str) -> None:
    before = end(gateway)
    records = [{"value": {"schema_version": 1, "data": ROW}}] * 5_000
    assert [each["offset"] for each in send(gateway, *records)] == [*range(before, before + 5_000)]


def test_a_topic_of_version_3_without_schemas_says_which_setting_it_needs(
    gateway: RunningGateway, topic: str
) -> None:
    body = json.dumps({"value": {"type": "AVRO", "schema_id": 17, "data": ROW}}).encode()
    answer = post(gateway, f"{gateway.cluster}/topics/{topic}/records", body, "application/json")
    refused(answer, 422, 42205, "set value.columns.schemas")
