"""JSON that becomes many objects; as a program it says what takes more memory than was counted."""

import re
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import msgspec
from pydantic import BaseModel

from api.errors import MalformedBody, RequestTooLarge
from api.media import Format
from api.requests.new_topic import NewTopic
from api.v2.consumer_schema import CommitBody, SubscriptionBody, parse_consumer
from api.v3.topics import Alterations
from api.wire.json_bounds import ALONE_DEPTH, IN_LIST_DEPTH, bounded_cost, small_cost, text_cost
from api.wire.transaction import decode_transaction
from api.wire.v2 import decode_records
from ingest.buffer import Buffer
from log_tables.errors import InvalidConsumer, InvalidRecord
from log_tables.limits import KIB, MIB, SMALL_BODY_MAX_BYTES
from log_tables.rows import as_batch
from tests.kit.v3_bodies import decode_batch, decode_stream

BODY_BYTES = 2 * MIB

SPARE_BYTES = 4 * MIB
"""What the memory may grow by beside, as it is given to Python in large pieces."""

Decode = Callable[[bytes], object]

_FULL = b'"headers":[{"key":"k","value":"AA=="}],"timestamp":1700000000000'
_FULL_V3 = (
    b'"partition_id":0,"key":{"type":"STRING","data":"k"},"value":{"type":"JSON","data":1},'
    b'"headers":[{"name":"k","value":"AA=="}],"timestamp":"2024-01-01T00:00:00Z"'
)


def many(
    item: bytes, begin: bytes = b"", end: bytes = b"", between: bytes = b",", size: int = BODY_BYTES
) -> bytes:
    """A body of `size` bytes: `item` again and again; a `%d` in it is another number each time."""
    times = (size - len(begin) - len(end)) // (len(item) + len(between) + 5 * item.count(b"%d"))
    numbers = count()
    items = (re.sub(b"%d", lambda _: b"%d" % next(numbers), item) for _ in range(times))
    return begin + between.join(items if b"%d" in item else [item] * times) + end


def records(item: bytes) -> bytes:
    return many(item, b'{"records":[', b"]}")


def listed() -> Iterator[tuple[str, bytes, Decode]]:
    """Bodies with a list of records: what they are, the body, and what decodes it."""

    def decode(body: bytes) -> object:
        sent = decode_records(body, Format.JSON, 0)
        return sent, as_batch(sent.records)

    yield "empty records", records(b"{}"), decode
    yield "records of one field", records(b'{"value":0}'), decode
    yield "records with all fields", records(b'{"value":1,"key":2,"partition":0,%b}' % _FULL), decode
    yield "empty headers", many(b'{"key":""}', b'{"records":[{"headers":[', b"]}]}"), decode
    yield "headers", many(b'{"key":"\xc3\xa4","value":"AA=="}', b'{"records":[{"headers":[', b"]}]}"), decode
    yield "what is no record", records(b"1"), decode
    yield "objects before records", many(b"{}", b'{"x":[', b'],"records":[' + b"1," * 99_999 + b"1]}"), decode
    yield "objects in a value", many(b"{}", b'{"records":[{"value":[', b"]}]}"), decode
    yield "entries", many(b'{"id":"%d",' + _FULL_V3 + b"}", b'{"entries":[', b"]}"), decode_batch
    yield "entries that are none", many(b"1", b'{"entries":[', b"]}"), decode_batch
    yield "small entries", many(b'{"id":"%d"}', b'{"entries":[', b"]}"), decode_batch

    def transaction(body: bytes) -> object:
        with Buffer(1_000 * MIB).room("t") as room:
            return decode_transaction(body, Format.JSON, room, 0)

    yield "keys to forget", many(b'"%d"', b'{"forget":[', b"]}"), transaction
    yield "offsets", many(b'{"topic":"%d","partition":0,"offset":0}', b'{"offsets":[', b"]}"), transaction
    yield "runs", many(b'{"topic":"t"}', b'{"staged":[{"path":"p","runs":[', b"]}]}"), transaction


def loose() -> Iterator[tuple[str, bytes, Decode]]:
    """Attacks by streams of records that stand one after the other: name, body, decoder."""
    yield "loose records", many(b"{}", between=b""), decode_stream
    yield "full loose records", many(b"{%b}" % _FULL_V3, between=b""), decode_stream
    yield "one document", many(b"{}", b'{"value":{"type":"JSON","data":[', b"]}}"), decode_stream
    yield (
        "one wide character",
        many(b"a", b'{"value":{"type":"JSON","data":"\xf0\x9f\x98\x80', b'"}}', b""),
        decode_stream,
    )
    yield "documents that are none", many(b"1", between=b" "), decode_stream


def small() -> Iterator[tuple[str, bytes, Decode]]:
    """Attacks by small bodies without records: name, body, decoder."""

    def into(kind: type[BaseModel]) -> Decode:
        def decode(body: bytes) -> object:
            try:
                return kind.model_validate(msgspec.json.decode(body))
            except ValueError as error:
                return error, str(error)

        return decode

    def fill(item: bytes, name: bytes) -> bytes:
        return many(item, b'{"%b":[' % name, b"]}", size=SMALL_BODY_MAX_BYTES)

    for item in (b"1", b"{}", b"[]", b'""', b'{"a":1}'):
        yield f"commits of {item!r}", fill(item, b"offsets"), into(CommitBody)
        yield f"topics {item!r}", fill(item, b"topics"), into(SubscriptionBody)
        yield f"configs {item!r}", fill(item, b"configs"), into(NewTopic)
        yield f"changes {item!r}", fill(item, b"data"), into(Alterations)
    yield "offsets", fill(b'{"topic":"t%d","partition":0,"offset":0}', b"offsets"), into(CommitBody)
    for kind in (CommitBody, NewTopic):
        yield f"fields of {kind.__name__}", many(b'"%d":1', b"{", b"}", size=512 * KIB), into(kind)
    yield "fields of a consumer", many(b'"%d":1', b"{", b"}", size=512 * KIB), parse_consumer


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * KIB for line in lines if line.startswith(name))


def taken_beyond(body: bytes, cost: Callable[[bytes], int], decode: Decode) -> int:
    """Bytes that it takes to decode `body` beyond what `cost` counts; a refusal by `cost` counts nothing."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what there is now
    before = _status("VmRSS")
    counted = 0
    try:
        counted = cost(body)
        decode(body)
    except (MalformedBody, InvalidRecord, InvalidConsumer, RequestTooLarge):
        pass
    return _status("VmHWM") - before - counted


def main() -> int:
    """Decode all of them, and say which takes more than was counted."""
    costs: list[tuple[Iterator[tuple[str, bytes, Decode]], Callable[[bytes], int]]] = [
        (listed(), lambda body: len(body) + bounded_cost(body, IN_LIST_DEPTH)),
        (loose(), lambda body: len(body) + bounded_cost(body, ALONE_DEPTH)),
        (small(), small_cost),
    ]
    for attacks, cost in costs:
        for what, body, decode in attacks:
            beyond = taken_beyond(body, cost, decode)
            if beyond > SPARE_BYTES:
                sys.stdout.write(f"{what}: {beyond // KIB} KiB more\n")
    wide = many(b"a", b'{"records":[{"value":"\xf0\x9f\x98\x80', b'"}]}', b"")
    beyond = taken_beyond(
        wide, text_cost, lambda body: as_batch(decode_records(body, Format.TEXT, 0).records)
    )
    if beyond > SPARE_BYTES:
        sys.stdout.write(f"one wide character in a text: {beyond // KIB} KiB more\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
