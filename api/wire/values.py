"""Bare values, without fields around them: bodies of lines, arrays and tables, and what is one value whole.

Pure. The text of a JSON value stays as it was sent. So does a key, to which a JSON pointer (RFC 6901) leads.
"""

import codecs
import io
import itertools
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, BinaryIO

import msgspec

from api.errors import MalformedBody
from api.media import ValueFormat
from api.wire.csv_rows import json_rows
from api.wire.json_bounds import check_count, check_depth, check_utf8, item_count, too_deep
from api.wire.long_lists import LongListDecoder
from api.wire.offload import INLINE_MAX_BYTES, INLINE_MAX_ROWS, is_large_json
from api.wire.room import Reserve, hold, settle
from api.wire.v2 import unless_all_none
from ingest.buffer import Room
from log_tables.cluster.route import SentRecords
from log_tables.errors import InvalidArgument, InvalidRecord
from log_tables.limits import JSON_FIELD_BYTES, KEY_STEPS_MAX, NESTED_FIELD_MAX_BYTES
from log_tables.rows import Rows, bytes_of, rows_or_batch

_POINTER = re.compile(r'(?:/(?:[^~/"\\\x00-\x1f]|~[01])*)+')
"""Without what stands in JSON only behind a backslash: such fields cannot be looked for."""
_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_SHOWN_CHARS = 100
_raw_items = msgspec.json.Decoder(list[msgspec.Raw])

_BLANKS = b" \t\r\n"
_LIST = re.compile(rb"[ \t\r\n]*\[")
_text = msgspec.json.Decoder(msgspec.Raw)
_texts = LongListDecoder[msgspec.Raw](msgspec.Raw)


class JsonPointer:
    """A pointer to a field of values."""

    def __init__(self, text: str) -> None:
        """Raises InvalidArgument for a text that is no pointer to a field, or to one that is too deep."""
        if not _POINTER.fullmatch(text):
            raise InvalidArgument(
                f"{text[:_SHOWN_CHARS]!r} is no JSON pointer to a field; write /field, or /field/inner"
            )
        self._text = text
        self._steps = [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]
        if len(self._steps) > KEY_STEPS_MAX:
            raise InvalidArgument(
                f"{text[:_SHOWN_CHARS]!r} leads through {len(self._steps)} fields, {KEY_STEPS_MAX} are "
                "allowed; take the key from a field that is not so deep"
            )

    def find(self, value: bytes) -> bytes | None:
        """The JSON of the field in the JSON `value`; None if it is absent, or null.

        Raises InvalidRecord for an array on the way that is too large to look for an item.
        """
        found = value
        for step in self._steps:
            inner = self._inner(found, step)
            if inner is None:
                return None
            found = bytes(inner)
        return None if found == b"null" else found

    def _inner(self, text: bytes, step: str) -> msgspec.Raw | None:
        begin = text[:1]
        if begin == b"{":
            found = _field(step).decode(text).found
            return None if found is msgspec.UNSET else found
        if begin != b"[" or not _INDEX.fullmatch(step):
            return None
        if len(text) > NESTED_FIELD_MAX_BYTES:
            raise InvalidRecord(
                f"the array before {step} of {self._text[:_SHOWN_CHARS]!r} has {len(text)} bytes, an item is "
                f"looked for in {NESTED_FIELD_MAX_BYTES} at most; take the key from a field"
            )
        items = _raw_items.decode(text)
        return items[int(step)] if int(step) < len(items) else None


@lru_cache(maxsize=256)
def _field(name: str) -> msgspec.json.Decoder[Any]:
    """A decoder of objects that keeps the text of one field and skips all others; of two the last counts."""
    fields = [("found", msgspec.Raw | msgspec.UnsetType, msgspec.UNSET)]
    return msgspec.json.Decoder(msgspec.defstruct("_Field", fields, rename={"found": name}, gc=False))


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where the keys of values are: at a `pointer` into each, or one `text` for all; else there are none.

    Where the values are JSON, so are the keys.
    """

    pointer: JsonPointer | None = None
    text: str | None = None


def decode_values(
    body: bytes, form: ValueFormat, keys: KeySource, of_json: Collection[str], now_us: int, room: Room
) -> SentRecords:
    """The values of `body`, with the time `now_us`. `room` holds the body, and the records afterwards.

    Of CSV, the columns named in `of_json` have JSON. Raises MalformedBody, InvalidRecord, InvalidArgument,
    which name what is wrong and where; RequestTooLarge, BufferFull.
    """
    if form is ValueFormat.BYTES:
        sent = _whole(body, keys, now_us)
    else:
        check_utf8(body)
        sent = _sent(_DECODERS[form](body, partial(hold, room), of_json), keys, now_us, room)
    settle(room, bytes_of(sent.records))
    return sent


def is_much(body: bytes, form: ValueFormat) -> bool:
    """Whether decoding `body` is a lot of work."""
    if form is ValueFormat.BYTES:
        return False
    lines = body.count(b"\n")
    # Each row of CSV has all names of the header line in it, and a row may be a few commas.
    grown = lines * len(body) if form is ValueFormat.CSV else 0
    return is_large_json(body) or lines > INLINE_MAX_ROWS or grown > INLINE_MAX_BYTES


def _whole(body: bytes, keys: KeySource, now_us: int) -> SentRecords:
    if keys.pointer is not None:
        raise InvalidArgument(
            "key needs values that are JSON or CSV, and the Content-Type names another; name theirs, or take "
            "the key from a header with key_header"
        )
    if not body:
        raise _no_records()
    return SentRecords(Rows([body], now_us, None if keys.text is None else [keys.text.encode()]))


_Values = list[bytes]


def _sent(values: _Values, keys: KeySource, now_us: int, room: Room) -> SentRecords:
    if not values:
        raise _no_records()
    stored = [None if value == b"null" else value for value in values]
    found: list[bytes | None] | None = None
    if keys.text is not None:
        key = msgspec.json.encode(keys.text)
        hold(room, room.size_bytes + len(values) * len(key))  # each record gets its own
        found = [key] * len(values)
    elif keys.pointer is not None:
        found = unless_all_none([keys.pointer.find(value) for value in values])
    return SentRecords(rows_or_batch(Rows(stored, now_us, found)))


def _no_records() -> InvalidRecord:
    return InvalidRecord("there are no records; send at least one value")


def _lines(body: bytes, reserve: Reserve, _: Collection[str] = ()) -> _Values:
    """The values of NDJSON. Blank lines are none."""
    count = body.count(b"\n") + (not body.endswith(b"\n"))
    check_count(count)
    reserve(_cost(body, count))
    found = []
    for number, line in enumerate(body.split(b"\n"), 1):
        if text := json_of_line(line, number):
            found.append(text)
    return found


def json_of_line(line: bytes, number: int) -> bytes:
    """The JSON value of a line of NDJSON, which is UTF-8, as it is stored; empty for a blank line.

    Lines are numbered from 1: a byte order mark may stand before the first. Raises MalformedBody.
    """
    text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip(_BLANKS)
    if text:
        _check_depth(text, f"line {number}")
        try:
            _text.decode(text)
        except RecursionError:
            raise too_deep() from None
        except msgspec.DecodeError as error:
            raise MalformedBody(f"line {number} is not JSON: {error}; fix it, and send all again") from None
    return text


def rows_of_csv(
    text: BinaryIO,
    of_json: Collection[str],
    hold_row: Reserve = lambda _: None,
    skip: Callable[[], None] = lambda: None,
) -> Iterator[bytes]:
    """The JSON object of each row of CSV. `json_rows` says how, and what is raised."""
    for number, row in enumerate(json_rows(text, of_json, hold_row, skip), 1):
        _check_depth(row, f"row {number}")
        yield row


def _check_depth(text: bytes | msgspec.Raw, place: str) -> None:
    try:
        check_depth(text)
    except MalformedBody as error:
        raise MalformedBody(f"{place}: {error.message}") from None


def _json(body: bytes, reserve: Reserve, _: Collection[str]) -> _Values:
    """The items of an array, or one value; or the values of lines, which some senders call so."""
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        return [*_items(body, reserve)] if _LIST.match(body) else _one(body)
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError as error:
        if b"\n" in body.strip(_BLANKS):
            return _lines(body, reserve)
        raise MalformedBody(f"the body is not JSON: {error}; send an array of values, or one") from None


def _items(body: bytes, reserve: Reserve) -> Iterator[bytes]:
    reserve(_cost(body, item_count(body)))
    for number, item in enumerate(_texts.decode(body), 1):
        _check_depth(item, f"value {number}")
        yield bytes(item)  # a view would keep the whole body


def _one(body: bytes) -> _Values:
    text = body.strip(_BLANKS)
    if text:
        _text.decode(text)
        check_depth(text)
    return [text] if text else []


def _table(body: bytes, reserve: Reserve, of_json: Collection[str]) -> _Values:
    """The rows of CSV."""
    found: _Values = []
    made, lines = len(body), itertools.count(1)

    def hold_row(size: int) -> None:
        reserve(made + size)

    def next_line() -> None:
        check_count(next(lines))

    for text in rows_of_csv(io.BytesIO(body), of_json, hold_row, next_line):
        found.append(text)
        next_line()
        made += _cost(text, 1)
        reserve(made)
    return found


def _cost(text: bytes, count: int) -> int:
    """About the bytes that `count` values in `text` take while they become records: both, and their keys."""
    return 3 * len(text) + 2 * count * JSON_FIELD_BYTES


_DECODERS: dict[ValueFormat, Callable[[bytes, Reserve, Collection[str]], _Values]] = {
    ValueFormat.NDJSON: _lines,
    ValueFormat.JSON: _json,
    ValueFormat.CSV: _table,
}
