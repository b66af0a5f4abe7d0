"""The input of `lakelog produce`, cut into records, with the key and the time of each."""

import codecs
import json
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lakelog.cli.common import iso_ms
from lakelog.cli.source import Format, Source, opened
from log_tables.errors import InvalidArgument, RecordTooLarge
from log_tables.limits import LINE_MAX_BYTES, TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

Fields = dict[str, Any] | None
"""The fields of a record, with its key and time among them; those of a line of JSON are Raw. None for a line
of text, which has no fields.
"""


class Row(NamedTuple):
    """A record of the input. `place` says where it is there, for people."""

    place: str
    value: bytes
    key: bytes | None
    timestamp_ms: int | None


class Fill(NamedTuple):
    """Where the key and the time of a record are, and how many bytes key and value may have."""

    key_field: str | None
    key_separator: bytes | None
    timestamp_field: str | None
    max_bytes: int


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
    for seen, (place, value, fields) in enumerate(_cut(source), 1):
        if seen > skip:
            yield _filled(place, value, fields, fill)
    if seen < skip:
        raise InvalidArgument(
            f"{source.file} has {seen} records, so --skip {skip} leads beyond its end; skip fewer"
        )


def _filled(place: str, value: bytes, fields: Fields, fill: Fill) -> Row:
    try:
        for name in (fill.key_field, fill.timestamp_field):
            if name is not None:
                _check_once(value, fields, name)
        key = None if fill.key_field is None else _key(fields, fill.key_field)
        if fill.key_separator is not None:
            key, value = _split(value, fill.key_separator)
        stamp_ms = None if fill.timestamp_field is None else time_ms(fields, fill.timestamp_field)
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error}") from None
    size = len(value) + len(key or b"")
    if size > fill.max_bytes:
        raise RecordTooLarge(
            f"{place}: the record has {size} bytes, the topic takes {fill.max_bytes}; raise max.message.bytes"
        )
    return Row(place, value, key, stamp_ms)


_Cut = Iterator[tuple[str, bytes, Fields]]


def _cut(source: Source) -> _Cut:
    try:
        with opened(source) as stream:
            if source.form is Format.PARQUET:
                parquet = pq.ParquetFile(source.file)
                _check_names(source, parquet.schema_arrow.names)
                yield from _columns(parquet.iter_batches(batch_size=10_000))
            elif source.form is Format.CSV:
                # Whole: a column's type is that of all its rows, and the last one may change it.
                table = pyarrow.csv.read_csv(stream)
                _check_names(source, table.column_names)
                yield from _columns(table.to_batches(max_chunksize=10_000))
            else:
                yield from _lines(stream, source.form)
    except pa.ArrowException as error:
        raise InvalidArgument(f"{source.file} is not {source.form.value}: {error}") from None


def _check_names(source: Source, names: list[str]) -> None:
    """Raise InvalidArgument when two columns have one name: an object has one field of it."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"{source.file} has {names.count(twice)} columns named {twice!r}; give each a name of its own"
        )


def _columns(batches: Iterable[pa.RecordBatch]) -> _Cut:
    number = 0
    for batch in batches:
        for index in range(batch.num_rows):
            number += 1
            try:
                (fields,) = batch.slice(index, 1).to_pylist()
                yield f"row {number}", msgspec.json.encode(fields), fields
            except (TypeError, ValueError, OverflowError) as error:
                raise InvalidArgument(f"row {number} cannot be JSON ({error}); convert it") from None


def _lines(stream: BinaryIO, form: Format) -> _Cut:
    number = 0
    while line := stream.readline(LINE_MAX_BYTES + 1):
        number += 1
        place = f"line {number}"
        if len(line) > LINE_MAX_BYTES:
            raise InvalidArgument(f"{place} has more than {LINE_MAX_BYTES} bytes; is it text? split it")
        text = line.rstrip(b"\r\n")
        if number == 1 and form is Format.NDJSON:
            text = text.removeprefix(codecs.BOM_UTF8)
        if form is Format.LINES:
            yield place, text, None
        elif text.strip():
            yield place, text, _object(text, place)


def _object(text: bytes, place: str) -> dict[str, Any]:
    try:
        text.decode()
        return _objects.decode(text)  # what is sent is the text: only a field that is used has to be a value
    except msgspec.ValidationError:
        raise InvalidArgument(
            f"{place} is not a JSON object; fix it, or send it with --format lines"
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(
            f"{place} is not JSON ({error}); fix it, or send it with --format lines"
        ) from None


_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])


def _check_once(text: bytes, fields: Fields, name: str) -> None:
    """Raise InvalidArgument when the object `text` has the field `name` twice: which of them is it?"""
    if fields is None or text.count(msgspec.json.encode(name)) < 2:
        return
    pairs: list[tuple[str, Any]] = json.loads(text, object_pairs_hook=list, parse_int=str)
    if [each for each, _ in pairs].count(name) > 1:
        raise InvalidArgument(f"the record has the field {name!r} more than once; leave one")


def _field(fields: Fields, name: str) -> Any:
    if fields is None or name not in fields:
        raise InvalidArgument(f"a record has no field {name!r}, only {', '.join(fields or ())}; name another")
    value = fields[name]
    try:
        return msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidArgument(f"the field {name!r} has no value that is understood ({error})") from None


def _split(line: bytes, separator: bytes) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        shown = separator.decode(errors="backslashreplace")
        raise InvalidArgument(f"the key separator {shown!r} is not in it; write KEY{shown}VALUE")
    return key, value


def _key(fields: Fields, name: str) -> bytes | None:
    """The field `name` as a key: text and bytes as they are, others as JSON. Raises InvalidArgument."""
    value = _field(fields, name)
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case _:
            return msgspec.json.encode(value)


def time_ms(fields: Fields, name: str) -> int:
    """The field `name` as milliseconds since 1970 UTC. Raises InvalidArgument."""
    value = _field(fields, name)
    try:
        match value:
            case bool():
                raise ValueError
            case int() | float():
                milliseconds = int(value)
            case _:
                milliseconds = iso_ms(str(value))
    except (ValueError, OverflowError):
        raise InvalidArgument(f"{name}={value!r} is not a time; use milliseconds or ISO-8601") from None
    if not TIMESTAMP_MIN_US <= milliseconds * 1000 <= TIMESTAMP_MAX_US:
        raise InvalidArgument(f"{name}={value!r} is outside the years 1 to 9999; use milliseconds since 1970")
    return milliseconds
