"""SQL over topics without a JVM, in DataFusion: each topic is a view over its files.

A view has the columns `topic`, `partition` and those of the records, keys and values as text, and begins at
the log start offset. Beside it, `<topic>_json` has the fields of JSON values as typed columns, and the tables
of log_tables/sql/system_tables.py say where the consumer groups are. A query sees each partition as it is
when the query begins, and reads of it what it needs. The dialect is PostgreSQL's, but for names, which are as
they are written: only dots, dashes and the like need double quotes.
"""

from collections.abc import Iterator

import pyarrow as pa

from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument
from log_tables.sql.query_request import TableAccess
from log_tables.sql.session import OnTables, Session
from log_tables.sql.statement import check_reads_only, check_size, is_show_tables
from log_tables.sql.topic_files import OnScan


def query(cluster: Cluster, sql: str) -> pa.Table:
    """The answer to one SQL query, in memory. Raises as `query_stream` does."""
    return query_stream(cluster, sql).read_all()


def query_stream(
    cluster: Cluster,
    sql: str,
    on_scan: OnScan = lambda *_: None,
    access: TableAccess | None = None,
    on_tables: OnTables = lambda *_: None,
    memory_bytes: int | None = None,
) -> pa.RecordBatchReader:
    """The answer to one SQL query, batch by batch: of SELECT, WITH, VALUES, EXPLAIN, DESCRIBE, SHOW TABLES.

    `on_scan` is told of each scan of a topic: its name, how many files are read, and how many it has. Only
    the topics, tables and rows of `access` exist, all without it. `on_tables` is told of the topics and
    system tables before they are read. With `memory_bytes` DataFusion takes that much at most, and writes no
    file.

    Text is `string` and bytes are `binary`. Raises InvalidArgument for SQL that cannot be answered, with what
    DataFusion says; CorruptSegment, CorruptLog and StoreUnavailable for files that cannot be read. All of
    them also while batches are read.
    """
    cluster.refresh()
    check_reads_only(sql)
    check_size(sql)
    session = Session(cluster, on_scan, access, on_tables, memory_bytes)
    if is_show_tables(sql):
        return session.tables().to_reader()
    answer = session.plan(sql)
    schema = pa.schema([field.with_type(_plain(field.type)) for field in answer.schema()])
    if not schema.names:
        raise InvalidArgument("the answer to the SQL has no columns; select some")

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in session.batches(sql, answer):
            pairs = zip(batch.columns, schema.types, strict=True)
            yield pa.RecordBatch.from_arrays([column.cast(kind) for column, kind in pairs], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _plain(kind: pa.DataType) -> pa.DataType:
    """DataFusion's views of strings and bytes as what every reader of Arrow knows."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_plain(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_plain(field.type)) for field in kind.fields])
    return kind
