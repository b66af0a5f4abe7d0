"""Python programs: administration, producers, consumers, transactions, SQL."""

import json
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    import pyarrow as pa

    from lakelog.client.security_config import Credential

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
    data: str | os.PathLike[str] | None = None,
    url: str | None = None,
    store_options: Mapping[str, str] | None = None,
    credential: "Credential | None" = None,
    ssl_context: "ssl.SSLContext | None" = None,
    on_scan: Callable[[str, int, int], None] = lambda *_: None,
) -> "pa.Table":
    """The answer to a query in DataFusion's SQL over topics, as `lakelog sql` gives it.

    It reads the tables at the root `data`, which needs no gateway; `store_options` are those of an object
    store, as in docs/operating.md. Or it asks the gateway at `url`, which has to have its console:
    `credential` and `ssl_context` are those of Client. `on_scan` is told, for each scan of a topic, its name,
    how many files were read, and how many it has.

    Raises InvalidArgument for SQL that cannot be answered, and where there is no root; StoreUnavailable,
    CorruptLog and CorruptSegment for what cannot be read; from a gateway what Client raises.
    """
    if (data is None) == (url is None):
        raise InvalidArgument("SQL is asked of a root or of a gateway; name data or url, one of them")
    if url is not None:
        from lakelog.client.client import Client

        with Client(url, credential=credential, ssl_context=ssl_context) as client:
            return client.sql(query, on_scan)
    from log_tables.cluster.cluster import Cluster
    from log_tables.sql.query import query_stream
    from log_tables.store.store import open_store

    assert data is not None
    cluster = Cluster.open(open_store(data, store_options, create=False), create=False)
    return query_stream(cluster, query, on_scan).read_all()
