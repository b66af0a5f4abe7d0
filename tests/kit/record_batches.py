"""Record batches of Kafka as its Python clients make and read them, and as nobody should make them."""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import google_crc32c
import pyarrow as pa
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords

from log_tables.layout import HEADERS, KEY, TIMESTAMP, VALUE
from log_tables.record import Record, header_pairs
from log_tables.rows import Records, as_batch

HEADER_BYTES = 61
ATTRIBUTES = (21, ">h")
LAST_OFFSET_DELTA = (23, ">i")
BASE_TIMESTAMP = (27, ">q")
PRODUCER_ID = (43, ">q")
COUNT = (57, ">i")
MAGIC = (16, ">b")
LENGTH = (8, ">i")

Headers = Sequence[tuple[str, bytes | None]]


class Sent(NamedTuple):
    """One record as a client knows it; the time is in milliseconds."""

    key: bytes | None
    value: bytes | None
    time_ms: int
    headers: Headers = ()


def content(size: int | None, number: int) -> bytes | None:
    """A content of `size` bytes that differs from record to record; None for null."""
    return None if size is None else (b"%d." % number * (size + 1))[:size]


lengths = st.none() | st.integers(0, 300)
contents = st.none() | st.binary(max_size=200)
sent_records = st.builds(
    Sent,
    contents,
    contents,
    st.integers(0, 2**41),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)


def kafka_python_batch(
    records: Sequence[Sent], gzip: bool = False, stamp: tuple[bool, int, int, int] = (False, -1, -1, -1)
) -> bytes:
    """The batch that kafka-python makes of `records`. Its `stamp` says whether it is part of a transaction,
    and has the producer's id, epoch and sequence.
    """
    return _built(KafkaPythonBuilder(2, int(gzip), *stamp, 1 << 30), records)


def aiokafka_batch(records: Sequence[Sent], gzip: bool = False) -> bytes:
    """The batch that aiokafka makes of `records`."""
    return _built(AiokafkaBuilder(2, int(gzip), 0, -1, -1, -1, 1 << 30), records)


def _built(builder: "KafkaPythonBuilder | AiokafkaBuilder", records: Sequence[Sent]) -> bytes:
    for index, record in enumerate(records):
        assert builder.append(index, record.time_ms, record.key, record.value, [*record.headers]) is not None
    return bytes(builder.build())


class Got(NamedTuple):
    """One record of a fetch."""

    offset: int
    time_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def kafka_python_reads(data: bytes) -> list[Got]:
    """The records that kafka-python finds in the answer of a fetch."""
    return _read(MemoryRecords(data))


def aiokafka_reads(data: bytes) -> list[Got]:
    """The records that aiokafka finds in the answer of a fetch."""
    return _read(AiokafkaRecords(data))


def _read(records: "MemoryRecords | AiokafkaRecords") -> list[Got]:
    got: list[Got] = []
    while (batch := records.next_batch()) is not None:
        assert batch.validate_crc()
        got += [Got(r.offset, r.timestamp, r.key, r.value, [*r.headers]) for r in batch]
    return got


def logged(records: Records) -> list[Record]:
    """Decoded records, in either form."""
    batch = as_batch(records)
    times = batch.column(TIMESTAMP).cast(pa.int64()).to_pylist()
    keys, values = batch.column(KEY).to_pylist(), batch.column(VALUE).to_pylist()
    return [*map(Record, values, keys, header_pairs(batch.column(HEADERS)), times)]


def expected(records: Sequence[Sent], append_time_us: int = 0) -> list[Record]:
    """The records that a log should have of those that were sent."""
    return [
        Record(
            sent.value,
            sent.key,
            tuple(sent.headers),
            append_time_us if sent.time_ms == -1 else sent.time_ms * 1000,
        )
        for sent in records
    ]


def changed(batch: bytes, place: tuple[int, str], value: int) -> bytes:
    """`batch` with another number in its header, and the checksum that this makes right."""
    data = bytearray(batch)
    struct.pack_into(place[1], data, place[0], value)
    return checked(data)


def with_body(batch: bytes, body: bytes, attributes: int = 0) -> bytes:
    """`batch` with other records, or the same ones compressed."""
    data = bytearray(batch[:HEADER_BYTES] + body)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">h", data, 21, attributes)
    return checked(data)


def checked(data: bytes | bytearray) -> bytes:
    """`data` with the right checksum."""
    made = bytearray(data)
    struct.pack_into(">I", made, 17, google_crc32c.value(bytes(made[21:])))
    return bytes(made)
