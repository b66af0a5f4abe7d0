"""Python programs: administration, producers, consumers, transactions, SQL."""

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

DEFAULT_URL = "http://127.0.0.1:8082"
"""Where a gateway listens unless it is configured otherwise."""

Serializer = Callable[[Any], bytes]
"""A key or a value as bytes. It is never given None: that is no key, or no value."""

Deserializer = Callable[[bytes], Any]
"""The reverse. It is never given None."""


def json_serializer(content: Any) -> bytes:
    """`content` as JSON, in UTF-8. Raises TypeError for what JSON has no form of, ValueError for NaN."""
    return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def json_deserializer(data: bytes) -> Any:
    """The value of the JSON text `data`. Raises ValueError for a text that is not JSON."""
    return json.loads(data)


def sql(
    query: str,
    *,
    data: str | os.PathLike[str],
    store_options: Mapping[str, str] | None = None,
    on_scan: Callable[[str, int, int], None] = lambda *_: None,
) -> "pa.Table":
    """The answer to a query in DataFusion's SQL over the topics at the root `data`: that of `lakelog sql`.

    It reads the tables themselves and needs no gateway. `store_options` are those of an object store, as in
    docs/operating.md. `on_scan` is called for each scan of a topic, with its name, how many files were read,
    and how many it has. Raises InvalidArgument for SQL that cannot be answered, and where there is no root;
    StoreUnavailable, CorruptLog and CorruptSegment for what cannot be read.
    """
    from log_tables.cluster.cluster import Cluster
    from log_tables.sql.query import query_stream
    from log_tables.store.store import open_store

    cluster = Cluster.open(open_store(data, store_options, create=False), create=False)
    return query_stream(cluster, query, on_scan).read_all()
