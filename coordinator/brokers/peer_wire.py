"""The bodies of requests between gateways: records of a partition as an Arrow stream, and outcomes. Pure."""

import struct
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from ingest.writer import Appended, AppendOutcome
from log_tables.arrow_bounds import check_stream
from log_tables.errors import Detail, InvalidArgument, LakelogError, error_named
from log_tables.layout import TIMESTAMP
from log_tables.limits import (
    KEPT_PRODUCER_ID_MAX,
    PRODUCER_EPOCH_MAX,
    PRODUCER_ID_MAX,
    SEQUENCE_MODULUS,
    STREAM_RECORDS_MAX,
)
from log_tables.partition.partition import AppendRequest, ProducerStamp
from log_tables.record import INPUT_SCHEMA, check_timestamps, int64s
from log_tables.rows import as_batch

_STAMPS = b"lakelog.stamps"


class _Stamp(msgspec.Struct, array_like=True):
    """The producer and the expected offset of a request, next to its records."""

    producer: tuple[int, int, int, bool] | None
    expected_offset: int | None


class _Answer(msgspec.Struct, omit_defaults=True):
    """An outcome: an error's code, message and details, or where the records are."""

    base_offset: int | None = None
    count: int = 0
    duplicate: bool = False
    append_time_us: int | None = None
    error: str | None = None
    message: str = ""
    details: dict[str, Detail] = {}


_NOT_ENTRIES = (
    pa.ArrowException,
    msgspec.MsgspecError,
    OSError,
    UnicodeDecodeError,
    struct.error,
)

_stamps = msgspec.json.Decoder(list[_Stamp])
_answers = msgspec.json.Decoder(list[_Answer])


def encode_entries(entries: Sequence[AppendRequest]) -> bytes:
    """Entries of one partition, in their order, as one body."""
    stamps = msgspec.json.encode([_stamp(entry) for entry in entries])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, INPUT_SCHEMA.with_metadata({_STAMPS: stamps})) as writer:
        for entry in entries:
            writer.write_batch(as_batch(entry.records))
    body: bytes = sink.getvalue().to_pybytes()
    return body


def decode_entries(body: bytes, hold: Callable[[int], None] = lambda _: None) -> list[AppendRequest]:
    """The entries of such a body; `hold` is called with the bytes that they and `body` take, before
    any is decoded.

    Raises InvalidArgument for any other body, InvalidRecord for too many, and what `hold` raises.
    """
    try:
        # Each of many small transactions is a batch.
        hold(len(body) + check_stream(body, batches_max=STREAM_RECORDS_MAX))
        with pa.ipc.open_stream(pa.py_buffer(body)) as reader:
            stamps = _stamps.decode((reader.schema.metadata or {}).get(_STAMPS, b""))
            if not reader.schema.equals(INPUT_SCHEMA):
                raise InvalidArgument("the columns are not those of records; use the same version everywhere")
            batches = [*reader]
        for batch in batches:
            batch.validate(full=True)  # the sender may be anybody
    except _NOT_ENTRIES as error:
        raise InvalidArgument(f"the body is not what gateways send ({error}); use the public API") from None
    if any(batch.column(TIMESTAMP).null_count for batch in batches):
        raise InvalidArgument("there are records without a time; use the public API")
    for batch in batches:
        check_timestamps(int64s(batch.column(TIMESTAMP)))
    if len(stamps) != len(batches):
        raise InvalidArgument(f"{len(batches)} batches have {len(stamps)} stamps; use the public API")
    return [
        AppendRequest(batch, _producer(stamp), stamp.expected_offset)
        for batch, stamp in zip(batches, stamps, strict=True)
    ]


def _producer(stamp: _Stamp) -> ProducerStamp | None:
    """Raises InvalidArgument for numbers that no txn can hold, or that are not a client's."""
    if stamp.producer is None:
        return None
    id_max = KEPT_PRODUCER_ID_MAX if stamp.producer[3] else PRODUCER_ID_MAX
    limits = (id_max, PRODUCER_EPOCH_MAX, SEQUENCE_MODULUS - 1)
    if not all(0 <= given <= most for given, most in zip(stamp.producer, limits, strict=False)):
        raise InvalidArgument(f"the producer {stamp.producer} is out of range; use the public API")
    return ProducerStamp(*stamp.producer)


def _stamp(entry: AppendRequest) -> _Stamp:
    made = entry.producer
    stamp = None if made is None else (made.id, made.epoch, made.sequence, made.kept)
    return _Stamp(stamp, entry.expected_offset)


def encode_outcomes(outcomes: Sequence[AppendOutcome]) -> bytes:
    """The outcomes of the requests, in their order."""
    return msgspec.json.encode([_answer(outcome) for outcome in outcomes])


def _answer(outcome: AppendOutcome) -> _Answer:
    if isinstance(outcome, LakelogError):
        return _Answer(error=outcome.code, message=outcome.message, details=outcome.details)
    return _Answer(outcome.base_offset, outcome.count, outcome.duplicate, outcome.append_time_us)


def decode_outcomes(body: bytes, partition: int) -> list[AppendOutcome]:
    """The outcomes of entries of `partition`. Raises ValueError for any other body."""
    return [_outcome(answer, partition) for answer in _answers.decode(body)]


def _outcome(answer: _Answer, partition: int) -> AppendOutcome:
    if answer.error is not None:
        return error_named(answer.error, answer.message, answer.details)
    return Appended(partition, answer.base_offset, answer.count, answer.duplicate, answer.append_time_us)
