"""`lakelog audit who`."""

from pathlib import Path

from log_tables.cluster.admin.audit_log import append_events, keep_audit_topic
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.audit_record import AuditKind, AuditRecord
from log_tables.cluster.cluster import Cluster
from log_tables.partition.partition import AppendRequest
from log_tables.record import Record, input_batch
from log_tables.store.store import open_store
from tests.kit.cli import FAILED, Run, lines, printed, wrong


def cluster_of(root: Path) -> Cluster:
    """A root with the topic t of three records, of which the audit log tells who wrote the first two."""
    cluster = Cluster.open(open_store(str(root)))
    topic = create_topic(cluster, "t", 1)
    partition = topic.partition(0)
    partition.claim("http://here")
    partition.append([AppendRequest(input_batch([Record(b"v")] * 3, 0))])
    keep_audit_topic(cluster, {})
    event = AuditRecord(
        uid=cluster.clock.unique_id(),
        kind=AuditKind.WRITE,
        time_ms=1_795_418_323_846,
        end_ms=1_795_418_324_846,
        operation="WRITE",
        principal="User:ann",
        address="10.0.0.7",
        resource_type="TOPIC",
        resource_name="t",
        count=2,
        facts={"topic_id": topic.topic_id, "partitions": {"0": [[0, 1]]}},
        gateway="http://here",
    )
    append_events(cluster, [event])
    return cluster


def test_the_writer_of_a_record_is_printed(run: Run, tmp_path: Path) -> None:
    cluster_of(tmp_path)
    assert lines(run("audit", "who", "t", "0", "1", "--data", str(tmp_path))) == [
        "User:ann from 10.0.0.7",
        "  offsets 0 to 1, committed by http://here",
        "  between 2026-11-23T07:18:43.846+00:00 and 2026-11-23T07:18:44.846+00:00",
    ]
    found = printed(run("audit", "who", "t", "0", "0", "--data", str(tmp_path), "--json"))
    assert (found["principal"], found["first_offset"], found["last_offset"]) == ("User:ann", 0, 1)


def test_what_the_log_does_not_say_is_said(run: Run, tmp_path: Path) -> None:
    cluster_of(tmp_path)
    wrong(
        run("audit", "who", "t", "0", "2", "--data", str(tmp_path)),
        FAILED,
        "does not say who wrote this record",
    )
    done = run("audit", "who", "t", "0", "2", "--data", str(tmp_path), "--json")
    assert (done.exit_code, done.stdout.strip()) == (FAILED, "null")
