"""Keys and values behind a schema on pages of messages."""

import json
import re
from html import unescape
from pathlib import Path

import pytest

from api.console.record_decoding import SECONDS, RecordDecoding, Shown, decoding_of, hint_of
from api.console.record_view import Field
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.layout import SCHEMA_FILES
from log_tables.record import Record, input_batch
from log_tables.schemas.framing import KEY_HEADER, VALUE_HEADER, prefixed
from log_tables.schemas.schema import guid
from log_tables.store.store import open_store
from tests.kit.avro_values import written
from tests.kit.gateway import running_gateway
from tests.kit.partitions import append

FLIGHT = {"type": "record", "name": "flight", "fields": [{"name": "carrier", "type": "string"}]}
UNITED = written(FLIGHT, {"carrier": "UA"})
JSON = b'{"carrier":"UA"}'
NAMED = {"value.columns.format": "avro", "value.columns.schemas": "files"}
GUID = b"\x01" + bytes(range(16))


def topic_of(**configs: str) -> Topic:
    cluster = Cluster.open(open_store("memory://"))
    for schema_id in (17, guid(GUID[1:])):
        cluster.store.put(f"{SCHEMA_FILES}/{schema_id}.avsc", json.dumps(FLIGHT).encode())
    cluster.store.put(f"{SCHEMA_FILES}/18.json", b"{}")
    return create_topic(cluster, "t", configs=configs or NAMED)


def shown(record: Record, **configs: str) -> tuple[Shown, Shown]:
    """How the key and the value of a record are shown."""
    return next(RecordDecoding(topic_of(**configs), ManualClock()).of(input_batch([record], 0), 100))


def test_a_value_and_a_key_say_their_schema() -> None:
    key, value = shown(Record(prefixed(17, UNITED), key=prefixed(17, UNITED)))
    assert key == value == Shown(Field(JSON, len(JSON)), "Avro, schema 17")
    headers = [(VALUE_HEADER, GUID), (KEY_HEADER, GUID)]
    key, value = shown(Record(UNITED, key=UNITED, headers=headers))
    assert key == value == Shown(Field(JSON, len(JSON)), f"Avro, schema {guid(GUID[1:])}")


def test_long_json_is_cut() -> None:
    _, value = shown(Record(prefixed(17, written(FLIGHT, {"carrier": "x" * 200}))))
    assert value.json == Field(b'{"carrier":"' + b"x" * 88, 214)


def test_the_one_schema_of_a_topic_is_named_by_its_setting() -> None:
    configs = {"value.columns.format": "avro", "value.columns.schema": json.dumps(FLIGHT)}
    assert shown(Record(UNITED), **configs)[1].note == "Avro, value.columns.schema"


def test_json_may_name_a_schema_or_none() -> None:
    configs = {**NAMED, "value.columns.format": "auto"}
    assert shown(Record(prefixed(18, JSON)), **configs)[1] == Shown(
        Field(JSON, len(JSON)), "JSON Schema, schema 18"
    )
    assert shown(Record(JSON), **configs)[1] == Shown()


@pytest.mark.parametrize(
    ("value", "note"),
    [
        (
            prefixed(17, UNITED)[:-1],
            "not decoded: schema 17: /carrier has a length of 2, and 1 bytes are left",
        ),
        (
            prefixed(9, UNITED),
            "not decoded: schema 9 is not known: there is no schemas/files/9.avsc, .proto or .json",
        ),
        (JSON, "not decoded: the value names no schema"),
        (None, ""),
    ],
)
def test_what_is_not_decoded_says_why(value: bytes | None, note: str) -> None:
    assert shown(Record(value))[1] == Shown(None, note)


def test_a_key_that_names_no_known_schema_is_a_key_as_others() -> None:
    for key in (b"plain", bytes(8), prefixed(9, b"x")):
        assert shown(Record(None, key=key))[0] == Shown()


def test_a_page_decodes_for_seconds_and_then_shows_bytes() -> None:
    clock = ManualClock()
    decoding = RecordDecoding(topic_of(), clock)
    clock.advance(int(SECONDS * 1_000))
    found = next(decoding.of(input_batch([Record(prefixed(17, UNITED))], 0), 100))
    assert found[1] == Shown(None, "not decoded, as the 2 seconds of this page are over")


def test_json_is_not_decoded_and_what_looks_like_a_schema_id_gets_a_hint() -> None:
    assert decoding_of(topic_of(**{"value.columns.format": "json"}), ManualClock()) is None
    assert hint_of(Field(prefixed(17, UNITED), 9)) == "looks like schema id 17; set value.columns.format"
    for value in (None, b"", JSON, bytes(8), b"\0\0\0\1"):
        assert hint_of(Field(value, 9)) == ""


def test_pages_show_json_its_schema_and_the_bytes(tmp_path: Path) -> None:
    cluster = Cluster.open(open_store(tmp_path))
    cluster.store.put(f"{SCHEMA_FILES}/17.avsc", json.dumps(FLIGHT).encode())
    for name, configs in (("avro", NAMED), ("plain", {})):
        partition = create_topic(cluster, name, 1, configs).partition(0)
        partition.claim("")
        append(partition, prefixed(17, UNITED))

    def text(path: str) -> str:
        answer = gateway.client.get(f"/console/topics/{path}")
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())

    with running_gateway(tmp_path) as gateway:
        assert '{"carrier":"UA"} Avro, schema 17' in text("avro/messages")
        one = text("avro/messages?partition=0&offset=0")
        assert 'Avro, schema 17 {"carrier":"UA"} Its bytes 00000000 00 00 00 00 11 04 55 41' in one
        assert "Download the value, 8 B" in one
        assert "looks like schema id 17; set value.columns.format" in text("plain/messages")
