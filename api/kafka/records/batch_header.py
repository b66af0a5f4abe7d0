"""The 61 bytes before the records of a batch (KIP-98, "Message Format"), and their checksum."""

import struct
from dataclasses import dataclass

import google_crc32c
import pyarrow as pa

from api.kafka.records.errors import BatchError, InvalidBatch, corrupt, invalid

_HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = _HEADER.size
_LENGTH_END = 12
"""The bytes of base offset and length, which the length does not count."""
_MAGIC_AT = 16
_MAGIC = 2
_CHECKED_AT = 21
"""The checksum covers all that follows it."""
_CHECKED = struct.Struct(">hiqqqhii")

COMPRESSION_BITS = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
_KNOWN_BITS = COMPRESSION_BITS | APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT

NONE_KNOWN = -1
"""The producer id, epoch and sequence of a batch that names none."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The fields of a header that a reader of the batch needs; the timestamp is in milliseconds."""

    attributes: int
    base_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int


def read_header(data: memoryview) -> BatchHeader:
    """The header of `data`, which has to be one batch of a producer, whole, with the right checksum.

    Raises InvalidBatch.
    """
    _check_bounds(data)
    _, _, _, _, sum_, attributes, last_delta, base_ms, _, producer, epoch, sequence, count = (
        _HEADER.unpack_from(data)
    )
    if google_crc32c.value(pa.py_buffer(data[_CHECKED_AT:])) != sum_:
        raise corrupt("the checksum of the batch is wrong; send it again")
    if attributes & ~_KNOWN_BITS:
        raise invalid(f"the attributes {attributes:#06x} of the batch have unknown bits; send them as 0")
    if attributes & CONTROL_BIT:
        raise invalid("the batch is a control batch; only a broker writes those")
    if attributes & APPEND_TIME_BIT:
        raise InvalidBatch(
            BatchError.INVALID_TIMESTAMP,
            "the batch has the time of its append; send the time of its creation",
        )
    if count < 1 or last_delta != count - 1:
        raise invalid(f"the batch has {count} records, and the last offset delta {last_delta}")
    return BatchHeader(attributes, base_ms, producer, epoch, sequence, count)


def is_packed(data: memoryview) -> bool:
    """Whether the batch that `data` begins with says that its records are compressed."""
    return len(data) >= HEADER_BYTES and bool(data[_CHECKED_AT + 1] & COMPRESSION_BITS)


def follows_another(data: memoryview) -> bool:
    """Whether the batch that `data` begins with says that its producer sent one for the partition before."""
    if len(data) < HEADER_BYTES:
        return False
    *_, producer_id, _, sequence, _ = _HEADER.unpack_from(data)
    return bool(producer_id > NONE_KNOWN and sequence > 0)


def _check_bounds(data: memoryview) -> None:
    if not data:
        raise invalid("there is no record batch for the partition; send one")
    if len(data) > _MAGIC_AT:
        [magic] = struct.unpack_from(">b", data, _MAGIC_AT)
        if magic in (0, 1):
            raise InvalidBatch(
                BatchError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"the records have the message format {magic}; send record batches of the format {_MAGIC}",
            )
        if magic != _MAGIC:
            raise corrupt(f"the batch has the unknown message format {magic}; send {_MAGIC}")
    if len(data) < HEADER_BYTES:
        raise corrupt(f"the batch has {len(data)} bytes, its header alone has {HEADER_BYTES}; send all of it")
    [length] = struct.unpack_from(">i", data, 8)
    if length < HEADER_BYTES - _LENGTH_END or length > len(data) - _LENGTH_END:
        raise corrupt(
            f"the batch says that {length} bytes follow, {len(data) - _LENGTH_END} do; send all of it"
        )
    if length < len(data) - _LENGTH_END:
        raise invalid("more follows the record batch of the partition; send one batch for each partition")


def header_of(
    offsets: tuple[int, int],
    attributes: int,
    times_ms: tuple[int, int],
    count: int,
    body: bytes | memoryview,
    leader_epoch: int,
) -> bytes:
    """The header of a batch of a log, whose records are `body`, all of one `leader_epoch`. `offsets` are its
    base and its last one, `times_ms` its base and its latest timestamp.
    """
    base_offset, last_offset = offsets
    base_ms, latest_ms = times_ms
    checked = _CHECKED.pack(
        attributes, last_offset - base_offset, base_ms, latest_ms, NONE_KNOWN, NONE_KNOWN, NONE_KNOWN, count
    )
    checksum = google_crc32c.extend(google_crc32c.value(checked), pa.py_buffer(body))
    length = HEADER_BYTES - _LENGTH_END + len(body)
    return struct.pack(">qiibI", base_offset, length, leader_epoch, _MAGIC, checksum) + checked
