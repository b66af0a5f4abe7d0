"""The check of the declared columns of a segment: they are derived from the values again, and compared."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from log_tables.columns.column_stats import Bound, ColumnStats, ColumnStatsWriter, number_of
from log_tables.columns.columns_tag import format_of, has_schema, missing_schemas
from log_tables.columns.declaration import Declaration
from log_tables.columns.record_columns import RecordColumns
from log_tables.errors import LakelogError
from log_tables.layout import OFFSET, VALUE_ERROR
from log_tables.record import RECORD_SCHEMA
from log_tables.schemas.decoded import JSON, UNKNOWN_SCHEMA, Encoding
from log_tables.schemas.schema import NO_SCHEMAS, Schema, SchemaId, Schemas
from log_tables.table.snapshot import Segment

_REMEDY = "restore it from a backup"


@dataclass(frozen=True, slots=True)
class ValueSchemas:
    """The schemas that the values of a topic name, and the one that all have if there is one."""

    named: Schemas = NO_SCHEMAS
    only: Schema | None = None


@dataclass(frozen=True, slots=True)
class _Without(Schemas):
    """`found` without some that are `missing`."""

    found: Schemas
    missing: frozenset[SchemaId]

    def known(self, schema_id: SchemaId) -> Schema | None:
        return None if schema_id in self.missing else self.found.known(schema_id)

    def look_up(self, ids: Iterable[SchemaId]) -> None:
        self.found.look_up([each for each in ids if each not in self.missing])


def check_columns(
    batches: Iterable[pa.RecordBatch],
    segment: Segment,
    declared: Declaration,
    schemas: ValueSchemas = ValueSchemas(),
) -> Iterator[str]:
    """The problems of the columns of `segment`, of a table that has `declared`, in all `batches` of its file;
    they never name a value.

    Values whose schemas are not among `schemas` may have any columns, as may all of a segment that was
    written while its topic had another schema for all.
    """
    stats, different = ColumnStatsWriter(), dict[str, int]()
    columns = None
    try:
        for batch in batches:
            if columns is None:
                columns = _declaration(batch, declared, segment, schemas)
                broken = [*_misplaced(batch, columns, segment)]
                if broken or not columns.columns or _of_another_schema(columns, segment):
                    yield from broken
                    return
            _compare(batch, columns, schemas.named, missing_schemas(segment.columns), different)
            stats.add(batch, batch.schema.names[len(RECORD_SCHEMA) :])
    except (LakelogError, pa.ArrowException) as error:
        yield f"segment {segment.path}: {error}"
        return
    for name, offset in different.items():
        yield (
            f"the column {name} of segment {segment.path} is not what the values say, from offset {offset} "
            f"on; {_REMEDY}"
        )
    for name in _unbound(segment.column_stats, stats.stats()):
        yield f"segment {segment.path} holds values or nulls of the column {name} outside its stats"


def _declaration(
    batch: pa.RecordBatch, declared: Declaration, segment: Segment, schemas: ValueSchemas
) -> Declaration:
    """The columns of a file, as its table declares them and its tag says that values are encoded."""
    names, form = {*batch.schema.names}, format_of(segment.columns)
    only = schemas.only if has_schema(segment.columns) else None
    encoding = JSON if form is None else Encoding(form, only)
    return Declaration(tuple(column for column in declared.columns if column.name in names), encoding)


def _of_another_schema(columns: Declaration, segment: Segment) -> bool:
    """Whether the columns of `segment` were made by a schema for all values that its topic no longer has."""
    return has_schema(segment.columns) and columns.id != segment.declaration_id


def _misplaced(batch: pa.RecordBatch, columns: Declaration, segment: Segment) -> Iterator[str]:
    """The columns that should not be there, and an id of the log that is not theirs."""
    known = {*RECORD_SCHEMA.names, *columns.schema.names}
    unknown = [name for name in batch.schema.names if name not in known]
    if unknown:
        yield (
            f"segment {segment.path} has the column {unknown[0]}, which its table does not declare; {_REMEDY}"
        )
    elif columns.columns and VALUE_ERROR not in batch.schema.names:
        yield f"segment {segment.path} has declared columns, and lacks {VALUE_ERROR}; {_REMEDY}"
    elif columns.id != segment.declaration_id and not _of_another_schema(columns, segment):
        yield (
            f"segment {segment.path} has the columns of declaration {columns.id or 'none'}, and the log says "
            f"{segment.columns or 'none'}; {_REMEDY}"
        )


def _compare(
    batch: pa.RecordBatch,
    columns: Declaration,
    schemas: Schemas,
    missing: frozenset[SchemaId],
    different: dict[str, int],
) -> None:
    """Note in `different` the first offset at which a column is not what the values say."""
    expected = RecordColumns(columns, schemas).of(batch)
    if missing:
        expected = _as_found(batch, expected, RecordColumns(columns, _Without(schemas, missing)).of(batch))
    if not columns.encoding.is_json:  # what cannot be derived now is not compared
        known = pc.invert(_unknown(expected.column(0)))
        expected, batch = expected.filter(known), batch.filter(known)
    for name, made in zip(expected.schema.names, expected.columns, strict=True):
        found = batch.column(name)
        if name in different or (found.type == made.type and found.equals(made)):
            continue
        row = _first_difference(found, made)
        if row is not None:
            different[name] = batch.column(OFFSET)[row].as_py()


def _as_found(batch: pa.RecordBatch, known: pa.RecordBatch, missing: pa.RecordBatch) -> pa.RecordBatch:
    """The columns that are `known`, and `missing` ones for rows of `batch` that say so of their schema.

    A merge may have joined both.
    """
    said = pc.equal(batch.column(VALUE_ERROR), missing.column(0)).fill_null(False)
    chosen = pc.and_(said, _unknown(missing.column(0))).to_numpy(zero_copy_only=False)
    places = np.arange(batch.num_rows) + np.where(chosen, batch.num_rows, 0)
    return pa.concat_batches([known, missing]).take(pa.array(places))


def _unknown(errors: pa.Array) -> pa.Array:
    """Which of `errors` say of a schema that it is not known."""
    return pc.match_substring_regex(errors, UNKNOWN_SCHEMA).fill_null(False)


def _first_difference(found: pa.Array, made: pa.Array) -> int | None:
    """The first row in which two columns differ. None if they do in names of types alone, which Parquet may
    not keep.
    """
    try:
        found = found.cast(made.type)
    except pa.ArrowException:
        return 0
    if found.equals(made):
        return None
    low, high = 0, len(made) - 1
    while low < high:  # the first `high + 1` rows differ, the first `low` do not
        middle = (low + high) // 2
        if found.slice(0, middle + 1).equals(made.slice(0, middle + 1)):
            low = middle + 1
        else:
            high = middle
    return low


def _unbound(said: ColumnStats, found: ColumnStats) -> Iterator[str]:
    """The columns whose bounds in the log, `said`, do not hold what was `found`, or whose nulls differ."""
    for name in said.nulls:
        low, high = found.least.get(name), found.greatest.get(name)
        if (
            found.nulls.get(name, said.nulls[name]) != said.nulls[name]
            or (low is not None and name in said.least and _exceeds(said.least[name], low))
            or (name in said.greatest and high is not None and _exceeds(high, said.greatest[name]))
        ):
            yield name


def _exceeds(one: Bound, other: Bound) -> bool:
    """Whether a bound is greater than another of the same column; they are not of one kind if it is wrong."""
    if isinstance(one, str | bool) or isinstance(other, str | bool):
        return type(one) is not type(other) or one > other  # type: ignore[operator]
    return number_of(one) > number_of(other)
