"""Text of others on a page."""

from html import unescape
from re import sub

from hypothesis import given
from hypothesis import strategies as st

from api.console.page import one_line, visible
from log_tables.sql.query_answer import shown as answered


def shown(text: str) -> str:
    """The characters that a reader sees."""
    return unescape(sub(r"<[^>]*>", "", visible(text)))


def test_markup_is_text() -> None:
    assert visible('<script>alert("1")</script>') == (
        "<bdi>&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;</bdi>"
    )


def test_characters_that_turn_text_around_or_are_not_seen_are_escaped() -> None:
    assert shown("a\u202eb\x00c\x1b[31m\ufeff\U000e0041") == "a\\u202eb\\x00c\\x1b[31m\\ufeff\\U000e0041"
    assert '<span class="hid">\\u202e</span>' in visible("\u202e")
    assert '<span class="hid">' not in visible("\\u202e")


def test_lines_and_joined_emoji_stay_as_they_are() -> None:
    text = "a\n\tünïcödé 漢字 👩\u200d💻"
    assert shown(text) == text


@given(st.text())
def test_no_text_leaves_its_element(text: str) -> None:
    made = visible(text)
    assert made.startswith("<bdi>")
    assert made.endswith("</bdi>")
    assert sub(r'</?bdi>|<span class="hid">|</span>', "", made).count("<") == 0


def test_a_line_has_no_breaks_and_so_many_characters() -> None:
    assert one_line("a\n  b\tc", 10) == "a b c"
    assert len(one_line("x" * 100, 10)) == 10


HIDDEN = (
    "\x00\x1b\x7f\x9f\xad\u061c\u180e\u200b\u200e\u2028\u202e\u2066\ufeff\ufff9\U000e0001\U000e0041\U000e007f"
)


def test_an_answer_of_sql_escapes_the_same_characters() -> None:
    assert all("hid" in visible(each) for each in HIDDEN)
    assert [each for each in HIDDEN if each in answered(HIDDEN)] == []
