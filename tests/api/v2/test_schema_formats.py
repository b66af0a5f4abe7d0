"""Records in the REST Proxy's formats with schemas, which a topic of this very log has."""

import json
from base64 import b64decode
from typing import Any

import pytest

from log_tables.schemas.framing import prefixed
from tests.kit.avro_values import written
from tests.kit.gateway import RunningGateway
from tests.kit.produce import post, refused
from tests.kit.proto_values import FLIGHT as PROTO
from tests.kit.rest_schemas import AVRO, FLIGHT, JSON_SCHEMA, PROTOBUF, schemas_in

SOURCE = "rest_schemas"


@pytest.fixture(scope="module")
def registry(gateway: RunningGateway) -> str:
    return schemas_in(gateway, SOURCE, "rest")


@pytest.fixture(scope="module")
def flights(gateway: RunningGateway, registry: str) -> str:
    return gateway.create_topic("rest", 1, value_columns_schemas=registry)


def body(*rows: dict[str, Any], **named: object) -> bytes:
    return json.dumps({"records": rows, **named}).encode()


def stored(gateway: RunningGateway, topic: str, offset: int) -> dict[str, Any]:
    """A record of partition 0, in base64."""
    answer = gateway.client.get(
        f"/topics/{topic}/partitions/0/records",
        params={"offset": offset, "max_bytes": 1},
        headers={"Accept": "application/vnd.kafka.binary.v2+json"},
    )
    found: dict[str, Any] = answer.json()[0]
    return found


def test_avro_is_written_by_the_id_of_its_schema(gateway: RunningGateway, flights: str) -> None:
    row = {"carrier": "UA", "delay": {"double": 1.5}}
    answer = post(gateway, "/topics/rest", body({"value": row}, value_schema_id=17), AVRO)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["key_schema_id"], answer.json()["value_schema_id"]) == (None, 17)
    [placed] = answer.json()["offsets"]
    raw = stored(gateway, "rest", placed["offset"])["value"]
    assert b64decode(raw) == prefixed(17, written(FLIGHT, {"carrier": "UA", "delay": 1.5}))


@pytest.mark.parametrize(
    ("topic", "form", "named", "value", "start"),
    [
        ("rest-proto", PROTOBUF, {"value_schema_id": 19}, {"id": "7", "carrier": "UA"}, b"\0\0\0\0\x13\0"),
        ("rest-proto", PROTOBUF, {"value_schema": PROTO}, {"id": 7}, b"\0\0\0\0\x13\0"),
        ("rest-json", JSON_SCHEMA, {"value_schema_id": 20}, {"a": 1}, b'\0\0\0\0\x14{"a": 1}'),
        ("rest-json", JSON_SCHEMA, {"value_schema": '{"type":"object"}'}, {}, b"\0\0\0\0\x14{}"),
        (
            "rest",
            AVRO,
            {"value_schema": json.dumps(FLIGHT, indent=1)},
            {"carrier": "", "delay": None},
            b"\0\0\0\0\x11\0",
        ),
    ],
)
def test_each_language_is_written_by_an_id_and_by_a_registered_schema(
    gateway: RunningGateway,
    registry: str,
    flights: str,
    topic: str,
    form: str,
    named: dict[str, object],
    value: object,
    start: bytes,
) -> None:
    if not gateway.client.get(f"/topics/{topic}").is_success:
        gateway.create_topic(topic, 1, value_columns_schemas=registry)
    answer = post(gateway, f"/topics/{topic}", body({"value": value}, **named), form)
    assert answer.status_code == 200, answer.text
    found = b64decode(stored(gateway, topic, answer.json()["offsets"][0]["offset"])["value"])
    assert found.startswith(start)
    assert answer.json()["value_schema_id"] == found[4]


def test_keys_have_schemas_and_nulls_need_none(gateway: RunningGateway, flights: str) -> None:
    rows = ({"key": "UA", "value": None}, {"key": "AA"})
    answer = post(gateway, "/topics/rest", body(*rows, key_schema_id=21), AVRO)
    assert (answer.json()["key_schema_id"], answer.json()["value_schema_id"]) == (21, None)
    found = stored(gateway, "rest", answer.json()["offsets"][0]["offset"])
    assert (b64decode(found["key"]), found["value"]) == (prefixed(21, b"\x04UA"), None)


DEEP = '{"records":[{"value":' + '{"carrier":' * 400 + "1" + "}" * 400 + '}],"value_schema_id":17}'
ROW = {"carrier": "UA", "delay": None}


@pytest.mark.parametrize(
    ("sent", "status", "code", "says"),
    [
        (body({"value": ROW}), 422, 42202, "value_schema_id"),
        (body({"key": "UA"}), 422, 42201, "key_schema_id"),
        (body({"value": ROW}, value_schema_id=99), 422, 42205, f"topic {SOURCE} has no schema 99"),
        (body({"value": ROW}, value_schema_id=-1), 422, 42205, "-1"),
        (body({"value": ROW}, value_schema_id=2**60), 422, 42205, "no schema"),
        (body({"value": ROW}, value_schema_id=2**70), 422, 42205, "no schema"),
        (body({"value": ROW}, value_schema_id="17"), 422, 42206, "value_schema_id"),
        (body({"value": ROW}, value_schema={}), 422, 42206, "value_schema"),
        (body({"value": ROW}, value_schema_id=19), 422, 42205, "is PROTOBUF, not AVRO"),
        (body({"value": ROW}, value_schema='"int"'), 422, 42205, "lakelog does not do"),
        (body({"value": ROW}, value_schema="[" * 100_000), 422, 42205, "lakelog does not do"),
        (body({"value": ROW}, value_schema=" " * 2_000_000), 422, 42205, "characters"),
        (body({"value": ROW}, value_schema='"int"', value_schema_id=17), 422, 42206, "one of them"),
        (body(value_schema_id=17), 422, 42206, "no records"),
        (DEEP.encode(), 422, 42210, "record 0: the value is no value of schema 17: /carrier"),
        (DEEP.replace("1}", "[" * 200 + "1" + "]" * 200 + "}", 1).encode(), 400, 400, "within one another"),
        (b'{"records":' + b"[" * 100_000, 422, 42206, "got `array`"),
        (body({"value": {"carrier": "\ud800"}}, value_schema_id=17), 400, 400, "not JSON"),
        (b"\xff", 400, 400, "not UTF-8"),
        (b'{"records":[{"value":{"carrier":"\xff"}}],"value_schema_id":17}', 400, 400, "not UTF-8"),
    ],
)
def test_a_wrong_body_is_refused_and_nothing_is_written(
    gateway: RunningGateway, flights: str, sent: bytes, status: int, code: int, says: str
) -> None:
    before = end(gateway, flights)
    refused(post(gateway, "/topics/rest", sent, AVRO), status, code, says)
    assert end(gateway, flights) == before


@pytest.mark.parametrize(
    ("value", "path", "reason"),
    [
        ({"carrier": 3}, "/carrier", "is no text"),
        ({"carrier": "UA", "delay": {"string": "x"}}, "/delay", "is no number"),
        ({"carrier": "UA", "gate": 1}, "/gate", "is no field of the schema"),
        ([], "", "is no object"),
    ],
)
def test_values_that_do_not_fit_are_named(
    gateway: RunningGateway, flights: str, value: object, path: str, reason: str
) -> None:
    before = end(gateway, flights)
    answer = post(gateway, "/topics/rest", body({"value": ROW}, {"value": value}, value_schema_id=17), AVRO)
    refused(answer, 422, 42210, "record 1: the value is no value of schema 17")
    said = answer.json()
    assert (said["index"], said["path"], said["reason"]) == (1, path, reason)
    assert end(gateway, flights) == before


def test_many_records_are_encoded_and_partitioned_by_their_keys(
    gateway: RunningGateway, registry: str
) -> None:
    gateway.create_topic("rest-many", 2, value_columns_schemas=registry)
    rows = [{"key": f"k{number}", "value": ROW} for number in range(5_000)]
    sent = body(*rows, key_schema_id=21, value_schema_id=17)
    answer = post(gateway, "/topics/rest-many", sent, AVRO)
    assert answer.status_code == 200, answer.text
    placed = answer.json()["offsets"]
    assert len(placed) == 5_000
    assert {each["partition"] for each in placed} == {0, 1}


def test_a_topic_without_a_place_of_schemas_says_which_setting_it_needs(
    gateway: RunningGateway, topic: str
) -> None:
    sent = body({"value": ROW}, value_schema_id=17)
    refused(post(gateway, f"/topics/{topic}", sent, AVRO), 415, 415, "set value.columns.schemas")
    transaction = post(gateway, f"/consumers/{topic}/transactions", sent, AVRO)
    refused(transaction, 415, 415, "a transaction takes no application/vnd.kafka.avro")


def end(gateway: RunningGateway, topic: str) -> int:
    found: int = gateway.client.get(f"/topics/{topic}/partitions/0/offsets").json()["end_offset"]
    return found
