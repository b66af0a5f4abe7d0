"""How `lakelog consume` prints a record: its value, JSON, or the fields of a format, as kcat has them."""

import base64
import re
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelog.cli.common import NULL, dimmed, printable
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from log_tables.record import Record

Print = Callable[[str, int, "Record"], bytes]
"""The bytes to print for a record, from its topic, its partition and the record."""


class ValueFormat(StrEnum):
    """How the bytes of a key, a value or a header are printed: the same for all records of a run.

    Those from `avro` on are decoded by the schemas that they name, and printed as JSON.
    """

    TEXT = "text"
    JSON = "json"
    BASE64 = "base64"
    HEX = "hex"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    JSON_SCHEMA = "json-schema"
    AUTO = "auto"

    @property
    def by_schema(self) -> bool:
        """Whether a schema decodes them."""
        return self in (ValueFormat.AVRO, ValueFormat.PROTOBUF, ValueFormat.JSON_SCHEMA, ValueFormat.AUTO)


class Formats(NamedTuple):
    """The formats of keys, of values and of the values of headers."""

    key: ValueFormat = ValueFormat.TEXT
    value: ValueFormat = ValueFormat.TEXT
    header: ValueFormat = ValueFormat.TEXT


At = tuple[str, int, "Record"]
"""A record and where it is: its topic, its partition, itself."""


def _wrong(at: At, name: str, what: str, other: str) -> InvalidArgument:
    topic, partition, record = at
    return InvalidArgument(
        f"the {name} at offset {record.offset} of topic {topic}, partition {partition}, is not {what}; "
        f"use --{name}-format {other}"
    )


def _as_line(name: str, form: ValueFormat, data: bytes | None, at: At) -> bytes:
    """`data` in a line of output; as text it is the bytes as they are. Raises InvalidArgument."""
    if data is None:
        # In base64 the text NULL is three bytes; no JSON and no hex is it.
        return dimmed(f"<{NULL}>" if form is ValueFormat.BASE64 else NULL).encode()
    match form:
        case ValueFormat.TEXT:
            return shown(data)
        case ValueFormat.JSON:
            return shown(_json(name, data, at))
        case ValueFormat.BASE64:
            return base64.b64encode(data)
        case _:
            return data.hex().encode()


def _in_json(name: str, form: ValueFormat, data: bytes | None, at: At) -> Any:
    """`data` as a value of JSON: a text, or with the format `json` what it holds. Raises InvalidArgument."""
    if data is None:
        return None
    match form:
        case ValueFormat.TEXT:
            try:
                return data.decode()
            except UnicodeDecodeError:
                raise _wrong(at, name, "UTF-8", "base64, or hex") from None
        case ValueFormat.JSON:
            import msgspec

            return msgspec.Raw(_json(name, data, at))
        case _:
            return _as_line(name, form, data, at).decode()


def _json(name: str, data: bytes, at: At) -> bytes:
    """The JSON that `data` is, in one line; numbers keep their digits."""
    import msgspec

    try:
        msgspec.json.decode(data, type=msgspec.Raw)
        data.decode()
        return msgspec.json.format(data, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _wrong(at, name, "JSON", "text, or base64") from None


def _fields(forms: Formats) -> dict[str, Print]:
    """The fields of a format by their letters."""
    return {
        "t": lambda topic, _partition, _record: topic.encode(),
        "p": lambda _topic, partition, _record: b"%d" % partition,
        "o": lambda _topic, _partition, record: b"%d" % (record.offset or 0),
        "k": lambda *at: _as_line("key", forms.key, at[2].key, at),
        "K": lambda _topic, _partition, record: b"%d" % _length(record.key),
        "s": value_line(forms, b""),
        "S": lambda _topic, _partition, record: b"%d" % _length(record.value),
        "T": lambda _topic, _partition, record: b"%d" % _timestamp_ms(record),
        "h": lambda *at: _headers(forms.header, at),
        "%": lambda _topic, _partition, _record: b"%",
    }


_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
_PARTS = re.compile(
    r"%(?P<field>.?)|\\(?:x(?P<code>[0-9a-fA-F]{2})|(?P<escape>.?))|(?P<text>[^%\\]+)", re.DOTALL
)


def shown(data: bytes) -> bytes:
    """`data` as it is for a program; on a terminal without what would control that."""
    return printable(data.decode(errors="backslashreplace")).encode() if sys.stdout.isatty() else data


def value_line(forms: Formats, end: bytes = b"\n") -> Print:
    """A function that prints values, each with `end`; NULL, in base64 <NULL>, for none."""

    def line(topic: str, partition: int, record: "Record") -> bytes:
        return _as_line("value", forms.value, record.value, (topic, partition, record)) + end

    return line


def json_line(forms: Formats) -> Print:
    """A function that prints whole records as lines of JSON, all with the same fields."""
    import msgspec

    def line(topic: str, partition: int, record: "Record") -> bytes:
        at = (topic, partition, record)
        row = {
            "topic": topic,
            "partition": partition,
            "offset": record.offset,
            "timestamp": _timestamp_ms(record),
            "key": _in_json("key", forms.key, record.key, at),
            "value": _in_json("value", forms.value, record.value, at),
            "headers": [
                {"key": key, "value": _in_json("header", forms.header, value, at)}
                for key, value in record.headers
            ],
        }
        return msgspec.json.encode(row) + b"\n"

    return line


def formatted(text: str, forms: Formats) -> Print:
    r"""A function that prints records in the format `text`, such as `%k %s\n`. Raises InvalidArgument."""
    fields = _fields(forms)
    parts = [_part(match, text, fields) for match in _PARTS.finditer(text)]

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


def _part(match: re.Match[str], text: str, fields: dict[str, Print]) -> bytes | Print:
    if match["field"] is None:
        return _literal(match, "--format", text)
    field = fields.get(match["field"])
    if field is None:
        known = " ".join(f"%{name}" for name in fields)
        raise InvalidArgument(f"--format {text!r} has {match[0]!r}, which is no field; use {known}")
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


def _headers(form: ValueFormat, at: At) -> bytes:
    return b",".join(
        shown(name.encode()) + b"=" + _as_line("header", form, value, at) for name, value in at[2].headers
    )
