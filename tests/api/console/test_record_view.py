"""Keys and values on a page."""

from hypothesis import given
from hypothesis import strategies as st

from api.console.record_view import DUMP_BYTES, LINE_CHARS, PRETTY_GROWTH, Field, view_of


def whole(data: bytes) -> Field:
    return Field(data, len(data))


def test_null_and_empty_are_told_apart() -> None:
    assert view_of(Field(None, 0)).kind == "null"
    assert view_of(whole(b"")).kind == "empty"
    assert view_of(whole(b"null")).kind == "json"


def test_json_is_printed_with_its_numbers_and_the_order_of_its_fields() -> None:
    view = view_of(whole(b'{"b":1.10,"a":[12345678901234567890,{}],"b":2}'), chars=10)
    assert view.kind == "json"
    assert view.whole == '{\n  "b": 1.10,\n  "a": [\n    12345678901234567890,\n    {}\n  ],\n  "b": 2\n}'


def test_a_short_text_is_shown_once_and_a_long_one_is_folded() -> None:
    assert view_of(whole(b"short")) == ("text", "short", "", 5, False)
    view = view_of(whole(b"x" * 500))
    assert view.line == "x" * LINE_CHARS + "…"
    assert view.whole == "x" * 500


def test_a_text_that_is_cut_in_the_middle_of_a_character_is_text() -> None:
    data = "漢".encode() * 10
    for end in range(20, 30):
        view = view_of(Field(data[:end], len(data)))
        assert view.kind == "text"
        assert view.whole == "漢" * (end // 3)
        assert view.cut


def test_bytes_are_dumped_and_cut() -> None:
    view = view_of(whole(bytes(range(256))))
    assert view.kind == "bytes"
    first, *_, last = view.whole.splitlines()
    assert first == "00000000  00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f  ................"
    assert last.startswith("000000f0  f0 f1")
    assert not view.cut
    assert view_of(whole(b"\xff" * (DUMP_BYTES + 1))).cut


def test_a_long_text_that_cannot_be_seen_is_bytes() -> None:
    assert view_of(whole(b"\x01" * 101)).kind == "bytes"
    assert view_of(whole(b"\x01" * 100)).kind == "text"
    assert view_of(whole(b"\x01seven7" * 100)).kind == "bytes"
    assert view_of(whole(b"\x01 eight 8" * 100)).kind == "text"


def test_broken_utf8_is_bytes() -> None:
    assert view_of(whole(b"abc\xc3")).kind == "bytes"
    assert view_of(whole(b'"\xff"')).kind == "bytes"


def test_deep_json_does_not_grow_by_its_indents() -> None:
    data = b"[" * 400 + b"1," * 10_000 + b"1" + b"]" * 400
    view = view_of(whole(data))
    assert view.kind == "json"
    assert len(view.whole) <= PRETTY_GROWTH * len(data)
    assert view_of(whole(b"[" * 100_000)).kind == "text"


def test_quotes_without_an_end_take_no_time() -> None:
    """Looked for to the end from each of them, they would take hours."""
    data = b'"' + b'\\"' * 500_000
    assert view_of(whole(data)).kind == "text"


@given(st.binary(max_size=300), st.integers(0, 300))
def test_all_bytes_have_a_view(data: bytes, size: int) -> None:
    view = view_of(Field(data, max(size, len(data))))
    assert view.size == max(size, len(data)) or not data
    assert len(view.line) <= LINE_CHARS + 1
