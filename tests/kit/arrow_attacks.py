"""Arrow streams of a few bytes that stand for gigabytes; as a program it decodes them in little memory."""

import resource
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from api.errors import MalformedBody
from api.wire.arrow import decode_stream
from api.wire.room import Reserve
from coordinator.brokers.peer_wire import decode_entries, encode_entries
from log_tables.errors import InvalidArgument, InvalidRecord
from log_tables.limits import MIB
from tests.kit.partitions import entry

ROOM_BYTES = 512 * MIB
"""What the program may take beyond what it has when it begins."""

MARK = 123_457
"""A number of rows that stands nowhere else in a stream."""

HUGE = (50_000_000, 2**31 - 1, 2**33, 2**40, 2**62, 2**63 - 1, -1, -(2**63))


def stream(batch: pa.RecordBatch, compression: str | None = None, times: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        for _ in range(times):
            writer.write_batch(batch)
    return bytes(sink.getvalue())


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.null())]))


def small_batches() -> Iterator[pa.RecordBatch]:
    """Batches of MARK rows that take hardly any bytes, whose number of rows is as free."""
    yield pa.record_batch({"value": pa.nulls(MARK)})
    yield pa.record_batch({"value": pa.nulls(MARK), "key": pa.nulls(MARK), "headers": pa.nulls(MARK)})
    yield pa.record_batch({"value": pa.nulls(MARK), "partition": pa.nulls(MARK), "timestamp": pa.nulls(MARK)})
    empty = pa.Array.from_buffers(pa.binary(0), MARK, [None, pa.py_buffer(b"")])
    yield pa.record_batch({"value": empty, "key": empty})


def with_rows(body: bytes, rows: int) -> bytes:
    return body.replace(struct.pack("<q", MARK), struct.pack("<q", rows))


def one_field_with(rows: int, which: int) -> bytes:
    """A stream in which only one of the numbers of rows (of the batch, of a column) is `rows`."""
    body = bytearray(stream(next(small_batches())))
    at = -1
    for _ in range(which + 1):
        at = body.index(struct.pack("<q", MARK), at + 1)
    body[at : at + 8] = struct.pack("<q", rows)
    return bytes(body)


def header_items(items: int) -> bytes:
    """A record whose list of headers is of structs that say they are `items`."""
    keys = pa.array(["k"] * 77)
    inner = pa.StructArray.from_arrays([keys, pa.nulls(77)], ["key", "value"])
    headers = pa.ListArray.from_arrays(pa.array([0, 77], pa.int32()), inner)
    body = stream(pa.record_batch({"value": pa.nulls(1), "headers": headers}))
    return body.replace(struct.pack("<qq", 77, 0), struct.pack("<qq", items, 0), 1)


def one_text_many_times(pairs: int, length: int) -> bytes:
    """A schema whose metadata has `pairs` entries, each of them the same long one."""
    metadata = {"long": "x" * length} | {f"key-{number}": "v" for number in range(pairs - 1)}
    schema = pa.schema([("value", pa.binary())], metadata)
    body = bytearray(stream(pa.record_batch([pa.array([b"a"])], schema=schema)))
    return bytes(_aliased(body, pairs))


def one_field_many_times(fields: int) -> bytes:
    """A schema whose columns are one and the same."""
    schema = pa.schema([(f"value-{number}", pa.binary()) for number in range(fields)])
    return bytes(_aliased(bytearray(schema.serialize().to_pybytes()), fields))


def _aliased(body: bytearray, count: int) -> bytearray:
    """`body`, whose vector of `count` tables names the last one, which was made first, again and again."""
    at = body.index(struct.pack("<I", count))
    while True:
        places = [at + 4 + 4 * index for index in range(count)]
        offsets = struct.unpack_from(f"<{count}I", body, at + 4)
        targets = [place + offset for place, offset in zip(places, offsets, strict=True)]
        if len(set(targets)) == count and max(targets) < len(body) and min(offsets) > 0:
            break
        at = body.index(struct.pack("<I", count), at + 1)
    for place in places:
        struct.pack_into("<I", body, place, max(targets) - place)
    return body


def attacks() -> Iterator[tuple[str, bytes]]:
    """Every one: what it is, and the stream."""
    for number, batch in enumerate(small_batches()):
        body = stream(batch)
        yield from ((f"batch {number} of {rows} rows", with_rows(body, rows)) for rows in HUGE)
    for rows in HUGE:
        yield from ((f"number {which} is {rows}", one_field_with(rows, which)) for which in range(2))
        yield f"{rows} headers", header_items(rows)
    yield "many batches", stream(pa.record_batch({"value": pa.nulls(0)}), times=11_000)
    yield "many batches of many rows", stream(pa.record_batch({"value": pa.nulls(900_000)}), times=300)
    yield "one text many times", one_text_many_times(97, 8 * MIB)
    yield "one text in thousands of entries", one_text_many_times(2_011, 8 * MIB)
    yield "one column many times", one_field_many_times(2_003)
    inflated = pa.record_batch({"value": pa.array([bytes(1 * MIB)])})
    yield from ((f"{kind} bombs", stream(inflated, kind, times=1_000)) for kind in ("lz4", "zstd"))


def decode(body: bytes, hold: Reserve = lambda _: None) -> str:
    """Decode a stream. Returns "taken", or the message of the refusal. Raises MemoryError if the decoder was
    refused only by a lack of memory.
    """
    try:
        decode_stream(body, hold).validate(full=True)
    except (MalformedBody, InvalidRecord) as error:
        if isinstance(error.__context__, MemoryError):
            raise error.__context__ from None
        return str(error)
    return "taken"


def decode_from_peer(body: bytes) -> str:
    """Decode a body in the format of gateways, and return or raise as `decode` does."""
    try:
        decode_entries(body)
    except (InvalidArgument, InvalidRecord) as error:
        if isinstance(error.__context__, MemoryError):
            raise error.__context__ from None
        return str(error)
    return "taken"


NUMBERS = st.sampled_from([0, 1, 2, 4, 8, 64, 1000, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1, *HUGE])


@given(data=st.data())
def wild(data: st.DataObject) -> None:
    """A few numbers of a sound stream are replaced: it is refused or taken, in little memory."""
    body = bytearray(data.draw(st.sampled_from(SOUND)))
    for _ in range(data.draw(st.integers(1, 3))):
        wide = data.draw(st.booleans())
        at = 4 * data.draw(st.integers(0, len(body) // 4 - 2))
        number = data.draw(NUMBERS)
        struct.pack_into("<Q" if wide else "<I", body, at, number % (2**64 if wide else 2**32))
    decode(bytes(body))
    decode_from_peer(bytes(body))


def sound() -> list[bytes]:
    """Streams with every kind of column, plain and compressed, and one of a gateway."""
    headers = pa.array(
        [[("k", b"v")], None, []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    batch = pa.record_batch(
        {
            "value": pa.array([b"aa", None, b"c"]),
            "key": pa.nulls(3),
            "partition": pa.array([0, 1, None], pa.int32()),
            "timestamp": pa.array([0, 1, 2], pa.timestamp("ms", tz="UTC")),
            "headers": headers,
        }
    )
    return [
        stream(batch),
        stream(batch, "zstd"),
        stream(batch, "lz4", 3),
        encode_entries([entry(b"a", None)]),
    ]


SOUND = sound()


def main(examples: int) -> int:
    """Decode everything above within ROOM_BYTES, and `examples` wild ones; says what was taken."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for what, body in attacks():
        if "taken" in (decode(body), decode_from_peer(body)):
            sys.stdout.write(f"{what}\n")
    no_checks = list(HealthCheck)
    settings(max_examples=examples, deadline=None, database=None, suppress_health_check=no_checks)(wild)()
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
