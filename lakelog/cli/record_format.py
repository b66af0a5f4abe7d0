"""How `lakelog consume` prints a record: its value, JSON, or the fields of a format, as kcat has them."""

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from lakelog.cli.common import as_text, printable
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from log_tables.record import Record

Print = Callable[[str, int, "Record"], bytes]
"""The bytes to print for a record, from its topic, its partition and the record."""

_FIELDS: dict[str, Print] = {
    "t": lambda topic, _partition, _record: topic.encode(),
    "p": lambda _topic, partition, _record: b"%d" % partition,
    "o": lambda _topic, _partition, record: b"%d" % (record.offset or 0),
    "k": lambda _topic, _partition, record: shown(record.key),
    "K": lambda _topic, _partition, record: b"%d" % _length(record.key),
    "s": lambda _topic, _partition, record: shown(record.value),
    "S": lambda _topic, _partition, record: b"%d" % _length(record.value),
    "T": lambda _topic, _partition, record: b"%d" % _timestamp_ms(record),
    "h": lambda _topic, _partition, record: _headers(record),
    "%": lambda _topic, _partition, _record: b"%",
}
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(
    r"%(?P<field>.?)|\\(?:x(?P<code>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL
)


def shown(data: bytes | None) -> bytes:
    """`data` as it is for a program; on a terminal without what would control that."""
    if data is None:
        return b""
    return printable(data.decode(errors="backslashreplace")).encode() if sys.stdout.isatty() else data


def value_line(_topic: str, _partition: int, record: "Record") -> bytes:
    """The value, and a line's end. A record without a value is an empty line."""
    return shown(record.value) + b"\n"


def json_line(topic: str, partition: int, record: "Record") -> bytes:
    """The whole record as a line of JSON."""
    import msgspec

    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": _timestamp_ms(record),
        **as_text("key", record.key),
        **as_text("value", record.value),
        "headers": [{"key": key, **as_text("value", value)} for key, value in record.headers],
    }
    return msgspec.json.encode(row) + b"\n"


def formatted(text: str) -> Print:
    r"""A function that prints records in the format `text`, such as `%k %s\n`. Raises InvalidArgument."""
    parts = [_part(match, text) for match in _PARTS.finditer(text)]

    def line(topic: str, partition: int, record: "Record") -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(topic, partition, record) for part in parts)

    return line


def unescaped(text: str, option: str) -> bytes:
    r"""`text` with its escapes (`\t`, `\x1f`) as the bytes that they stand for. Raises InvalidArgument."""
    escaped = (
        _literal(match, option, text) if match["field"] is None else match[0].encode()
        for match in _PARTS.finditer(text)
    )
    return b"".join(escaped)


def _part(match: re.Match[str], text: str) -> bytes | Print:
    if match["field"] is None:
        return _literal(match, "--format", text)
    field = _FIELDS.get(match["field"])
    if field is None:
        fields = " ".join(f"%{name}" for name in _FIELDS)
        raise InvalidArgument(f"--format {text!r} has {match[0]!r}, which is no field; use {fields}")
    return field


def _literal(match: re.Match[str], option: str, text: str) -> bytes:
    if match["text"] is not None:
        return match["text"].encode()
    if match["code"] is not None:
        return bytes.fromhex(match["code"])
    found = _ESCAPES.get(match["escape"])
    if found is None:
        escapes = " ".join(f"\\{name}" for name in _ESCAPES)
        raise InvalidArgument(f"{option} {text!r} has {match[0]!r}, which is no escape; use {escapes} \\xNN")
    return found


def _length(data: bytes | None) -> int:
    """Bytes of a key or value; -1 where there is none, as in kcat."""
    return -1 if data is None else len(data)


def _timestamp_ms(record: "Record") -> int:
    return (record.timestamp_us or 0) // 1000


def _headers(record: "Record") -> bytes:
    return b",".join(shown(name.encode()) + b"=" + shown(value) for name, value in record.headers)
