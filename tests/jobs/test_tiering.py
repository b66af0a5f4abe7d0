"""Tiering moves closed segments from the head to the remote tier, each once, and never the newest."""

from pathlib import Path
from typing import Any

import pytest

from jobs import tiering
from jobs.state import PartitionState, look
from jobs.tiering import MoveStep
from log_tables.clock import ManualClock
from log_tables.cluster.admin.topic_admin import create_topic
from tests.kit.engines import in_process
from tests.kit.partitions import append_each, held
from tests.kit.states import NOW_MS, a_segment, a_state, aged, bases
from tests.kit.tiers import tiered_cluster

AGES = (50, 40, 30, 20, 10)
"""Of the segments at offsets 0, 10 … 40, in milliseconds."""

APART: dict[str, Any] = {"remote_storage_enable": "true", "merge_min_age_ms": 0, "segment_ms": 1}
"""A tiered topic of which no two segments are merged."""


def moves(state: PartitionState) -> list[int]:
    """The base offsets of the segments that are to move."""
    steps = tiering.plan([state], NOW_MS)
    return bases(steps[0].segments) if steps else []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, []),
        ({"local_retention_ms": -1, "local_retention_bytes": -1}, []),
        # By age, as retention goes.
        ({"local_retention_ms": 50}, []),
        ({"local_retention_ms": 49}, [0]),
        ({"local_retention_ms": 25}, [0, 10, 20]),
        ({"local_retention_ms": 0}, [0, 10, 20, 30]),
        # By size.
        ({"local_retention_bytes": 500}, []),
        ({"local_retention_bytes": 400}, [0]),
        ({"local_retention_bytes": 0}, [0, 10, 20, 30]),
        # Whichever asks for more.
        ({"local_retention_ms": 25, "local_retention_bytes": 400}, [0, 10, 20]),
        ({"local_retention_ms": 49, "local_retention_bytes": 200}, [0, 10, 20]),
        # -2 is as the whole.
        ({"retention_ms": 25}, [0, 10, 20]),
        ({"retention_bytes": 300}, [0, 10]),
        ({"retention_ms": 100, "local_retention_ms": 45}, [0]),
    ],
)
def test_what_is_past_the_local_retention_moves(settings: dict[str, Any], expected: list[int]) -> None:
    assert moves(a_state(aged(*AGES), **APART, **settings)) == expected


def test_a_topic_that_is_not_tiered_stays() -> None:
    assert tiering.plan([a_state(aged(*AGES), local_retention_ms=0, local_retention_bytes=0)], NOW_MS) == ()


def test_the_newest_segment_stays_however_old_and_large() -> None:
    for count in (0, 1):
        state = a_state(aged(*[50] * count), local_retention_ms=0, local_retention_bytes=0, **APART)
        assert moves(state) == []


def test_what_is_young_by_its_append_stays_and_all_after_it() -> None:
    """Even with an event time of years ago the segment stays, because a merge will still rewrite it."""
    settings = {**APART, "local_retention_ms": 0}
    assert moves(a_state(aged(*AGES), **{**settings, "merge_min_age_ms": 30})) == [0, 10, 20]
    assert moves(a_state(aged(*AGES), **{**settings, "merge_min_age_ms": 31})) == [0, 10]
    assert moves(a_state(aged(*AGES), **{**settings, "merge_min_age_ms": 51})) == []


def test_what_is_going_to_be_merged_stays_and_all_after_it() -> None:
    settings = {**APART, "segment_ms": 604_800_000, "segment_bytes": 1_024, "local_retention_ms": 0}
    assert moves(a_state(aged(50, 40, 30), **settings)) == [0, 10]
    assert moves(a_state(aged(*AGES), **settings)) == []
    full = a_segment(0, age_ms=60, size=1_024)
    assert moves(a_state([full, *aged(*AGES, base=10)], **settings)) == [0]


def test_a_log_without_a_remote_table_has_all_before_it() -> None:
    (step,) = tiering.plan([a_state(aged(*AGES), local_retention_ms=45, **APART)], NOW_MS)
    assert step == MoveStep(
        topic="t",
        partition=3,
        directory="topics/t/partition=3",
        segments=tuple(aged(*AGES)[:1]),
        held=0,
        compression="zstd",
        log_start=0,
        expired=0,
    )
    assert str(step) == "move 1 segment (100 bytes) to the remote root, delete 0 there"


# With a remote table.

THERE = aged(90, 80, 70)
HERE = aged(*AGES, base=30)


def plan(here: int = 0, **given: Any) -> MoveStep | None:
    """The plan for the segments HERE without the first `here`; in the remote root the segments THERE precede
    them.
    """
    settings = {**APART, "tiered": 30 + 10 * here, **given}
    steps = tiering.plan([a_state(HERE[here:], **settings)], NOW_MS)
    return steps[0] if steps else None


def test_a_move_goes_on_where_the_remote_table_ends() -> None:
    step = plan(remote=THERE, local_retention_ms=45)
    assert step is not None
    assert (bases(step.segments), step.held, step.expired) == ([30], 30, 0)
    assert plan(remote=THERE, local_retention_ms=50) is None


@pytest.mark.parametrize("enabled", ["true", "false"])
@pytest.mark.parametrize("left_behind", [1, 2, 4])
def test_a_move_that_was_killed_between_its_commits_is_completed(enabled: str, left_behind: int) -> None:
    """Whatever the settings are by now."""
    step = plan(remote=[*THERE, *HERE[:left_behind]], **{**APART, "remote_storage_enable": enabled})
    assert step is not None
    assert (step.segments, step.held) == ((), 30 + 10 * left_behind)


def test_the_newest_segment_is_not_left_behind_though_it_is_there_too() -> None:
    assert plan(remote=[*THERE, *HERE], here=4) is None


@pytest.mark.parametrize(("log_start", "expired"), [(0, 0), (9, 0), (10, 1), (25, 2), (30, 3), (45, 3)])
@pytest.mark.parametrize("enabled", ["true", "false"])
def test_what_is_below_the_log_start_goes_there(log_start: int, expired: int, enabled: str) -> None:
    step = plan(remote=THERE, log_start=log_start, **{**APART, "remote_storage_enable": enabled})
    assert (0 if step is None else step.expired) == expired
    if step is not None:
        assert (step.segments, step.log_start) == ((), log_start)


def test_a_remote_root_that_does_not_answer_is_left_alone() -> None:
    given: dict[str, Any] = {"local_retention_ms": 0, "unreachable": "it is away", **APART}
    reachable = a_state(HERE, THERE, tiered=30, local_retention_ms=0, **APART)
    assert tiering.plan([a_state(HERE, tiered=30, **given), reachable], NOW_MS) == tiering.plan(
        [reachable], NOW_MS
    )


# What fails.


def test_what_was_copied_before_a_failure_moves_all_the_same(tmp_path: Path, clock: ManualClock) -> None:
    """Or a long log would never get on while one copy in ten fails, and each try would leave its files."""
    cluster = tiered_cluster(tmp_path, clock)
    settings = {"remote.storage.enable": "true", "local.retention.bytes": "0", "segment.ms": "1"}
    partition = create_topic(cluster, "t", configs={**settings, "merge.min.age.ms": "0"}).partition(0)
    partition.claim("")
    append_each(partition, [b"%d" % number for number in range(6)])
    clock.advance(1_000)
    broken = partition.snapshot.segments[3]
    data = cluster.store.get(f"{partition.directory}/{broken.path}")
    cluster.store.delete(f"{partition.directory}/{broken.path}")

    def run() -> list[str | None]:
        states, _ = look(cluster)
        steps = tiering.plan(states, clock.now_ms())
        each_segment = tiering.run(in_process, cluster, steps, copy_bytes=1)
        return [outcome.error for outcome in each_segment]

    (error,) = run()
    assert "is missing" in str(error)
    assert bases(partition.refresh().segments) == [3, 4, 5]
    cluster.store.put(f"{partition.directory}/{broken.path}", data)
    assert run() == [None]
    assert bases(partition.refresh().segments) == [5]
    assert list(held(partition).values()) == [b"%d" % number for number in range(6)]
