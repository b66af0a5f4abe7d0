"""`lakelog consume`: print records from an offset on, or a group's share of them."""

import signal
import sys
import threading
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, islice
from queue import Queue
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli import completion
from lakelog.cli.common import GATEWAY, WAIT_S, Json, Url, Wait, connect, iso_ms, security_options
from lakelog.cli.record_format import Formats, Print, ValueFormat, formatted, json_line, value_line
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import MIB
from log_tables.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.calls import Offsets
    from lakelog.client.client import Client
    from lakelog.client.consumer.consumer import Consumer
    from log_tables.record import Record

FOLLOW_MS = 10_000
IDLE_MS = 1_000
"""How long one poll of a group's member waits; without --follow the command ends when nothing came for it."""

POLL_BYTES = 16 * MIB

VALUE_FORMAT = "value.columns.format"

LOOK_S = 2.0
"""How often --follow looks for partitions that were added."""


def consume(  # noqa: PLR0913, PLR0917 -- each is an option
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=completion.topics)],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            "-o",
            help="earliest, latest, an offset, -N for the last N of each partition, or an ISO-8601 time.",
        ),
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(help="Default: all of them.")] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Read as a member of this group: from its committed offsets, and commit.",
            autocompletion=completion.groups,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    limit: Annotated[
        int | None, typer.Option("--max", min=1, help="Stop after this number of records.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", help="The fields to print of each record, as '%k %s\\n'.")
    ] = None,
    value_format: Annotated[
        ValueFormat | None,
        typer.Option(help="How values are printed. Default: as the topic says, else text."),
    ] = None,
    key_format: Annotated[ValueFormat, typer.Option(help="How keys are printed.")] = ValueFormat.TEXT,
    header_format: Annotated[
        ValueFormat, typer.Option(help="How the values of headers are printed.")
    ] = ValueFormat.TEXT,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    r"""Print values, a line each; with --json whole records, a line each. NULL is a value that is not there,
    and in base64, where NULL is a value of three bytes, <NULL>.

    All records of a run have the same fields. In a line, text is the bytes as they are. With --json
    text has to be UTF-8, and what is no text ends the command with an error: choose base64 or hex.
    The format json is the JSON itself, in one line. With avro, protobuf, json-schema and auto the schema that
    a value names makes JSON of it; the topic says in value.columns.schemas where the schemas are. If it also
    has a value.columns.format, that is how its values are printed.

    Partitions come one after the other; with --follow as their records come,
    and those that are added later from their beginning.

    The fields of --format are kcat's: %t topic, %p partition, %o offset, %k key, %s value, %h headers,
    %T timestamp in milliseconds, %K and %S bytes of key and value (-1 for none), %% for %. Escapes are
    \n \r \t \0 \xNN.

    With --group the topics are shared with the group's other members, what was printed is committed, and
    --from (earliest or latest) counts where nothing is committed. Without --follow it ends when nothing has
    come for a second.
    """
    if header_format.by_schema:
        raise InvalidArgument(f"--header-format {header_format.value}: values of headers name no schema")
    with connect(url, wait) as client:
        value_format = value_format or _format_of(client, topics)
        show = _decoded(client, topics, json, form, Formats(key_format, value_format, header_format))
        if group is not None:
            _consume_in(group, client, topics, start, partition, follow, limit, show)
        else:
            _consume(client, topics, start, partition, follow, limit, show)


def _format_of(client: "Client", topics: list[str]) -> ValueFormat:
    """The format that all of `topics` say that their values have; text if they do not."""
    known = {client.topic(topic)["configs"].get(VALUE_FORMAT) for topic in topics}
    formats = [ValueFormat(each) for each in known if each in {*ValueFormat}]
    return formats[0] if len(formats) == len(known) == 1 and formats[0].by_schema else ValueFormat.TEXT


def _decoded(client: "Client", topics: list[str], json: bool, form: str | None, forms: Formats) -> Print:
    """How records are printed, those by a schema once they are decoded. Raises InvalidArgument."""
    if not (forms.key.by_schema or forms.value.by_schema):
        return _print(json, form, forms)
    from lakelog.cli.decoding import Decoding

    plain = [ValueFormat.JSON if each.by_schema else each for each in forms]
    return Decoding(client, topics, forms, _print(json, form, Formats(*plain))).show


def _print(json: bool, form: str | None, forms: Formats) -> Print:
    """How records are printed. Raises InvalidArgument."""
    if form is None:
        return json_line(forms) if json else value_line(forms)
    show = formatted(form, forms)
    if json:
        raise InvalidArgument("--json and --format both say what to print; use one of them")
    return show


def _consume(
    client: "Client",
    topics: list[str],
    start: str,
    partition: int | None,
    follow: bool,
    limit: int | None,
    show: Print,
) -> None:
    positions = _positions(client, topics, partition, start)
    growing = topics if partition is None else []
    records = _follow(client, positions, growing) if follow else _read(client, positions)
    try:
        for at, record in islice(records, limit):
            sys.stdout.buffer.write(show(*at, record))
            if follow:
                sys.stdout.flush()
    except KeyboardInterrupt:
        if not follow:
            raise
    finally:
        records.close()
    sys.stdout.flush()


def _consume_in(
    group_id: str,
    client: "Client",
    topics: list[str],
    start: str,
    partition: int | None,
    follow: bool,
    limit: int | None,
    show: Print,
) -> None:
    if start not in ("earliest", "latest"):
        raise InvalidArgument(f"--from {start!r} is not earliest or latest, as it must be with --group")
    from lakelog.client.consumer.consumer import Consumer

    for topic in topics:
        client.partition_count(topic)  # a member waits for a topic that does not exist
    chosen: dict[str, Any] = {"topics": topics}
    if partition is not None:
        chosen = {"partitions": [(topic, partition) for topic in topics]}
    consumer = Consumer(client.url, group_id, auto_offset_reset=start, **chosen, **security_options())
    with consumer, _interrupted(consumer) as asked:
        _print_share(consumer, asked, follow, limit, show)
        consumer.commit()
    if asked.is_set() and not follow:
        raise KeyboardInterrupt


@contextmanager
def _interrupted(consumer: "Consumer") -> Iterator[threading.Event]:
    """Set when Ctrl-C was pressed, or the process is to end: nothing is interrupted in the middle. The second
    time it is as ever.
    """
    asked = threading.Event()

    def on_interrupt(_signal: int, _frame: object) -> None:
        as_before()
        asked.set()
        consumer.stop()

    def as_before() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        as_before()


def _print_share(
    consumer: "Consumer", asked: threading.Event, follow: bool, limit: int | None, show: Print
) -> None:
    """Print the records that a member is given, and give those beyond `limit` back."""
    from log_tables.record import to_records

    while (limit is None or limit > 0) and not asked.is_set():
        table = consumer.poll(FOLLOW_MS if follow else IDLE_MS, POLL_BYTES)
        if not table.num_rows and not follow:
            return
        taken = table.slice(0, limit)
        for at, record in zip(_partitions(taken), to_records(taken), strict=True):
            sys.stdout.buffer.write(show(*at, record))
        sys.stdout.flush()
        if limit is not None:
            limit -= taken.num_rows
            rest = table.slice(taken.num_rows)
            firsts: dict[TopicPartition, int] = {}
            for at, offset in zip(_partitions(rest), rest["offset"].to_pylist(), strict=True):
                firsts.setdefault(at, offset)
            for at, offset in firsts.items():
                consumer.seek(*at, offset)


def _partitions(table: "pa.Table") -> Iterator[TopicPartition]:
    return map(TopicPartition, table["topic"].to_pylist(), table["partition"].to_pylist())


def _positions(
    client: "Client", topics: list[str], partition: int | None, start: str
) -> dict[TopicPartition, int]:
    """The offset to begin at in each partition. Raises InvalidArgument, UnknownTopic, UnknownPartition."""
    found = {}
    for topic in topics:
        for number in range(client.partition_count(topic)) if partition is None else [partition]:
            found[TopicPartition(topic, number)] = _start(client, topic, number, start)
    return found


def _start(client: "Client", topic: str, partition: int, start: str) -> int:
    """The offset that `start` means. Raises InvalidArgument."""
    if start.startswith("-") and start[1:].isdecimal():
        return _found(client.offsets(topic, partition, newest=int(start[1:])))
    offsets = client.offsets(topic, partition)
    if start == "earliest":
        return offsets.beginning
    if start == "latest":
        return offsets.end
    if start.isdecimal():
        return int(start)
    try:
        milliseconds = iso_ms(start)
    except ValueError:
        raise InvalidArgument(
            f"--from {start!r} is not earliest, latest, an offset, -N or an ISO-8601 time; use one of them"
        ) from None
    return _found(client.offsets(topic, partition, milliseconds))


def _found(offsets: "Offsets") -> int:
    """The offset that was looked for; where there is none the end."""
    return offsets.end if offsets.at is None else offsets.at


def _read(
    client: "Client", positions: dict[TopicPartition, int]
) -> "Generator[tuple[TopicPartition, Record]]":
    for at, offset in positions.items():
        for record in client.read(*at, offset):
            yield at, record


def _follow(
    client: "Client", positions: dict[TopicPartition, int], growing: list[str]
) -> "Generator[tuple[TopicPartition, Record]]":
    """The records of all partitions as they come: each partition has a thread that waits for them.

    Those that the topics `growing` get meanwhile are read from their beginning.
    """
    from log_tables.record import to_records

    arrived: Queue[tuple[TopicPartition, pa.Table] | Exception] = Queue(maxsize=len(positions))
    ended = threading.Event()

    def begin() -> None:
        with _errors_into(arrived, ended):
            for place in chain(positions.items(), _added(client, positions, growing, ended)):
                threading.Thread(target=wait_for, args=place, daemon=True).start()

    def wait_for(at: TopicPartition, offset: int | str) -> None:
        with _errors_into(arrived, ended):
            for table in client.read_tables(*at, offset, follow=True):
                arrived.put((at, table))
                if ended.is_set():
                    return

    threading.Thread(target=begin, daemon=True).start()
    try:
        while True:
            got = arrived.get()
            if isinstance(got, Exception):
                raise got
            at, table = got
            for record in to_records(table):
                yield at, record
    finally:
        ended.set()


@contextmanager
def _errors_into(arrived: "Queue[Any]", ended: threading.Event) -> Iterator[None]:
    """Have errors raised where the records are awaited. Once that has `ended` the client is closed: nobody
    waits.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 -- see above
        if not ended.is_set():
            arrived.put(error)


def _added(
    client: "Client", there: Iterable[TopicPartition], growing: list[str], ended: threading.Event
) -> Iterator[tuple[TopicPartition, str]]:
    """The partitions that `growing` topics get besides those `there`, with where to begin, until `ended`."""
    known = Counter(at.topic for at in there)
    while not ended.wait(LOOK_S):
        for topic in growing:
            with suppress(LakelogError):  # whoever reads the topic meets it, and raises it
                for number in range(known[topic], client.partition_count(topic)):
                    known[topic] += 1
                    yield TopicPartition(topic, number), "earliest"
