"""The answer to a query as frames, within the bounds of its request."""

import traceback
from collections.abc import Callable, Collection

import msgspec

from log_tables.cluster.cluster import Cluster
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.sql.answer_rows import columns_of, row_frames
from log_tables.sql.query import query_stream
from log_tables.sql.query_request import (
    FrameKind,
    QueryFailure,
    QueryRequest,
    QueryResult,
    RootRequest,
    Scan,
    TablesRead,
)
from log_tables.store.store import open_store

_EXHAUSTED = "Resources exhausted"
_TOO_MUCH = (
    "the query takes more memory than it may (sql_memory); ask for fewer rows or columns, or group by less"
)


def opened(root: RootRequest) -> Cluster:
    """The cluster at a root. Raises InvalidArgument where there is none, CorruptLog, StoreUnavailable."""
    return Cluster.open(open_store(root.url, root.store_options, create=False), create=False)


def answer(
    cluster: Cluster, asked: QueryRequest, memory_bytes: int, send: Callable[[FrameKind, bytes], None]
) -> QueryResult:
    """Send the tables that are read, the columns and the rows. Raises as `query_stream`."""
    scans: list[Scan] = []

    def on_tables(topics: Collection[str], tables: Collection[str]) -> None:
        send(FrameKind.TABLES, msgspec.json.encode(TablesRead(sorted(topics), sorted(tables))))

    found = query_stream(
        cluster,
        asked.sql,
        lambda topic, read, files: scans.append(Scan(topic, read, files)),
        asked.access,
        on_tables,
        memory_bytes,
    )
    send(FrameKind.COLUMNS, msgspec.json.encode(columns_of(found.schema)))
    rows = size = 0
    for batch in found:
        wanted = batch.slice(0, asked.rows_max - rows)
        for count, content in row_frames(wanted):
            if size + len(content) > asked.bytes_max:
                return QueryResult(rows, "bytes", scans)
            send(FrameKind.ROWS, content)
            rows, size = rows + count, size + len(content)
        if wanted.num_rows < batch.num_rows:
            return QueryResult(rows, "rows", scans)
    return QueryResult(rows, "", scans)


def failure(error: Exception, memory_bytes: int) -> bytes:
    """The content of an ERROR."""
    if isinstance(error, InvalidArgument) and _EXHAUSTED in error.message:
        error = InvalidArgument(_TOO_MUCH)
    if isinstance(error, LakelogError):
        return msgspec.json.encode(QueryFailure(error.code, error.message, memory_bytes))
    return msgspec.json.encode(QueryFailure("", "".join(traceback.format_exception(error)), memory_bytes))
