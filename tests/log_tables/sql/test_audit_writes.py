"""The table `audit_writes`, and who wrote a record."""

import msgspec
import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.audit_log import append_events, keep_audit_topic
from log_tables.cluster.admin.audit_writes import WRITES_SCHEMA, writer_of, writes_batches
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.errors import CorruptLog
from log_tables.sql.query import query
from log_tables.store.store import open_store

TIME_MS = 1_795_418_323_846


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster.open(open_store("memory://"), ManualClock(1))
    keep_audit_topic(made, {})
    return made


def wrote(
    cluster: Cluster, principal: str, partitions: dict[str, list[list[int]]], **about: object
) -> AuditRecord:
    record = AuditRecord(
        uid=cluster.clock.unique_id(),
        kind=AuditKind.WRITE,
        time_ms=TIME_MS,
        end_ms=TIME_MS + 9_000,
        operation="WRITE",
        principal=principal,
        resource_type="TOPIC",
        resource_name="orders",
        count=sum(last - first + 1 for ranges in partitions.values() for first, last in ranges),
        facts={"topic_id": "i1", "partitions": partitions},
        gateway="http://here",
    )
    return msgspec.structs.replace(record, **about)


def test_each_range_is_a_row_in_a_query_and_in_batches(cluster: Cluster) -> None:
    assert query(cluster, "select * from audit_writes").num_rows == 0
    ann = wrote(cluster, "User:ann", {"0": [[0, 4], [7, 7]], "3": [[0, 0]]}, address="10.0.0.7")
    other = msgspec.structs.replace(ann, uid=cluster.clock.unique_id(), kind=AuditKind.ACCESS, facts={})
    append_events(cluster, [ann, other, wrote(cluster, "User:bob", {"0": [[5, 6]]})])
    found = query(cluster, "select * from audit_writes order by partition, first_offset")
    assert found.schema.names == WRITES_SCHEMA.names
    rows = found.to_pylist()
    shown = [(row["partition"], row["first_offset"], row["last_offset"], row["principal"]) for row in rows]
    assert shown == [
        (0, 0, 4, "User:ann"),
        (0, 5, 6, "User:bob"),
        (0, 7, 7, "User:ann"),
        (3, 0, 0, "User:ann"),
    ]
    assert (rows[0]["address"], rows[1]["address"], rows[0]["gateway"]) == ("10.0.0.7", None, "http://here")
    assert (rows[0]["last_time"] - rows[0]["first_time"]).total_seconds() == 9
    assert sum(batch.num_rows for batch in writes_batches(cluster)) == 4
    of_record = "topic = 'orders' and partition = 0 and 6 between first_offset and last_offset"
    assert query(cluster, f"select principal from audit_writes where {of_record}").to_pylist() == [
        {"principal": "User:bob"}
    ]


def test_the_writer_of_a_record_is_found_in_the_partition_of_this_topic_alone(cluster: Cluster) -> None:
    append_events(
        cluster,
        [
            wrote(
                cluster, "User:old", {"0": [[0, 9]]}, facts={"topic_id": "i0", "partitions": {"0": [[0, 9]]}}
            )
        ],
    )
    append_events(cluster, [wrote(cluster, "User:ann", {"0": [[0, 4]], "1": [[5, 9]]})])
    append_events(cluster, [wrote(cluster, "User:bob", {"0": [[6, 6]]})])
    writers = [writer_of(cluster, "orders", "i1", 0, offset) for offset in range(8)]
    assert [each and each.principal for each in writers] == ["User:ann"] * 5 + [None, "User:bob", None]
    assert writer_of(cluster, "orders", "i1", 0, 4, most=1) is None
    assert writer_of(cluster, "orders", "i1", 0, 6, most=1) == writers[6]


@pytest.mark.parametrize("partitions", [None, {"0": [[1]]}, {"zero": [[1, 2]]}])
def test_an_event_without_ranges_is_damage(cluster: Cluster, partitions: object) -> None:
    facts = {"topic_id": "i1", "partitions": partitions}
    append_events(cluster, [wrote(cluster, "User:ann", {}, count=1, facts=facts)])
    with pytest.raises(CorruptLog, match="the record at offset 0 of __audit is not an event"):
        query(cluster, "select * from audit_writes")
    with pytest.raises(CorruptLog, match="offset 0"):
        writer_of(cluster, "orders", "i1", 0, 1)
