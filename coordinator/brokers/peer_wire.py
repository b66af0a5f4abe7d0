"""The messages between gateways: records of a partition as an Arrow stream, and outcomes; and the frames of a
Unix socket, in which many requests and many answers go together. Pure.

The body of a frame is msgpack. A few records go as they are, which costs no Arrow on either side.
"""

import struct
from collections.abc import Callable, Sequence

import msgspec
import pyarrow as pa

from ingest.writer import Appended, AppendOutcome
from log_tables.arrow_bounds import check_stream
from log_tables.errors import Detail, InvalidArgument, InvalidRecord, LakelogError, error_named
from log_tables.layout import TIMESTAMP
from log_tables.limits import (
    KEPT_PRODUCER_ID_MAX,
    PRODUCER_EPOCH_MAX,
    PRODUCER_ID_MAX,
    SEQUENCE_MODULUS,
    STREAM_RECORDS_MAX,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
)
from log_tables.partition.partition import AppendRequest, Author, ProducerStamp
from log_tables.record import INPUT_SCHEMA, check_timestamps, int64s
from log_tables.rows import Rows, as_batch, rows_or_batch

_STAMPS = b"lakelog.stamps"


class _Stamp(msgspec.Struct, array_like=True):
    """The producer, the expected offset and the author of a request, next to its records. A gateway of an
    older version sends no author, and ignores one.
    """

    producer: tuple[int, int, int, bool] | None
    expected_offset: int | None
    author: Author | None = None


class _RowEntry(msgspec.Struct, array_like=True):
    """A request of a few records."""

    stamp: _Stamp
    values: list[bytes | None]
    timestamps_us: list[int] | int
    keys: list[bytes | None] | None
    headers: list[list[tuple[str, bytes | None]]] | None


class Hello(msgspec.Struct, array_like=True):
    """The first frame of a connection: which process is meant, and who asks (coordinator/brokers/peers.py).

    The answer is the proof of `target`; an empty one refuses.
    """

    target: str
    asker: str


class Call(msgspec.Struct, array_like=True):
    """A request to append to partitions of one topic. `number` is its own among those of a connection.

    `parts` are partitions, each with its entries: a list of a few records, or the body of `encode_entries`.
    `trace` are the id, the traceparent and the tracestate of the request for which it is asked, if any.
    """

    number: int
    topic: str
    topic_id: str
    acks: str
    trace: tuple[str, str, str] | None
    parts: list[tuple[int, list[_RowEntry] | bytes]]


class _Answer(msgspec.Struct, omit_defaults=True):
    """An outcome: an error's code, message and details, or where the records are."""

    base_offset: int | None = None
    count: int = 0
    duplicate: bool = False
    append_time_us: int | None = None
    error: str | None = None
    message: str = ""
    details: dict[str, Detail] = {}


class _PartAnswer(msgspec.Struct, array_like=True):
    """The outcomes of the entries of one part of a call; one error may stand for all. `place` is that of the
    part, ALL_PARTS stands for all of them.
    """

    number: int
    place: int
    outcomes: list[_Answer]


ALL_PARTS = -1

_NOT_ENTRIES = (
    pa.ArrowException,
    msgspec.MsgspecError,
    OSError,
    UnicodeDecodeError,
    struct.error,
)

_stamps = msgspec.json.Decoder(list[_Stamp])
_answers = msgspec.json.Decoder(list[_Answer])
_hellos = msgspec.msgpack.Decoder(Hello)
_proofs = msgspec.msgpack.Decoder(str)
_calls = msgspec.msgpack.Decoder(list[Call])
_part_answers = msgspec.msgpack.Decoder(list[_PartAnswer])
_packed = msgspec.msgpack.Encoder()
_ARRAY = struct.Struct(">BI")
"""The head of a list in msgpack (array 32), with its length."""


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
        AppendRequest(batch, _producer(stamp), stamp.expected_offset, author=stamp.author)
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
    return _Stamp(stamp, entry.expected_offset, entry.author)


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


def encode_part(partition: int, entries: Sequence[AppendRequest]) -> tuple[int, list[_RowEntry] | bytes]:
    """A part of a call: `entries` of one partition, in their order."""
    found = []
    for entry in entries:
        rows = entry.records
        if not isinstance(rows, Rows):
            return partition, encode_entries(entries)
        # Lists of the right things, which the encoder does not look at again.
        found.append(_RowEntry(_stamp(entry), rows.values, rows.timestamps_us, rows.keys, rows.headers))  # type: ignore[arg-type]
    return partition, found


def encode_call(call: Call) -> bytes:
    """A call, for `joined`."""
    return _packed.encode(call)


def joined(encoded: Sequence[bytes]) -> bytes:
    """The body of a frame of calls that are encoded, or of answers."""
    return b"".join((_ARRAY.pack(0xDD, len(encoded)), *encoded))


def decode_calls(body: bytes) -> list[Call]:
    """The calls of a frame. Raises ValueError for any other body."""
    return _calls.decode(body)


def entries_of(given: list[_RowEntry] | bytes, hold: Callable[[int], None]) -> list[AppendRequest]:
    """The entries of a part of a call; `hold` is called with the bytes that they take, and may raise.

    Raises InvalidArgument and InvalidRecord for what gateways do not send.
    """
    if isinstance(given, bytes):
        return decode_entries(given, hold)
    entries = [_row_entry(each) for each in given]
    hold(sum(entry.size_bytes for entry in entries))
    return entries


def _row_entry(given: _RowEntry) -> AppendRequest:
    values, times, keys, headers = given.values, given.timestamps_us, given.keys, given.headers
    lists = [each for each in (times, keys, headers) if isinstance(each, list)]
    if any(len(each) != len(values) for each in lists):
        raise InvalidArgument(f"the lists of {len(values)} records differ in length; use the public API")
    for time in (min(times), max(times)) if isinstance(times, list) and times else (times,):
        if isinstance(time, int) and not TIMESTAMP_MIN_US <= time <= TIMESTAMP_MAX_US:
            raise InvalidRecord(f"the timestamp {time} us is no time of a record; use the public API")
    rows = rows_or_batch(Rows(values, times, keys, headers))
    stamp = given.stamp
    return AppendRequest(rows, _producer(stamp), stamp.expected_offset, author=stamp.author)


def encode_part_outcomes(number: int, place: int, outcomes: Sequence[AppendOutcome]) -> bytes:
    """The outcomes of the entries of a part of a call, for `joined`."""
    return _packed.encode(_PartAnswer(number, place, [_answer(outcome) for outcome in outcomes]))


def decode_part_outcomes(body: bytes) -> list[tuple[int, int, list[_Answer]]]:
    """The number, the place and the answers of each part of a frame. Raises ValueError."""
    return [(each.number, each.place, each.outcomes) for each in _part_answers.decode(body)]


def outcomes_of(answers: Sequence[_Answer], partition: int, count: int) -> list[AppendOutcome]:
    """The outcomes of `count` entries of `partition`; one error may stand for all. Raises ValueError."""
    found = [_outcome(answer, partition) for answer in answers]
    if len(found) == 1 and isinstance(found[0], LakelogError):
        return found * count
    if len(found) != count:
        raise ValueError(f"{count} entries have {len(found)} answers")
    return found


def encode_hello(hello: Hello) -> bytes:
    return _packed.encode(hello)


def decode_hello(body: bytes) -> Hello:
    """Raises ValueError."""
    return _hellos.decode(body)


def encode_proof(proof: str) -> bytes:
    return _packed.encode(proof)


def decode_proof(body: bytes) -> str:
    """Raises ValueError."""
    return _proofs.decode(body)
