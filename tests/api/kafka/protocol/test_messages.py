"""Every message in every version, byte for byte as kafka-python's codec has it."""

import pytest
from hypothesis import given, settings

from api.kafka.protocol.codec import decode, encode
from api.kafka.protocol.messages.groups import DeletableGroupResult, DeleteGroupsResponse
from api.kafka.protocol.messages.handshake import ApiVersionsRequest
from api.kafka.protocol.notation import Message
from tests.kit.kafka_messages import (
    MESSAGES,
    foreign_bytes,
    foreign_default,
    foreign_round_trip,
    foreign_versions,
    in_version,
    messages,
)
from tests.kit.models import short_form


def name(message: type[Message]) -> str:
    return message.__name__


def check(message: type[Message], examples: settings) -> None:
    @examples
    @given(messages(message))
    def as_kafka_python(drawn: Message) -> None:
        for version in foreign_versions(message):
            ours = in_version(drawn, version)
            data = encode(ours, version)
            assert data == foreign_bytes(ours, version)
            assert decode(message, version, memoryview(data)) == ours
            assert foreign_round_trip(message, data, version) == data

    as_kafka_python()


@pytest.mark.parametrize("message", MESSAGES, ids=name)
def test_each_version_is_as_kafka_python_has_it(message: type[Message]) -> None:
    check(message, short_form(25, 1))


@pytest.mark.torture
@pytest.mark.parametrize("message", MESSAGES, ids=name)
def test_each_version_is_as_kafka_python_has_it_at_length(message: type[Message]) -> None:
    check(message, settings(max_examples=300))


@pytest.mark.parametrize("message", MESSAGES, ids=name)
def test_a_message_that_nothing_was_given_to_has_kafkas_defaults(message: type[Message]) -> None:
    for version in foreign_versions(message):
        assert encode(message(), version) == foreign_default(message, version)


def test_what_is_newer_than_kafka_python_is_as_kafka_4_4_has_it() -> None:
    asked = ApiVersionsRequest(cluster_id="c", node_id=7)
    assert encode(asked, 5) == b"\x01\x01\x02c\0\0\0\x07\0"
    assert encode(ApiVersionsRequest(), 5) == b"\x01\x01\0\xff\xff\xff\xff\0"
    deleted = DeleteGroupsResponse(results=[DeletableGroupResult("g", 68, "why")])
    assert encode(deleted, 3) == b"\0\0\0\0\x02\x02g\0\x44\x04why\0\0"
