"""The answer to a query as frames, within the bounds of its request, and its rows as texts for a page.

Texts are exact and short, and nothing in them acts on what is around it. Whole numbers stay exact where a
browser would round them. A control character, and one that turns the direction of text or has no width, is
shown by its number.
"""

import base64
import math
import re
import traceback
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.json_values import named, plain
from log_tables.sql.answer_file import FileFormat, file_pieces
from log_tables.sql.query import query_stream
from log_tables.sql.query_request import (
    AnswerColumn,
    FrameKind,
    QueryFailure,
    QueryRequest,
    QueryResult,
    RootRequest,
    Scan,
    TablesRead,
)
from log_tables.store.store import open_store

CELL_MAX_CHARS = 1_000
"""Of a text; the rest is left out."""

FRAME_BYTES = 64 * 1024
"""About the size of a frame of rows: small ones are seen at once."""

ARROW_FRAME_BYTES = 1024 * 1024
"""About the size of a frame of Arrow: a program wants all of them."""

_ROWS_AT_ONCE = 500
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)
_encoder = msgspec.json.Encoder(enc_hook=str, decimal_format="string")


class EncodedText(msgspec.Struct):
    """A text that is not the value itself; `note` says how it differs."""

    text: str
    note: str


Cell = str | EncodedText | None


def columns_of(schema: pa.Schema) -> list[AnswerColumn]:
    """The columns of an answer."""
    return [AnswerColumn(shown(each.name), str(each.type), _kind(each.type)) for each in schema]


def row_frames(batch: pa.RecordBatch) -> Iterator[tuple[int, bytes]]:
    """The rows of a batch as JSON lists of about FRAME_BYTES, each with their number."""
    for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
        cells = [_cells(column) for column in batch.slice(start, _ROWS_AT_ONCE).columns]
        texts, size = list[bytes](), 0
        for row in zip(*cells, strict=True):
            texts.append(_encoder.encode(row))
            size += len(texts[-1])
            if size >= FRAME_BYTES:
                yield len(texts), b"[%b]" % b",".join(texts)
                texts, size = [], 0
        if texts:
            yield len(texts), b"[%b]" % b",".join(texts)


def shown(text: str) -> str:
    """`text` with control characters by their numbers; tabs and line ends stay."""
    return _CONTROLS.sub(lambda found: _number_of(ord(found[0])), text)


def _number_of(code: int) -> str:
    return f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"


def _kind(kind: pa.DataType) -> str:
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "number"
    return "time" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "text"


def _cells(column: pa.Array) -> Sequence[Cell]:
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_duration(kind):
        return [cell(value) for value in plain(column, named)]
    return _times(column) if pa.types.is_temporal(kind) else [cell(value) for value in column.to_pylist()]


def _times(column: pa.Array) -> Sequence[Cell]:
    """Arrow shows nanoseconds, and years that Python does not have."""
    try:
        texts = column.cast(pa.string()).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        texts = [None if value is None else str(value) for value in map(_python, column)]
    return [None if text is None else text.replace(" ", "T", 1) for text in texts]


def _python(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return value.value


def cell(value: Any) -> Cell:
    """One value as it is shown."""
    match value:
        case None:
            return None
        case bytes():
            return _of_bytes(value)
        case bool():
            text = "true" if value else "false"
        case float():
            text = _number(value)
        case Decimal():
            text = f"{value:f}"
        case list() | dict() | tuple():
            text = _encoder.encode(_plain(value)).decode()
        case _:
            text = str(value)
    return _cut(text)


def _number(value: float) -> str:
    return repr(value) if math.isfinite(value) else named(value)


def _cut(text: str) -> Cell:
    if len(text) <= CELL_MAX_CHARS:
        return shown(text)
    return EncodedText(shown(text[:CELL_MAX_CHARS]) + "…", f"of {len(text):,} characters")


def _of_bytes(value: bytes) -> Cell:
    try:
        return _cut(value.decode())
    except UnicodeDecodeError:
        pass
    text = base64.b64encode(value[: CELL_MAX_CHARS // 4 * 3]).decode()
    if len(value) <= CELL_MAX_CHARS // 4 * 3:
        return EncodedText(text, "base64")
    return EncodedText(f"{text}…", f"base64, of {len(value):,} bytes")


def _plain(value: Any) -> Any:
    """A nested value in kinds that JSON has: bytes as text, or as base64 where they are none."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case list() | tuple():
            return [_plain(each) for each in value]
        case dict():
            return {str(name): _plain(each) for name, each in value.items()}
        case datetime() | date() | time():
            return value.isoformat()
        case _:
            return value


_EXHAUSTED = "Resources exhausted"
_TOO_MUCH = (
    "the query takes more memory than it may (sql_memory); ask for fewer rows or columns, or group by less"
)


def opened(root: RootRequest) -> Cluster:
    """The cluster at a root. Raises InvalidArgument where there is none, CorruptLog, StoreUnavailable."""
    store = open_store(root.url, root.store_options, create=False)
    return Cluster.open(store, create=False, registries=root.registries)


def answer(
    cluster: Cluster, asked: QueryRequest, memory_bytes: int, send: Callable[[FrameKind, bytes], None]
) -> QueryResult:
    """Send the tables that are read, the columns and the rows. Raises as `query_stream`."""
    scans: list[Scan] = []

    def on_tables(topics: Collection[str], tables: Collection[str]) -> None:
        send(FrameKind.TABLES, msgspec.json.encode(TablesRead(sorted(topics), sorted(tables))))

    found = query_stream(
        cluster,
        asked.sql,
        lambda topic, read, files: scans.append(Scan(topic, read, files)),
        asked.access,
        on_tables,
        memory_bytes,
    )
    send(FrameKind.COLUMNS, msgspec.json.encode(columns_of(found.schema)))
    rows = size = 0
    if asked.form == "arrow":
        return QueryResult(_send_arrow(found, send), "", scans)
    if asked.form != "json":
        return QueryResult(_send_file(found, asked.form, send), "", scans)
    for batch in found:
        wanted = batch.slice(0, asked.rows_max - rows)
        for count, content in row_frames(wanted):
            if size + len(content) > asked.bytes_max:
                return QueryResult(rows, "bytes", scans)
            send(FrameKind.ROWS, content)
            rows, size = rows + count, size + len(content)
        if wanted.num_rows < batch.num_rows:
            return QueryResult(rows, "rows", scans)
    return QueryResult(rows, "", scans)


def _send_arrow(found: pa.RecordBatchReader, send: Callable[[FrameKind, bytes], None]) -> int:
    """Send the rows as IPC streams of about ARROW_FRAME_BYTES; returns their number."""
    rows = 0
    send(FrameKind.ROWS, _stream(found.schema.empty_table()))
    for batch in found:
        at_once = max(1, batch.num_rows * ARROW_FRAME_BYTES // max(1, batch.nbytes))
        for start in range(0, batch.num_rows, at_once):
            send(FrameKind.ROWS, _stream(pa.Table.from_batches([batch.slice(start, at_once)])))
        rows += batch.num_rows
    return rows


def _send_file(
    found: pa.RecordBatchReader, form: FileFormat, send: Callable[[FrameKind, bytes], None]
) -> int:
    """Send the rows as a file; returns their number."""
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in found:
            rows += batch.num_rows
            yield batch

    for piece in file_pieces(pa.RecordBatchReader.from_batches(found.schema, counted()), form):
        if piece:
            send(FrameKind.ROWS, piece)
    return rows


def _stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


def failure(error: Exception, memory_bytes: int) -> bytes:
    """The content of an ERROR."""
    if isinstance(error, InvalidArgument) and _EXHAUSTED in error.message:
        error = InvalidArgument(_TOO_MUCH)
    if isinstance(error, LakelogError):
        return msgspec.json.encode(QueryFailure(error.code, error.message, memory_bytes))
    return msgspec.json.encode(QueryFailure("", "".join(traceback.format_exception(error)), memory_bytes))
