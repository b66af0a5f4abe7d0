"""Digests of records, as SQL that DataFusion, Spark and DuckDB answer alike.

The digest of a record is the MD5 of a text of its offset, time, key, value and headers. That of a range of
offsets is the MD5 of the digests of its records, one after the other. So neither files nor their borders
matter, and what is null is not what is empty.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from hashlib import md5
from itertools import count, groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionConfig, SessionContext, udf

from log_tables.layout import OFFSET
from log_tables.record import HEADERS_TYPE, int64s

HEADER_DIGESTS = "header_digests"
"""The function of `lakelog sql` for the text of headers: `md5(name)=md5(content)` of each, with commas."""


class Engine(StrEnum):
    """Whose SQL it is."""

    LAKELOG = "lakelog"
    SPARK = "spark"
    DUCKDB = "duckdb"


_ONE_HEADER = "concat(md5(h.key), '=', coalesce(md5(h.value), '-'))"
_OFFSETS = {Engine.LAKELOG: '"offset"', Engine.SPARK: "`offset`", Engine.DUCKDB: '"offset"'}
_TIMES = {
    Engine.LAKELOG: "cast(timestamp AS bigint)",
    Engine.SPARK: "unix_micros(timestamp)",
    Engine.DUCKDB: "epoch_us(timestamp)",
}
_HEADERS = {
    Engine.LAKELOG: f"{HEADER_DIGESTS}(headers)",
    Engine.SPARK: f"array_join(transform(headers, h -> {_ONE_HEADER}), ',')",
    Engine.DUCKDB: f"array_to_string(list_transform(headers, lambda h: {_ONE_HEADER}), ',')",
}
_JOINED = {
    Engine.LAKELOG: "md5(string_agg({}, '' ORDER BY {}))",
    Engine.SPARK: "md5(listagg({}, '') WITHIN GROUP (ORDER BY {}))",
    Engine.DUCKDB: "md5(string_agg({}, '' ORDER BY {}))",
}


def record_digest(engine: Engine = Engine.LAKELOG) -> str:
    """The digest of a record as an expression over the columns of a partition's table."""
    fields = (
        _OFFSETS[engine],
        _TIMES[engine],
        "coalesce(md5(key), '-')",
        "coalesce(md5(value), '-')",
        f"coalesce({_HEADERS[engine]}, '')",
    )
    text = ", '.', ".join(fields)
    return f"md5(concat({text}))"


class DigestPart(NamedTuple):
    """A partition, whose table Delta readers find at `location`, with start ≤ offset < end."""

    topic: str
    partition: int
    location: str
    start: int
    end: int


def digest_sql(parts: Iterable[DigestPart], width: int, engine: Engine = Engine.LAKELOG) -> str:
    """A query for the digests of `parts`, by topic, one for each `width` offsets, at multiples of `width`."""
    if engine is Engine.LAKELOG:
        topics = groupby(parts, key=lambda part: part.topic)
        selects = [_of_topic(topic, [*found], width) for topic, found in topics]
    else:
        selects = [_of_table(part, width, engine) for part in parts]
    return "\nUNION ALL\n".join(selects) + "\nORDER BY topic, partition, range_start"


def _of_topic(topic: str, parts: Sequence[DigestPart], width: int) -> str:
    """One query for all partitions, whose length is bounded but for a list of values."""
    table = '"' + topic.replace('"', '""') + '"'
    bounds = ", ".join(f"({part.partition}, {part.start}, {part.end})" for part in parts)
    return (
        f"SELECT topic, partition, {_digests(width, Engine.LAKELOG)}\nFROM {table}\n"
        f"JOIN (VALUES {bounds}) AS bounds (number, low, high) ON number = partition\n"
        f'WHERE "offset" >= low AND "offset" < high GROUP BY topic, partition, range_start'
    )


def _of_table(part: DigestPart, width: int, engine: Engine) -> str:
    if engine is Engine.DUCKDB:
        table = f"delta_scan({_text(part.location)})"
    else:
        location = part.location.replace("s3://", "s3a://", 1).replace("`", "``")
        table = f"delta.`{location}`"
    at = _OFFSETS[engine]
    return (
        f"SELECT {_text(part.topic)} AS topic, {part.partition} AS partition, {_digests(width, engine)}\n"
        f"FROM {table}\nWHERE {at} >= {part.start} AND {at} < {part.end} GROUP BY range_start"
    )


def _digests(width: int, engine: Engine) -> str:
    at = _OFFSETS[engine]
    digest = _JOINED[engine].format(record_digest(engine), at)
    return f"{at} - {at} % {width} AS range_start,\n  count(*) AS records, {digest} AS digest"


def _text(content: str) -> str:
    return "'" + content.replace("'", "''") + "'"


def register_functions(context: SessionContext) -> None:
    """Give `context` the function HEADER_DIGESTS."""
    context.register_udf(udf(header_digests, [HEADERS_TYPE], pa.string(), "immutable", HEADER_DIGESTS))


def header_digests(headers: pa.Array) -> pa.Array:
    """The answer of HEADER_DIGESTS: null where there are no headers."""
    if headers.null_count == len(headers):
        return pa.nulls(len(headers), pa.string())
    lengths = pc.fill_null(pc.list_value_length(headers), 0)
    ends = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(lengths.to_numpy(), out=ends[1:])
    flat = headers.flatten()
    names, contents = _md5s(flat.field("key")), pc.fill_null(_md5s(flat.field("value")), "-")
    texts = pc.binary_join_element_wise(names, contents, "=")
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), texts), ",")
    return pc.if_else(pc.greater(lengths, 0), joined, pa.scalar(None, pa.string()))


def _md5s(items: pa.Array) -> pa.Array:
    """The MD5 of each item, null for null; each that there is, once: headers repeat themselves."""
    known = items.cast(pa.binary()).dictionary_encode()
    made = [md5(each, usedforsecurity=False).hexdigest() for each in known.dictionary.to_pylist()]
    return pa.array(made, pa.string()).take(known.indices)


class Digests(NamedTuple):
    """Records with their digests: their offsets, ascending (int64), and 32 characters for each."""

    offsets: np.ndarray
    records: np.ndarray

    @property
    def of_all(self) -> str:
        """The digest of them together, as `digest_sql` gives it."""
        return md5(self.records.tobytes(), usedforsecurity=False).hexdigest()

    def only(self, wanted: np.ndarray) -> "Digests":
        """The digests for which `wanted` is true."""
        return Digests(self.offsets[wanted], self.records[wanted])


_WIDTH = 32
NONE = Digests(np.empty(0, np.int64), np.empty(0, f"S{_WIDTH}"))


def joined(parts: Sequence[Digests]) -> Digests:
    """Digests of records that follow one another."""
    if not parts:
        return NONE
    return Digests(*(np.concatenate(each) for each in zip(*parts, strict=True)))


class Digester:
    """Computes `record_digest` over batches of RECORD_SCHEMA. Thread-safe."""

    def __init__(self) -> None:
        settings = {
            "datafusion.sql_parser.enable_ident_normalization": "false",
            "datafusion.execution.target_partitions": "1",
        }
        self._context, self._numbers = SessionContext(SessionConfig(settings)), count()
        register_functions(self._context)

    def of(self, batch: pa.RecordBatch) -> Digests:
        """The digests of the records of `batch`."""
        if not batch.num_rows:
            return NONE
        name = f"records_{next(self._numbers)}"
        records = self._context.from_arrow(batch, name)
        try:
            answer = records.select(records.parse_sql_expr(record_digest())).collect()
        finally:
            self._context.deregister_table(name)
        texts = [each.column(0).cast(pa.string()) for each in answer]
        found = np.concatenate([np.frombuffer(_content(text), f"S{_WIDTH}") for text in texts])
        return Digests(int64s(batch.column(OFFSET)), found)


def _content(texts: pa.Array) -> bytes:
    """The characters of all texts, one after the other."""
    _, ends, content = texts.buffers()
    first, last = np.frombuffer(ends, np.int32)[[texts.offset, texts.offset + len(texts)]]
    return bytes(content.slice(first, last - first))
