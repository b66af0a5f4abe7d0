"""The formats of an export. Each encodes records as they come, and keeps no more than a piece of them. Pure.

Bytes are exact in all of them. NDJSON and CSV have keys and values that are UTF-8 as text, and others as
base64 under another name, as `lakelog consume --json` has them; in Parquet they are bytes.
"""

from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from log_tables.layout import PARTITION
from log_tables.limits import ROW_GROUP_MAX_ROWS, ROW_GROUP_TARGET_BYTES
from log_tables.record import RECORD_SCHEMA, Record, batch_bytes, timestamp_text, to_records

ExportFormat = Literal["ndjson", "csv", "parquet"]

CSV_COLUMNS = (
    "partition",
    "offset",
    "timestamp",
    "key",
    "key_base64",
    "value",
    "value_base64",
    "headers",
)
EXPORT_SCHEMA = pa.schema([pa.field(PARTITION, pa.int32(), nullable=False), *RECORD_SCHEMA])


class Writer(Protocol):
    """Records in, bytes out."""

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        """The bytes that are ready after these records; there may be none yet."""
        ...

    def end(self) -> bytes:
        """The rest of the file."""
        ...


class _JsonWriter:
    """A JSON object on each line."""

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        return b"".join(_line(partition, record) for record in to_records(batch))

    def end(self) -> bytes:
        return b""


class _CsvWriter:
    """RFC 4180 in UTF-8, with a head. A field that is there is quoted, also an empty one; a null is not.

    No field is changed for the sake of programs that take a text that begins with = for a formula.
    """

    def __init__(self) -> None:
        self._head = ",".join(CSV_COLUMNS) + "\r\n"

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        head, self._head = self._head, ""
        return (head + "".join(_csv_row(partition, record) for record in to_records(batch))).encode()

    def end(self) -> bytes:
        return self._head.encode()


class _ParquetWriter:
    """One file, row group by row group: each is handed on when it is written."""

    def __init__(self) -> None:
        self._sink = _Sink()
        self._writer = pq.ParquetWriter(self._sink, EXPORT_SCHEMA, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, partition: int, batch: pa.RecordBatch) -> bytes:
        where = pa.repeat(pa.scalar(partition, pa.int32()), batch.num_rows)
        self._waiting.append(pa.RecordBatch.from_arrays([where, *batch.columns], schema=EXPORT_SCHEMA))
        self._rows += batch.num_rows
        self._bytes += batch_bytes(batch)
        if self._bytes >= ROW_GROUP_TARGET_BYTES or self._rows >= ROW_GROUP_MAX_ROWS:
            self._flush()
        return self._sink.taken()

    def end(self) -> bytes:
        self._flush()
        self._writer.close()
        return self._sink.taken()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0


class _Sink:
    """A file that keeps what was written since it was last taken."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        self._parts.append(bytes(data))
        return len(self._parts[-1])

    def flush(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """The last part is still to be taken."""

    def taken(self) -> bytes:
        """The bytes that were written since."""
        parts, self._parts = self._parts, []
        return b"".join(parts)


class Kind(NamedTuple):
    """How a format is named to browsers, and the function that makes its writer."""

    extension: str
    media_type: str
    writer: Callable[[], Writer]


FORMATS: Mapping[ExportFormat, Kind] = {
    "ndjson": Kind("ndjson", "application/x-ndjson", _JsonWriter),
    "csv": Kind("csv", "text/csv; charset=utf-8", _CsvWriter),
    "parquet": Kind("parquet", "application/vnd.apache.parquet", _ParquetWriter),
}


def _line(partition: int, record: Record) -> bytes:
    row = {
        "partition": partition,
        "offset": record.offset,
        "timestamp": (record.timestamp_us or 0) // 1000,
        **_as_text("key", record.key),
        **_as_text("value", record.value),
        "headers": _headers(record),
    }
    return msgspec.json.encode(row) + b"\n"


def _headers(record: Record) -> list[dict[str, str | None]]:
    return [{"key": key, **_as_text("value", value)} for key, value in record.headers]


def _as_text(name: str, data: bytes | None) -> dict[str, str | None]:
    """A key or value as text under its name, or as base64 under another one if it is not UTF-8."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        assert data is not None
        return {f"{name}_base64": b64encode(data).decode()}


def _csv_row(partition: int, record: Record) -> str:
    key, value = _as_text("key", record.key), _as_text("value", record.value)
    fields = [
        str(partition),
        str(record.offset),
        timestamp_text(record.timestamp_us or 0),
        _quoted(key.get("key")),
        _quoted(key.get("key_base64")),
        _quoted(value.get("value")),
        _quoted(value.get("value_base64")),
        _quoted(msgspec.json.encode(_headers(record)).decode()) if record.headers else "",
    ]
    return ",".join(fields) + "\r\n"


def _quoted(text: str | None) -> str:
    return "" if text is None else '"' + text.replace('"', '""') + '"'
