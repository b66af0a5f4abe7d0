"""Schemas of a topic over HTTP, and doors that refuse values by them, also of a schema that is new."""

import json
from base64 import b64encode
from collections.abc import Callable
from itertools import count
from typing import Any

import httpx
import pytest

from log_tables.schemas.framing import prefixed
from tests.kit.avro_values import written
from tests.kit.gateway import RunningGateway
from tests.kit.produce import BINARY, refused
from tests.kit.registry_records import registers

KIND = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}
SOURCE, STRICT = "http-schemas", "http-strict"
IDS = count(100)


@pytest.fixture(scope="module")
def topic(gateway: RunningGateway) -> str:
    """A topic that refuses values that do not fit, and the topic that has its schemas."""
    gateway.create_topic(SOURCE, 1, cleanup_policy="compact")
    return gateway.create_topic(
        STRICT,
        1,
        value_columns="n bigint",
        value_columns_format="avro",
        value_columns_schemas=f"topic:{SOURCE}",
        value_columns_mode="refuse",
    )


def binary(gateway: RunningGateway, topic: str, value: bytes, key: bytes = b"") -> httpx.Response:
    record = {"value": b64encode(value).decode(), "key": b64encode(key).decode()}
    headers = {"Content-Type": BINARY}
    return gateway.client.post(f"/topics/{topic}", json={"records": [record]}, headers=headers)


def v3(gateway: RunningGateway, topic: str, value: bytes) -> httpx.Response:
    record = {"value": {"type": "BINARY", "data": b64encode(value).decode()}}
    return gateway.client.post(f"{gateway.cluster}/topics/{topic}/records", json=record)


def register(gateway: RunningGateway, schema_id: int, kind: object = KIND, subject: str = "s") -> None:
    record = registers(subject, schema_id, schema_id, json.dumps(kind))
    assert binary(gateway, SOURCE, record.value or b"", record.key or b"").status_code == 200


@pytest.mark.parametrize("send", [binary, v3])
def test_a_schema_is_used_by_the_first_value_that_names_it(
    gateway: RunningGateway, topic: str, send: Callable[..., httpx.Response]
) -> None:
    known, unknown = next(IDS), next(IDS)
    register(gateway, known)
    value = written(KIND, {"n": 1})
    assert send(gateway, topic, prefixed(known, value)).status_code == 200
    answer = send(gateway, topic, prefixed(unknown, value))
    assert answer.json()["error_code"] == 42210, answer.text
    assert f"schema {unknown} is not known" in answer.text


def test_a_value_that_is_broken_is_refused_with_its_schema_and_field(
    gateway: RunningGateway, topic: str
) -> None:
    known = next(IDS)
    register(gateway, known)
    answer = binary(gateway, topic, prefixed(known, b""))
    refused(answer, 422, 42210, f"schema {known}: /n ends too early")
    refused(binary(gateway, topic, b"{}"), 422, 42210, "the value names no schema")


def test_a_schema_is_shown_with_how_it_fits(gateway: RunningGateway, topic: str) -> None:
    known = next(IDS)
    kind: dict[str, Any] = {**KIND, "fields": [{"name": "m", "type": "string"}]}
    register(gateway, known, kind, f"{topic}-value")
    found = gateway.client.get(f"/topics/{topic}/schemas").json()
    assert (found["id"], found["version"], found["format"]) == (known, known, "avro")
    assert found["value_columns"] == "n bigint, m string"
    assert found["columns"] == [{"column": "n bigint", "in_schema": False, "reason": None}]
    assert found["fields_without_column"] == ["m"]
    one = gateway.client.get(f"/topics/{topic}/schemas/{known}").json()
    assert (one["type"], json.loads(one["text"]), one["references"]) == ("AVRO", kind, [])


@pytest.mark.parametrize(
    ("path", "status", "code", "says"),
    [
        (f"/topics/{STRICT}/schemas?subject=none", 404, 404, "there is no subject 'none'"),
        (f"/topics/{STRICT}/schemas?version=9", 404, 404, "with a version 9"),
        (f"/topics/{STRICT}/schemas/4294967295", 404, 404, "has no schema 4294967295"),
        (f"/topics/{STRICT}/schemas/nonsense", 404, 404, "schema"),
        (f"/topics/{SOURCE}/schemas", 400, 40002, "set value.columns.schemas to topic:NAME"),
        ("/topics/none-such/schemas", 404, 40401, "there is no topic"),
    ],
)
def test_what_is_not_there_says_so(
    gateway: RunningGateway, topic: str, path: str, status: int, code: int, says: str
) -> None:
    del topic
    refused(gateway.client.get(path), status, code, says)


@pytest.mark.parametrize(
    ("configs", "says"),
    [
        ({"value_columns_format": "avro"}, "value.columns.format=avro needs the schemas"),
        ({"value_columns_schema": '"string"'}, "value.columns.schema needs value.columns.format=avro"),
        (
            {"value_columns_format": "avro", "value_columns_schema": "{"},
            "value.columns.schema cannot be used",
        ),
        ({"value_columns_schemas": "ftp://x"}, "is no place of schemas"),
        ({"value_columns_format": "xml"}, "use one of json, avro, protobuf"),
    ],
)
def test_settings_that_make_no_sense_are_refused(
    gateway: RunningGateway, configs: dict[str, str], says: str
) -> None:
    body = {
        "topic_name": "http-nonsense",
        "configs": [{"name": name.replace("_", "."), "value": value} for name, value in configs.items()],
    }
    answer = gateway.client.post(f"{gateway.cluster}/topics", json=body)
    assert answer.status_code == 400, answer.text
    assert says in answer.json()["message"]
