"""Every invariant holds for what we write and names what breaks it; commits of other tools are told apart."""

from collections.abc import Callable
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from msgspec.structs import replace

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog, ForeignCommit, LakelogError, UnsupportedTable
from log_tables.layout import (
    PROPERTY_CLUSTER,
    TXN_CLEANED,
    TXN_HIGH_WATERMARK,
    TXN_LEADER,
    TXN_LOG_START,
    TXN_MIRRORED,
    TXN_TIERED,
)
from log_tables.limits import LOG_RETENTION_MS
from log_tables.partition.partition import Partition
from log_tables.record import RECORD_SCHEMA
from log_tables.root.table_check import check_partition
from log_tables.store.store import Store, open_store
from log_tables.table import invariant
from log_tables.table.commit import ENGINE, Add, Commit, CommitInfo, Metadata, Protocol, Txn
from log_tables.table.invariant import CommitKind, broken_state, broken_step, followed
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.txns import Txns
from log_tables.testing import ClockedStore
from tests.kit.partitions import TABLE, another, append, append_each, log_versions, new_partition, values


def segment(base: int, last: int, records: int | None = None, modified: int = 0) -> Segment:
    count = last - base + 1 if records is None else records
    moment = "2026-01-01T00:00:00.000Z"
    return Segment(
        path=f"{base}.parquet",
        size=10,
        base_offset=base,
        last_offset=last,
        records=count,
        min_timestamp=moment,
        max_timestamp=moment,
        modification_time=modified,
        nulls=(0, 0, 0),
        raw_bytes=10,
    )


def snapshot(*segments: Segment, leader: int = 1, start: int = 0) -> Snapshot:
    end = segments[-1].last_offset + 1 if segments else 0
    numbers = {TXN_HIGH_WATERMARK: end, TXN_LEADER: leader, TXN_LOG_START: start}
    txns = Txns(Txn(name, version) for name, version in numbers.items())
    return Snapshot(7, Protocol(1, 2), Metadata("id", "{}"), segments, txns)


OURS = CommitInfo(engineInfo=ENGINE, operation="WRITE")
BEFORE = snapshot(segment(0, 4), segment(5, 9, modified=50))


def appended(made: Segment, high_watermark: int | None = None) -> Commit:
    end = made.last_offset + 1 if high_watermark is None else high_watermark
    return Commit(OURS, txns=(Txn(TXN_HIGH_WATERMARK, end),), adds=(made.add(True),))


def mirrored(*made: Segment, end: int, high_watermark: int | None = None) -> Commit:
    txns = Txn(TXN_HIGH_WATERMARK, end if high_watermark is None else high_watermark), Txn(TXN_MIRRORED, end)
    return Commit(OURS, txns=txns, adds=tuple(item.add(True) for item in made))


def rewritten(made: list[Segment], gone: list[Segment], data_change: bool = False) -> Commit:
    adds = tuple(item.add(data_change) for item in made)
    return Commit(OURS, adds=adds, removes=tuple(item.remove(0, data_change) for item in gone))


def typed(made: Segment) -> Segment:
    """`made` with columns of a declaration."""
    return replace(made, path=f"typed-{made.path}", columns="0" * 16)


GOOD = {
    "an append": (appended(segment(10, 12, modified=50)), CommitKind.APPEND),
    "a mirror": (mirrored(segment(12, 19, records=3, modified=50), end=25), CommitKind.MIRROR),
    "a mirror of no record": (mirrored(end=12), CommitKind.MIRROR),
    "a claim": (Commit(OURS, txns=(Txn(TXN_LEADER, 2),)), CommitKind.CLAIM),
    "a merge": (rewritten([segment(0, 9, modified=50)], list(BEFORE.segments)), CommitKind.MAINTENANCE),
    "a removal": (rewritten([], [BEFORE.segments[0]], data_change=True), CommitKind.MAINTENANCE),
    "a compaction": (
        rewritten([segment(1, 4, records=2)], [BEFORE.segments[0]], data_change=True),
        CommitKind.MAINTENANCE,
    ),
    "other columns": (
        rewritten([typed(segment(0, 4))], [BEFORE.segments[0]], data_change=True),
        CommitKind.MAINTENANCE,
    ),
    "a log start": (Commit(OURS, txns=(Txn(TXN_LOG_START, 3),)), CommitKind.MAINTENANCE),
    "nothing": (Commit(CommitInfo(operation="VACUUM END")), CommitKind.MAINTENANCE),
    "a vacuum": (Commit(CommitInfo(operation="VACUUM", engineInfo=OURS.engineInfo)), CommitKind.MAINTENANCE),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_keeps_the_invariants_is_let_through(name: str) -> None:
    commit, kind = GOOD[name]
    assert broken_step(BEFORE, commit) is None
    assert followed(TABLE, BEFORE, commit)[1] is kind


def test_a_commit_of_ours_that_was_cut_after_its_first_line_is_named() -> None:
    with pytest.raises(ForeignCommit, match="lost its actions"):
        followed(TABLE, BEFORE, Commit(OURS))


def tiered(gone: list[Segment], border: int) -> Commit:
    return changed(rewritten([], gone, data_change=True), txns=(Txn(TXN_TIERED, border),))


def moved(*made: Segment, end: int | None = None) -> Commit:
    txn = Txn(TXN_HIGH_WATERMARK, made[-1].last_offset + 1 if end is None else end)
    return Commit(OURS, txns=(txn,), adds=tuple(item.add(True) for item in made))


REMOTE = changed(BEFORE, metadata=Metadata("id", "{}", configuration={PROPERTY_CLUSTER: "a cluster"}))


def test_a_remote_table_takes_moves_that_only_add_behind_what_it_holds() -> None:
    two = moved(segment(12, 15, modified=50), segment(18, 19, modified=60))  # 10-11 and 16-17 were deleted
    assert broken_step(REMOTE, two) is None
    assert followed(TABLE, REMOTE, two)[1] is CommitKind.TIER
    assert "begins at offset 9, below the high watermark 10" in (
        broken_step(REMOTE, moved(segment(9, 12, modified=50))) or ""
    )
    assert "says the high watermark 21" in (
        broken_step(REMOTE, moved(segment(10, 12, modified=50), end=21)) or ""
    )
    assert "inside the one before" in (
        broken_step(REMOTE, moved(segment(12, 15, modified=50), segment(14, 19, modified=50))) or ""
    )
    with_removes = changed(two, removes=(BEFORE.segments[0].remove(0, True),))
    assert "not adds alone" in (broken_step(REMOTE, with_removes) or "")
    assert "not adds alone" in (broken_step(REMOTE, changed(two, adds=())) or "")


def test_the_border_to_the_remote_tier_only_moves_forward_and_nothing_is_below_it() -> None:
    step = tiered([BEFORE.segments[0]], 5)
    assert followed(TABLE, BEFORE, step)[1] is CommitKind.MAINTENANCE
    after = BEFORE.apply(step)
    assert (BEFORE.tiered, after.tiered) == (0, 5)
    assert broken_step(after, tiered([], 4)) == "the border to the remote tier moved back from 5 to 4"
    assert broken_step(BEFORE, tiered([BEFORE.segments[0]], 6)) == (
        "segment 5.parquet begins at 5, below the border 6 to the remote tier"
    )
    assert "above the high watermark 10" in (broken_step(BEFORE, tiered(list(BEFORE.segments), 11)) or "")


LATER = appended(segment(10, 12, modified=50))
BROKEN = {
    "begins at offset 11, not at the high watermark 10": appended(segment(11, 12, modified=50)),
    "begins at offset 9, not at the high watermark 10": appended(segment(9, 12, modified=50)),
    "an append of 2 records spans offsets 10-12": appended(segment(10, 12, records=2, modified=50)),
    "says the high watermark 14": appended(segment(10, 12, modified=50), 14),
    "an append has 0 adds": Commit(OURS, txns=(Txn(TXN_HIGH_WATERMARK, 12),)),
    "1 removes, not exactly one add": changed(LATER, removes=(BEFORE.segments[0].remove(0, True),)),
    "is older than": appended(segment(10, 12, modified=49)),
    "log start moved back from 3 to 2": Commit(OURS, txns=(Txn(TXN_LOG_START, 2),)),
    "compaction by key moved back from offset 5 to 4": Commit(OURS, txns=(Txn(TXN_CLEANED, 4),)),
    "compaction by key is at 11, above the high watermark 10": Commit(OURS, txns=(Txn(TXN_CLEANED, 11),)),
    "a mirror begins at offset 9, below the high watermark 10": mirrored(segment(9, 12, modified=50), end=13),
    "a mirror has 2 adds": mirrored(segment(10, 12, modified=50), segment(13, 14, modified=50), end=15),
    "a mirror has 0 adds and 1 removes": changed(
        mirrored(end=15), removes=(BEFORE.segments[0].remove(0, True),)
    ),
    "a mirror up to offset 15 says the high watermark 14": mirrored(end=15, high_watermark=14),
    "ends at 13, above the high watermark 12": mirrored(segment(10, 12, modified=50), end=12),
    "high watermark moved back from 10 to 9": mirrored(end=9),
    "beside.parquet is older than": mirrored(
        replace(segment(10, 12, modified=49), path="beside.parquet"), end=13
    ),
    "copy of another log is at 11, above the high watermark 10": Commit(
        OURS, txns=(Txn(TXN_LEADER, 2), Txn(TXN_MIRRORED, 11))
    ),
    "leader epoch moved back from 1 to 0": Commit(OURS, txns=(Txn(TXN_LEADER, 0),)),
    "a rewrite of 5 records leaves 4": rewritten([segment(1, 4)], [BEFORE.segments[0]]),
    "a rewrite of 5 records changes their declared columns, and says that it does not": rewritten(
        [typed(segment(0, 4))], [BEFORE.segments[0]]
    ),
    "which is not in the table": rewritten([], [segment(3, 4)], data_change=True),
    "where it removes nothing": rewritten([segment(0, 5)], [BEFORE.segments[0]], data_change=True),
    "beyond.parquet for offsets 10-12": rewritten(
        [replace(segment(10, 12), path="beyond.parquet")], [BEFORE.segments[0]], data_change=True
    ),
    "inside the one before that ends at 5": rewritten(
        [segment(0, 4), replace(segment(2, 3), path="twice.parquet")], [BEFORE.segments[0]], data_change=True
    ),
    "0.parquet, which comes before it": rewritten(
        [segment(0, 4, modified=51)], [BEFORE.segments[0]], data_change=True
    ),
    "counts 0 records": rewritten([segment(0, 4, records=0)], [BEFORE.segments[0]], data_change=True),
    "counts 6 records": rewritten([segment(0, 4, records=6)], [BEFORE.segments[0]], data_change=True),
}


@pytest.mark.parametrize("reason", BROKEN)
def test_what_breaks_an_invariant_is_named_and_refused(reason: str) -> None:
    txns = BEFORE.txns.after([Txn(TXN_LOG_START, 3), Txn(TXN_CLEANED, 5)])
    before = changed(BEFORE, txns=txns)
    assert reason in (broken_step(before, BROKEN[reason]) or "it holds")
    with pytest.raises(ForeignCommit, match="version 8 of topics/t/partition=0") as raised:
        followed(TABLE, before, BROKEN[reason])
    assert reason in raised.value.message


def test_a_compaction_never_leaves_more_than_there_was() -> None:
    sparse = segment(0, 4, records=2)
    commit = rewritten([replace(segment(0, 4, records=3), path="more.parquet")], [sparse], data_change=True)
    assert broken_step(snapshot(sparse), commit) == "a rewrite of 2 records leaves 3"


def test_a_merge_keeps_the_columns_of_each_record() -> None:
    table = snapshot(segment(0, 4), segment(5, 9), typed(segment(10, 14)), typed(segment(15, 19)))
    pair = [segment(0, 9), typed(segment(10, 19))]
    merged = [replace(item, path=f"merged-{item.path}") for item in pair]
    assert broken_step(table, rewritten(merged, list(table.segments))) is None
    mixed = [replace(segment(0, 14), path="mixed.parquet"), replace(merged[1], base_offset=15, records=5)]
    assert "changes their declared columns" in (
        broken_step(table, rewritten(mixed, list(table.segments))) or ""
    )


def test_the_high_watermark_never_moves_back() -> None:
    assert invariant.high_watermark_never_moves_back(BEFORE, snapshot(segment(0, 4))) == (
        "the high watermark moved back from 10 to 5"
    )


def test_a_snapshot_is_checked_whole() -> None:
    assert broken_state(BEFORE) == []
    wrong = snapshot(segment(0, 4, modified=9), segment(3, 6), segment(7, 9))
    assert len(broken_state(wrong)) == 2


def test_a_change_of_schema_or_protocol_is_refused_even_from_us() -> None:
    for commit in (
        Commit(OURS, metadata=Metadata("id", '{"fields":[]}')),
        Commit(OURS, protocol=Protocol(3, 7, ("deletionVectors",), ("deletionVectors",))),
    ):
        with pytest.raises(ForeignCommit, match=r"changes the (schema|protocol) of the table"):
            followed(TABLE, BEFORE, commit)
    assert followed(TABLE, BEFORE, Commit(OURS, metadata=Metadata("id", "{}")))[1] is CommitKind.MAINTENANCE


def test_an_add_without_offsets_has_no_place_in_the_log() -> None:
    commit = Commit(OURS, adds=(Add("x.parquet", 1, 1, True, '{"numRecords":1}'),))
    with pytest.raises(ForeignCommit, match=r"x\.parquet has no usable stats"):
        followed(TABLE, BEFORE, commit)


# Commits of another tool, on a real table.

ROW = pa.table(
    [
        pa.array([3], pa.int64()),
        pa.array([0], RECORD_SCHEMA.field("timestamp").type),
        pa.array([None], pa.binary()),
        pa.array([b"foreign"], pa.binary()),
        pa.nulls(1, RECORD_SCHEMA.field("headers").type),
    ],
    schema=RECORD_SCHEMA,
)

Change = Callable[[DeltaTable], Any]
FOREIGN: dict[str, tuple[Change, str]] = {
    "append": (lambda table: write_deltalake(table, ROW, mode="append"), "WRITE"),
    "overwrite": (lambda table: write_deltalake(table, ROW, mode="overwrite"), "WRITE"),
    "delete": (lambda table: table.delete("offset = 1"), "DELETE"),
    "update": (lambda table: table.update({"value": "key"}, predicate="offset = 1"), "UPDATE"),
    "optimize": (lambda table: table.optimize.compact(), "OPTIMIZE"),
    "restore": (lambda table: table.restore(2), "RESTORE"),
    "properties": (
        lambda table: table.alter.set_table_properties({"delta.appendOnly": "true"}),
        "SET TBLPROPERTIES",
    ),
    "column": (lambda table: table.alter.add_columns([Field("more", PrimitiveType("string"))]), "ADD COLUMN"),
    "constraint": (lambda table: table.alter.add_constraint({"c": "offset >= 0"}), "ADD CONSTRAINT"),
}
HARMLESS: dict[str, Change] = {
    "checkpoint": lambda table: table.create_checkpoint(),
    "cleanup": lambda table: table.cleanup_metadata(),
    "vacuum": lambda table: table.vacuum(dry_run=False),
}


@pytest.fixture
def partition(store_root: Path) -> Partition:
    partition = new_partition(open_store(store_root), ManualClock())
    append_each(partition, [b"0", b"1", b"2"])
    return partition


def by_another_tool(partition: Partition) -> DeltaTable:
    return DeltaTable(partition.table.store.delta_location(partition.directory)[0])


@pytest.mark.parametrize("name", FOREIGN)
def test_a_commit_of_another_tool_stops_the_partition_and_is_named(partition: Partition, name: str) -> None:
    change, operation = FOREIGN[name]
    change(by_another_tool(partition))

    def tail() -> None:
        partition.refresh()

    attempts: list[Callable[[], object]] = [
        lambda: append(partition, b"next"),
        lambda: partition.claim("http://first"),
        lambda: partition.truncate(1),
        tail,
        lambda: another(partition),
    ]
    for attempt in attempts:
        with pytest.raises(ForeignCommit, match="version 5 of topics/t/partition=0") as raised:
            attempt()
        assert raised.value.details == {"version": 5, "operation": operation}
    assert not partition.leading
    assert values(partition) == [b"0", b"1", b"2"]
    assert any("version 5" in problem for problem in check_partition(partition.table.store, TABLE).problems)


@pytest.mark.parametrize("name", FOREIGN)
def test_a_checkpoint_of_the_other_tool_does_not_hide_its_commit(partition: Partition, name: str) -> None:
    FOREIGN[name][0](by_another_tool(partition))
    table = by_another_tool(partition)
    table.vacuum(dry_run=False)
    table.create_checkpoint()
    with pytest.raises((ForeignCommit, UnsupportedTable)):
        another(partition)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_another_tool_does_without_a_change_disturbs_nobody(partition: Partition, name: str) -> None:
    HARMLESS[name](by_another_tool(partition))
    assert append(partition, b"3") == 3
    HARMLESS[name](by_another_tool(partition))
    opened = another(partition)
    opened.claim("http://second")
    assert append(opened, b"4") == 4
    assert values(another(partition)) == [b"0", b"1", b"2", b"3", b"4"]
    assert check_partition(partition.table.store, TABLE).problems == []


def test_the_log_before_a_foreign_commit_is_never_cleaned(clock: ManualClock, store_root: Path) -> None:
    store: Store = ClockedStore(open_store(store_root), clock)
    partition = new_partition(store, clock)
    append_each(partition, [b"0", b"1", b"2"])
    write_deltalake(by_another_tool(partition), ROW, mode="overwrite")
    by_another_tool(partition).create_checkpoint()
    clock.advance(LOG_RETENTION_MS + 1)
    assert partition.table.delete_expired_log() == 0
    assert log_versions(partition)[0] == [0, 1, 2, 3, 4, 5]


def test_errors_about_foreign_commits_name_no_path_of_the_machine(
    partition: Partition, store_root: Path
) -> None:
    by_another_tool(partition).delete()
    with pytest.raises(LakelogError) as raised:
        another(partition)
    assert str(store_root) not in raised.value.message
    with pytest.raises(CorruptLog, match="refused to commit to topics/t/partition=0"):
        partition.table.transact(lambda _: appended(segment(9, 9)))
