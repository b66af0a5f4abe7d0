"""The view of a topic: what its files hold, and keys and values as text; the views `audit` and
`audit_writes`, whose events are decoded as they are read.
"""

from collections.abc import Callable

import msgspec
import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, col, udf

from log_tables.cluster.admin.audit_log import AUDIT_SCHEMA, corrupt_event
from log_tables.cluster.admin.audit_writes import WRITES_SCHEMA, write_rows
from log_tables.cluster.audit_record import row_of
from log_tables.errors import CorruptLog
from log_tables.layout import KEY, KEY_TEXT, OFFSET, TIMESTAMP, VALUE, VALUE_TEXT
from log_tables.record import text_array
from log_tables.sql.scan import Failures, TopicScan
from log_tables.sql.topic_files import TopicFiles

_TIME = "time"
_OF_WRITES = pa.list_(pa.struct([*WRITES_SCHEMA]))
_OF_EVENT = pa.struct([field for field in AUDIT_SCHEMA if field.name != _TIME])


def topic_view(
    context: SessionContext, files: TopicFiles, failures: Failures, filtered: bool = True
) -> DataFrame:
    """The view of the topic: the columns of its files, then value_text and key_text.

    Unless it is `filtered`, no filter reaches its scan.
    """
    scanned = f"lakelog/{files.name}"  # no topic has a slash in its name
    if context.table_exist(quoted(scanned)):
        context.deregister_table(quoted(scanned))
    context.register_dataset(quoted(scanned), TopicScan(files, failures))
    # Arrow's filters do not compare nested values: what is computed is left to DataFusion.
    columns = [
        column(field.name)
        if filtered and not pa.types.is_nested(field.type)
        else computed(field.name, field.type)
        for field in files.schema
    ]
    texts = [_as_text(VALUE, VALUE_TEXT), _as_text(KEY, KEY_TEXT)]
    return context.table(quoted(scanned)).select(*columns, *texts)


def quoted(name: str) -> str:
    """The name as DataFusion takes it without a change."""
    return '"' + name.replace('"', '""') + '"'


def column(name: str) -> Expr:
    """The column of exactly this name."""
    return col(quoted(name))


def computed(name: str, kind: pa.DataType) -> Expr:
    """The column `name` as it is, as the result of a function: filters over it do not reach the scan."""
    return _function(lambda array: array, kind, kind, "field")(column(name)).alias(name)


def _as_text(name: str, text: str) -> Expr:
    return _function(text_array, pa.binary(), pa.string(), "text")(column(name)).alias(text)


def _function(
    compute: Callable[[pa.Array], pa.Array], of: pa.DataType, to: pa.DataType, name: str
) -> Callable[[Expr], Expr]:
    made: Callable[[Expr], Expr] = udf(compute, [of], to, "immutable", name)
    return made


def audit_view(
    context: SessionContext, files: TopicFiles, failures: Failures, filtered: bool = True
) -> DataFrame:
    """The columns of AUDIT_SCHEMA, of the topic `__audit`. A filter over `time` leaves out files.

    Unless it is `filtered`, no filter reaches its scan. An event that cannot be read is in `failures`.
    """

    def decoded(offsets: pa.Array, values: pa.Array) -> pa.Array:
        return pa.array(map(_row, offsets.to_pylist(), values.to_pylist()), _OF_EVENT)

    def _row(offset: int, value: bytes | None) -> dict[str, object]:
        try:
            return row_of(value or b"")
        except (msgspec.MsgspecError, ValueError) as error:
            failures.append(corrupt_event(offset, error))
            raise

    event = udf(decoded, [pa.int64(), pa.binary()], _OF_EVENT, "immutable", "event_of")
    records = topic_view(context, files, failures, filtered)
    fields = event(column(OFFSET), column(VALUE))
    named = [fields[name].alias(name) for name in _OF_EVENT.names]
    return records.select(column(TIMESTAMP).alias(_TIME), *named)


def writes_view(
    context: SessionContext, files: TopicFiles, failures: Failures, filtered: bool = True
) -> DataFrame:
    """The columns of WRITES_SCHEMA, of the topic `__audit`, as `audit_view`."""

    def decoded(offsets: pa.Array, values: pa.Array) -> pa.Array:
        return pa.array(map(_rows, offsets.to_pylist(), values.to_pylist()), _OF_WRITES)

    def _rows(offset: int, value: bytes | None) -> list[dict[str, object]]:
        try:
            return write_rows(offset, value)
        except CorruptLog as error:
            failures.append(error)
            raise

    ranges = udf(decoded, [pa.int64(), pa.binary()], _OF_WRITES, "immutable", "ranges_of")
    records = topic_view(context, files, failures, filtered)
    each = ranges(column(OFFSET), column(VALUE)).alias("range")
    found = records.select(each).unnest_columns("range", preserve_nulls=False)
    return found.select(*(column("range")[name].alias(name) for name in WRITES_SCHEMA.names))
