"""What `lakelog produce` sends: a file or standard input, cut into records."""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from lakelog.cli.common import existing_file, iso_ms
from lakelog.cli.produce import Format
from log_tables.errors import InvalidArgument
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

Fields = dict[str, Any] | None
"""What a record's key and time are taken from; None for a line of text, which has no fields."""

Row = tuple[bytes, Fields]


def total(file: Path, form: Format) -> int | None:
    """How many records there are, where the file says so."""
    return pq.read_metadata(existing_file(file)).num_rows if form is Format.PARQUET else None


def read(file: Path, form: Format) -> Iterator[Row]:
    """Each record's value, and its fields where the format has some. Raises InvalidArgument."""
    if str(file) != "-":
        existing_file(file)
    elif form is Format.PARQUET:
        raise InvalidArgument("Parquet is not read from standard input; name a file")
    try:
        if form is Format.PARQUET:
            yield from _columns(pq.ParquetFile(file).iter_batches(batch_size=10_000))
        elif form is Format.CSV:
            source = sys.stdin.buffer if str(file) == "-" else file
            # Whole: a column's type is that of all its rows, and the last one may change it.
            yield from _columns(pyarrow.csv.read_csv(source).to_batches(max_chunksize=10_000))
        else:
            yield from _lines(file, form)
    except pa.ArrowException as error:
        raise InvalidArgument(f"{file} is not {form.value}: {error}") from None


def _columns(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for fields in batch.to_pylist():
            yield msgspec.json.encode(fields), fields


def _lines(file: Path, form: Format) -> Iterator[Row]:
    lines = sys.stdin.buffer if str(file) == "-" else file.open("rb")
    with lines:
        for number, line in enumerate(lines, 1):
            text = line.rstrip(b"\r\n")
            if form is Format.LINES:
                yield text, None
            elif text.strip():
                yield text, _object(text, number)


def _object(text: bytes, number: int) -> dict[str, Any]:
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(
            f"line {number} is not JSON ({error}); mend it, or send it with --format lines"
        ) from None
    if not isinstance(fields, dict):
        raise InvalidArgument(f"line {number} is not a JSON object; mend it, or send it with --format lines")
    return fields


def _field(fields: Fields, name: str) -> Any:
    if fields is None or name not in fields:
        raise InvalidArgument(f"a record has no field {name!r}, only {', '.join(fields or ())}; name another")
    return fields[name]


def key(fields: Fields, name: str) -> bytes | None:
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
