"""The declared columns of records, whatever the format of their values: these become JSON, which becomes
columns.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import pyarrow as pa

from log_tables.columns.column_bytes import may_be_wide, widest_items
from log_tables.columns.columns_tag import tagged
from log_tables.columns.declaration import Column, Declaration
from log_tables.columns.fit import cut
from log_tables.columns.typed_values import joined, typed_parts, typed_values
from log_tables.layout import HEADERS, VALUE
from log_tables.limits import EXPANDED_MAX_BYTES, FIELDS_AT_ONCE, WIDE_COLUMNS_BYTES
from log_tables.schemas.avro_columns import columns_of
from log_tables.schemas.decoded import Decoded, unknown
from log_tables.schemas.decoder import Decoder, decoder_of
from log_tables.schemas.decoding import Decoding, json_array
from log_tables.schemas.same_schema import SameSchema, same_schema
from log_tables.schemas.schema import NO_SCHEMAS, SchemaKind, Schemas


class RecordColumns:
    """Makes the columns of `declaration`, by `schemas`, and notes which of them are not known. Blocking."""

    def __init__(self, declaration: Declaration, schemas: Schemas = NO_SCHEMAS) -> None:
        self.declaration = declaration
        self._decoding = Decoding(declaration.encoding, schemas)

    @property
    def tag(self) -> str:
        """The tag of a segment of all records whose columns were made so far."""
        return tagged(self.declaration.id, self._decoding.missing)

    def of(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """The columns `declaration.schema` of RECORD_SCHEMA rows, a row a record.

        A row whose value does not fit has nulls and says why in `value_error`; a null value has nulls and no
        error.
        """
        parts = [*self._parts(records)]
        return joined(parts) if parts else typed_values(records.column(VALUE), self.declaration)

    def beside(self, records: pa.RecordBatch, most: int = EXPANDED_MAX_BYTES) -> Iterator[pa.RecordBatch]:
        """RECORD_SCHEMA rows with their declared columns at the end, in slices.

        A slice ends where its columns have `most` bytes; nearly always there is one.
        """
        if not self.declaration.columns:
            yield records
            return
        start, size, waiting = 0, 0, list[pa.RecordBatch]()
        for part in self._parts(records):
            if waiting:
                size += waiting[-1].nbytes
                if size >= most:
                    made = _beside(records, start, joined(waiting))
                    yield made
                    start, size, waiting = start + made.num_rows, 0, []
            waiting.append(part)
        rest = joined(waiting) if waiting else self.of(records)
        yield _beside(records, start, rest)

    def may_be_wide(self, records: pa.RecordBatch) -> bool:
        """Whether the columns of `records` together may have more than WIDE_COLUMNS_BYTES of items."""
        values = records.column(VALUE)
        if self.declaration.encoding.is_json:
            return may_be_wide(values, self.declaration)
        return bool(values.nbytes * widest_items(self.declaration) > WIDE_COLUMNS_BYTES)  # an item has a byte

    def _parts(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.declaration.encoding.is_json:
            yield from typed_parts(records.column(VALUE), self.declaration)
            return
        for start in range(0, records.num_rows, FIELDS_AT_ONCE):
            part = records.slice(start, FIELDS_AT_ONCE)
            at_once = self._at_once(part)
            yield from self._decoded(part) if at_once is None else [at_once]

    def _at_once(self, records: pa.RecordBatch) -> pa.RecordBatch | None:
        """The columns of a few records, if most of them are made a field at a time; None if not."""
        groups = same_schema(records, self.declaration.encoding) if self.declaration.columns else []
        made = [(rows, found) for group in groups for rows, found in self._columns_of(group)]
        if not made:
            return None
        left = np.ones(records.num_rows, bool)
        for rows, _ in made:
            left[rows] = False
        rest = np.flatnonzero(left)
        if len(rest):
            others = records.take(pa.array(rest))
            made.append((rest, joined([*self._decoded(others)])))
        if len(made) == 1:
            return made[0][1]
        order = np.argsort(np.concatenate([rows for rows, _ in made]))
        return pa.concat_batches([batch for _, batch in made]).take(pa.array(order))

    def _columns_of(self, group: SameSchema) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """(The rows, the columns) of those values of `group` that are made a field at a time."""
        schema = self.declaration.encoding.schema or self._decoding.schema(group.schema_id)
        if schema is None:
            yield group.rows, _without_columns(self.declaration, unknown(group.schema_id), len(group.rows))
            return
        decoder = decoder_of(schema) if schema.kind is SchemaKind.AVRO else None
        if not isinstance(decoder, Decoder):
            return
        columns = resolved(self.declaration, decoder).columns
        wanted = {column.steps: column.type for column in columns}
        if any(wanted[column.steps] != column.type for column in columns):
            return
        found = columns_of(schema, wanted, group.data, group.begins, group.ends)
        if found is None:
            return
        arrays, bad = found
        errors = pa.nulls(len(bad), pa.string())
        made = pa.RecordBatch.from_arrays(
            [errors, *(arrays[column.steps] for column in columns)], schema=self.declaration.schema
        )
        if bad.any():
            good = np.flatnonzero(~bad)
            made, rows = made.take(pa.array(good)), group.rows[good]
        else:
            rows = group.rows
        if len(rows):
            yield rows, made

    def _decoded(self, records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The columns of a few records."""
        for part in self._decoding.parts(records.column(VALUE), records.column(HEADERS)):
            yield _typed(part, self.declaration)


def _without_columns(declaration: Declaration, error: str, count: int) -> pa.RecordBatch:
    """Rows of which all have the same `error`."""
    nulls = [pa.nulls(count, column.type) for column in declaration.columns]
    return pa.RecordBatch.from_arrays([pa.repeat(cut(error), count), *nulls], schema=declaration.schema)


def _typed(values: Sequence[Decoded | None], declaration: Declaration) -> pa.RecordBatch:
    """The columns of a few values, each by the declaration as its schema has the fields."""
    rows: dict[Declaration, list[int]] = {}
    for row, value in enumerate(values):
        own = declaration if value is None else resolved(declaration, value.decoder)
        rows.setdefault(own, []).append(row)
    parts = [typed_values(json_array([values[row] for row in own]), each) for each, own in rows.items()]
    made = parts[0]
    if len(parts) > 1:
        order = np.argsort(np.concatenate([*rows.values()]))
        made = pa.concat_batches(parts).take(pa.array(order))
    errors = {row: value.error for row, value in enumerate(values) if value is not None and value.error}
    if not errors:
        return made
    reasons = made.column(0).to_pylist()
    for row, error in errors.items():
        reasons[row] = cut(error)
    return made.set_column(0, made.schema.field(0), pa.array(reasons, pa.string()))


@lru_cache(maxsize=1024)
def resolved(declaration: Declaration, decoder: Decoder | None) -> Declaration:
    """`declaration` with the fields as the schema of `decoder` names them; itself if it has their names."""
    if decoder is None:
        return declaration
    columns = tuple(_resolved(column, decoder) for column in declaration.columns)
    return declaration if columns == declaration.columns else Declaration(columns, declaration.encoding)


def _resolved(column: Column, decoder: Decoder) -> Column:
    steps = decoder.steps(column.steps)
    return column if steps == column.steps else column.at(steps)


def _beside(records: pa.RecordBatch, start: int, typed: pa.RecordBatch) -> pa.RecordBatch:
    """The rows from `start` on, with the columns `typed`."""
    rows = records.slice(start, typed.num_rows)
    schema = pa.schema([*rows.schema, *typed.schema])
    return pa.RecordBatch.from_arrays([*rows.columns, *typed.columns], schema=schema)
