"""Record batches of producers: read as they were meant, and refused with the right code."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.records.compression import Compression, deflate
from api.kafka.records.errors import BatchError, InvalidBatch
from api.kafka.records.produced import ROWS_MAX, decode_batch
from api.kafka.records.varint import write_varint
from log_tables.errors import BufferFull
from log_tables.limits import MIB
from log_tables.rows import Rows, count_of
from tests.kit import record_batches
from tests.kit.client_batches import CLIENT_BATCHES, CLIENT_RECORDS
from tests.kit.record_batches import (
    HEADER_BYTES,
    Sent,
    aiokafka_batch,
    changed,
    checked,
    expected,
    kafka_python_batch,
    logged,
    sent_records,
    with_body,
)

NOW_US = 1_700_000_000_000_000
FEW = [Sent(b"k", b"v", 1_000, [("h", b"x"), ("h", None)]), Sent(None, None, 1_001), Sent(b"", b"", 999)]
MANY = [
    Sent(b"key-%d" % i, b"x" * (i % 300), 1_000_000 + i * 7, [("n", b"%d" % i)] * (i % 4)) for i in range(300)
]
BOTH = pytest.mark.parametrize("records", [FEW, MANY], ids=["few", "many"])


def decode(data: bytes | memoryview, most_bytes: int = MIB) -> list[object]:
    return [*logged(decode_batch(data, most_bytes, NOW_US).records)]


def refusal(data: bytes, most_bytes: int = MIB) -> BatchError:
    with pytest.raises(InvalidBatch) as caught:
        decode_batch(data, most_bytes, NOW_US)
    assert caught.value.message == str(caught.value)
    return caught.value.code


@given(st.lists(sent_records, min_size=1, max_size=12), st.sampled_from([1, ROWS_MAX]), st.booleans())
def test_all_that_a_client_sends_arrives(records: list[Sent], times: int, gzip: bool) -> None:
    records = records * times
    for batch in (kafka_python_batch(records, gzip), aiokafka_batch(records, gzip)):
        assert decode(memoryview(batch), 64 * MIB) == expected(records)


@BOTH
def test_few_records_are_rows_and_many_are_columns(records: list[Sent]) -> None:
    decoded = decode_batch(kafka_python_batch(records), MIB, NOW_US)
    assert isinstance(decoded.records, Rows) is (len(records) <= ROWS_MAX)
    assert count_of(decoded.records) == len(records)
    assert (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence) == (-1, -1, -1)


def test_a_batch_has_the_stamp_of_its_producer() -> None:
    batch = kafka_python_batch([Sent(None, b"v", 5)], stamp=(True, 77, 3, 2**31 - 1))
    decoded = decode_batch(batch, MIB, NOW_US)
    stamp = (decoded.producer_id, decoded.producer_epoch, decoded.base_sequence, decoded.is_transactional)
    assert stamp == (77, 3, 2**31 - 1, True)


@BOTH
@pytest.mark.parametrize("compression", Compression)
def test_every_codec_unpacks(records: list[Sent], compression: Compression) -> None:
    batch = kafka_python_batch(records)
    packed = with_body(batch, deflate(batch[HEADER_BYTES:], compression), compression)
    assert decode(packed) == expected(records)


@pytest.mark.parametrize("batch", CLIENT_BATCHES.values(), ids=CLIENT_BATCHES)
def test_batches_of_other_programs_are_read(batch: bytes) -> None:
    assert decode(batch) == expected(CLIENT_RECORDS)


@BOTH
def test_a_record_without_a_timestamp_gets_that_of_its_append(records: list[Sent]) -> None:
    records = [sent._replace(time_ms=-1 if i % 2 else sent.time_ms) for i, sent in enumerate(records)]
    assert decode(kafka_python_batch(records)) == expected(records, NOW_US)


@BOTH
def test_times_before_1970_are_kept(records: list[Sent]) -> None:
    first = changed(kafka_python_batch(records), record_batches.BASE_TIMESTAMP, -62_000_000_000_000)
    shift = -62_000_000_000_000 - records[0].time_ms
    assert decode(first) == expected([sent._replace(time_ms=sent.time_ms + shift) for sent in records])


@BOTH
@pytest.mark.parametrize("base_ms", [-(2**63), -62_135_596_800_001, 253_402_300_799_001, 2**63 - 1])
def test_times_outside_the_years_1_to_9999_are_refused(records: list[Sent], base_ms: int) -> None:
    batch = changed(kafka_python_batch(records), record_batches.BASE_TIMESTAMP, base_ms)
    assert refusal(batch) is BatchError.INVALID_TIMESTAMP


@BOTH
@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda batch: batch[:0], BatchError.INVALID_RECORD),
        (lambda batch: batch + batch, BatchError.INVALID_RECORD),
        (lambda batch: batch + b"\0", BatchError.INVALID_RECORD),
        (lambda batch: batch[:-1], BatchError.CORRUPT_MESSAGE),
        (lambda batch: batch[:10], BatchError.CORRUPT_MESSAGE),
        (lambda batch: changed(batch, record_batches.LENGTH, -1), BatchError.CORRUPT_MESSAGE),
        (lambda batch: changed(batch, record_batches.LENGTH, 2**31 - 1), BatchError.CORRUPT_MESSAGE),
        (lambda batch: changed(batch, record_batches.MAGIC, 0), BatchError.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda batch: changed(batch, record_batches.MAGIC, 1), BatchError.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda batch: changed(batch, record_batches.MAGIC, 3), BatchError.CORRUPT_MESSAGE),
        (lambda batch: changed(batch, record_batches.ATTRIBUTES, 5), BatchError.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda batch: changed(batch, record_batches.ATTRIBUTES, 8), BatchError.INVALID_TIMESTAMP),
        (lambda batch: changed(batch, record_batches.ATTRIBUTES, 0x20), BatchError.INVALID_RECORD),
        (lambda batch: changed(batch, record_batches.ATTRIBUTES, 0x40), BatchError.INVALID_RECORD),
        (lambda batch: changed(batch, record_batches.COUNT, 0), BatchError.INVALID_RECORD),
        (lambda batch: changed(batch, record_batches.COUNT, 2**31 - 1), BatchError.INVALID_RECORD),
        (lambda batch: changed(batch, record_batches.LAST_OFFSET_DELTA, 9_999), BatchError.INVALID_RECORD),
        (lambda batch: _counted(batch, 2**31 - 1), BatchError.INVALID_RECORD),
        (lambda batch: _counted(batch, len(batch) // 10), BatchError.INVALID_RECORD),
        (lambda batch: _counted(batch, 1), BatchError.INVALID_RECORD),
        (lambda batch: with_body(batch, batch[HEADER_BYTES:] + b"\0"), BatchError.INVALID_RECORD),
        (lambda batch: with_body(batch, batch[HEADER_BYTES:-1]), BatchError.INVALID_RECORD),
        (lambda batch: with_body(batch, batch[HEADER_BYTES:], 1), BatchError.CORRUPT_MESSAGE),
    ],
)
def test_a_wrong_batch_is_refused(
    records: list[Sent], change: Callable[[bytes], bytes], code: BatchError
) -> None:
    assert refusal(change(kafka_python_batch(records))) is code


def _counted(batch: bytes, count: int) -> bytes:
    last = changed(batch, record_batches.LAST_OFFSET_DELTA, count - 1)
    return changed(last, record_batches.COUNT, count)


def _field(number: int) -> bytes:
    return write_varint(number)


def _body(fields: bytes, index: int, count: int) -> bytes:
    """`count` records; the one at `index` has other `fields`."""
    records = [
        b"\0" + _field(0) + _field(i) + _field(-1) + _field(1) + b"v" + _field(0) for i in range(count)
    ]
    records[index] = fields
    return b"".join(_field(len(record)) + record for record in records)


@pytest.mark.parametrize("count", [1, 5, 200])
@pytest.mark.parametrize(
    "fields",
    [
        b"",
        b"\1" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(0),
        b"\0" + _field(0) + _field(1) + _field(-1) + _field(-1) + _field(0),
        b"\0" + _field(0) + _field(-1) + _field(-1) + _field(-1) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(-2) + _field(-1) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-2) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(9) + _field(-1) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(2**31 - 1) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-(2**31)) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(2**40) + _field(0),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(-1),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(1),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(2**31 - 1),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(0) + b"\0",
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(1) + _field(-1) + _field(-1),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(1) + _field(-2) + _field(-1),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(1) + _field(0) + _field(-2),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(1) + _field(0) + _field(9),
        b"\0" + _field(0) + _field(0) + _field(-1) + _field(-1) + _field(1) + _field(1) + b"\xff" + _field(0),
        b"\0" + b"\x80" * 10 + b"\1" + _field(0) + _field(-1) + _field(-1) + _field(0),
        b"\0" + b"\xff" * 9 + b"\2" + _field(0) + _field(-1) + _field(-1) + _field(0),
        b"\0" + _field(0) + b"\x80" * 5 + b"\0" + _field(-1) + _field(-1) + _field(0),
        b"\0" + _field(0) + b"\x80" * 4 + b"\x10" + _field(-1) + _field(-1) + _field(0),
    ],
)
def test_a_wrong_record_is_refused(fields: bytes, count: int) -> None:
    batch = with_body(kafka_python_batch([Sent(None, b"v", 0)]), _body(fields, 0, count))
    assert refusal(_counted(batch, count)) is BatchError.INVALID_RECORD


@pytest.mark.parametrize("count", [1, 200])
def test_numbers_may_take_more_bytes_than_they_need(count: int) -> None:
    long = b"\0" + b"\x80\0" + b"\x80\x80\0" + _field(-1) + b"\x82\x80\0" + b"v" + b"\x80\0"
    batch = with_body(kafka_python_batch([Sent(None, b"v", 7)]), _body(long, 0, count))
    assert decode(_counted(batch, count)) == expected([Sent(None, b"v", 7)] * count)


@pytest.mark.parametrize("count", [1, 200])
def test_a_negative_length_of_a_record_is_refused(count: int) -> None:
    body = _body(b"", 0, count)
    batch = with_body(kafka_python_batch([Sent(None, b"v", 7)]), _field(-4) + body[1:] + b"v" * 10)
    assert refusal(_counted(batch, count)) is BatchError.INVALID_RECORD


@BOTH
def test_every_flipped_byte_is_refused_or_changes_nothing(records: list[Sent]) -> None:
    batch = kafka_python_batch(records[:60])
    right = decode(batch)
    for at in range(0, len(batch), 1 if len(records) < 60 else 7):
        for flip in (1, 0x80, 0xFF):
            data = bytearray(batch)
            data[at] ^= flip
            with suppress(InvalidBatch):
                assert decode(bytes(data)) == right
            with suppress(InvalidBatch):
                decode_batch(checked(data), MIB, NOW_US)


@BOTH
@pytest.mark.parametrize("compression", Compression)
def test_every_truncation_is_refused(records: list[Sent], compression: Compression) -> None:
    batch = kafka_python_batch(records)
    packed = with_body(batch, deflate(batch[HEADER_BYTES:], compression), compression)
    step = 1 + len(packed) // 200
    for end in range(0, len(packed), step):
        refusal(packed[:end])
        if end >= HEADER_BYTES:
            refusal(with_body(batch, packed[HEADER_BYTES:end], compression))


@given(st.binary(max_size=300), st.integers(1, 100), st.integers(0, 7))
def test_random_records_are_refused_or_read(body: bytes, count: int, attributes: int) -> None:
    batch = with_body(kafka_python_batch([Sent(None, b"v", 7)]), body, attributes)
    with suppress(InvalidBatch):
        decode_batch(_counted(batch, count), MIB, NOW_US)


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    refusal(data)


@BOTH
def test_the_memory_of_records_is_held_before_it_is_taken(records: list[Sent]) -> None:
    held: list[int] = []
    batch = kafka_python_batch(records)
    decode_batch(batch, MIB, NOW_US, held.append)
    assert held[-1] > len(batch)

    def full(size_bytes: int) -> None:
        raise BufferFull("no room")

    with pytest.raises(BufferFull):
        decode_batch(batch, MIB, NOW_US, full)


@pytest.mark.parametrize("count", [1, 100])
def test_headers_of_two_bytes_each_are_bounded(count: int) -> None:
    number = 2_000_000 // count
    named = _field(number) + b"\0\1" * number
    record = b"\0" + _field(0) + b"%b" + _field(-1) + _field(-1) + named
    records = [record.replace(b"%b", _field(i), 1) for i in range(count)]
    body = b"".join(_field(len(record)) + record for record in records)
    batch = with_body(kafka_python_batch([Sent(None, b"v", 7)]), body)
    before = pa.total_allocated_bytes()
    assert refusal(_counted(batch, count), 64 * MIB) is BatchError.MESSAGE_TOO_LARGE
    assert pa.total_allocated_bytes() - before < MIB


def test_more_records_than_fit_into_one_request_are_refused() -> None:
    batch = with_body(kafka_python_batch([Sent(None, b"v", 7)]), b"\0" * 7 * 1_000_001)
    assert refusal(_counted(batch, 1_000_001), 64 * MIB) is BatchError.MESSAGE_TOO_LARGE


def test_more_bytes_than_are_taken_are_refused() -> None:
    assert refusal(kafka_python_batch(MANY), 1_000) is BatchError.MESSAGE_TOO_LARGE


@BOTH
@pytest.mark.parametrize("compression", Compression)
def test_a_batch_may_stand_in_a_buffer_that_is_used_again(
    records: list[Sent], compression: Compression
) -> None:
    batch = kafka_python_batch(records)
    packed = with_body(batch, deflate(batch[HEADER_BYTES:], compression), compression)
    buffer = bytearray(b"before" + packed + b"behind")
    decoded = decode_batch(memoryview(buffer)[6:-6], MIB, NOW_US)
    buffer[:] = bytes(len(buffer))
    assert logged(decoded.records) == expected(records)


def test_the_base_offset_and_the_epoch_of_a_leader_do_not_matter() -> None:
    batch = bytearray(kafka_python_batch(FEW))
    struct.pack_into(">q", batch, 0, 12_345)
    struct.pack_into(">i", batch, 12, 7)
    assert decode(bytes(batch)) == expected(FEW)


@pytest.mark.parametrize("count", [3, 3_000])
def test_a_large_batch_that_is_not_packed_is_read_where_it_stands(count: int) -> None:
    records = [Sent(b"key", b"x" * (MIB // count), 1_000)] * count
    batch, held = kafka_python_batch(records), list[int]()
    found = decode_batch(batch, 2 * MIB, NOW_US, held.append).records
    assert [*logged(found)] == expected(records)
    assert max(held) < len(batch) + 250 * count  # once, beside the request
