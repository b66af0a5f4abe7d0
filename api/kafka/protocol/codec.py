"""Frames of Kafka's protocol: the headers of requests and answers, and the messages after them.

A frame is a length of four bytes and so many bytes: a header, then a message. Headers are of Kafka's
`RequestHeader` versions 1 and 2, and `ResponseHeader` versions 0 and 1 (KIP-482).
"""

import struct
from typing import NamedTuple, TypeVar

from api.kafka.protocol.apis import APIS
from api.kafka.protocol.decoder import decoder
from api.kafka.protocol.encoder import Chunk, encoder
from api.kafka.protocol.notation import Message
from api.kafka.protocol.primitives import Malformed, TooMany, no_room, read_varint, skip_tags
from log_tables.limits import KAFKA_ELEMENTS_MAX, KAFKA_INLINE_ELEMENTS, KAFKA_NAMES_MAX

__all__ = [
    "Chunk",
    "Malformed",
    "RequestHeader",
    "TooMany",
    "decode",
    "decode_request",
    "decode_request_header",
    "encode",
    "encode_response",
]

M = TypeVar("M", bound=Message)

_NOT_A_MESSAGE = (struct.error, IndexError, UnicodeDecodeError)

_request_head = struct.Struct(">hhih")
_answer_head = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """The first fields of every request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_at: int
    """Where the message begins, in bytes from the beginning of the frame, whose length is not part of it."""


def decode_request_header(frame: memoryview) -> RequestHeader:
    """The header of the request in `frame`, which begins after the length.

    Its API and version may be unknown. Then `body_at` means nothing.

    Raises Malformed: the bytes are no header.
    """
    try:
        api_key, api_version, correlation_id, length = _request_head.unpack_from(frame, 0)
        at = _request_head.size
        client_id = None
        if length >= 0:
            if length > len(frame) - at:
                raise no_room("client_id", length)
            client_id = str(frame[at : at + length], "utf-8")
            at += length
        api = APIS.get(api_key)
        if api and api_version >= api.first_flexible:
            count, at = read_varint(frame, at)
            at, _ = skip_tags(frame, at, count, KAFKA_INLINE_ELEMENTS)
    except _NOT_A_MESSAGE as error:
        raise Malformed(f"no header of a request: {error}") from error
    return RequestHeader(api_key, api_version, correlation_id, client_id, at)


def decode(message: type[M], version: int, body: memoryview) -> M:
    """The `message` in `version` that `body` is. Records in it are views of `body`.

    Bytes after the message are ignored, as Kafka does.

    Raises Malformed: it is no such message, or has more than KAFKA_ELEMENTS_MAX elements in its arrays.
    ValueError: the message has no such version.
    """
    return _decoded(message, version, body, (KAFKA_ELEMENTS_MAX, KAFKA_ELEMENTS_MAX))[0]


def decode_request(
    message: type[M], version: int, body: memoryview, most: int = KAFKA_ELEMENTS_MAX
) -> tuple[M, int]:
    """As `decode`, the `message` that a client has sent, and how many elements it has.

    Raises TooMany for more than `most`, or more than KAFKA_NAMES_MAX in one array; and as `decode`.
    """
    return _decoded(message, version, body, (most, KAFKA_NAMES_MAX))


def _decoded(message: type[M], version: int, body: memoryview, bounds: tuple[int, int]) -> tuple[M, int]:
    read = decoder(message, version)
    try:
        made, left = read(body, *bounds)
    except _NOT_A_MESSAGE as error:
        raise Malformed(f"no {message.__name__} of version {version}: {error}") from error
    return made, bounds[0] - left


def encode(message: Message, version: int) -> bytes:
    """`message` in `version`, without a header. ValueError: it has no such version."""
    return b"".join(encoder(type(message), version)(message, bytearray()))


def encode_response(correlation_id: int, response: Message, version: int) -> list[Chunk]:
    """The whole frame of `response`, with its length and its header, as chunks in their order.

    Records are chunks of their own, as they were given. ValueError: the message has no such version.
    """
    out = bytearray(_answer_head.pack(0, correlation_id))
    if response.flexible_header and version >= response.first_flexible:
        out.append(0)
    chunks = encoder(type(response), version)(response, out)
    struct.pack_into(">i", out, 0, sum(map(len, chunks)) - 4)
    return chunks
