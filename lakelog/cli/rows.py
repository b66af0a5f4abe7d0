"""The input of `lakelog produce`, cut into records, with the key and the time of each.

The code that reads the bodies of the gateway defines a row of CSV and a line of JSON: a file has the values
that the same bytes have at `/topics/{topic}/values`. Rows of Parquet become JSON as answers of SQL do.
"""

import json
import math
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.cli.common import iso_ms
from lakelog.cli.source import Format, Source, opened
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, RecordTooLarge
from log_tables.json_values import json_rows
from log_tables.limits import LINE_MAX_BYTES, TIMESTAMP_BOUNDS, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.schemas.schema import Unencodable

Encode = Callable[[bytes], bytes]

_PARQUET_ROWS = 10_000
"""Rows that are read and become JSON at once."""

_NUMBER = re.compile(r"-?[0-9]+")
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Row(NamedTuple):
    """A record of the input. `place` says where it is there, for people."""

    place: str
    value: bytes | None
    key: bytes | None
    timestamp_ms: int | None


class Fill(NamedTuple):
    """Where the key and the time of a record are, and how many bytes key and value may have.

    `of_json` names the columns of CSV that have JSON in their fields. `encode_key` and `encode_value` make
    the bytes of JSON; they raise Unencodable.
    """

    key_field: str | None
    key_separator: bytes | None
    timestamp_field: str | None
    max_bytes: int
    of_json: Collection[str] = ()
    encode_key: Encode | None = None
    encode_value: Encode | None = None


def total(source: Source) -> int | None:
    """How many records there are, where the file says so. Raises InvalidArgument."""
    if source.form is not Format.PARQUET:
        return None
    try:
        return int(pq.read_metadata(source.file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise InvalidArgument(f"{source.file} is not parquet: {error}") from None


def read(source: Source, fill: Fill, skip: int = 0) -> Iterator[Row]:
    """The records after the first `skip`. Raises InvalidArgument, RecordTooLarge, which say where."""
    seen = 0
    for seen, (place, value) in enumerate(_cut(source, fill.of_json), 1):
        if seen > skip:
            row = _filled(place, value, fill)
            is_tombstone = value == b"null" and (fill.encode_value or source.form is not Format.LINES)
            yield row._replace(value=None) if is_tombstone else row
    if seen < skip:
        raise InvalidArgument(
            f"{source.file} has {counted(seen, 'record')}, so --skip {skip} leads beyond its end; skip fewer"
        )


def _filled(place: str, value: bytes, fill: Fill) -> Row:
    key, stamp_ms = None, None
    try:
        if fill.key_separator is not None:
            key, value = _split(value, fill.key_separator)
        if fill.key_field is not None:
            key = _field(value, fill.key_field)
        if fill.timestamp_field is not None:
            stamp_ms = time_ms(_field(value, fill.timestamp_field), fill.timestamp_field)
        if fill.encode_key is not None and key is not None:
            key = fill.encode_key(key)
        if fill.encode_value is not None and value != b"null":
            value = fill.encode_value(value)
    except (InvalidArgument, Unencodable) as error:
        raise InvalidArgument(f"{place}: {error}") from None
    size = len(value) + len(key or b"")
    if size > fill.max_bytes:
        raise RecordTooLarge(
            f"{place}: the record has {size} bytes, the topic takes {fill.max_bytes}; raise max.message.bytes"
        )
    return Row(place, value, key, stamp_ms)


_Cut = Iterator[tuple[str, bytes]]


def _cut(source: Source, of_json: Collection[str]) -> _Cut:
    try:
        with opened(source) as stream:
            match source.form:
                case Format.PARQUET:
                    yield from _parquet(source)
                case Format.CSV:
                    yield from _csv(stream, of_json)
                case Format.NDJSON:
                    yield from _ndjson(stream)
                case Format.LINES:
                    for number, line in _lines(stream):
                        yield f"line {number}", line.rstrip(b"\r\n")
    except pa.ArrowException as error:
        raise InvalidArgument(f"{source.file} is not {source.form.value}: {error}") from None


def _parquet(source: Source) -> _Cut:
    parquet = pq.ParquetFile(source.file)
    names = parquet.schema_arrow.names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"{source.file} has {names.count(twice)} columns named {twice!r}; give each a name of its own"
        )
    number = 0
    for batch in parquet.iter_batches(batch_size=_PARQUET_ROWS):
        for text in json_rows(batch, number):
            number += 1
            yield f"row {number}", text


def _csv(stream: BinaryIO, of_json: Collection[str]) -> _Cut:
    from api.wire.values import rows_of_csv  # it takes a while to load, which lines need not wait for

    for number, text in enumerate(rows_of_csv(stream, of_json), 1):
        yield f"row {number}", text


def _ndjson(stream: BinaryIO) -> _Cut:
    from api.wire.values import json_of_line

    for number, line in _lines(stream):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(
                f"line {number} is not JSON: it is not UTF-8 at byte {error.start}; fix it"
            ) from None
        if text := json_of_line(line, number):
            yield f"line {number}", text


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := stream.readline(LINE_MAX_BYTES + 1):
        number += 1
        if len(line) > LINE_MAX_BYTES:
            raise InvalidArgument(f"line {number} has more than {LINE_MAX_BYTES} bytes; is it text? split it")
        yield number, line


def _field(value: bytes, name: str) -> bytes | None:
    """The JSON of the field `name` as it stands in the object `value`; None for a null. Raises
    InvalidArgument.
    """
    try:
        fields = _objects.decode(value)
    except msgspec.ValidationError:
        raise InvalidArgument(f"the record is no JSON object with a field {name!r}; leave it out") from None
    if name not in fields:
        raise InvalidArgument(f"a record has no field {name!r}, only {', '.join(fields)}; name another")
    _check_once(value, name)
    text = bytes(fields[name])
    return None if text == b"null" else text


def _check_once(text: bytes, name: str) -> None:
    """Raise InvalidArgument when the object `text` has the field `name` twice: which of them is it?"""
    escaped = b"\\u" in text or b"\\/" in text  # so may the name be
    if text.count(msgspec.json.encode(name)) < 2 and not escaped:
        return
    pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list, parse_int=str)
    if [each for each, _ in pairs].count(name) > 1:
        raise InvalidArgument(f"the record has the field {name!r} more than once; leave one")


def _split(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode(errors="backslashreplace")
        raise InvalidArgument(f"the key separator {shown!r} is not in it; write KEY{shown}VALUE")
    return key, value


def time_ms(text: bytes | None, name: str) -> int:
    """The JSON `text` of the field `name` as milliseconds since 1970 UTC, cut down to whole ones.

    A text is milliseconds, too, if it is a number: CSV has nothing else. Raises InvalidArgument.
    """
    shown = (text or b"null").decode()[:100]
    try:
        milliseconds = _milliseconds(msgspec.json.decode(text or b"null"))
    except (ValueError, OverflowError, RecursionError, msgspec.DecodeError):
        raise InvalidArgument(f"{name}={shown} is not a time; use milliseconds or ISO-8601") from None
    if not TIMESTAMP_MIN_US <= milliseconds * 1000 <= TIMESTAMP_MAX_US:
        raise InvalidArgument(f"{name}={shown} is outside {TIMESTAMP_BOUNDS}; use milliseconds")
    return milliseconds


def _milliseconds(value: Any) -> int:
    """Raises ValueError, OverflowError."""
    match value:
        case bool():
            raise ValueError
        case int() | float():
            return math.floor(value)
        case str() if _NUMBER.fullmatch(value):
            return int(value)
        case str():
            return iso_ms(value)
        case _:
            raise ValueError
