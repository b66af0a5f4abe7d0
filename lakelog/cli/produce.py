"""`lakelog produce`: records from standard input or a file."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from lakelog.cli.common import GATEWAY, Json, Url, console, existing_file, print_json, progress_console
from lakelog.producer import Producer, RecordMetadata
from log_tables.clock import SystemClock
from log_tables.errors import InvalidArgument
from log_tables.limits import TIMESTAMP_MAX_US
from log_tables.snapshot import timestamp_us


class Format(StrEnum):
    """How the input is cut into records."""

    LINES = "lines"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {
    ".ndjson": Format.NDJSON,
    ".jsonl": Format.NDJSON,
    ".csv": Format.CSV,
    ".parquet": Format.PARQUET,
}
Row = tuple[bytes, dict[str, Any] | None]


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="- is standard input.")] = Path("-"),
    form: Annotated[
        Format | None, typer.Option("--format", help="Default: by the file's name, else lines.")
    ] = None,
    key_field: Annotated[str | None, typer.Option(help="The field that is the key.")] = None,
    timestamp_field: Annotated[
        str | None, typer.Option(help="The field that is the time: milliseconds or ISO-8601.")
    ] = None,
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    url: Url = GATEWAY,
    json: Json = False,
) -> None:
    """Send records: a line, a JSON object, or a row (as JSON) each."""
    named = form or _SUFFIXES.get(file.suffix, Format.LINES)
    if named is Format.LINES and (key_field or timestamp_field):
        raise InvalidArgument("lines have no fields; use --format ndjson, csv or parquet")
    clock = SystemClock()
    begin = clock.monotonic()
    with Producer(url, acks=acks) as producer, _progress(json) as progress:
        task = progress.add_task(topic, total=_total(file, named))
        futures = []
        for value, fields in _rows(file, named):
            key = None if key_field is None else _key(fields, key_field)
            stamp = None if timestamp_field is None else _time(fields, timestamp_field)
            futures.append(producer.send(topic, value, key, timestamp_ms=stamp))
            if len(futures) >= 10_000:
                progress.advance(task, _settled(futures))
                futures = []
        producer.flush()
        progress.advance(task, _settled(futures))
        count = int(progress.tasks[0].completed)
    seconds = clock.monotonic() - begin
    if json:
        print_json({"topic": topic, "records": count, "seconds": round(seconds, 3)})
    else:
        console.print(f"{count:,} records to topic {topic} in {seconds:.1f} s")


def _settled(futures: "Iterable[Future[RecordMetadata]]") -> int:
    """How many there are, once all are acknowledged. Raises the first failure."""
    return sum(1 for future in futures if future.result() is not None)


def _progress(quiet: bool) -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = quiet or not progress_console.is_terminal
    return Progress(*columns, console=progress_console, disable=hidden)


def _total(file: Path, form: Format) -> int | None:
    return pq.read_metadata(existing_file(file)).num_rows if form is Format.PARQUET else None


def _rows(file: Path, form: Format) -> Iterator[Row]:
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
            yield from _columns(pyarrow.csv.open_csv(source))
        else:
            yield from _lines(file, form)
    except pa.ArrowException as error:
        raise InvalidArgument(f"{file} is not {form.value}: {error}") from None


def _columns(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        for fields in batch.to_pylist():
            yield json_text.dumps(fields, default=str).encode(), fields


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
        fields = json_text.loads(text)
    except ValueError as error:
        raise InvalidArgument(
            f"line {number} is not JSON ({error}); mend it, or send it with --format lines"
        ) from None
    if not isinstance(fields, dict):
        raise InvalidArgument(f"line {number} is not a JSON object; mend it, or send it with --format lines")
    return fields


def _field(fields: dict[str, Any] | None, name: str) -> Any:
    if fields is None or name not in fields:
        raise InvalidArgument(f"a record has no field {name!r}, only {', '.join(fields or ())}; name another")
    return fields[name]


def _key(fields: dict[str, Any] | None, name: str) -> bytes | None:
    value = _field(fields, name)
    return None if value is None else str(value).encode()


def _time(fields: dict[str, Any] | None, name: str) -> int:
    value = _field(fields, name)
    try:
        milliseconds = (
            int(value) if isinstance(value, int | float) else timestamp_us(_zoned(str(value))) // 1000
        )
    except ValueError:
        raise InvalidArgument(f"{name}={value!r} is not a time; use milliseconds or ISO-8601") from None
    if abs(milliseconds) * 1000 > TIMESTAMP_MAX_US:
        raise InvalidArgument(f"{name}={value!r} is not in milliseconds since 1970")
    return milliseconds


def _zoned(text: str) -> str:
    """ISO-8601 with a zone: UTC where it names none."""
    zoned = text.endswith("Z") or "+" in text[10:] or "-" in text[10:]
    return text if zoned else f"{text}+00:00"
