"""Bytes that are no message: Malformed and nothing else comes of them, and no memory is taken by a count."""

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kafka.protocol.codec import Malformed, decode, decode_request_header, encode
from api.kafka.protocol.messages.cluster import MetadataRequest, MetadataRequestTopic
from api.kafka.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from api.kafka.protocol.notation import Message
from log_tables.limits import KAFKA_ELEMENTS_MAX, KAFKA_TEXT_MAX_BYTES, MIB
from tests.kit.kafka_messages import MESSAGES, filled, in_version, messages
from tests.kit.models import short_form

HUGE = [bytes.fromhex(each) for each in ("7fffffff", "ffffffff0f", "ffffffff07", "80000000", "ffffffffff")]
"""Lengths and counts of both layouts: the largest, the smallest, and a varint that does not end."""

VERSIONS = [
    pytest.param(message, version, id=f"{message.__name__}-{version}")
    for message in MESSAGES
    for version in range(message.versions.first, message.versions.last + 1)
]


def refused(message: type[Message], version: int, data: bytes) -> bool:
    """Decode `data`: True if the decoder raises Malformed. Any other error fails the test, and a message that
    is decoded must encode again.
    """
    try:
        found = decode(message, version, memoryview(data))
    except Malformed:
        return True
    data = encode(found, version)  # compared as bytes: a number may be NaN, which no other is equal to
    assert encode(decode(message, version, memoryview(data)), version) == data
    return False


@pytest.mark.parametrize(("message", "version"), VERSIONS)
def test_a_message_that_ends_too_soon_is_malformed(message: type[Message], version: int) -> None:
    data = encode(in_version(filled(message), version), version)
    assert [cut for cut in range(len(data)) if not refused(message, version, data[:cut])] == []


@pytest.mark.parametrize(("message", "version"), VERSIONS)
def test_no_length_takes_memory(message: type[Message], version: int) -> None:
    data = encode(in_version(filled(message), version), version)
    refused(message, version, data)
    tracemalloc.start()
    try:
        for at in range(len(data)):
            for length in HUGE:
                refused(message, version, data[:at] + length + data[at + len(length) :])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


def check(message: type[Message], examples: settings) -> None:
    versions = st.integers(message.versions.first, message.versions.last)
    changes = st.lists(
        st.tuples(st.integers(0, 2**16), st.binary(min_size=1, max_size=6)), min_size=1, max_size=3
    )

    @examples
    @given(messages(message), versions, changes, st.booleans())
    def changed(drawn: Message, version: int, changes: list[tuple[int, bytes]], replaced: bool) -> None:
        data = encode(in_version(drawn, version), version)
        for place, piece in changes:
            at = place % (len(data) + 1)
            data = data[:at] + piece + data[at + replaced * len(piece) :]
        refused(message, version, data)

    @examples
    @given(versions, st.binary(max_size=200))
    def random(version: int, data: bytes) -> None:
        refused(message, version, data)

    changed()
    random()


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_changed_and_random_bytes_are_messages_or_malformed(message: type[Message]) -> None:
    check(message, short_form(15, 1))


@pytest.mark.torture
@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
def test_changed_and_random_bytes_are_messages_or_malformed_at_length(message: type[Message]) -> None:
    check(message, settings(max_examples=500))


@given(st.binary(max_size=40))
def test_random_bytes_are_a_header_or_malformed(data: bytes) -> None:
    try:
        assert decode_request_header(memoryview(data)).body_at <= len(data)
    except Malformed:
        pass


def test_as_many_elements_as_the_bound_says_are_decoded_and_no_more() -> None:
    topics = [MetadataRequestTopic()] * KAFKA_ELEMENTS_MAX
    assert decode(MetadataRequest, 9, memoryview(encode(MetadataRequest(topics=topics), 9))).topics == topics
    more = memoryview(encode(MetadataRequest(topics=[*topics, MetadataRequestTopic()]), 9))
    with pytest.raises(Malformed, match=r"MetadataRequest\.topics: 125001"):
        decode(MetadataRequest, 9, more)


def test_the_elements_of_nested_arrays_and_tags_count_together() -> None:
    partitions = [OffsetCommitRequestPartition()] * (KAFKA_ELEMENTS_MAX // 2)
    topics = [OffsetCommitRequestTopic(name=name, partitions=partitions) for name in "ab"]
    one = memoryview(encode(OffsetCommitRequest(topics=topics[:1]), 8))
    assert decode(OffsetCommitRequest, 8, one).topics == topics[:1]
    with pytest.raises(Malformed, match=r"OffsetCommitRequestTopic\.partitions: 62500"):
        decode(OffsetCommitRequest, 8, memoryview(encode(OffsetCommitRequest(topics=topics), 8)))
    tags = bytes.fromhex("c9d007") + bytes(2 * (KAFKA_ELEMENTS_MAX + 1))
    with pytest.raises(Malformed, match="tagged fields: 125001"):
        decode(OffsetCommitRequest, 8, memoryview(encode(OffsetCommitRequest(), 8)[:-1] + tags))


def test_a_text_is_as_long_as_kafkas_at_most() -> None:
    def named(size: int) -> bytes:
        return encode(MetadataRequest(topics=[MetadataRequestTopic(name="x" * size)]), 9)

    assert not refused(MetadataRequest, 9, named(KAFKA_TEXT_MAX_BYTES))
    assert refused(MetadataRequest, 9, named(KAFKA_TEXT_MAX_BYTES + 1))
