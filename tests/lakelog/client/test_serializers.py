"""Keys and values as JSON: what a program sends as a dictionary comes back as one."""

from typing import Any

import pytest

import lakelog
from lakelog import json_deserializer, json_serializer
from tests.kit.gateway import RunningGateway

JSON: dict[str, Any] = {"key_deserializer": json_deserializer, "value_deserializer": json_deserializer}


@pytest.mark.parametrize(
    "content", [{"a": [1, 2.5, None, True], "é": "ü"}, [], "text", 0, 2**70, False, {"nested": {"b": ""}}]
)
def test_json_comes_back_as_it_was(content: object) -> None:
    assert json_deserializer(json_serializer(content)) == content


def test_json_is_compact_and_utf_8() -> None:
    assert json_serializer({"a": 1, "b": ["é"]}) == '{"a":1,"b":["é"]}'.encode()


@pytest.mark.parametrize(("content", "kind"), [(b"bytes", TypeError), (float("nan"), ValueError)])
def test_what_json_has_no_form_of_is_refused(content: object, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        json_serializer(content)


def test_records_are_serialized_and_deserialized_and_none_stays_none(
    gateway: RunningGateway, topic: str
) -> None:
    sent = [({"id": 1}, {"delay": 4}), ("N14228", [1]), (None, None)]
    with lakelog.Producer(
        gateway.url, key_serializer=json_serializer, value_serializer=json_serializer
    ) as producer:
        for key, value in sent:
            producer.send(topic, value, key, partition=0)
        with pytest.raises(TypeError):
            producer.send(topic, b"bytes", partition=0)
    with lakelog.Consumer(gateway.url, topic, topic, auto_offset_reset="earliest", **JSON) as consumer:
        found = [next(consumer) for _ in sent]
    assert [(record.key, record.value) for record in found] == sent
    with lakelog.Client(gateway.url) as client:
        assert [record.key for record in client.read(topic, 0)] == [b'{"id":1}', b'"N14228"', None]


def test_a_serializer_that_makes_no_bytes_is_named(gateway: RunningGateway, topic: str) -> None:
    with (
        lakelog.Producer(gateway.url, value_serializer=str) as producer,  # type: ignore[arg-type]
        pytest.raises(TypeError, match="the value is str, not bytes"),
    ):
        producer.send(topic, 1)


@pytest.mark.parametrize("last", [False, True])
def test_a_record_that_is_refused_is_raised_once_and_passed(
    gateway: RunningGateway, topic: str, last: bool
) -> None:
    values = [b"1", b"not json"] if last else [b"1", b"not json", b"2"]
    with lakelog.Producer(gateway.url) as producer:
        for value in values:
            producer.send(topic, value, partition=0)
    with lakelog.Consumer(gateway.url, topic, topic, auto_offset_reset="earliest", **JSON) as consumer:
        assert next(consumer).value == 1
        with pytest.raises(lakelog.InvalidRecord, match=f"the value at offset 1 of {topic}-0") as refused:
            next(consumer)
        assert refused.value.details == {"topic": topic, "partition": 0, "offset": 1}
        if last:
            with lakelog.Producer(gateway.url) as producer:
                producer.send(topic, b"2", partition=0)
        assert next(consumer).value == 2


def test_a_block_that_ends_by_a_refused_record_is_given_it_again(gateway: RunningGateway, topic: str) -> None:
    with lakelog.Producer(gateway.url) as producer:
        for value in (b"1", b"not json"):
            producer.send(topic, value, partition=0)
    with (
        pytest.raises(lakelog.InvalidRecord),
        lakelog.Consumer(gateway.url, topic, topic, auto_offset_reset="earliest", **JSON) as consumer,
    ):
        for _ in consumer:
            pass
    with lakelog.Consumer(gateway.url, topic, topic) as consumer:
        assert next(consumer).value == b"not json"
