"""The filter of a form, against the same rule in plain Python."""

from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.console.record_query import (
    KeyFormat,
    RecordFilter,
    cursor_of,
    filter_of,
    partitions_of,
    positions_of,
    shown_ranges,
    stored_keys,
)
from log_tables.errors import InvalidArgument
from log_tables.record import Record, input_batch

PARTS = st.sampled_from([None, b"", b"a", b"ab", b"\xff\x00", b'"a"', b"b a", "ä".encode()])


@given(
    st.lists(st.tuples(PARTS, PARTS), max_size=20),
    st.lists(PARTS.filter(lambda part: part is not None), max_size=2),
    PARTS.filter(lambda part: part is not None),
)
def test_it_takes_what_plain_python_takes(
    rows: list[tuple[bytes | None, bytes | None]], keys: list[bytes], text: bytes
) -> None:
    batch = input_batch([Record(value, key) for key, value in rows], 0)
    taken = RecordFilter(tuple(keys), text).of(batch)
    expected = [
        (key, value)
        for key, value in rows
        if (not keys or key in keys) and (not text or text in (key or b"") or text in (value or b""))
    ]
    found = zip(taken.column("key").to_pylist(), taken.column("value").to_pylist(), strict=True)
    assert [*found] == expected


def test_text_means_a_key_with_and_without_quotes() -> None:
    assert stored_keys('N"1', "text") == (b'N"1', b'"N\\"1"')
    assert stored_keys('{"a": 1}', "json") == (b'{"a": 1}',)
    assert stored_keys(b64encode(b"\xff").decode(), "base64") == (b"\xff",)


@pytest.mark.parametrize(("key", "form"), [("N1", "json"), ("[" * 5_000, "json"), ("!", "base64")])
def test_a_key_that_is_not_of_its_format_is_refused(key: str, form: KeyFormat) -> None:
    with pytest.raises(InvalidArgument, match="choose text"):
        stored_keys(key, form)


def test_empty_fields_filter_nothing() -> None:
    assert filter_of("", "json", "").takes_all
    with pytest.raises(InvalidArgument, match="1000"):
        filter_of("", "text", "x" * 1_001)


def test_partitions_are_named_by_numbers_and_ranges() -> None:
    assert partitions_of("", 3) == [0, 1, 2]
    assert partitions_of(" 7, 1-3,2", 8) == [1, 2, 3, 7]
    for wrong in ("x", "-1", "3-1", "8", "1,", "1--2", "99999999"):
        with pytest.raises(InvalidArgument):
            partitions_of(wrong, 8)


@given(st.sets(st.integers(0, 40), min_size=1))
def test_ranges_name_the_same_partitions(numbers: set[int]) -> None:
    assert partitions_of(shown_ranges(sorted(numbers)), 41) == sorted(numbers)


def test_a_cursor_comes_back_as_it_went() -> None:
    positions = {0: 41, 7: 2**40}
    assert positions_of(cursor_of(positions)) == positions
    assert positions_of("") == {}
    for wrong in ("x", "1", "1:2:3", "1:-2", "1:", "1:2,"):
        with pytest.raises(InvalidArgument, match="load the messages again"):
            positions_of(wrong)
