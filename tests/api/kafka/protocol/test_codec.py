"""Frames: their headers, what they share with the bytes they come in, and what is no frame."""

from typing import Any

import pytest
from kafka.protocol.api_header import RequestHeader as ForeignHeader

from api.kafka.protocol.apis import API_VERSIONS, HEARTBEAT
from api.kafka.protocol.codec import Malformed, decode, decode_request_header, encode, encode_response
from api.kafka.protocol.messages.cluster import (
    Cursor,
    DescribeTopicPartitionsRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from api.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from api.kafka.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from api.kafka.protocol.messages.handshake import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from api.kafka.protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from api.kafka.protocol.primitives import Fragments


def header(api_key: int, version: int, client_id: str | None, *, flexible: bool) -> bytes:
    """The header of a request as kafka-python makes it."""
    made = ForeignHeader(
        request_api_key=api_key, request_api_version=version, correlation_id=-7, client_id=client_id
    )
    return bytes(made.encode(flexible=flexible))


@pytest.mark.parametrize("client_id", [None, "", "consumer-é-1"])
@pytest.mark.parametrize("version", [3, 4])
def test_a_header_has_tags_from_the_first_flexible_version_on(version: int, client_id: str | None) -> None:
    data = header(HEARTBEAT, version, client_id, flexible=version == 4)
    found = decode_request_header(memoryview(data + b"body"))
    assert found == (HEARTBEAT, version, -7, client_id, len(data))


def test_unknown_tags_of_a_header_are_skipped() -> None:
    data = header(HEARTBEAT, 4, "c", flexible=True)[:-1] + bytes.fromhex("02 0502abcd c80100")
    assert decode_request_header(memoryview(data)).body_at == len(data)


@pytest.mark.parametrize(("api_key", "version"), [(API_VERSIONS, 99), (999, 0), (-1, -1), (HEARTBEAT, -1)])
def test_the_header_of_an_unknown_api_or_version_is_read(api_key: int, version: int) -> None:
    data = header(api_key, version, "c", flexible=api_key == API_VERSIONS)
    assert decode_request_header(memoryview(data))[:4] == (api_key, version, -7, "c")


@pytest.mark.parametrize("cut", range(14))
def test_a_header_that_ends_too_soon_is_malformed(cut: int) -> None:
    data = header(HEARTBEAT, 4, "abc", flexible=True)
    assert len(data) == 14
    with pytest.raises(Malformed):
        decode_request_header(memoryview(data)[:cut])


def test_an_answer_has_its_length_and_its_header() -> None:
    answer = HeartbeatResponse(error_code=27)
    plain, flexible = "0000000a 00000007 00000000 001b", "0000000c 00000007 00 00000000 001b 00"
    assert b"".join(encode_response(7, answer, 3)) == bytes.fromhex(plain)
    assert b"".join(encode_response(7, answer, 4)) == bytes.fromhex(flexible)


def test_the_header_of_api_versions_is_never_flexible() -> None:
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersion(api_key=18, max_version=4)])
    assert (
        b"".join(encode_response(7, answer, 0)).hex(" ", 4) == "00000010 00000007 00230000 00010012 00000004"
    )
    found = b"".join(encode_response(7, answer, 3))
    assert found == bytes.fromhex("00000013 00000007 0023 02 0012 0000 0004 00 00000000 00")


def test_records_are_views_of_the_frame_that_they_come_in() -> None:
    partition = PartitionProduceData(index=3, records=b"batches")
    request = ProduceRequest(topic_data=[TopicProduceData(name="flights", partition_data=[partition])])
    frame = memoryview(encode(request, 9))
    found = decode(ProduceRequest, 9, frame).topic_data[0].partition_data[0].records
    assert isinstance(found, memoryview)
    assert found.obj is frame.obj
    assert bytes(found) == b"batches"


def test_records_are_chunks_of_an_answer_as_they_are() -> None:
    records: list[bytes | bytearray | memoryview] = [memoryview(b"first"), bytearray(b"second"), b""]
    partitions = [PartitionData(partition_index=at, records=each) for at, each in enumerate(records)]
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=partitions)])
    chunks = encode_response(7, answer, 12)
    assert [chunk for chunk in chunks if any(chunk is each for each in records)] == records
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    assert decode(FetchResponse, 12, memoryview(frame)[9:]) == answer


def test_records_in_pieces_are_sent_as_they_are() -> None:
    def chunks(records: bytes | Fragments) -> list[Any]:
        partition = PartitionData(partition_index=1, records=records)
        answer = FetchResponse(responses=[FetchableTopicResponse(topic="flights", partitions=[partition])])
        return [*encode_response(7, answer, 12)]

    batch = (b"a header", memoryview(b"and records"))
    assert b"".join(chunks(Fragments(batch))) == b"".join(chunks(b"".join(batch)))
    assert [chunk for chunk in chunks(Fragments(batch)) if any(chunk is each for each in batch)] == [*batch]


@pytest.mark.parametrize("version", [2, 14, -1])
def test_a_version_that_is_not_described_is_the_callers_mistake(version: int) -> None:
    with pytest.raises(ValueError, match=f"ProduceRequest has no version {version}") as refused:
        decode(ProduceRequest, version, memoryview(b""))
    assert not isinstance(refused.value, Malformed)
    with pytest.raises(ValueError, match="has no version"):
        encode(ProduceRequest(), version)


def test_bytes_after_a_message_are_ignored_as_kafka_does() -> None:
    request = HeartbeatRequest(group_id="g", generation_id=4, member_id="m")
    assert decode(HeartbeatRequest, 3, memoryview(encode(request, 3) + b"more")) == request


def test_unknown_tags_are_skipped() -> None:
    request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
    data = encode(request, 4)
    tags = bytes.fromhex("02 00 03 aabbcc ff7f 00")
    assert decode(ApiVersionsRequest, 4, memoryview(data[:-1] + tags)) == request


def test_an_unknown_tag_stands_before_and_after_known_ones() -> None:
    partition = PartitionProduceResponse(error_code=6, current_leader=LeaderIdAndEpoch(leader_id=2))
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    known = bytes.fromhex("01 00 09 00000002 ffffffff 00")
    data = encode(answer, 10)
    assert data.count(known) == 1
    more = bytes.fromhex("03 09 01 ff") + known[1:] + bytes.fromhex("07 00")
    assert decode(ProduceResponse, 10, memoryview(data.replace(known, more))) == answer


@pytest.mark.parametrize("tag", ["01 00 08 00000002 ffffffff", "01 00 0a 00000002 ffffffff 0000"])
def test_a_known_tag_of_another_length_is_malformed(tag: str) -> None:
    partition = PartitionProduceResponse(current_leader=LeaderIdAndEpoch(leader_id=2))
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition])])
    known = bytes.fromhex("01 00 09 00000002 ffffffff 00")
    with pytest.raises(Malformed):
        decode(ProduceResponse, 10, memoryview(encode(answer, 10).replace(known, bytes.fromhex(tag))))


@pytest.mark.parametrize("cursor", [None, Cursor(topic_name="t", partition_index=5)])
def test_a_struct_may_be_null(cursor: Cursor | None) -> None:
    request = DescribeTopicPartitionsRequest(response_partition_limit=9, cursor=cursor)
    data = encode(request, 0)
    assert data.hex() == "0100000009" + ("ff" if cursor is None else "0102740000000500") + "00"
    assert decode(DescribeTopicPartitionsRequest, 0, memoryview(data)) == request


@pytest.mark.parametrize("version", [0, 1, 9])
def test_null_topics_are_null_where_a_version_has_null(version: int) -> None:
    data = {0: "ffffffff", 1: "ffffffff", 9: "00 01 00 00 00"}[version]
    body = memoryview(bytes.fromhex(data))
    if version == 0:
        with pytest.raises(Malformed, match=r"MetadataRequest\.topics must not be null"):
            decode(MetadataRequest, version, body)
    else:
        assert decode(MetadataRequest, version, body).topics is None


def test_text_that_is_no_utf_8_is_malformed() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="ab")])
    data = encode(request, 9).replace(b"ab", b"\xc3\x28")
    with pytest.raises(Malformed, match="no MetadataRequest of version 9"):
        decode(MetadataRequest, 9, memoryview(data))


def test_a_varint_of_six_bytes_is_malformed() -> None:
    with pytest.raises(Malformed, match="varint"):
        decode(MetadataRequest, 9, memoryview(bytes.fromhex("8080808080 01") + bytes(100)))
