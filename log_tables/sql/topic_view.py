"""The view of a topic: what its files hold, and keys and values as text."""

from collections.abc import Callable

import pyarrow as pa
from datafusion import DataFrame, Expr, SessionContext, col, udf

from log_tables.layout import KEY, KEY_TEXT, VALUE, VALUE_TEXT
from log_tables.sql.scan import Failures, TopicScan
from log_tables.sql.topic_files import TopicFiles


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


def text_array(values: pa.Array) -> pa.Array:
    """Bytes as text, null where they are not UTF-8."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None
