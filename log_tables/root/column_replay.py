"""The check of declared columns: they are derived from the values again, and compared with those there."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from log_tables.columns.column_stats import ColumnStats, ColumnStatsWriter
from log_tables.columns.declaration import Declaration
from log_tables.columns.typed_values import typed_values
from log_tables.errors import LakelogError
from log_tables.layout import OFFSET, VALUE, VALUE_ERROR
from log_tables.record import RECORD_SCHEMA
from log_tables.table.snapshot import Segment

_REMEDY = "restore it from a backup"


def check_columns(
    batches: Iterable[pa.RecordBatch], segment: Segment, declared: Declaration
) -> Iterator[str]:
    """The problems of the columns of `segment`, of a table that has `declared`, in all `batches` of its file;
    they never name a value.
    """
    stats, different = ColumnStatsWriter(), dict[str, int]()
    columns = None
    try:
        for batch in batches:
            if columns is None:
                columns = _declaration(batch, declared)
                broken = [*_misplaced(batch, columns, segment)]
                if broken or not columns.columns:
                    yield from broken
                    return
            _compare(batch, columns, different)
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


def _declaration(batch: pa.RecordBatch, declared: Declaration) -> Declaration:
    """The columns of a file, as its table declares them."""
    names = {*batch.schema.names}
    return Declaration(tuple(column for column in declared.columns if column.name in names))


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
    elif columns.id != segment.columns:
        yield (
            f"segment {segment.path} has the columns of declaration {columns.id or 'none'}, and the log says "
            f"{segment.columns or 'none'}; {_REMEDY}"
        )


def _compare(batch: pa.RecordBatch, columns: Declaration, different: dict[str, int]) -> None:
    """Note in `different` the first offset at which a column is not what the values say."""
    expected = typed_values(batch.column(VALUE), columns)
    for name, made in zip(expected.schema.names, expected.columns, strict=True):
        found = batch.column(name)
        if name in different or (found.type == made.type and found.equals(made)):
            continue
        row = _first_difference(found, made)
        if row is not None:
            different[name] = batch.column(OFFSET)[row].as_py()


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


def _exceeds(one: object, other: object) -> bool:
    """Whether a bound is greater than another of the same column; they are not of one kind if it is wrong."""
    if isinstance(one, str) != isinstance(other, str):
        return True
    return one > other  # type: ignore[operator, no-any-return]
