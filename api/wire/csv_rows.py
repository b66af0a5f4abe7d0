"""Rows of CSV as JSON objects (RFC 4180): the header line names the fields. Bodies and files are read so.

CSV has no types, so each field becomes a string, and an empty one null. The declared columns of a topic say
which fields are numbers, booleans or nested: those stand as they are.
"""

import codecs
import csv
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from typing import BinaryIO

import msgspec
import pyarrow as pa

from api.errors import MalformedBody
from api.wire.room import Reserve
from log_tables.columns.declaration import Declaration
from log_tables.limits import CSV_COLUMNS_MAX, CSV_ROW_COMMAS_MAX, CSV_ROW_MAX_BYTES, KIB

_raw = msgspec.json.Decoder(msgspec.Raw)
csv.field_size_limit(CSV_ROW_MAX_BYTES)  # of the process; the rows are bounded here

_LARGE_ROW_BYTES = 128 * KIB
_ROW_MEMORY = 16
"""Bytes that each byte of a row takes while its fields are found. The reader of CSV has 4 for a character,
and doubles its memory when it grows; then come the field, its JSON and the line."""


@lru_cache(maxsize=256)
def names_of_json(declaration: Declaration) -> frozenset[str]:
    """The fields of which a topic makes columns that are no text: CSV cannot say so, its values must."""
    kinds: dict[str, list[pa.DataType]] = {}
    for column in declaration.columns:
        if len(column.steps) == 1:
            kinds.setdefault(column.steps[0], []).append(column.type)
    return frozenset(name for name, own in kinds.items() if not any(map(_is_text, own)))


def _is_text(kind: pa.DataType) -> bool:
    """Whether a declared column of this type is made of JSON strings alone."""
    return bool(pa.types.is_string(kind) or pa.types.is_temporal(kind) or pa.types.is_binary(kind))


def json_rows(
    text: BinaryIO,
    of_json: Collection[str],
    hold_row: Reserve = lambda _: None,
    skip: Callable[[], None] = lambda: None,
) -> Iterator[bytes]:
    """The JSON object of each row of `text`, which is UTF-8, with a byte order mark or without.

    A field of a column that is named in `of_json` stands as it is if it is JSON. `hold_row` is told what a
    large row takes, before it is taken, and `skip` of a blank line. Raises MalformedBody, which names the
    line; what `hold_row` and `skip` raise.
    """
    lines = _Lines(text, hold_row)
    rows = csv.reader(lines, strict=True)
    head: list[tuple[bytes, bool]] | None = None
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            raise MalformedBody(
                f"line {rows.line_num} is not CSV: {_reason(error)}; fix it, or send JSON"
            ) from None
        lines.row_ends()
        if row is None:
            return
        if not row:
            skip()  # a blank line
            continue
        if head is None:
            head = _head(row, rows.line_num, of_json)
            continue
        if len(row) != len(head):
            raise MalformedBody(
                f"line {rows.line_num} has {len(row)} fields, the header line names {len(head)}; send as many"
            )
        pairs = (name + _json(text, is_json) for (name, is_json), text in zip(head, row, strict=True))
        yield b"{%b}" % b",".join(pairs)


def _reason(error: csv.Error) -> str:
    """The complaint of the reader of CSV, without its advice to programmers."""
    found = str(error)
    return "it has a carriage return without a line feed" if "new-line" in found else found


class _Lines:
    """The lines of a text, one after the other, as long as no row of them becomes too large."""

    def __init__(self, text: BinaryIO, hold_row: Reserve) -> None:
        self._text, self._hold_row = text, hold_row
        self._size = self._commas = self._number = 0

    def row_ends(self) -> None:
        """The next line begins a row."""
        self._size = self._commas = 0

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        """Raises MalformedBody."""
        line = self._text.readline(CSV_ROW_MAX_BYTES + 1)
        if not line:
            raise StopIteration
        self._number += 1
        self._size += len(line)
        self._commas += line.count(b",")
        if self._size > CSV_ROW_MAX_BYTES or self._commas > CSV_ROW_COMMAS_MAX:
            raise MalformedBody(
                f"line {self._number}: the row has more than {CSV_ROW_MAX_BYTES} bytes or "
                f"{CSV_ROW_COMMAS_MAX} commas; is a quote not closed? send larger values as JSON"
            )
        if self._size > _LARGE_ROW_BYTES:
            self._hold_row(self._size * _ROW_MEMORY)
        if self._number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise MalformedBody(
                f"line {self._number} is not UTF-8 at byte {error.start}; send UTF-8"
            ) from None


def _head(names: list[str], line: int, of_json: Collection[str]) -> list[tuple[bytes, bool]]:
    """The JSON before each field in its object, and whether the field may be JSON."""
    if len(names) > CSV_COLUMNS_MAX:
        raise MalformedBody(
            f"line {line} names {len(names)} columns, {CSV_COLUMNS_MAX} are allowed; send fewer"
        )
    if "" in names:
        raise MalformedBody(f"line {line}: column {names.index('') + 1} has no name; name each column")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise MalformedBody(f"line {line} names the column {twice[:100]!r} twice; give each its own name")
    return [(msgspec.json.encode(name) + b":", name in of_json) for name in names]


def _json(text: str, is_json: bool) -> bytes:
    if not text:
        return b"null"
    if is_json:
        try:
            data = text.encode()
            _raw.decode(data)
        except (msgspec.DecodeError, RecursionError):
            pass
        else:
            return data
    return msgspec.json.encode(text)
