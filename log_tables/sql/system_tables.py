"""The tables that SQL has besides the topics; a query makes those that it names."""

from collections.abc import Collection, Iterator, Mapping

import pyarrow as pa

from log_tables.cluster.admin.audit_log import AUDIT_SCHEMA, audit_batches, audit_table
from log_tables.cluster.admin.audit_writes import WRITES_SCHEMA, writes_batches
from log_tables.cluster.admin.mirror_gaps import GAPS_SCHEMA, gaps_table
from log_tables.cluster.admin.run_log import RUNS_SCHEMA, runs_table
from log_tables.cluster.cluster import Cluster
from log_tables.sql.lag import LAG_SCHEMA, OFFSETS_SCHEMA, group_offsets, lag_table, offsets_table
from log_tables.sql.query_request import TableAccess

OFFSETS_TABLE, LAG_TABLE = "consumer_offsets", "consumer_lag"
RUNS_TABLE, AUDIT_TABLE, GAPS_TABLE = "maintenance_runs", "audit", "mirror_gaps"
WRITES_TABLE = "audit_writes"

SYSTEM_TABLES: Mapping[str, pa.Schema] = {
    OFFSETS_TABLE: OFFSETS_SCHEMA,
    LAG_TABLE: LAG_SCHEMA,
    RUNS_TABLE: RUNS_SCHEMA,
    AUDIT_TABLE: AUDIT_SCHEMA,
    WRITES_TABLE: WRITES_SCHEMA,
    GAPS_TABLE: GAPS_SCHEMA,
}
"""Their schemas, by name. A topic with the name hides the table."""


def system_tables(
    cluster: Cluster, names: Collection[str], access: TableAccess | None = None
) -> dict[str, pa.Table]:
    """The SYSTEM_TABLES in `names`; consumer groups are read once for all of them. Blocking.

    Of groups they have the rows that `access` shows, all without it. The topics are as last refreshed. Raises
    CorruptLog, CorruptSegment, StoreUnavailable.
    """
    made = {}
    if OFFSETS_TABLE in names or LAG_TABLE in names:
        offsets = group_offsets(
            cluster, ends=LAG_TABLE in names, shows=None if access is None else access.shows
        )
        made[OFFSETS_TABLE] = offsets_table(offsets)
        if LAG_TABLE in names:
            made[LAG_TABLE] = lag_table(offsets, cluster.clock.now_ms())
    if RUNS_TABLE in names:
        made[RUNS_TABLE] = runs_table(cluster)
    if AUDIT_TABLE in names:
        made[AUDIT_TABLE] = audit_table(cluster)
    if WRITES_TABLE in names:
        made[WRITES_TABLE] = pa.Table.from_batches(writes_batches(cluster), WRITES_SCHEMA)
    if GAPS_TABLE in names:
        made[GAPS_TABLE] = gaps_table(cluster)
    return {name: made[name] for name in names}


def system_batches(cluster: Cluster, name: str) -> Iterator[pa.RecordBatch]:
    """The rows of one of SYSTEM_TABLES, batch by batch. Raises as `system_tables`."""
    if name == AUDIT_TABLE:
        yield from audit_batches(cluster)
    elif name == WRITES_TABLE:
        yield from writes_batches(cluster)
    else:
        yield from system_tables(cluster, [name])[name].to_batches()
