"""How far behind groups are, from what they have committed and what tables say of their segments."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from log_tables.clock import ManualClock
from log_tables.cluster.admin.audit_log import AUDIT_SCHEMA
from log_tables.cluster.admin.audit_writes import WRITES_SCHEMA
from log_tables.cluster.admin.mirror_gaps import GAPS_SCHEMA
from log_tables.cluster.admin.run_log import RUNS_SCHEMA
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import GroupKey, GroupValue, OffsetKey
from log_tables.errors import CorruptLog
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.sql.lag import LAG_SCHEMA, OFFSETS_SCHEMA, Lag, group_offsets, lag
from log_tables.sql.system_tables import LAG_TABLE, OFFSETS_TABLE, SYSTEM_TABLES, system_tables
from log_tables.store.store import open_store
from log_tables.table.snapshot import Snapshot
from log_tables.testing import FaultyStore
from tests.kit.groups import commit, say
from tests.kit.partitions import append, thin_out

SECOND_MS = 1_000


@pytest.fixture
def cluster(store_root: Path, clock: ManualClock) -> Cluster:
    return Cluster.open(open_store(store_root), clock)


@pytest.fixture
def partition(cluster: Cluster, clock: ManualClock) -> Partition:
    """A partition of the topic `t` with ten records in one commit, and ten more a minute later."""
    made = cluster.claim(create_topic(cluster, "t"), 0)
    append(made, *[b"x"] * 10)
    clock.advance(60 * SECOND_MS)
    append(made, *[b"y" * 1_000] * 10)
    return made


def sizes(snapshot: Snapshot) -> list[int]:
    return [segment.size for segment in snapshot.segments]


def rows(cluster: Cluster, name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = system_tables(cluster, [name])[name].to_pylist()
    return found


def test_the_lag_counts_records_seconds_and_bytes(partition: Partition, clock: ManualClock) -> None:
    clock.advance(5 * SECOND_MS)
    snapshot, now = partition.snapshot, clock.now_ms()
    first, second = sizes(snapshot)
    assert lag(snapshot, 0, now) == Lag(20, 65.0, first + second)
    assert lag(snapshot, 10, now) == Lag(10, 5.0, second)
    assert lag(snapshot, 4, now) == Lag(16, 65.0, first * 6 // 10 + second)
    assert lag(snapshot, 19, now) == Lag(1, 5.0, second // 10)
    assert lag(snapshot, 20, now) == Lag()
    assert lag(snapshot, 99, now) == Lag()


def test_a_clock_that_is_behind_makes_no_negative_lag(partition: Partition, clock: ManualClock) -> None:
    clock.jump(-3_600 * SECOND_MS)
    assert lag(partition.snapshot, 10, clock.now_ms()).seconds == 0


def test_what_is_deleted_is_not_waited_for(partition: Partition, clock: ManualClock) -> None:
    """Kafka clamps the lag to the log start in its tools, too."""
    partition.truncate(13)
    clock.advance(SECOND_MS)
    (second,) = sizes(partition.snapshot)
    for committed in (0, 12, 13):
        assert lag(partition.snapshot, committed, clock.now_ms()) == Lag(7, 1.0, second * 7 // 10)


def test_a_gap_that_compaction_left_counts_offsets_and_no_bytes(
    partition: Partition, clock: ManualClock
) -> None:
    thin_out(partition, partition.snapshot.segments[:1], keep=lambda offset: offset in (2, 5))
    clock.advance(SECOND_MS)
    snapshot, now = partition.refresh(), clock.now_ms()
    thinned, second = sizes(snapshot)
    assert lag(snapshot, 0, now) == Lag(20, 61.0, thinned + second)
    assert lag(snapshot, 7, now) == Lag(13, 1.0, second)


def test_a_tail_that_compaction_has_emptied_is_its_last_record_and_gaps(
    partition: Partition, clock: ManualClock
) -> None:
    thin_out(partition, partition.snapshot.segments[1:], keep=lambda _: False)
    clock.advance(SECOND_MS)
    snapshot, now = partition.refresh(), clock.now_ms()
    assert lag(snapshot, 15, now) == Lag(5, 1.0, sizes(snapshot)[1])


def test_an_empty_root_has_empty_tables_with_their_columns(cluster: Cluster) -> None:
    found = system_tables(cluster, SYSTEM_TABLES)
    assert {name: table.schema for name, table in found.items()} == {
        "consumer_offsets": OFFSETS_SCHEMA,
        "consumer_lag": LAG_SCHEMA,
        "maintenance_runs": RUNS_SCHEMA,
        "audit": AUDIT_SCHEMA,
        "audit_writes": WRITES_SCHEMA,
        "mirror_gaps": GAPS_SCHEMA,
    }
    assert {table.num_rows for table in found.values()} == {0}
    assert system_tables(cluster, []) == {}


def test_the_newest_commit_of_each_group_counts(
    cluster: Cluster, partition: Partition, clock: ManualClock
) -> None:
    commit(cluster, "b", "t", 0, 3, index=1)
    commit(cluster, "a", "t", 0, 12)
    say(cluster, (GroupKey("a"), GroupValue(1)))
    clock.advance(SECOND_MS)
    commit(cluster, "b", "t", 0, 7, index=1)
    first, second = sizes(partition.snapshot)
    common = {"topic": "t", "partition": 0, "log_start_offset": 0, "log_end_offset": 20}
    assert rows(cluster, LAG_TABLE) == [
        {
            "group": "a",
            **common,
            "offset": 12,
            "lag": 8,
            "lag_seconds": 1.0,
            "lag_bytes": second * 8 // 10,
        },
        {
            "group": "b",
            **common,
            "offset": 7,
            "lag": 13,
            "lag_seconds": 61.0,
            "lag_bytes": first * 3 // 10 + second,
        },
    ]
    assert rows(cluster, OFFSETS_TABLE)[1] == {
        "group": "b",
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "metadata": "",
        "committed_at": datetime.fromtimestamp(clock.now_ms() / 1000, UTC),
        "member": "",
        "topic_id": cluster.topic("t").topic_id,
    }


def test_what_another_process_appends_and_commits_is_seen(
    cluster: Cluster, partition: Partition, store_root: Path
) -> None:
    commit(cluster, "g", "t", 0, 20)
    reader = Cluster.open(open_store(store_root))
    assert [row["lag"] for row in rows(reader, LAG_TABLE)] == [0]
    append(partition, b"z")
    assert [row["lag"] for row in rows(reader, LAG_TABLE)] == [1]
    commit(cluster, "g", "t", 0, 21)
    assert [(row["offset"], row["lag"]) for row in rows(reader, LAG_TABLE)] == [(21, 0)]


def test_each_partition_is_looked_at_once_however_many_groups_read_it(
    cluster: Cluster, partition: Partition, store_root: Path
) -> None:
    def calls(groups: int) -> int:
        for number in range(groups):
            commit(cluster, f"g{number}", "t", 0, number)
        store = FaultyStore(open_store(store_root))
        reader = Cluster.open(store)
        group_offsets(reader, ends=True)
        before = len(store.calls)
        assert len(group_offsets(reader, ends=True).committed) == groups
        return len(store.calls) - before

    assert partition.high_watermark == 20
    assert calls(1) == calls(10)


@pytest.mark.usefixtures("partition")
def test_offsets_that_were_deleted_are_not_shown(cluster: Cluster) -> None:
    commit(cluster, "gone", "t", 0, 5)
    commit(cluster, "kept", "t", 0, 5)
    say(cluster, (OffsetKey("gone", "t", 0), None), (GroupKey("gone"), None))
    assert [row["group"] for row in rows(cluster, OFFSETS_TABLE)] == ["kept"]


@pytest.mark.usefixtures("partition")
def test_offsets_of_an_earlier_topic_of_the_name_are_not_shown(cluster: Cluster) -> None:
    create_topic(cluster, "u")
    for topic in ("t", "u"):
        commit(cluster, "g", topic, 0, 0)
    delete_topic(cluster, "u")
    delete_topic(cluster, "t")
    assert rows(cluster, OFFSETS_TABLE) == []
    create_topic(cluster, "t")
    assert rows(cluster, OFFSETS_TABLE) == rows(cluster, LAG_TABLE) == []
    commit(cluster, "g", "t", 0, 0)
    assert [(row["topic"], row["lag"]) for row in rows(cluster, LAG_TABLE)] == [("t", 0)]


def test_a_log_of_groups_that_cannot_be_read_is_named(cluster: Cluster) -> None:
    create_topic(cluster, CONSUMER_OFFSETS, internal=True)
    log = cluster.claim(cluster.topic(CONSUMER_OFFSETS), 0)
    log.append([AppendRequest(input_batch([Record(b"{}", key=b"no JSON")], 0))])
    with pytest.raises(CorruptLog, match="offset 0 of topics/__consumer_offsets/partition=0"):
        system_tables(cluster, [LAG_TABLE])
