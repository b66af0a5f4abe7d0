"""The audit log of a root, as an administrator reads it."""

from pathlib import Path
from typing import Any

from log_tables.clock import Clock
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.sql.query import query
from log_tables.store.store import open_store
from tests.kit.support import wait_until

Row = dict[str, Any]


def audit_rows(data: str | Path, where: str = "true") -> list[Row]:
    """The rows of the table `audit` for which `where` holds, in the order of their times."""
    cluster = Cluster.open(open_store(str(data)), create=False)
    found: list[Row] = query(cluster, f"select * from audit where {where} order by time").to_pylist()
    return found


def wait_for_audit(data: str | Path, where: str, rows: int = 1) -> list[Row]:
    """The rows for which `where` holds, once there are so many."""
    found: list[Row] = []

    def there() -> bool:
        found[:] = audit_rows(data, where)
        return len(found) >= rows

    wait_until(there, f"{rows} events where {where}")
    return found


def short(rows: list[Row], *names: str) -> list[tuple[Any, ...]]:
    """The columns `names` of `rows`."""
    return [tuple(row[name] for name in names) for row in rows]


def deletion(clock: Clock, topic: str) -> AuditRecord:
    """An event: User:ann has deleted `topic`."""
    return AuditRecord(
        uid=clock.unique_id(),
        kind=AuditKind.CHANGE,
        time_ms=clock.now_ms(),
        operation="DeleteTopics",
        principal="User:ann",
        resource_type="TOPIC",
        resource_name=topic,
    )
