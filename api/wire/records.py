"""Stored records as the JSON of a fetch answer, in the format that was asked for. Hot."""

from binascii import b2a_base64
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, Field

from api.errors import FormatMismatch, NotJson
from api.media import Format
from api.wire.named_schemas import no_source
from log_tables.cluster.topic import Topic
from log_tables.layout import HEADERS, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.partition.read_plan import ReadPlan
from log_tables.partition.reader import PartitionReader
from log_tables.record import int64s
from log_tables.schemas.decoded import Encoding
from log_tables.schemas.decoded import Format as ValueFormat
from log_tables.schemas.decoding import Decoding, key_decoding

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])
_raw = msgspec.json.Decoder(msgspec.Raw)

JSON_RECORDS_AT_ONCE = 8_192
"""Rows turned to JSON at a time, between two looks at the size."""


def encode_rows(
    batch: pa.RecordBatch, topic: str, partition: int, form: Format, reason: str | None = None
) -> list[str]:
    """Each row of a RECORD_SCHEMA batch as a JSON object. For formats with schemas its keys and values are
    their JSON.

    Stops before the first row that the format cannot show (not JSON, not UTF-8); raises NotJson, which
    names the offset, when that is the very first. `reason` says why that may be.
    """
    texts = _COLUMN_TEXTS[form]
    keys, values = texts(batch.column(KEY)), texts(batch.column(VALUE))
    count = min(len(keys), len(values))
    if count == 0:
        raise NotJson(
            f"the record at offset {batch.column(OFFSET)[0].as_py()} of topic {topic!r}, partition "
            f"{partition}, cannot be shown as {form.value}{f': {reason}' if reason else ''}; fetch it as "
            f"{Format.BINARY.value}"
        )
    head = f'{{"topic":{msgspec.json.encode(topic).decode()},"key":'
    middle = f',"partition":{partition},"offset":'
    offsets = int64s(batch.column(OFFSET))[:count].tolist()
    stamps = (int64s(batch.column(TIMESTAMP))[:count] // 1000).tolist()
    rows = zip(keys[:count], values[:count], offsets, stamps, strict=True)
    headers = batch.column(HEADERS)
    if headers.null_count == len(headers):
        return [
            f'{head}{key},"value":{value}{middle}{offset},"timestamp":{stamp},"headers":[]}}'
            for key, value, offset, stamp in rows
        ]
    return [
        f'{head}{key},"value":{value}{middle}{offset},"timestamp":{stamp},"headers":{listed}}}'
        for (key, value, offset, stamp), listed in zip(rows, _headers(headers[:count]), strict=True)
    ]


def _headers(column: pa.Array) -> list[str]:
    # msgspec writes bytes as base64.
    return [msgspec.json.encode(row or []).decode() for row in column.to_pylist()]


def _json_texts(column: pa.Array) -> Sequence[str]:
    """Values that are JSON texts, as they are; cut off at the first that is none."""
    if column.null_count == len(column):
        return ["null"] * len(column)
    try:
        texts: list[str] = pc.fill_null(column.cast(pa.string()), "null").to_pylist()
    except pa.ArrowInvalid:  # not UTF-8 somewhere
        return _json_texts_one_by_one(column)
    # Decoding all as one list is fast, but `1,2` or `[1` and `2]` would pass: so count and compare lengths.
    try:
        decoded = _raw_list.decode("[" + ",".join(texts) + "]")
    except (msgspec.DecodeError, RecursionError):
        return _json_texts_one_by_one(column)
    if len(decoded) == len(texts):
        lengths = np.fromiter(map(len, decoded), np.int64, len(decoded))
        if np.array_equal(lengths, int64s(pc.fill_null(pc.binary_length(column), 4).cast(pa.int64()))):
            return texts
    return _json_texts_one_by_one(column)


def _json_texts_one_by_one(column: pa.Array) -> Sequence[str]:
    texts = []
    for value in column.to_pylist():
        if value is None:
            texts.append("null")
            continue
        try:
            texts.append(value.decode())
            _raw.decode(value)
        except UnicodeDecodeError:
            return texts
        except (msgspec.DecodeError, RecursionError):
            return texts[:-1]
    return texts


def _base64_texts(column: pa.Array) -> Sequence[str]:
    return [
        "null" if value is None else f'"{b2a_base64(value, newline=False).decode()}"'
        for value in column.to_pylist()
    ]


def _utf8_texts(column: pa.Array) -> Sequence[str]:
    texts = []
    for value in column.to_pylist():
        try:
            texts.append("null" if value is None else msgspec.json.encode(value.decode()).decode())
        except UnicodeDecodeError:
            return texts
    return texts


_COLUMN_TEXTS: dict[Format, Callable[[pa.Array], Sequence[str]]] = {
    Format.JSON: _json_texts,
    Format.BINARY: _base64_texts,
    Format.TEXT: _utf8_texts,
    **dict.fromkeys((Format.AVRO, Format.PROTOBUF, Format.JSONSCHEMA), _json_texts),
}


@dataclass(frozen=True, slots=True)
class Decodings:
    """How the keys and values of one topic become JSON, in a format with schemas. Blocking."""

    keys: Decoding
    values: Decoding

    def parts(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, str | None]]:
        """Rows in order, some at a time, with JSON for keys and values, and why the first has none."""
        for rows, values, why_values in self.values.slices(batch, VALUE):
            start = 0
            for part, keys, why_keys in self.keys.slices(rows, KEY):
                own, key_reason = values.slice(start, part.num_rows), why_keys[0].as_py()
                reason = why_values[start].as_py() or (key_reason and f"its key: {key_reason}")
                start += part.num_rows
                yield _with(_with(part, KEY, keys), VALUE, own), reason


def _with(batch: pa.RecordBatch, name: str, json: pa.Array) -> pa.RecordBatch:
    """`batch` with JSON for one column: an empty text, which is no JSON, for what has none."""
    at = batch.schema.get_field_index(name)
    lacks = pc.and_(pc.is_valid(batch.column(at)), pc.is_null(json))
    return batch.set_column(at, name, pc.if_else(lacks, pa.scalar(b"", json.type), json))


def decodings_of(topic: Topic, form: Format) -> Decodings | None:
    """How keys and values of `topic` become JSON in `form`; None for a format without schemas.

    Raises FormatMismatch for a topic that has no schemas.
    """
    if form.kind is None:
        return None
    own = topic.config.encoding
    is_own = own.schema is not None and own.format.kind is form.kind
    reason = None if is_own else no_source(topic)
    if reason is not None:
        raise FormatMismatch(f"{form.value} is not available: {reason}")
    encoding = own if is_own else Encoding(next(each for each in ValueFormat if each.kind is form.kind))
    return Decodings(key_decoding(topic.schemas), Decoding(encoding, topic.schemas))


class FetchedHeader(BaseModel):
    key: str
    value: str | None = Field(description="Base64.")


class FetchedRecord(BaseModel):
    """A record, with key and value in the requested format."""

    topic: str
    key: Any
    value: Any
    partition: int
    offset: int
    timestamp: int = Field(description="Milliseconds since 1970 UTC.")
    headers: list[FetchedHeader]


def json_records(
    place: tuple[str, int],
    partition: PartitionReader,
    plan: ReadPlan,
    form: Format,
    limit: int,
    is_first: bool = True,
    decodings: Decodings | None = None,
) -> tuple[list[str], int]:
    """The rows of the answer, about `limit` characters of them, and the offset after the last. If they are
    not the first of the answer, there are no more characters, and there may be no row.

    A JSON answer is made before it is sent: this limit is what a slow reader can hold. Formats with schemas
    need the `decodings` of the topic.
    """
    rows: list[str] = []
    size = 0
    plan = partition.bound(plan)
    for batch in partition.read(plan):
        for part, reason in _parts(batch) if decodings is None else decodings.parts(batch):
            try:
                made = encode_rows(part, *place, form, reason)
            except NotJson:
                if not rows:
                    raise
                made = []
            ends = [*accumulate(map(len, made), initial=size)]
            if not is_first:
                made = made[: bisect_right(ends, limit) - 1]
            rows += made
            size = ends[len(made)]
            if len(made) < part.num_rows or size >= limit:
                offsets = part.column(OFFSET)
                return rows, offsets[len(made) - 1].as_py() + 1 if made else offsets[0].as_py()
    return rows, plan.end


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, None]]:
    for start in range(0, batch.num_rows, JSON_RECORDS_AT_ONCE):
        yield batch.slice(start, JSON_RECORDS_AT_ONCE), None
