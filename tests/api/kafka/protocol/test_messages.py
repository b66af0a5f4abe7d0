"""Every message in every version, byte for byte as kafka-python's codec has it."""

import pytest
from hypothesis import given, settings

from api.kafka.protocol.codec import decode, encode
from api.kafka.protocol.notation import Message
from tests.kit.kafka_messages import (
    MESSAGES,
    foreign_bytes,
    foreign_default,
    foreign_round_trip,
    in_version,
    messages,
)
from tests.kit.models import short_form


def name(message: type[Message]) -> str:
    return message.__name__


def versions(message: type[Message]) -> range:
    return range(message.versions.first, message.versions.last + 1)


def check(message: type[Message], examples: settings) -> None:
    @examples
    @given(messages(message))
    def as_kafka_python(drawn: Message) -> None:
        for version in versions(message):
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
    for version in versions(message):
        assert encode(message(), version) == foreign_default(message, version)
