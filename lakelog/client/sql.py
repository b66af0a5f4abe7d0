"""SQL in Python, of tables or of a gateway."""

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    import pyarrow as pa

    from lakelog.client.security_config import Credential


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
        from lakelog.client.client import Client  # who reads tables needs no HTTP

        with Client(url, credential=credential, ssl_context=ssl_context) as client:
            return client.sql(query, on_scan)
    from log_tables.cluster.cluster import Cluster
    from log_tables.sql.query import query_stream
    from log_tables.store.store import open_store

    assert data is not None
    cluster = Cluster.open(open_store(data, store_options, create=False), create=False)
    return query_stream(cluster, query, on_scan).read_all()
