"""An answer to SQL as a file of CSV, NDJSON or Parquet, piece by piece: printed by `lakelog sql`, sent by the
console.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from log_tables.errors import InvalidArgument
from log_tables.json_values import named, plain

FileFormat = Literal["csv", "ndjson", "parquet"]

MEDIA_TYPES: dict[FileFormat, str] = {
    "csv": "text/csv; charset=utf-8",
    "ndjson": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}

_Writer = Callable[[pa.RecordBatchReader], Iterator[bytes]]


class Sink:
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


def file_pieces(answer: pa.RecordBatchReader, form: FileFormat) -> Iterator[bytes]:
    """The file, a piece for each batch of `answer`.

    Raises InvalidArgument for columns of one name where the format has objects and for values that no text
    shows, and what `answer` raises.
    """
    try:
        yield from _WRITERS[form](answer)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise InvalidArgument(
            f"the answer has a value that cannot be shown ({error}); cast it to text, or take parquet "
            "(--format parquet)"
        ) from None


def objects(answer: pa.RecordBatchReader) -> Iterator[list[dict[str, Any]]]:
    """The rows of each batch as objects; NaN and infinities by their names, which JSON has no numbers for.

    Raises InvalidArgument for columns of one name.
    """
    names = answer.schema.names
    _check_names(names)
    for batch in answer:
        columns = [plain(column, named) for column in batch.columns]
        yield [_as_text_row(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)]


def _ndjson(answer: pa.RecordBatchReader) -> Iterator[bytes]:
    for rows in objects(answer):
        yield b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def _csv(answer: pa.RecordBatchReader) -> Iterator[bytes]:
    """Bytes and whatever is nested become text, as in a table; a null is empty, and an empty text is `""`."""
    schema = pa.schema([field.with_type(_kind_in_csv(field.type)) for field in answer.schema])
    sink = Sink()
    with pyarrow.csv.CSVWriter(sink, schema) as writer:
        for batch in answer:
            pairs = zip(batch.columns, schema.types, strict=True)
            columns = [
                column if column.type == kind else pa.array(map(_text, plain(column, named)), kind)
                for column, kind in pairs
            ]
            writer.write(pa.RecordBatch.from_arrays(columns, schema=schema))
            yield sink.taken()
    yield sink.taken()


def _parquet(answer: pa.RecordBatchReader) -> Iterator[bytes]:
    _check_names(answer.schema.names)
    sink = Sink()
    with pq.ParquetWriter(sink, answer.schema) as writer:
        for batch in answer:
            writer.write_batch(batch)
            yield sink.taken()
    yield sink.taken()


_WRITERS: dict[FileFormat, _Writer] = {"csv": _csv, "ndjson": _ndjson, "parquet": _parquet}


def _check_names(names: Sequence[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidArgument(
            f"the answer has {names.count(twice)} columns named {twice!r}; name them apart with AS"
        )


def _kind_in_csv(kind: pa.DataType) -> pa.DataType:
    unknown = pa.types.is_interval(kind) or pa.types.is_duration(kind)
    is_plain = pa.types.is_primitive(kind) or pa.types.is_string(kind)
    return kind if is_plain and not unknown else pa.string()


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, dict | list):
        return msgspec.json.encode(_as_text_row({"": value}).popitem()[1]).decode()
    return str(value)


def _as_text(name: str, value: Any) -> dict[str, Any]:
    """`value` under its name, with bytes as text. Bytes that are not UTF-8 stay bytes, which JSON has as
    base64, under the name `<name>_base64`.
    """
    try:
        return {name: _decoded(value)}
    except UnicodeDecodeError:
        return {f"{name}_base64": value}


def _as_text_row(row: dict[str, Any]) -> dict[str, Any]:
    """Each field of a row as text."""
    return {key: text for name, value in row.items() for key, text in _as_text(name, value).items()}


def _decoded(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode()
        case list() | tuple():
            return [_decoded(each) for each in value]
        case dict():
            return _as_text_row(value)
        case _:
            return value
