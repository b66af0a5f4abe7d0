"""Arrow IPC streams in and out: the bulk format. Pure."""

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from api.errors import MalformedBody
from api.rows import Part, check_sizes, split
from log_tables.errors import InvalidRecord
from log_tables.limits import BATCH_MAX_BYTES
from log_tables.partition import partition_for_key
from log_tables.record import RECORD_SCHEMA, input_batch_from_columns
from log_tables.topic import Topic

_COLUMNS = ("value", "key", "partition", "timestamp", "headers")
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""End of stream: the continuation marker and a length of 0 (Arrow's "IPC Streaming Format")."""


def decode_stream(body: bytes) -> pa.RecordBatch:
    """The record batches of an IPC stream as one. Raises MalformedBody, InvalidRecord."""
    try:
        with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
            _check_columns(reader.schema)
            batches, size = [], 0
            for batch in reader:
                size += batch.nbytes  # a compressed body may unpack to more than was sent
                if size > BATCH_MAX_BYTES:
                    raise InvalidRecord(
                        f"the stream holds more than {BATCH_MAX_BYTES} bytes; send less at once"
                    )
                batch.validate(full=True)
                batches.append(batch)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise MalformedBody(f"the body is not a whole Arrow IPC stream: {error}") from None
    if sum(batch.num_rows for batch in batches) == 0:
        raise InvalidRecord("there are no records in the stream; send at least one")
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _check_columns(schema: pa.Schema) -> None:
    if "value" not in schema.names:
        raise InvalidRecord(
            f"the stream has no column 'value', only {', '.join(schema.names) or 'none'}; add it"
        )
    unknown = [name for name in schema.names if name not in _COLUMNS]
    if unknown or len(set(schema.names)) < len(schema.names):
        raise InvalidRecord(
            f"the columns {', '.join(schema.names)} are not understood; use each of "
            f"{', '.join(_COLUMNS)} at most once"
        )


def parts_of_stream(
    sent: pa.RecordBatch, topic: Topic, fixed: int | None, sticky: int, now_us: int
) -> list[Part]:
    """The parts of a stream by partition: `fixed`, else its column `partition`, else its key, else `sticky`.

    Raises InvalidRecord, RecordTooLarge.
    """

    def column(name: str) -> pa.Array | None:
        return sent.column(name) if name in sent.schema.names else None

    named = column("partition")
    if fixed is not None and named is not None:
        raise InvalidRecord("a stream to one partition has no column 'partition'; leave it out")
    batch = input_batch_from_columns(
        sent.column("value"),
        now_us=now_us,
        keys=column("key"),
        timestamps=column("timestamp"),
        headers=column("headers"),
    )
    check_sizes(batch, topic)
    keys = batch.column("key")
    if fixed is not None or (named is None and keys.null_count == len(keys)):
        return [Part(sticky if fixed is None else fixed, batch)]
    return split(batch, _choose(keys, named, topic, sticky))


def _choose(keys: pa.Array, named: pa.Array | None, topic: Topic, sticky: int) -> np.ndarray:
    count = topic.partition_count
    chosen = np.full(len(keys), -1, dtype=np.int64)
    if named is not None:
        chosen = _numbers(named)
        wrong = np.flatnonzero((chosen < -1) | (chosen >= count))
        if len(wrong):
            index = int(wrong[0])
            raise InvalidRecord(
                f"record {index}: topic {topic.name!r} has no partition {chosen[index]}; use 0 to {count - 1}"
            )
    for index in np.flatnonzero(chosen == -1).tolist():
        key = keys[index].as_py()
        chosen[index] = sticky if key is None else partition_for_key(key, count)
    return chosen


def _numbers(named: pa.Array) -> np.ndarray:
    """The column `partition` as int64, -1 where it is null. Raises InvalidRecord."""
    try:
        numbers: np.ndarray = named.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return numbers
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidRecord(f"the column 'partition' has no whole numbers: {error}") from None


def encode_stream(batches: Iterable[pa.RecordBatch]) -> Iterator[memoryview | bytes]:
    """RECORD_SCHEMA batches as an IPC stream, one message at a time."""
    yield memoryview(RECORD_SCHEMA.serialize())
    for batch in batches:
        yield memoryview(batch.serialize())
    yield _END
