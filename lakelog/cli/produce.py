"""`lakelog produce`: records from standard input or a file."""

from collections import deque
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from lakelog.cli.common import GATEWAY, Json, Url, console, print_json, progress_console
from log_tables.clock import SystemClock
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from lakelog.delivery import Delivery


SHOWN_EVERY = 1_000
"""Records between two looks at the progress bar."""


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
    # Loaded here, so that no other command waits for Arrow.
    from lakelog.cli import rows
    from lakelog.producer import Producer

    clock = SystemClock()
    begin = clock.monotonic()
    count = 0
    with Producer(url, acks=acks) as producer, _progress(json) as progress:
        task = progress.add_task(topic, total=rows.total(file, named))
        sent: deque[Delivery] = deque()
        for value, fields in rows.read(file, named):
            key = None if key_field is None else rows.key(fields, key_field)
            stamp = None if timestamp_field is None else rows.time_ms(fields, timestamp_field)
            sent.append(producer.send(topic, value, key, timestamp_ms=stamp))
            while sent and sent[0].done():
                count += _settled(sent)
            if len(sent) % SHOWN_EVERY == 0:
                progress.update(task, completed=count)
        producer.flush()
        while sent:
            count += _settled(sent)
        progress.update(task, completed=count)
    seconds = clock.monotonic() - begin
    if json:
        print_json({"topic": topic, "records": count, "seconds": round(seconds, 3)})
    else:
        console.print(f"{count:,} records to topic {topic} in {seconds:.1f} s")


def _settled(sent: "deque[Delivery]") -> int:
    """Wait for the oldest record to be acknowledged and drop it; 1, to be counted. Raises why it is not."""
    sent.popleft().result()
    return 1


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
