"""Long lists of JSON, decoded some items at a time, and freed so.

One call of a decoder holds the interpreter's lock, and with it the event loop, however many threads there
are. So does the end of a list with a hundred thousand objects.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
import numpy as np

from api.wire.json_bounds import CLOSING, COMMA, OPENING, marks
from api.wire.offload import is_large_json
from log_tables.limits import DECODED_AT_ONCE_BYTES, DECODED_AT_ONCE_MARKS, FREED_AT_ONCE

Item = TypeVar("Item")
Message = TypeVar("Message")

_KEPT_OF_MARKS = DECODED_AT_ONCE_MARKS // 8
"""Of so many marks one comma is kept at which a list may be cut."""

_BYTE = re.compile(r"\(byte (\d+)\)")
_INDEX = re.compile(r"\$\[(\d+)\]")
_name = msgspec.json.Decoder(str)


def free(items: list[Any]) -> None:
    """Empty a list that nobody needs any longer, some items at a time."""
    while items:
        del items[-FREED_AT_ONCE:]


class _Span(NamedTuple):
    """An array or an object within a text: where it begins and ends, and where what it belongs to begins.

    `cuts` are commas between its items at which it is parted, with the number of the item after each.
    """

    before: int
    begin: int
    end: int
    cuts: Sequence[tuple[int, int]]

    def pieces(self) -> Iterator[tuple[int, int, int]]:
        """(begin, end, number of the first item) of each part."""
        begin, first = self.begin + 1, 0
        for cut, number in self.cuts:
            yield begin, cut, first
            begin, first = cut + 1, number
        yield begin, self.end, first


class LongListDecoder(Generic[Item]):
    """Decodes a text that is one list."""

    def __init__(self, kind: Any) -> None:
        """`kind` is the type of the items."""
        self._some = msgspec.json.Decoder(list[kind])

    def decode(self, text: bytes) -> list[Item]:
        """All items. Raises as msgspec's decoder, in its words."""
        long = [span for span in _spans(text, 1) if span.cuts][:1] if is_large_json(text) else []
        found = _decoded(self._some, text, long)
        for span in long:
            found = self.items(text, span, "$")
        return found

    def items(self, text: bytes, span: _Span, name: str) -> list[Item]:
        """The items of the list at `span` of `text`; errors call it `name`."""
        found: list[Item] = []
        for begin, end, first in span.pieces():
            try:
                found += self._some.decode(b"[%b]" % text[begin:end])
            except msgspec.DecodeError as error:
                raise _at(error, name, first, [(0, begin - 1)]) from None
        return found


class LongListsDecoder(Generic[Message]):
    """Decodes an object whose fields may be long lists."""

    def __init__(self, kind: type[Message]) -> None:
        self._whole = msgspec.json.Decoder(kind)
        self._lists: dict[str, tuple[Any, LongListDecoder[Any]]] = {
            field.encode_name: (get_origin(field.type), LongListDecoder(get_args(field.type)[0]))
            for field in msgspec.structs.fields(kind)  # type: ignore[arg-type]
            if get_origin(field.type) in (list, tuple)
        }

    def decode(self, text: bytes) -> Message:
        """The object. Raises as msgspec's decoder, in its words."""
        long = self._long(text) if is_large_json(text) else {}
        found = _decoded(self._whole, text, [*long.values()])
        for name, span in long.items():
            made, decoder = self._lists[name]
            setattr(found, name, made(decoder.items(text, span, f"$.{name}")))
        return found

    def _long(self, text: bytes) -> dict[str, _Span]:
        """The long lists by field, as they stand in `text`. The last value of a field counts."""
        spans = _spans(text, 2)
        if not any(span.cuts for span in spans):
            return {}
        by_name = {_field(text, span): span for span in spans}
        found = {name: span for name, span in by_name.items() if span.cuts and name in self._lists}
        return dict(sorted(found.items(), key=lambda each: each[1].begin))


def _decoded(decoder: "msgspec.json.Decoder[Message]", text: bytes, emptied: Sequence[_Span]) -> Message:
    """`text` as `decoder` decodes it, with these lists empty."""
    removed = [(span.begin + 1, span.end - span.begin - 1) for span in emptied]
    kept, begin = [], 0
    for at, size in removed:
        kept.append(text[begin:at])
        begin = at + size
    try:
        return decoder.decode(b"".join([*kept, text[begin:]]) if removed else text)
    except msgspec.DecodeError as error:
        raise _at(error, "$", 0, removed) from None


def _field(text: bytes, span: _Span) -> str:
    """The name before a value; empty where there is none."""
    try:
        return _name.decode(text[span.before + 1 : span.begin].rstrip(b" \t\r\n:"))
    except msgspec.DecodeError:
        return ""


class _Marks(NamedTuple):
    """Marks above the items of lists, and some of the commas between these: where they are, which, how deep
    it is after them, how many marks are before each, and how many commas between items up to it.
    """

    positions: np.ndarray
    kinds: np.ndarray
    depths: np.ndarray
    ordinals: np.ndarray
    commas: np.ndarray


def _spans(text: bytes, depth: int) -> list[_Span]:
    """The arrays and objects of `text` whose items stand at `depth`. Objects have no cuts."""
    near = _near(text, depth)
    is_between = (near.kinds == COMMA) & (near.depths == depth)
    opens = np.flatnonzero(OPENING[near.kinds] & (near.depths == depth))
    closes = np.flatnonzero(CLOSING[near.kinds] & (near.depths == depth - 1))
    spans = []
    for number, opening in enumerate(opens.tolist()):
        closing = int(closes[number]) if number < len(closes) else len(near.positions)
        end = int(near.positions[closing]) if closing < len(near.positions) else len(text)
        before = int(near.positions[opening - 1]) if opening else -1
        cuts: Sequence[tuple[int, int]] = ()
        if near.kinds[opening] == ord("[") and closing - opening > 1:
            kept = opening + 1 + np.flatnonzero(is_between[opening + 1 : closing])
            last = int(near.commas[min(closing, len(near.commas) - 1)])
            cuts = [*_cuts(_Marks(*(column[[opening, *kept]] for column in near)), last)]
        spans.append(_Span(before, int(near.positions[opening]), end, cuts))
    return spans


def _near(text: bytes, depth: int) -> _Marks:
    """The marks of `text` near `depth`. Few of the commas are kept, as there may be very many."""
    found, count, between = [], 0, 0
    for positions, kinds, depths in marks(text):
        is_between = (kinds == COMMA) & (depths == depth)
        commas = between + np.cumsum(is_between)
        ordinals = count + np.arange(len(positions))
        candidates = np.flatnonzero(is_between)
        _, first = np.unique(ordinals[candidates] // _KEPT_OF_MARKS, return_index=True)
        above = (depths < depth) | (OPENING[kinds] & (depths == depth))
        kept = np.union1d(np.flatnonzero(above), candidates[first])
        found.append(_Marks(positions[kept], kinds[kept], depths[kept], ordinals[kept], commas[kept]))
        count, between = count + len(positions), int(commas[-1]) if len(commas) else between
    return _Marks(*map(np.concatenate, zip(*found, strict=True)))


def _cuts(near: _Marks, last: int) -> Iterator[tuple[int, int]]:
    """Some of the commas of a list, whose first mark opens it; never the `last` one, so that a list which
    ends in a comma is met as such.
    """
    at = 0
    while True:
        by_marks = np.searchsorted(near.ordinals, near.ordinals[at] + DECODED_AT_ONCE_MARKS)
        by_bytes = np.searchsorted(near.positions, near.positions[at] + DECODED_AT_ONCE_BYTES)
        at = max(at + 1, int(min(by_marks, by_bytes)))
        if at >= len(near.positions) or near.commas[at] >= last:
            return
        yield int(near.positions[at]), int(near.commas[at] - near.commas[0])


def _at(
    error: msgspec.DecodeError, name: str, first: int, removed: Sequence[tuple[int, int]]
) -> msgspec.DecodeError:
    """An error of a part of a text, with the places that it has in the whole: `name` is the list whose item
    `first` comes first there, `removed` the place and length of each piece that is not in the part.
    """

    def byte(found: re.Match[str]) -> str:
        place = int(found[1])
        for at, size in removed:
            place += size if place >= at else 0
        return f"(byte {place})"

    text = _BYTE.sub(byte, str(error))
    if name != "$" or first:
        text = _INDEX.sub(lambda found: f"{name}[{first + int(found[1])}]", text, count=1)
    return type(error)(text)
