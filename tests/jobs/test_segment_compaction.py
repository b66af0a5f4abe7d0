"""The merges of partitions: what stays apart, and which partition comes first."""

import dataclasses

import pytest

from jobs import segment_compaction
from jobs.state import PartitionState, worst_debt
from tests.kit import states


def planned(state: PartitionState) -> list[tuple[bool, list[int]]]:
    """(Whether in the remote table, where the inputs begin) of each merge."""
    steps = segment_compaction.plan([state], states.NOW_MS)
    return [(step.remote, states.bases(step.inputs)) for step in steps]


def test_a_merge_never_joins_what_is_here_and_what_is_in_the_remote_table() -> None:
    there, here = states.aged(*[90] * 5), states.aged(*[80] * 4, base=50)
    state = states.a_state(here, there, tiered=50, remote_storage_enable="true", merge_min_age_ms=0)
    assert planned(state) == [(False, [50, 60, 70, 80]), (True, [0, 10, 20, 30, 40])]


def test_what_the_remote_table_has_is_merged_though_the_topic_is_no_longer_tiered() -> None:
    state = states.a_state([], states.aged(*[90] * 4), tiered=40, merge_min_age_ms=0)
    assert planned(state) == [(True, [0, 10, 20, 30])]


@pytest.mark.parametrize(
    ("folded", "expected"), [(0, []), (39, []), (40, [[0, 10, 20, 30]]), (45, [[0, 10, 20, 30]])]
)
def test_a_merge_there_takes_what_the_table_over_the_topic_has(
    folded: int, expected: list[list[int]]
) -> None:
    state = states.a_state([], states.aged(*[90] * 5), tiered=50, merge_min_age_ms=0)
    assert planned(dataclasses.replace(state, remote_folded=folded)) == [(True, run) for run in expected]


def test_without_the_remote_table_what_is_here_is_merged() -> None:
    here = states.aged(*[80] * 4, base=50)
    assert planned(states.a_state(here, tiered=50, unreachable="it is away", merge_min_age_ms=0)) == [
        (False, [50, 60, 70, 80])
    ]


@pytest.mark.parametrize(
    ("cleaned", "expected"),
    [
        (0, [[0, 10, 20, 30, 40, 50, 60, 70]]),
        (40, [[0, 10, 20, 30], [40, 50, 60, 70]]),
        (45, [[0, 10, 20, 30], [40, 50, 60, 70]]),
        (20, [[20, 30, 40, 50, 60, 70]]),
        (80, [[0, 10, 20, 30, 40, 50, 60, 70]]),
    ],
)
def test_what_a_compaction_by_key_has_seen_stays_apart_from_what_is_new(
    cleaned: int, expected: list[list[int]]
) -> None:
    state = states.a_state(
        states.aged(*[90] * 8), cleaned=cleaned, cleanup_policy="compact", merge_min_age_ms=0
    )
    assert planned(state) == [(False, run) for run in expected]


def test_the_partition_that_loses_most_files_is_merged_first() -> None:
    few, many, full = (
        dataclasses.replace(states.a_state(states.aged(*[90] * count), merge_min_age_ms=0), partition=number)
        for number, count in enumerate((4, 9, 3))
    )
    steps = segment_compaction.plan([full, few, many], states.NOW_MS)
    assert [(step.partition, len(step.inputs)) for step in steps] == [(1, 9), (0, 4)]
    assert worst_debt([full, few, many], states.NOW_MS) == 8
    assert worst_debt([], states.NOW_MS) == 0
