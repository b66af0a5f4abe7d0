"""The body of a transaction, in every format: its frame, and its records by topic. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from api.errors import MalformedBody
from api.media import Format
from api.wire.arrow import open_stream
from api.wire.arrow import sent_records as sent_as_arrow
from api.wire.json_bounds import IN_LIST_DEPTH, check_utf8, decoded_within, decoding_cost, too_deep
from api.wire.long_lists import LongListsDecoder, free
from api.wire.room import hold
from api.wire.v2 import BinaryRecord, JsonRecord, TextRecord, sent_records
from coordinator.groups.events import OffsetAndMetadata
from ingest.buffer import Room
from log_tables.cluster.group_log import check_retry_key
from log_tables.cluster.route import SentRecords
from log_tables.errors import InvalidRecord
from log_tables.record import int64s
from log_tables.rows import bytes_of
from log_tables.segments.staging import StagedFile
from log_tables.topic_partition import TopicPartition

ARROW_METADATA = b"transaction"
"""The key in the metadata of an Arrow schema whose value is the frame, as JSON."""


class Offset(msgspec.Struct, forbid_unknown_fields=True):
    """As in a commit: for an instance, of the last record processed; else, of the next record to read."""

    topic: str
    partition: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    offset: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 2)]
    metadata: Annotated[str, msgspec.Meta(max_length=4_096)] | None = None


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """All fields of a transaction but its records."""

    generation: int | None = None
    offsets: list[Offset] = []
    staged: tuple[StagedFile, ...] = ()
    forget: tuple[str, ...] = ()

    def offsets_to_commit(self, step: int) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to commit: those of the body, plus `step`. Raises InvalidRecord if one partition is
        named twice.
        """
        offsets = {
            TopicPartition(each.topic, each.partition): OffsetAndMetadata(
                each.offset + step, each.metadata or ""
            )
            for each in self.offsets
        }
        if len(offsets) < len(self.offsets):
            raise InvalidRecord("the offsets name a partition twice; name each partition once")
        return offsets


class _Json(JsonRecord, kw_only=True):
    topic: str


class _Binary(BinaryRecord, kw_only=True):
    topic: str


class _Text(TextRecord, kw_only=True):
    topic: str


class _JsonBody(Frame):
    records: list[_Json] = []


class _BinaryBody(Frame):
    records: list[_Binary] = []


class _TextBody(Frame):
    records: list[_Text] = []


_frame = LongListsDecoder(Frame)
_DECODERS: dict[Format, LongListsDecoder[Any]] = {
    Format.JSON: LongListsDecoder(_JsonBody),
    Format.BINARY: LongListsDecoder(_BinaryBody),
    Format.TEXT: LongListsDecoder(_TextBody),
}


class TransactionTopics(NamedTuple):
    """The topics that a transaction writes and reads, and the offsets that it commits."""

    written: list[str]
    read: list[str]
    offsets: dict[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class TransactionBody:
    """The frame of a body, and its records by topic."""

    frame: Frame
    records: Mapping[str, SentRecords]

    def named(self, step: int) -> TransactionTopics:
        """Its topics. The frame has no offsets then; `step` is as in `Frame.offsets_to_commit`.

        Raises InvalidRecord for a partition that is named twice, and InvalidArgument for a retry key that
        cannot be one.
        """
        offsets = self.frame.offsets_to_commit(step)
        free(self.frame.offsets)
        for key in self.frame.forget:
            check_retry_key(key)
        staged = {run.topic for file in self.frame.staged for run in file.runs}
        return TransactionTopics(
            sorted({*self.records, *staged}), sorted({at.topic for at in offsets}), offsets
        )

    @property
    def elements(self) -> int:
        """The partitions, files and keys that it has besides records, before they are `named`."""
        runs = sum(len(file.runs) for file in self.frame.staged)
        return len(self.frame.offsets) + runs + len(self.frame.forget)


def decode_transaction(body: bytes, form: Format, room: Room, now_us: int) -> TransactionBody:
    """The transaction in `body`; records without a timestamp get `now_us`.

    `room` holds both then. Raises MalformedBody, InvalidRecord, RequestTooLarge, BufferFull.
    """
    if form is Format.ARROW:
        return _from_arrow(body, room, now_us)

    def both(made: TransactionBody) -> int:
        return len(body) + sum(bytes_of(sent.records) for sent in made.records.values())

    decode = partial(_from_json, form=form, now_us=now_us)
    return decoded_within(room, body, IN_LIST_DEPTH, decode, both, form)


def _from_json(body: bytes, form: Format, now_us: int) -> TransactionBody:
    check_utf8(body)
    try:
        sent = _DECODERS[form].decode(body)
    except msgspec.ValidationError as error:
        raise InvalidRecord(
            f"the transaction does not fit {form.value}: {error}; fix it, or name its format in Content-Type"
        ) from None
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError as error:
        raise MalformedBody(f"the body is not JSON: {error}; send valid JSON") from None
    by_topic: dict[str, list[int]] = {}
    for index, record in enumerate(sent.records):
        by_topic.setdefault(record.topic, []).append(index)
    sent_to = {
        topic: replace(sent_records([sent.records[index] for index in own], form, now_us), indexes=own)
        for topic, own in by_topic.items()
    }
    free(sent.records)  # the frame is kept until the transaction is committed
    return TransactionBody(sent, sent_to)


def _from_arrow(body: bytes, room: Room, now_us: int) -> TransactionBody:
    batch = open_stream(body, partial(hold, room), topics=True)
    frame_json = (batch.schema.metadata or {}).get(ARROW_METADATA, b"{}")
    check_utf8(frame_json)
    try:
        hold(room, room.size_bytes + decoding_cost(frame_json, IN_LIST_DEPTH))
        frame = _frame.decode(frame_json)
    except msgspec.ValidationError as error:
        raise InvalidRecord(
            f"the schema's metadata 'transaction' is not a transaction: {error}; fix it"
        ) from None
    except RecursionError:
        raise too_deep() from None
    except msgspec.DecodeError as error:
        raise MalformedBody(
            f"the schema's metadata 'transaction' is not JSON: {error}; send valid JSON"
        ) from None
    names = batch.column("topic").cast(pa.string())
    rows = batch.select([name for name in batch.schema.names if name != "topic"])
    if names.null_count:
        raise InvalidRecord("a record has no topic; name one for each record")
    hold(room, room.size_bytes + rows.nbytes)  # if they are for several topics, those of each are copied
    sent_to = {
        topic: replace(sent_as_arrow(own, now_us), indexes=indexes)
        for topic, (own, indexes) in _by_topic(rows, names).items()
    }
    return TransactionBody(frame, sent_to)


def _by_topic(
    rows: pa.RecordBatch, names: pa.Array
) -> dict[str, tuple[pa.RecordBatch, Sequence[int] | np.ndarray]]:
    """The rows of each topic, in their order, and where they stood. One sort, however many topics there
    are.
    """
    encoded = names.dictionary_encode()
    topics, numbers = encoded.dictionary.to_pylist(), encoded.indices
    if len(topics) < 2:
        return dict.fromkeys(topics, (rows, range(len(rows))))
    order = pc.array_sort_indices(numbers)  # stable
    ordered, indexes = rows.take(order), int64s(order.cast(pa.int64()))
    counts = np.bincount(np.frombuffer(numbers.buffers()[1], np.int32, len(numbers)))
    ends = np.cumsum(counts).tolist()
    return {
        topic: (ordered.slice(end - count, count), indexes[end - count : end])
        for topic, end, count in zip(topics, ends, counts.tolist(), strict=True)
    }
