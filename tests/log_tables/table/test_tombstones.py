"""Tombstones are as a dict of removes would be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.limits import FILE_RETENTION_MS, TOMBSTONE_RETENTION_MS
from log_tables.table.commit import Remove
from log_tables.table.tombstones import Tombstones

REMOVES = st.builds(
    Remove,
    st.sampled_from("abcdefg"),
    st.just(False),
    st.none() | st.integers(0, 2**40),
    st.none() | st.integers(0, 2**40),
    st.just(True),
    st.sampled_from([{}, {"partition": "7"}, {"partition": None}]),
    st.none() | st.just("{}"),
    st.none() | st.sampled_from([{}, {"lakelog.logStart": "7"}]),
)


@given(st.lists(st.lists(REMOVES, max_size=4), max_size=25))
def test_the_newest_of_each_path_counts(commits: list[list[Remove]]) -> None:
    tombstones, expected = Tombstones(), dict[str, Remove]()
    for commit in commits:
        before, known = tombstones, dict(expected)
        tombstones = tombstones.after(commit)
        expected |= {remove.path: remove for remove in commit}
        assert before == known
    assert tombstones == expected
    assert len(tombstones) == len(expected)
    assert Tombstones.of_rows(tombstones.rows()) == expected
    assert "nobody's" not in tombstones


def test_it_keeps_what_a_checkpoint_has() -> None:
    removed = Remove("a", True, 5, 6)
    assert [*Tombstones([removed]).values()] == [Remove("a", False, 5, 6, True, {})]


@pytest.mark.parametrize(
    ("age_ms", "stays"), [(TOMBSTONE_RETENTION_MS - 1, True), (TOMBSTONE_RETENTION_MS, False)]
)
def test_an_old_one_is_forgotten(age_ms: int, stays: bool) -> None:
    now_ms = 10 * TOMBSTONE_RETENTION_MS
    old, undated = Remove("old", False, now_ms - age_ms, 1), Remove("undated", False)
    tombstones = Tombstones([old, undated, Remove("new", False, now_ms)])
    assert {*tombstones.pruned(now_ms)} == ({"old", "new"} if stays else {"new"})


def test_those_of_deleted_records_stay_for_a_day_up_to_a_number() -> None:
    now_ms = 10 * FILE_RETENTION_MS
    ages_ms = (FILE_RETENTION_MS, FILE_RETENTION_MS - 1, TOMBSTONE_RETENTION_MS, 2, 1)
    tags = {"lakelog.logStart": "7"}
    removed = [Remove(f"{age}", False, now_ms - age, 1, True, {}, "{}", tags) for age in ages_ms]
    merged = Remove("merged", False, now_ms - TOMBSTONE_RETENTION_MS + 1, 1)
    tombstones = Tombstones(removed).after([merged])
    kept = tombstones.pruned(now_ms)
    assert kept.deleted() == removed[1:]
    assert kept.count_replaced() == 1
    few = tombstones.pruned(now_ms, deleted_max=1)
    assert few.deleted() == removed[-1:]
    assert {*few} == {"2", "1", "merged"}
    assert tombstones.pruned(now_ms + TOMBSTONE_RETENTION_MS, deleted_max=1).deleted() == removed[-1:]
