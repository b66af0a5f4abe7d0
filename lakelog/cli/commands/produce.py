"""`lakelog produce`: records from standard input or a file."""

import logging
import sys
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli import completion
from lakelog.cli.common import (
    GATEWAY,
    WAIT_S,
    Json,
    Url,
    Wait,
    connect,
    console,
    pairs,
    print_json,
    progress_console,
    security_options,
)
from lakelog.cli.record_format import unescaped
from lakelog.cli.source import STDIN, Format, source
from log_tables.clock import SystemClock
from log_tables.counts import counted
from log_tables.errors import (
    AuthorizationFailed,
    InvalidArgument,
    InvalidRequest,
    LakelogError,
    OutcomeUnknown,
    UnknownTopic,
)

if TYPE_CHECKING:
    from rich.progress import Progress

    from lakelog.cli.rows import Encode
    from lakelog.client.client import Client
    from lakelog.client.producer.delivery import Delivery

_COLUMNS = "value.columns"

SHOWN_EVERY = 1_000
"""Records between two looks at the progress bar."""


def produce(  # noqa: PLR0913, PLR0917 -- each is an option
    topic: Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)],
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="- is standard input.")] = STDIN,
    form: Annotated[
        Format | None,
        typer.Option("--format", help="Default: by the file's name; of standard input lines."),
    ] = None,
    key_field: Annotated[str | None, typer.Option(help="The field that is the key.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Lines are KEY, this, VALUE: ':' or '\\t'.")
    ] = None,
    header: Annotated[
        list[str], typer.Option(metavar="NAME=VALUE", help="A header of every record; repeat it for more.")
    ] = [],  # noqa: B006 -- typer copies it
    timestamp_field: Annotated[
        str | None, typer.Option(help="The field that is the time: milliseconds or ISO-8601.")
    ] = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            metavar="ID|SUBJECT[:VERSION]",
            help="Values are JSON, which this schema makes Avro, Protobuf or JSON with its id.",
        ),
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option(metavar="ID|SUBJECT[:VERSION]", help="The same of keys.")
    ] = None,
    skip: Annotated[
        int, typer.Option(metavar="N", min=0, help="Leave out the first N records: those that are sent.")
    ] = 0,
    acks: Annotated[str, typer.Option(help="0, 1 or all.")] = "all",
    create: Annotated[bool, typer.Option("--create", help="Create the topic if it is not there.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Send records: a line, a JSON object, or a row (as JSON) each. Files may be packed with gzip or zstd.

    A file is checked whole before anything is sent. If sending ends early, the error says how many records
    were sent, and which --skip goes on from there.
    """
    chosen = source(file, form)
    if chosen.form is Format.LINES and (key_field or timestamp_field):
        raise InvalidArgument("lines have no fields; use --format ndjson, csv or parquet")
    separator = None if key_separator is None else _separator(key_separator, chosen.form)
    headers = [(name, text.encode()) for each in header for name, text in pairs([each], "--header").items()]
    # Loaded here, so that no other command waits for Arrow.
    from lakelog.cli import rows
    from lakelog.client.producer.outgoing import largest_record
    from lakelog.client.producer.producer import Producer

    _show_warnings()
    clock = SystemClock()
    begin = clock.monotonic()
    with connect(url, wait, "" if create else "or create it with --create") as client:
        if create:
            _create(client, topic)
        configs = client.topic(topic)["configs"]
        encode_key = _encoder(client, topic, key_schema, of_text=True)
        encode_value = _encoder(client, topic, value_schema, of_text=False)
    largest = largest_record(configs)
    of_json = _names_of_json(topic, configs) if chosen.form is Format.CSV else ()
    fill = rows.Fill(key_field, separator, timestamp_field, largest, of_json, encode_key, encode_value)
    tally = Tally(skip)
    with Producer(url, acks=acks, **security_options()) as producer, _progress(json) as progress:
        with _nothing_sent(file):
            task = progress.add_task(topic, total=rows.total(chosen))
            if chosen.again:
                for _ in rows.read(chosen, fill, skip):
                    pass
        with _tallied(file, tally, progress):
            for row in rows.read(chosen, fill, skip):
                tally.add(producer.send(topic, row.value, row.key, headers, row.timestamp_ms))
                if tally.count % SHOWN_EVERY == 0:
                    progress.update(task, completed=tally.count)
            tally.advance(wait=True)
        progress.update(task, completed=tally.count)
    seconds = clock.monotonic() - begin
    if json:
        print_json({"topic": topic, "records": tally.count, "seconds": round(seconds, 3)})
    else:
        console().print(f"{counted(tally.count, 'record')} to topic {topic} in {seconds:.1f} s")


def _show_warnings() -> None:
    """Let standard error have what the producer says in its log: what it waits for."""
    shown, log = logging.StreamHandler(), logging.getLogger("lakelog.client")
    shown.setFormatter(logging.Formatter("lakelog: %(message)s"))
    log.handlers = [shown]


def _encoder(client: "Client", topic: str, schema: str | None, of_text: bool) -> "Encode | None":
    """The function that makes the bytes of JSON, or `of_text` also of a text that is none, by a schema: that
    with an id, or a version of a subject.
    """
    if schema is None:
        return None
    import msgspec

    from log_tables.schemas.encoder import encoded
    from log_tables.schemas.schema import Unencodable

    if schema.isdecimal():
        schema_id, found = int(schema), client.schema(topic, int(schema))
    else:
        subject, separator, version = schema.rpartition(":")
        named = bool(separator) and version.isdecimal()
        registered = client.topic_schema(topic, subject if named else schema, int(version) if named else None)
        schema_id, found = registered.id, registered.schema

    def encode(text: bytes) -> bytes:
        try:
            return encoded(text, schema_id, found)
        except Unencodable:
            if not of_text:
                raise
            return encoded(msgspec.json.encode(text.decode()), schema_id, found)

    return encode


def _create(client: "Client", topic: str) -> None:
    """Create the topic, with the partitions that the gateway gives a new one, unless it is there."""
    try:
        client.topic(topic)
    except UnknownTopic:
        try:
            client.create_topic(topic)
        except InvalidRequest:  # as it is if another one creates it meanwhile
            if topic not in client.topics():
                raise


def _names_of_json(topic: str, configs: Mapping[str, str]) -> Collection[str]:
    """The columns of CSV that have JSON in their fields, by the `configs` of the topic.

    Raises AuthorizationFailed where the topic does not show its configs: numbers would become texts.
    """
    from api.wire.csv_rows import names_of_json
    from log_tables.columns.declaration import parse

    if _COLUMNS not in configs:
        raise AuthorizationFailed(
            f"the columns that topic {topic!r} declares say which fields of CSV are numbers, and you may not "
            "read them; ask for an ACL DescribeConfigs of the topic, or send NDJSON"
        )
    return names_of_json(parse(configs[_COLUMNS]))


def _separator(text: str, form: Format) -> bytes:
    """The bytes between the key and the value of a line. Raises InvalidArgument."""
    if form is not Format.LINES:
        raise InvalidArgument(f"--key-separator is for lines, not {form.value}; use --key-field")
    if not text:
        raise InvalidArgument("--key-separator is empty; name the text between key and value")
    return unescaped(text, "--key-separator")


@contextmanager
def _nothing_sent(file: Path) -> Iterator[None]:
    """Errors raised in this block say that nothing was sent."""
    try:
        yield
    except LakelogError as error:
        raise type(error)(f"{error}; nothing was sent", **error.details) from None
    except OSError as error:
        raise LakelogError(f"{file} cannot be read ({error.strerror}); nothing was sent") from None


@contextmanager
def _tallied(file: Path, tally: "Tally", progress: "Progress") -> Iterator[None]:
    """Errors raised in this block say how many records were sent, and how to go on."""
    try:
        yield
    except LakelogError as error:
        raise type(error)(f"{error}; {tally.sentence()}", **error.details) from None
    except OSError as error:
        raise LakelogError(f"{file} cannot be read ({error.strerror}); {tally.sentence()}") from None
    except KeyboardInterrupt:
        progress.stop()
        print("lakelog: interrupted; waiting for the records that are on their way", file=sys.stderr)
        print(f"lakelog: {tally.sentence()}", file=sys.stderr)
        raise


class Tally:
    """Which records of the input, after `skipped` ones, are in the log."""

    def __init__(self, skipped: int) -> None:
        self._skipped, self.count = skipped, 0
        self._waiting: deque[Delivery] = deque()

    def add(self, sent: "Delivery") -> None:
        """One more record is on its way. Raises why an earlier one is not delivered."""
        self._waiting.append(sent)
        self.advance()

    def advance(self, wait: bool = False) -> None:
        """Count the records in front that are delivered. Raises why one is not."""
        while self._waiting and (wait or self._waiting[0].done()):
            self._waiting[0].result()
            self._waiting.popleft()
            self.count += 1

    def sentence(self) -> str:
        """How much was sent, and how to go on. Waits for the records that are on their way."""
        outcomes = [sent.exception() for sent in self._waiting]
        first = next((at for at, error in enumerate(outcomes) if error is not None), len(outcomes))
        later = sum(error is None for error in outcomes[first:])
        unknown = sum(isinstance(error, OutcomeUnknown) for error in outcomes[first:])
        count = self.count + first
        were = "record was" if count == 1 else "records were"
        said = f"{count} {were} sent; go on with --skip {self._skipped + count}"
        if later:
            said += f", which sends {later} later ones again that were delivered"
        if unknown:
            said += f"; {unknown} may be in the log or not, so read its end with lakelog consume -o -10"
        return said


def _progress(quiet: bool) -> "Progress":
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    hidden = quiet or not progress_console().is_terminal
    return Progress(*columns, console=progress_console(), disable=hidden)
