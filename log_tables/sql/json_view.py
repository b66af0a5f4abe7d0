"""`<topic>_json`: the fields of JSON values as typed columns, of the rows and the fields that a query needs.

DataFusion says which these are: it plans the query over columns of unknown types, and the filters that reach
partition, offset and timestamp are noted. Then the rows are read and their fields decoded. Their types may
change the plan, so a plan is made with them, and so on until it asks for what was read.
"""

import functools
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from datafusion import DataFrame, SessionContext

from log_tables.layout import HEADERS, KEY, KEY_TEXT, OFFSET, PARTITION, TIMESTAMP, VALUE
from log_tables.record import text_array
from log_tables.schemas.decoding import Decoding, key_decoding
from log_tables.sql.file_slices import file_slices
from log_tables.sql.json_columns import field_lines, object_lines, typed_lines
from log_tables.sql.scan import Batches, read_slices
from log_tables.sql.topic_files import SCAN_SCHEMA, TOPIC, TopicFiles
from log_tables.sql.topic_view import column, computed, quoted

SUFFIX = "_json"
RAW, ERROR = "_raw", "_error"

_SCANNED = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY)
_KEPT = (*_SCANNED, KEY_TEXT)
_JSON = "lakelog/json"
"""The JSON of the values, beside what was read of the files."""

_EVERY = "lakelog/every"
"""A column of a probe that nobody names: where it is wanted, `*` wants all columns."""

_NULL_SHOWN = "\\u0000"
"""It stands for a null character in the name of a column."""

Types = Mapping[str, pa.DataType]


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """The rows for which `where` is true, all without it; of them `columns`, all where they are None."""

    where: pc.Expression | None = None
    columns: frozenset[str] | None = None

    def covers(self, other: "ScanRequest") -> bool:
        """Whether what was read for this one is what `other` needs."""
        rows = self.where is None or (other.where is not None and self.where.equals(other.where))
        return rows and (self.columns is None or self.columns == other.columns)


def named(words: Collection[str]) -> frozenset[str] | None:
    """The columns among the words of a statement; None when only all fields tell which they are.

    A field that has the name of another column gets the suffix `_json`, as often as it takes, and so may take
    the name of a third.
    """
    if (
        not {RAW, ERROR}.isdisjoint(words)
        or "natural" in {word.lower() for word in words}
        or not all(map(_can_be_sought, words))
    ):
        return None
    if any(_without_suffix(word) in (*_KEPT, RAW, ERROR) for word in words if word.endswith(SUFFIX)):
        return None
    return frozenset(words)


def _can_be_sought(word: str) -> bool:
    """Whether `field_lines` takes it."""
    return word.isprintable() and '"' not in word and "\\" not in word


def _without_suffix(word: str) -> str:
    while word.endswith(SUFFIX):
        word = word.removesuffix(SUFFIX)
    return word


def json_table(files: TopicFiles, needed: ScanRequest) -> pa.Table:
    """The rows of the view, as far as they are needed. Raises CorruptLog, CorruptSegment, ForeignCommit,
    StoreUnavailable.
    """
    fields = None if needed.columns is None else needed.columns.difference(_KEPT)
    kept = [name for name in _KEPT if needed.columns is None or name in needed.columns or name == OFFSET]
    batches = read_slices(files, file_slices(files, needed.where), _read(files, kept, fields), needed.where)
    if fields is None or fields:
        batches = _with_json(files, batches)
    rows, lines, values, errors, key_texts = [], [], [], [], _key_texts(files)
    for batch in batches:
        rows.append(_kept_rows(batch, kept, key_texts))
        if fields is None:
            values.append(batch.column(VALUE))
            lines.append(object_lines(batch.column(_JSON)))
            errors.append(batch.column(ERROR))
        elif fields:
            lines.append(field_lines(batch.column(_JSON), fields))
    table = pa.Table.from_batches(rows, pa.schema([_field(name) for name in kept]))
    columns, objects = typed_lines(pa.chunked_array(lines, pa.binary()))
    for name, data in zip(columns.schema.names, columns.columns, strict=True):
        # Arrow hands names to DataFusion as texts that end with a null character.
        shown = name.replace("\0", _NULL_SHOWN)
        table = table.append_column(_free_name(shown, table.schema.names), data)
    if fields is None:
        raw = pc.if_else(objects, pa.scalar(None, pa.binary()), pa.chunked_array(values, pa.binary()))
        table = table.append_column(_free_name(RAW, table.schema.names), raw)
        if not files.encoding.is_json:
            error = pa.chunked_array(errors, pa.string())
            table = table.append_column(_free_name(ERROR, table.schema.names), error)
    return table


def _read(files: TopicFiles, kept: Sequence[str], fields: Collection[str] | None) -> list[str]:
    """The columns of the files that the view needs: the headers, too, where they may name schemas."""
    names = {KEY if name == KEY_TEXT else name for name in kept}
    if fields is None or fields:
        names.add(VALUE)
    if not files.encoding.is_json and (VALUE in names or KEY_TEXT in kept):
        names.add(HEADERS)
    return [name for name in SCAN_SCHEMA.names if name in names]


def _with_json(files: TopicFiles, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows with the JSON of their values, and why some have none; a few at a time where it is decoded."""
    decoding = Decoding(files.encoding, files.schemas)
    for batch in batches:
        if files.encoding.is_json:
            nothing = pa.nulls(len(batch), pa.string())
            yield batch.append_column(_JSON, batch.column(VALUE)).append_column(ERROR, nothing)
            continue
        for part, json, errors in decoding.slices(batch, VALUE):
            yield part.append_column(_JSON, json).append_column(ERROR, errors)


def _key_texts(files: TopicFiles) -> Callable[[pa.RecordBatch], pa.Array]:
    """A function from rows to their keys as text: as JSON where they name a schema."""
    if files.encoding.is_json:
        return lambda batch: text_array(batch.column(KEY))
    decoding = key_decoding(files.schemas)

    def texts(batch: pa.RecordBatch) -> pa.Array:
        found = decoding.shown(batch.column(KEY), batch.column(HEADERS))
        return pa.concat_arrays([pa.array([], pa.string()), *map(text_array, found)])

    return texts


def _kept_rows(
    batch: pa.RecordBatch, kept: Sequence[str], key_texts: Callable[[pa.RecordBatch], pa.Array]
) -> pa.RecordBatch:
    arrays = [key_texts(batch) if name == KEY_TEXT else batch.column(name) for name in kept]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([_field(name) for name in kept]))


def _field(name: str) -> pa.Field:
    return pa.field(name, pa.string()) if name == KEY_TEXT else SCAN_SCHEMA.field(name)


def _free_name(name: str, taken: Sequence[str]) -> str:
    """`name`, with as many suffixes as it takes to differ from those `taken`."""
    while name in taken:
        name += SUFFIX
    return name


class PlannedScan(ds.Dataset):  # type: ignore[misc] # pyarrow ships no types
    """A view without rows in the place of `<topic>_json`, which notes what plans want of it."""

    def __init__(self, types: Types) -> None:
        """`types` are those of the fields, as far as they are known."""
        fields = {name: kind for name, kind in types.items() if name not in _KEPT}
        self._computed = {KEY_TEXT: pa.string(), **fields, _EVERY: pa.null()}
        scanned = [SCAN_SCHEMA.field(name) for name in _SCANNED]
        self._schema = pa.schema([*scanned, *self._computed.items()])
        self._asked: list[tuple[Sequence[str], pc.Expression | None]] = []

    def view(self, context: SessionContext, name: str) -> DataFrame:
        """The view for `context`, over this table, which is registered there as `name`."""
        context.register_dataset(quoted(name), self)
        # A filter over a field is left to DataFusion, so those that arrive here are over the other columns.
        fields = [computed(field, kind) for field, kind in self._computed.items()]
        return context.table(quoted(name)).select(*map(column, _SCANNED), *fields)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002 (DataFusion calls it so)
        **_: object,
    ) -> Batches:
        names = self._schema.names if columns is None else columns
        self._asked.append((names, filter))
        return Batches(pa.schema([self._schema.field(name) for name in names]), iter(()))

    def get_fragments(self, where: pc.Expression | None = None) -> Iterator[ds.Fragment]:  # noqa: ARG002
        return iter(())

    def needed(self, named: frozenset[str] | None) -> ScanRequest:
        """The request of all scans together, for a statement that names these columns."""
        if not self._asked:  # it was optimized away, or the plan is no query
            return ScanRequest()
        filters = [where for _, where in self._asked]
        known = [where for where in filters if where is not None]
        every = any(_EVERY in columns for columns, _ in self._asked)
        where = functools.reduce(operator.or_, known) if len(known) == len(filters) else None
        return ScanRequest(where, None if every else named)


def newest_types(files: TopicFiles, named: frozenset[str] | None, records: int) -> Types:
    """The types of the fields in the newest `records` of one partition. Raises as `json_table`."""
    if not files.partitions:
        return types_of(json_table(files, ScanRequest()))
    part = max(files.partitions, key=lambda item: item.end - item.log_start)
    where = (pc.field(PARTITION) == pa.scalar(part.partition, pa.int32())) & (
        pc.field(OFFSET) >= part.end - records
    )
    return types_of(json_table(files, ScanRequest(where, named)))


def types_of(table: pa.Table) -> Types:
    return {field.name: field.type for field in table.schema}
