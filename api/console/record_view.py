"""Keys and values as a page shows them: JSON printed with indents, text, or a dump of bytes. Pure."""

import re
from typing import Literal, NamedTuple

import msgspec

from api.console.page import hidden_count, one_line

LINE_CHARS = 160
KEY_CHARS = 48
"""Characters of a value, and of a key, that stand in a row; the rest is folded below."""

PRETTY_GROWTH = 4
"""How many times longer JSON may become by its indents: deep JSON could take megabytes."""

HIDDEN_PART, SHORT_CHARS = 8, 100
"""A text that is not short is dumped if more than one in so many of its characters cannot be seen: it takes
thirty characters of a page to mark each.
"""

DUMP_BYTES = 4_096
"""Bytes that are dumped: a line of 75 characters for each 16."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_INDENT = 2
_DUMP_WIDTH = 16

Kind = Literal["null", "empty", "json", "text", "bytes"]


class Field(NamedTuple):
    """The beginning of a key or a value, and how many bytes all of it has; None is no value."""

    data: bytes | None
    size: int


class View(NamedTuple):
    """A key or value on a page. `line` is its beginning, `whole` all that is shown, and empty where that is
    the line; `cut` says that there is more than is shown.
    """

    kind: Kind
    line: str
    whole: str
    size: int
    cut: bool


def view_of(content: Field, chars: int = LINE_CHARS) -> View:
    """How a key or value is shown, with a line of so many characters."""
    data, size = content
    if data is None:
        return View("null", "null", "", 0, False)
    if not data:
        return View("empty", "empty", "", 0, False)
    text, cut = _text(data, len(data) < size), len(data) < size
    if text is None or _is_hidden(text):
        return dump_of(content)
    pretty = None if cut else _pretty(data)
    kind: Kind = "text" if pretty is None else "json"
    shown = text if pretty is None else pretty
    line = one_line(text, chars)
    # A text that the line shows as it is need not be shown twice.
    is_whole = len(text) <= chars and line == text and not cut
    return View(kind, line + ("" if len(text) <= chars else "…"), "" if is_whole else shown, size, cut)


def _text(data: bytes, cut: bool) -> str | None:
    """`data` as UTF-8, of which the end may be cut off; None if it is none."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if cut and error.start > len(data) - 4 and error.reason == "unexpected end of data":
            return data[: error.start].decode()
        return None


def _is_hidden(text: str) -> bool:
    return len(text) > SHORT_CHARS and HIDDEN_PART * hidden_count(text) > len(text)


def _pretty(data: bytes) -> str | None:
    """JSON with indents, its numbers and the order of its fields as they are; None if `data` is none."""
    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        if _pretty_bytes(data) > max(PRETTY_GROWTH * len(data), 2 * DUMP_BYTES):
            return data.decode()
        return msgspec.json.format(data, indent=_INDENT).decode()
    except (msgspec.MsgspecError, RecursionError):
        return None


def _pretty_bytes(data: bytes) -> int:
    """At most how many bytes `data` has with indents. It must be JSON: in other text each quote that nothing
    closes is followed to the end.
    """
    deepest = depth = 0
    for token in _TOKEN.finditer(data):
        first = token[0][:1]
        depth += (first in b"[{") - (first in b"]}")
        deepest = max(deepest, depth)
    lines = data.count(b",") + 2 * (data.count(b"[") + data.count(b"{"))
    return len(data) + lines * (_INDENT * deepest + 2)


def dump_of(content: Field) -> View:
    """Bytes as hexadecimal digits and, where they are printable ASCII, characters."""
    shown, size = (content.data or b"")[:DUMP_BYTES], content.size
    lines = []
    for at in range(0, len(shown), _DUMP_WIDTH):
        part = shown[at : at + _DUMP_WIDTH]
        digits = part.hex(" ").ljust(3 * _DUMP_WIDTH - 1)
        lines.append(f"{at:08x}  {digits}  {_ascii(part)}")
    line = shown[:_DUMP_WIDTH].hex(" ") + (" …" if size > _DUMP_WIDTH else "")
    return View("bytes", line, "\n".join(lines), size, len(shown) < size)


def _ascii(part: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
