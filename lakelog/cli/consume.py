"""`lakelog consume`: print records from an offset on."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from lakelog.cli.common import GATEWAY, Json, Url, connect, iso_ms
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from lakelog.client import Client
    from log_tables.record import Record

FOLLOW_MS = 500
"""How long one partition is waited for before the next is asked, with several to follow."""


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
    """Print values, a line each; with --json whole records, keys and values as text where they are UTF-8."""
    with connect(url) as client:
        count = client.partition_count(topic)
        chosen = list(range(count)) if partition is None else [partition]
        places = {index: _start(client, topic, index, start) for index in chosen}
        left = limit
        try:
            for index, record in _records(client, topic, places, follow):
                sys.stdout.buffer.write(_line(topic, index, record, json))
                if left is not None and (left := left - 1) == 0:
                    break
                if follow:
                    sys.stdout.flush()
        except KeyboardInterrupt:
            return
        finally:
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


def _records(
    client: "Client", topic: str, places: dict[int, int], follow: bool
) -> "Iterator[tuple[int, Record]]":
    """The records of each partition from its place on, one partition after the other, round and round."""
    from log_tables.record import to_records

    waiting = 0
    while places:
        for partition, offset in list(places.items()):
            got = client.fetch(topic, partition, offset, timeout_ms=waiting)
            for record in to_records(got.records):
                yield partition, record
            places[partition] = got.next_offset
            if got.next_offset >= got.high_watermark and not follow:
                del places[partition]
        waiting = (10_000 if len(places) == 1 else FOLLOW_MS // max(1, len(places))) if follow else 0


def _line(topic: str, partition: int, record: "Record", whole: bool) -> bytes:
    if not whole:
        return (b"" if record.value is None else record.value) + b"\n"
    row = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": (record.timestamp_us or 0) // 1000,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [{"key": key, "value": _text(value)} for key, value in record.headers],
    }
    return msgspec.json.encode(row) + b"\n"


def _text(data: bytes | None) -> str | bytes | None:
    """UTF-8 as text; other bytes are left, which JSON shows as base64."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return data
