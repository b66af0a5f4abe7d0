"""The table `audit` of `lakelog sql`."""

from pathlib import Path

import pyarrow as pa
import pytest

from log_tables.cluster.admin.audit_log import (
    AUDIT_SCHEMA,
    append_events,
    audit_table,
    first_batch,
    keep_audit_topic,
)
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog
from log_tables.layout import AUDIT
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.sql.query import query, query_stream
from log_tables.store.store import open_store

DAY_MS = 24 * 60 * 60 * 1000
SETTINGS = {"retention.ms": "1000", "retention.bytes": "2000"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster.open(open_store(str(tmp_path)))


def event(cluster: Cluster, number: int) -> AuditRecord:
    return AuditRecord(
        uid=cluster.clock.unique_id(),
        kind=AuditKind.DENIAL,
        time_ms=number * DAY_MS,
        operation="READ",
        principal=f"User:u{number % 2}",
        address="10.0.0.7",
        resource_type="TOPIC",
        resource_name=f"t{number}",
        success=False,
        error_code=40301,
        count=number,
        gateway="http://here",
    )


def test_without_an_audit_log_the_table_is_empty_and_has_its_columns(cluster: Cluster) -> None:
    assert query(cluster, "select * from audit").num_rows == audit_table(cluster).num_rows == 0
    append_events(cluster, [event(cluster, 1)])
    assert cluster.cached_topic(AUDIT) is None
    shown = query(cluster, "show tables").to_pylist()
    assert {"name": "audit", "kind": "table"} in shown


def test_the_view_has_the_rows_of_the_log(cluster: Cluster) -> None:
    keep_audit_topic(cluster, SETTINGS)
    append_events(cluster, [event(cluster, number) for number in range(1, 5)])
    append_events(cluster, [event(cluster, 5)])
    found = query(cluster, "select * from audit order by time")
    assert found.schema.names == AUDIT_SCHEMA.names
    assert found.to_pylist() == audit_table(cluster).to_pylist()
    rows = query(cluster, "select principal, sum(count) as n from audit group by 1 order by 1").to_pylist()
    assert rows == [{"principal": "User:u0", "n": 6}, {"principal": "User:u1", "n": 9}]
    joined = (
        f'select a.resource_name from audit a join "{AUDIT}" r on a.time = r.timestamp where r.offset = 4'
    )
    assert query(cluster, joined).to_pylist() == [{"resource_name": "t5"}]
    assert pa.types.is_timestamp(found.schema.field("time").type)


def test_a_filter_of_time_leaves_out_files(cluster: Cluster) -> None:
    keep_audit_topic(cluster, SETTINGS)
    for number in range(1, 5):
        append_events(cluster, [event(cluster, number)])
    scans: list[tuple[str, int, int]] = []
    sql = "select resource_name from audit where time >= to_timestamp_millis(345600000)"
    found = query_stream(cluster, sql, lambda *scan: scans.append(scan)).read_all()
    assert found.to_pylist() == [{"resource_name": "t4"}]
    assert scans == [(AUDIT, 1, 4)]


def test_a_topic_called_audit_hides_the_table(cluster: Cluster) -> None:
    keep_audit_topic(cluster, SETTINGS)
    create_topic(cluster, "audit")
    assert "value_text" in query(cluster, "select * from audit").schema.names


def test_a_record_that_is_no_event_is_an_error_that_says_where(cluster: Cluster) -> None:
    partition = keep_audit_topic(cluster, SETTINGS).partition(0)
    partition.claim("")
    partition.append([first_batch(cluster.clock, [event(cluster, 1)]).request(0)])
    partition.append([AppendRequest(input_batch([Record(b"no event")], 2 * DAY_MS * 1000))])
    said = "offset 1 of __audit is not an event"
    with pytest.raises(CorruptLog, match=said):
        query(cluster, "select kind from audit")
    with pytest.raises(CorruptLog, match=said):
        audit_table(cluster)
    assert query(cluster, "select count(*) as n from audit").to_pylist() == [{"n": 2}]


def test_the_topic_keeps_the_settings_that_it_is_given(cluster: Cluster) -> None:
    first = keep_audit_topic(cluster, SETTINGS)
    assert (first.partition_count, first.config["retention.ms"]) == (1, "1000")
    version = cluster.metadata_log.partition.high_watermark
    assert keep_audit_topic(cluster, SETTINGS).topic_id == first.topic_id
    assert cluster.metadata_log.partition.high_watermark == version
    again = keep_audit_topic(cluster, {**SETTINGS, "retention.ms": "5"})
    assert (again.topic_id, again.config["retention.ms"]) == (first.topic_id, "5")
