"""`lakelog consume`: print records from an offset on."""

import sys
import threading
from collections.abc import Generator
from itertools import islice
from queue import Queue
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from lakelog.cli.common import GATEWAY, Json, Url, connect, iso_ms
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from lakelog.client import Client
    from log_tables.record import Record


def consume(
    topic: Annotated[str, typer.Argument(metavar="TOPIC")],
    start: Annotated[
        str, typer.Option("--from", help="earliest, latest, an offset, or an ISO-8601 time.")
    ] = "earliest",
    partition: Annotated[int | None, typer.Option(help="Default: all of them.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until Ctrl-C.")] = False,
    limit: Annotated[int | None, typer.Option("--max", min=1, help="Stop after so many records.")] = None,
    url: Url = GATEWAY,
    json: Json = False,
) -> None:
    """Print values, a line each; with --json whole records, a line each.

    In JSON, keys and values are text; those that are not UTF-8 are base64, and called key_base64 and
    value_base64. Partitions come one after the other; with --follow as their records come.
    """
    with connect(url) as client:
        chosen = range(client.partition_count(topic)) if partition is None else [partition]
        places = {index: _start(client, topic, index, start) for index in chosen}
        records = (_follow if follow else _read)(client, topic, places)
        try:
            for index, record in islice(records, limit):
                sys.stdout.buffer.write(_line(topic, index, record, json))
                if follow:
                    sys.stdout.flush()
        except KeyboardInterrupt:
            if not follow:
                raise
        finally:
            records.close()
        sys.stdout.flush()


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


def _read(client: "Client", topic: str, places: dict[int, int]) -> "Generator[tuple[int, Record]]":
    for partition, offset in places.items():
        for record in client.read(topic, partition, offset):
            yield partition, record


def _follow(client: "Client", topic: str, places: dict[int, int]) -> "Generator[tuple[int, Record]]":
    """The records of all partitions as they come: each partition has a thread that waits for them."""
    from log_tables.record import to_records

    arrived: Queue[tuple[int, Any]] = Queue(maxsize=len(places))
    ended = threading.Event()

    def wait_for(partition: int, offset: int) -> None:
        try:
            for table in client.read_tables(topic, partition, offset, follow=True):
                arrived.put((partition, table))
                if ended.is_set():
                    return
        except Exception as error:  # noqa: BLE001 -- raised again where the records are awaited
            arrived.put((partition, error))

    for place in places.items():
        threading.Thread(target=wait_for, args=place, daemon=True).start()
    try:
        while True:
            partition, got = arrived.get()
            if isinstance(got, Exception):
                raise got
            for record in to_records(got):
                yield partition, record
    finally:
        ended.set()


def _line(topic: str, partition: int, record: "Record", whole: bool) -> bytes:
    if not whole:
        return (b"" if record.value is None else record.value) + b"\n"
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": (record.timestamp_us or 0) // 1000,
        **_named("key", record.key),
        **_named("value", record.value),
        "headers": [{"key": key, **_named("value", value)} for key, value in record.headers],
    }
    return msgspec.json.encode(row) + b"\n"


def _named(name: str, data: bytes | None) -> dict[str, str | bytes | None]:
    """`data` as text; bytes that are not UTF-8 stay bytes, which JSON shows as base64, under another name."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": data}
