"""Bodies that come compressed (RFC 9110, 8.4): which codings are taken, and unpacking within bounds."""

from functools import partial

import pyarrow as pa
from starlette.types import Scope

from api.errors import MalformedBody, RequestTooLarge, UnsupportedMediaType
from api.requests.heads import listed
from api.wire.inflate import inflate_stream
from api.wire.room import hold
from ingest.buffer import Room

_CODECS = {"gzip": "gzip", "x-gzip": "gzip", "zstd": "zstd"}
"""The codings that are taken, and Arrow's names of their codecs."""

IDENTITY = "identity"


def coding_of(scope: Scope) -> str | None:
    """The coding of a body with records; None for one that is sent as it is.

    Raises UnsupportedMediaType for one that is not known, and for a body that is coded more than once.
    """
    found = [each for each in listed(scope, b"content-encoding") if each != IDENTITY]
    if not found:
        return None
    if len(found) > 1 or found[0] not in _CODECS:
        raise UnsupportedMediaType(
            f"Content-Encoding {', '.join(found)[:40]!r} is not taken; send gzip, zstd or identity, and one "
            "of them only"
        )
    return found[0]


def unpacked(packed: bytes, coding: str, room: Room, most_bytes: int) -> bytes:
    """The body that `packed` stands for; `room`, which holds `packed`, holds it then.

    Raises MalformedBody for one that is not whole; RequestTooLarge for more than `most_bytes`, and where
    there is never so much room; BufferFull.
    """
    reserve = partial(_hold_besides, room, len(packed))
    try:
        body = inflate_stream(packed, _CODECS[coding], most_bytes, reserve)
    except (OSError, pa.ArrowException) as error:
        raise MalformedBody(f"the body is no whole {coding}: {error}; send all of it again") from None
    if body is None:
        raise RequestTooLarge(
            f"the body unpacks to more than the {most_bytes} bytes that are allowed; send less at once"
        )
    room.settle(len(body))
    return body


def _hold_besides(room: Room, besides_bytes: int, size_bytes: int) -> None:
    hold(room, besides_bytes + size_bytes)
