"""Retention deletes whole segments from the head, by age and by size, over both tiers of a log."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs import retention
from jobs.maintenance import JOBS, Maintenance
from jobs.outcome import GONE, OVERTAKEN, JobOutcome
from jobs.retention import ExpireStep
from jobs.state import PartitionState, look
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.record import timestamp_text
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from log_tables.testing import FaultyStore
from tests.kit.engines import no_engine
from tests.kit.partitions import append, values
from tests.kit.states import NOW_MS, a_segment, a_state, aged

AGES = (50, 40, 30, 20, 10)
"""Of the segments at offsets 0, 10 … 40, in milliseconds."""


def before(state: PartitionState) -> int | None:
    """Below which offset all goes, None when nothing does."""
    steps = retention.plan([state], NOW_MS)
    return steps[0].before if steps else None


DAY_MS = 24 * 3_600_000


def test_a_time_far_ahead_that_holds_it_up_is_told() -> None:
    far_ms, soon_ms = 400 * DAY_MS, 3_600_000
    segments = aged(8 * DAY_MS, -far_ms, 30)
    state = a_state(segments, retention_ms=7 * DAY_MS)
    (told,) = retention.warnings([state], NOW_MS)
    goes = timestamp_text((NOW_MS + far_ms + 7 * DAY_MS) * 1_000)
    assert told.startswith(f"retention.ms deletes nothing of partition 3 of topic t before {goes}: a record ")
    assert f"below offset 20 claims the time {segments[1].max_timestamp}" in told
    assert before(state) == 10
    for_ever = a_state(segments[1:], retention_ms=2**63 - 1)
    assert [*retention.warnings([for_ever], NOW_MS)]
    calm = [a_state(aged(50, -soon_ms, 30), retention_ms=1), a_state(segments)]
    assert [*retention.warnings(calm, NOW_MS)] == []


def test_a_run_warns_and_a_plan_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster.open(open_store(tmp_path), ManualClock())
    topic = create_topic(cluster, "t", 2, configs={"retention.ms": "1"})
    partition = topic.partitions()[1]
    partition.claim("http://here")
    append(partition, b"far", at_us=(cluster.clock.now_ms() + 400 * DAY_MS) * 1_000)
    maintenance = Maintenance(cluster, lambda _size, _debt: no_engine, (JOBS[0],))
    assert [*maintenance.previews()] == []
    assert caplog.text == ""
    assert [*maintenance.run()] == []
    assert caplog.text.count("retention.ms deletes nothing of partition 1 of topic t before") == 1


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        # A segment goes when its newest record is older.
        ({"retention_ms": 60}, None),
        ({"retention_ms": 50}, None),
        ({"retention_ms": 49}, 10),
        ({"retention_ms": 25}, 30),
        ({"retention_ms": 0}, 50),
        ({"retention_ms": 2**63 - 1}, None),
        # A segment goes when the rest still has as many bytes.
        ({"retention_bytes": 501}, None),
        ({"retention_bytes": 401}, None),
        ({"retention_bytes": 400}, 10),
        ({"retention_bytes": 301}, 10),
        ({"retention_bytes": 1}, 40),
        ({"retention_bytes": 0}, 50),
        # Whichever asks for more.
        ({"retention_ms": 25, "retention_bytes": 400}, 30),
        ({"retention_ms": 45, "retention_bytes": 200}, 30),
        # A policy without deletion has no retention.
        ({"retention_ms": 0, "cleanup_policy": ""}, None),
        ({"retention_bytes": 0, "cleanup_policy": ""}, None),
        ({"retention_ms": 0, "cleanup_policy": "compact"}, None),
        ({"retention_bytes": 0, "cleanup_policy": "compact"}, None),
        ({"retention_ms": 25, "cleanup_policy": "compact,delete"}, 30),
        ({"retention_ms": 25, "cleanup_policy": "delete,compact"}, 30),
    ],
)
def test_what_is_too_old_or_too_much_goes(settings: dict[str, Any], expected: int | None) -> None:
    assert before(a_state(aged(*AGES), **settings)) == expected


def test_a_partition_without_segments_has_nothing_to_delete() -> None:
    assert before(a_state([], log_start=70, retention_ms=0, retention_bytes=0)) is None


def test_a_young_segment_keeps_the_old_ones_after_it() -> None:
    """Event times are not in order; only the head of a log goes."""
    assert before(a_state(aged(50, 10, 50, 50), retention_ms=20)) == 10
    assert before(a_state(aged(10, 50, 50), retention_ms=20)) is None


def test_records_from_the_future_stay() -> None:
    assert before(a_state(aged(50, -1_000), retention_ms=0)) == 10


def test_a_log_that_starts_inside_a_segment_counts_that_segment_whole() -> None:
    assert before(a_state(aged(*AGES), log_start=5, retention_bytes=400)) == 10
    assert before(a_state(aged(*AGES), log_start=5, retention_ms=49)) == 10
    assert before(a_state(aged(*AGES), log_start=45, retention_ms=49)) == 10


def test_a_step_says_what_goes() -> None:
    (step,) = retention.plan([a_state(aged(*AGES), retention_ms=25)], NOW_MS)
    assert step == ExpireStep(
        topic="t",
        partition=3,
        directory="topics/t/partition=3",
        before=30,
        begin=0,
        log_start=0,
        keeps=(25, None),
        segments=3,
        records=30,
        size_bytes=300,
    )
    assert str(step) == "delete 3 segments (30 records, 300 bytes) below offset 30"


# Both tiers.

THERE = aged(90, 80, 70)
HERE = aged(*AGES, base=30)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"retention_ms": 85}, 10),
        ({"retention_ms": 45}, 40),
        ({"retention_bytes": 800}, None),
        ({"retention_bytes": 700}, 10),
        ({"retention_bytes": 450}, 30),
        ({"retention_bytes": 0}, 80),
    ],
)
@pytest.mark.parametrize("left_behind", [0, 1, 2])
def test_retention_counts_both_tiers_and_a_moved_segment_once(
    settings: dict[str, Any], expected: int | None, left_behind: int
) -> None:
    """`left_behind` segments are in both: a move was killed between its two commits."""
    there = [*THERE, *HERE[:left_behind]]
    settings = {"local_retention_bytes": 0, **settings}
    state = a_state(HERE, there, tiered=30, remote_storage_enable="true", **settings)
    assert before(state) == expected


def test_what_is_below_the_log_start_no_longer_counts() -> None:
    state = a_state(HERE, THERE, tiered=30, log_start=20, retention_bytes=500)
    assert before(state) == 30


def test_without_the_remote_tier_nothing_is_deleted() -> None:
    """There a young record may come before the old ones here."""
    cut_off = a_state(HERE, unreachable="it is away", tiered=30, retention_ms=0, retention_bytes=0)
    assert before(cut_off) is None
    assert before(replace(cut_off, unreachable="")) == 80


def test_segments_of_one_size_differ_by_what_they_hold() -> None:
    uneven = [a_segment(0, size=1_000), a_segment(10, size=10), a_segment(20, size=10)]
    assert before(a_state(uneven, retention_bytes=20)) == 10
    assert before(a_state(uneven, retention_bytes=21)) is None


# On tables.


@pytest.fixture
def cluster(store_root: Path, clock: ManualClock) -> Cluster:
    """Topics `t` and `u`: four segments of one record each, a second apart, the newest at now."""
    made = Cluster.open(open_store(store_root), clock)
    clock.advance(60_000)
    for name, configs in (("t", {"retention.ms": "1500"}), ("u", {"retention.bytes": "1"})):
        partition = made.claim(create_topic(made, name, configs=configs), 0)
        for number in range(4):
            append(partition, b"%d" % number, at_us=clock.now_us() - (3 - number) * 1_000_000)
    return made


def expire(cluster: Cluster) -> list[JobOutcome]:
    """One run of this job."""
    states, unreadable = look(cluster)
    assert unreadable == []
    steps = retention.plan(states, cluster.clock.now_ms())
    return list(retention.run(no_engine, cluster, steps))


def test_a_run_moves_the_log_start_and_the_next_has_nothing_to_do(cluster: Cluster) -> None:
    other = Cluster.open(cluster.store, cluster.clock)
    outcomes = {outcome.topic: outcome for outcome in expire(other)}
    assert [outcomes[name].error for name in ("t", "u")] == [None, None]
    assert (outcomes["t"].files_before, outcomes["t"].files_after, outcomes["t"].records) == (2, 0, 2)
    assert outcomes["u"].files_before == 3
    for reader in (other, cluster):
        found = {name: reader.topic(name).partition(0) for name in ("t", "u")}
        for partition in found.values():
            partition.refresh()
        assert {name: values(p) for name, p in found.items()} == {"t": [b"2", b"3"], "u": [b"3"]}
        assert {name: p.log_start for name, p in found.items()} == {"t": 2, "u": 3}
    assert expire(other) == []
    assert append(cluster.topic("u").partition(0), b"4") == 4
    assert check(cluster.store).problems == []


def test_a_run_reads_no_data(cluster: Cluster) -> None:
    watched = FaultyStore(cluster.store)
    assert len(expire(Cluster.open(watched, cluster.clock))) == 2
    read = [call.path for call in watched.calls if call.operation in ("get", "get_range")]
    assert [path for path in read if path.endswith(".parquet") and "__cluster_metadata" not in path] == []


def test_the_log_start_never_goes_back(cluster: Cluster) -> None:
    states, _ = look(cluster)
    steps = retention.plan(states, cluster.clock.now_ms())
    cluster.topic("t").partition(0).truncate(4)
    assert [outcome.error for outcome in retention.run(no_engine, cluster, steps)] == [None, None]
    assert cluster.topic("t").partition(0).log_start == 4


def test_a_partition_that_fails_stands_in_nobodys_way(cluster: Cluster) -> None:
    states, _ = look(cluster)
    steps = retention.plan(states, cluster.clock.now_ms())
    delete_topic(cluster, "t")
    failed, done = retention.run(no_engine, cluster, steps)
    assert (failed.error, failed.failed) == (GONE, False)
    assert (done.topic, done.error) == ("u", None)
    assert values(cluster.topic("u").partition(0)) == [b"3"]


def test_settings_that_were_changed_since_the_plan_leave_all_to_the_next_run(cluster: Cluster) -> None:
    """As by an operator who raises them to bring records back."""
    states, _ = look(cluster)
    steps = retention.plan(states, cluster.clock.now_ms())
    alter_topic(Cluster.open(cluster.store, cluster.clock), "t", {"retention.ms": "-1"})
    outcomes = {outcome.topic: outcome for outcome in retention.run(no_engine, cluster, steps)}
    assert (outcomes["t"].error, outcomes["t"].failed, outcomes["u"].error) == (OVERTAKEN, False, None)
    assert values(cluster.topic("t").partition(0)) == [b"0", b"1", b"2", b"3"]
