"""The drawing of commits over time."""

from xml.etree import ElementTree as ET

from api.console.page import fragment
from api.console.table_commits import LABELLED, LEAST, MARGIN, MOST, CommitLayout, TableCommit, commit_layout


def commit(version: int, at_ms: int, operation: str = "WRITE", size_bytes: int = 10) -> TableCommit:
    return TableCommit(version, at_ms, operation, 1, None, "", "lakelog/0", 1, 0, 5, size_bytes, 0, 4, "")


def places(found: CommitLayout) -> dict[int, float]:
    return {mark.commit.version: round(mark.x, 6) for row in found.rows for mark in row.marks}


def test_commits_stand_in_order_of_time_and_each_operation_in_a_row() -> None:
    found = commit_layout([commit(2, 300), commit(1, 200, "CLAIM"), commit(0, 100, "ELSE")])
    assert places(found) == {0: MARGIN, 1: 50, 2: 100 - MARGIN}
    assert [row.operation for row in found.rows] == ["WRITE", "CLAIM", "ELSE"]
    assert found.ticks == [(0.0, 100, "start"), (100.0, 300, "end")]


def test_a_bar_is_as_high_as_it_has_bytes() -> None:
    heights = [
        mark.height for mark in commit_layout([commit(1, 2, size_bytes=0), commit(0, 1)]).rows[0].marks
    ]
    assert heights == [MOST, LEAST]


def test_a_long_time_without_a_commit_is_cut_out_and_said() -> None:
    times = [0, 10, 20, 30, 40, 86_400_000, 86_400_010, 86_400_020]
    found = commit_layout([commit(version, 1 + at) for version, at in enumerate(times)][::-1])
    (gap,) = found.breaks
    assert gap.seconds == 86_399.96
    at = places(found)
    assert at[0] < at[1] < at[4] < gap.x < at[5] < at[7]
    assert at[4] - at[0] > 8
    assert gap.labelled == (gap.x >= LABELLED)


def test_commits_of_one_time_and_without_one_are_drawn_or_left_out() -> None:
    assert places(commit_layout([commit(1, 5), commit(0, 5)])) == {0: 50, 1: 50}
    assert commit_layout([commit(0, 0)]) == CommitLayout((), (), ())
    assert commit_layout([]) == CommitLayout((), (), ())


def test_the_drawing_is_xml_in_which_hostile_operations_stay_text() -> None:
    found = commit_layout([commit(1, 9, "<script>\u202e"), commit(0, 5)])
    text = fragment("commits.html", {"drawing": found})
    assert "<script" not in text
    assert "\u202e" not in text
    said = "".join(ET.fromstring(text).itertext())
    assert "<script>\\u202e (1)" in said
    assert "version 0" in said
