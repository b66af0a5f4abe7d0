"""`lakelog consume`: print records from an offset on, or a group's share of them."""

import signal
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from itertools import islice
from queue import Queue
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.common import GATEWAY, Json, Url, connect, iso_ms, printable
from log_tables.errors import InvalidArgument
from log_tables.limits import MIB
from log_tables.topic_partition import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from lakelog.client.client import Client
    from lakelog.client.consumer import Consumer
    from log_tables.record import Record

FOLLOW_MS = 10_000
IDLE_MS = 1_000
"""How long one poll of a group's member waits; without --follow the command ends when nothing came for it."""

POLL_BYTES = 16 * MIB


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, an offset, or an ISO-8601 time.")
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(help="Default: all of them.")] = None,
    group: Annotated[
        str | None, typer.Option(help="As a member of this group: go on where it is, and commit.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    url: Url = GATEWAY,
    json: Json = False,
) -> None:
    """Print values, a line each; with --json whole records, a line each.

    In JSON, keys and values are text; those that are not UTF-8 are base64, and called key_base64 and
    value_base64. Partitions come one after the other; with --follow as their records come.

    With --group the topics are shared with the group's other members, what was printed is committed, and
    --from (earliest or latest) is where to begin if nothing is. Without --follow it ends when nothing has
    come for a second.
    """
    if group is not None:
        _consume_in(group, topics, start, partition, follow, limit, url, json)
        return
    with connect(url) as client:
        places = _places(client, topics, partition, start)
        records = (_follow if follow else _read)(client, places)
        try:
            for place, record in islice(records, limit):
                sys.stdout.buffer.write(_line(*place, record, json))
                if follow:
                    sys.stdout.flush()
        except KeyboardInterrupt:
            if not follow:
                raise
        finally:
            records.close()
        sys.stdout.flush()


def _consume_in(
    group: str,
    topics: list[str],
    start: str,
    partition: int | None,
    follow: bool,
    limit: int | None,
    url: str,
    json: bool,
) -> None:
    if start not in ("earliest", "latest"):
        raise InvalidArgument(f"--from {start!r} is not earliest or latest, as it must be with --group")
    from lakelog.client.consumer import Consumer

    with connect(url) as client:
        for topic in topics:
            client.partition_count(topic)  # who names one that is not there would wait for it
    chosen: dict[str, Any] = {"topics": topics}
    if partition is not None:
        chosen = {"partitions": [(topic, partition) for topic in topics]}
    with Consumer(url, group, auto_offset_reset=start, **chosen) as consumer, _interrupted(consumer) as asked:
        _print_share(consumer, asked, follow, limit, json)
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
    consumer: "Consumer", asked: threading.Event, follow: bool, limit: int | None, json: bool
) -> None:
    """Print what a member is given. What is beyond `limit` it gives back."""
    from log_tables.record import to_records

    while (limit is None or limit > 0) and not asked.is_set():
        table = consumer.poll(FOLLOW_MS if follow else IDLE_MS, POLL_BYTES)
        if not table.num_rows and not follow:
            return
        taken = table.slice(0, limit)
        for place, record in zip(_where(taken), to_records(taken), strict=True):
            sys.stdout.buffer.write(_line(*place, record, json))
        sys.stdout.flush()
        if limit is not None:
            limit -= taken.num_rows
            rest = table.slice(taken.num_rows)
            firsts: dict[TopicPartition, int] = {}
            for place, offset in zip(_where(rest), rest["offset"].to_pylist(), strict=True):
                firsts.setdefault(place, offset)
            for place, offset in firsts.items():
                consumer.seek(*place, offset)


def _where(table: "pa.Table") -> Iterator[TopicPartition]:
    return map(TopicPartition, table["topic"].to_pylist(), table["partition"].to_pylist())


def _places(
    client: "Client", topics: list[str], partition: int | None, start: str
) -> dict[TopicPartition, int]:
    """Where to begin in which partitions. Raises InvalidArgument, UnknownTopic, UnknownPartition."""
    found = {}
    for topic in topics:
        for index in range(client.partition_count(topic)) if partition is None else [partition]:
            found[TopicPartition(topic, index)] = _start(client, topic, index, start)
    return found


def _start(client: "Client", topic: str, partition: int, start: str) -> int:
    """The offset that `start` means. Raises InvalidArgument."""
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
            f"--from {start!r} is not earliest, latest, an offset or an ISO-8601 time"
        ) from None
    found = client.offsets(topic, partition, milliseconds)
    return found.end if found.at is None else found.at


def _read(client: "Client", places: dict[TopicPartition, int]) -> "Generator[tuple[TopicPartition, Record]]":
    for place, offset in places.items():
        for record in client.read(*place, offset):
            yield place, record


def _follow(
    client: "Client", places: dict[TopicPartition, int]
) -> "Generator[tuple[TopicPartition, Record]]":
    """The records of all partitions as they come: each partition has a thread that waits for them."""
    from log_tables.record import to_records

    arrived: Queue[tuple[TopicPartition, Any]] = Queue(maxsize=len(places))
    ended = threading.Event()

    def wait_for(place: TopicPartition, offset: int) -> None:
        try:
            for table in client.read_tables(*place, offset, follow=True):
                arrived.put((place, table))
                if ended.is_set():
                    return
        except Exception as error:  # noqa: BLE001 -- raised again where the records are awaited
            arrived.put((place, error))

    for place in places.items():
        threading.Thread(target=wait_for, args=place, daemon=True).start()
    try:
        while True:
            at, got = arrived.get()
            if isinstance(got, Exception):
                raise got
            for record in to_records(got):
                yield at, record
    finally:
        ended.set()


def _line(topic: str, partition: int, record: "Record", whole: bool) -> bytes:
    if not whole:
        value = b"" if record.value is None else record.value
        if sys.stdout.isatty():  # a program gets the bytes as they are
            value = printable(value.decode(errors="backslashreplace")).encode()
        return value + b"\n"
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": (record.timestamp_us or 0) // 1000,
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [{"key": key, **_named("value", value)} for key, value in record.headers],
    }
    import msgspec

    return msgspec.json.encode(row) + b"\n"


def _named(name: str, data: bytes | None) -> dict[str, str | bytes | None]:
    """`data` as text; bytes that are not UTF-8 stay bytes, which JSON shows as base64, under another name."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": data}
