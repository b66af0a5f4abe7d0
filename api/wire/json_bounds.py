"""The memory that the JSON of a request takes, counted on its bytes before they are decoded.

A record of three bytes, `{},`, becomes objects of a hundred times that size. The inside of a value stays
text, so that only the outer levels are counted.
"""

import codecs
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np

from api.errors import MalformedBody, RequestTooLarge
from api.media import Format
from api.wire.offload import is_large_json
from api.wire.room import hold, settle
from ingest.buffer import Room
from log_tables.limits import (
    BODY_DEPTH_MAX,
    JSON_FIELD_BYTES,
    JSON_HEADER_BYTES,
    REQUEST_RECORDS_MAX,
    SMALL_BODY_VALUES_MAX,
    SMALL_VALUE_BYTES,
)

Decoded = TypeVar("Decoded")

IN_LIST_DEPTH = 3
"""The depth of a record in `{"records": [{…}]}`, or of an entry of a batch."""

ALONE_DEPTH = 1
"""The depth of a record that stands by itself."""

DEEP_MIN_BYTES = 2 * BODY_DEPTH_MAX
"""A shorter text is not too deep: each array or object takes two bytes."""

_PIECE_BYTES = 64 * 1024
_QUOTE, COMMA, _OPENS = ord('"'), ord(","), ord("{")
_STEPS = np.zeros(256, np.int64)
_STEPS[[*b"{["]] = 1
_STEPS[[*b"}]"]] = -1
OPENING, CLOSING = _STEPS > 0, _STEPS < 0
"""Which marks begin an array or an object, and which end one."""

_IS_MARK = np.zeros(256, bool)
_IS_MARK[[*b'{}[],"']] = True


class _Marks(NamedTuple):
    """Braces, brackets and commas outside of strings: where they are, which, how deep it is after them."""

    positions: np.ndarray
    kinds: np.ndarray
    depths: np.ndarray


def marks(body: bytes) -> Iterator[_Marks]:
    """The marks of `body`, some at a time, so that memory stays small."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    quotes = depth = 0
    for start in range(0, len(body), _PIECE_BYTES):
        piece = np.frombuffer(body, np.uint8, min(_PIECE_BYTES, len(body) - start), start)
        positions = np.flatnonzero(_IS_MARK[piece])
        kinds = piece[positions]
        is_quote = kinds == _QUOTE
        so_far = quotes + np.cumsum(is_quote)
        outside = ~is_quote & (so_far % 2 == 0)
        quotes += int(np.count_nonzero(is_quote))
        positions, kinds = positions[outside], kinds[outside]
        depths = depth + np.cumsum(_STEPS[kinds])
        yield _Marks(positions + start, kinds, depths)
        depth = int(depths[-1]) if len(depths) else depth


def bounded_cost(body: bytes, depth: int) -> int:
    """About how many bytes the records of `body`, which stand at `depth`, take while they are decoded.

    Raises RequestTooLarge when there are too many of them.
    """
    records = separators = named = fields = headers = 0
    for _, kinds, depths in marks(body):
        commas, opens = kinds == COMMA, kinds == _OPENS
        records += _count(opens & (depths == depth))
        separators += _count(commas & (depths == depth - 1))
        named += _count(commas & (depths == depth - 2))
        fields += _count(commas & (depths == depth)) + _count(opens & (depths == depth + 1))
        headers += _count(opens & (depths == depth + 2))
        check_count(max(records, separators, named) if depth > ALONE_DEPTH else records)
    return (records + separators + fields) * JSON_FIELD_BYTES + headers * JSON_HEADER_BYTES


def item_count(body: bytes) -> int:
    """How many items the JSON array `body` has at most. Raises RequestTooLarge when they are too many."""
    items = 1
    for _, kinds, depths in marks(body):
        items += _count((kinds == COMMA) & (depths == 1))
        check_count(items)
    return items


def decoded_within(
    room: Room,
    body: bytes,
    depth: int,
    decode: Callable[[bytes], Decoded],
    size_bytes: Callable[[Decoded], int],
    form: Format | None = None,
) -> Decoded:
    """The records of `body`, which stand at `depth`, as `decode` makes them.

    `room` holds the body and what it takes to decode it, and afterwards `size_bytes` of what was decoded.
    Raises RequestTooLarge when the records are too many, or could never fit; BufferFull; what `decode`
    raises.
    """
    hold(room, len(body) + decoding_cost(body, depth, form))
    decoded = decode(body)
    settle(room, size_bytes(decoded))
    return decoded


def decoding_cost(text: bytes, depth: int, form: Format | None = None) -> int:
    """About how many bytes the records of `text` take while they are decoded; 0 if those are few, which are
    decoded one request at a time: on the event loop. Raises RequestTooLarge when there are too many of them.
    """
    if not is_large_json(text):
        return 0
    return bounded_cost(text, depth) + (text_cost(text) if form is Format.TEXT else len(text))


def check_depth(text: bytes | memoryview) -> None:
    """Raise MalformedBody when arrays and objects of the JSON `text` are too deep within one another."""
    if len(text) < DEEP_MIN_BYTES:
        return
    whole = bytes(text)
    if whole.count(b"[") + whole.count(b"{") <= BODY_DEPTH_MAX:
        return
    for _, _, depths in marks(whole):
        if len(depths) and depths.max() > BODY_DEPTH_MAX:
            raise too_deep()


def too_deep() -> MalformedBody:
    """The error for a JSON value that is deeper than allowed, which a decoder could not follow."""
    return MalformedBody(
        f"a value has more than {BODY_DEPTH_MAX} arrays or objects within one another; make it flatter, or "
        "send it as binary"
    )


def documents(body: bytes) -> Iterator[memoryview]:
    """The JSON objects of `body`, which stand one after the other. Raises MalformedBody for a rest."""
    begin, whole = 0, memoryview(body)
    for positions, kinds, depths in marks(body):
        for end in positions[(depths <= 0) & CLOSING[kinds]].tolist():
            yield whole[begin : end + 1]
            begin = end + 1
    if body[begin:].strip(b" \t\r\n"):
        raise MalformedBody(
            f"the body is not JSON records one after the other: what begins at byte {begin} does not end"
        )


def check_count(records: int) -> None:
    """Raise RequestTooLarge when a request has more than REQUEST_RECORDS_MAX records."""
    if records > REQUEST_RECORDS_MAX:
        raise RequestTooLarge(
            f"the request has {records} records or more, {REQUEST_RECORDS_MAX} are allowed; send fewer, or "
            "send them as Arrow"
        )


def check_utf8(body: bytes) -> None:
    """Raise MalformedBody unless `body` is UTF-8: the JSON decoder does not look inside what it keeps raw."""
    if body.isascii():
        return
    start = 0
    while start < len(body):
        try:
            # A character may go on behind the piece: then the next one begins with it.
            start += _decoded(body[start : start + _PIECE_BYTES], start + _PIECE_BYTES >= len(body))
        except UnicodeDecodeError as error:
            raise MalformedBody(f"the body is not UTF-8 at byte {start + error.start}; send UTF-8") from None


def _decoded(piece: bytes, last: bool) -> int:
    return codecs.utf_8_decode(piece, "strict", last)[1]


def small_cost(body: bytes) -> int:
    """About how many bytes the values of a body without records take. Raises RequestTooLarge."""
    values = body.count(b",") + body.count(b"{") + body.count(b"[")
    if values > SMALL_BODY_VALUES_MAX:
        raise RequestTooLarge(
            f"the body has about {values} values, {SMALL_BODY_VALUES_MAX} are allowed; send less at once"
        )
    return values * SMALL_VALUE_BYTES


def work_cost(text: bytes) -> int:
    """About how many bytes the parts of one JSON text take, when all of it is decoded."""
    values = text.count(b",") + text.count(b"{") + text.count(b"[")
    return values * SMALL_VALUE_BYTES + text_cost(text)


def text_cost(body: bytes) -> int:
    """How many bytes the strings of `body` take at most while they are decoded."""
    if body.isascii():
        return len(body)
    # One character outside of the first plane makes all of its string take four bytes each.
    widest = int(np.frombuffer(body, np.uint8).max())
    return len(body) * (5 if widest >= 0xF0 else 3)


def _count(which: np.ndarray) -> int:
    return int(np.count_nonzero(which))
