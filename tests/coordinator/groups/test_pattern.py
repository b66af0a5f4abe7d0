"""Subscriptions by pattern: what matches, and what is no pattern."""

import pytest

from coordinator.groups.topic_filter import PATTERN_MAX_CHARS, matching
from log_tables.errors import InvalidSubscription

NAMES = ["a", "ab", "b", "orders.eu", "orders.us", "ordersXeu", "été"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("a", ["a"]),
        ("a|b", ["a", "b"]),
        ("a.*", ["a", "ab"]),
        (r"orders\..*", ["orders.eu", "orders.us"]),
        ("orders.eu", ["orders.eu", "ordersXeu"]),
        ("^a$", ["a"]),
        ("(?i)A", ["a"]),
        (".t.", ["été"]),
        (r"\p{L}+", ["a", "ab", "b", "ordersXeu", "été"]),
        ("no.*", []),
    ],
)
def test_a_pattern_matches_whole_names_in_their_order(pattern: str, expected: list[str]) -> None:
    assert matching(pattern, NAMES) == expected


def test_where_there_are_no_names_nothing_matches() -> None:
    assert matching(".*", []) == []


@pytest.mark.parametrize("names", [NAMES, []], ids=["names", "no-names"])
@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "a)|(b", "[a-", "*", "a\\", "(?=a)b", r"(a)\1", "((a{100}){100}){100}", "[[:bad:]]", r"\Qa"],
)
def test_what_is_no_pattern_is_refused_whatever_names_there_are(pattern: str, names: list[str]) -> None:
    with pytest.raises(InvalidSubscription, match="is no regular expression"):
        matching(pattern, names)


@pytest.mark.parametrize("length", [0, PATTERN_MAX_CHARS + 1])
def test_a_pattern_is_neither_empty_nor_long(length: int) -> None:
    with pytest.raises(InvalidSubscription, match=f"not {length}"):
        matching("a" * length, NAMES)


def test_the_longest_pattern() -> None:
    assert matching("a" + "|a" * (PATTERN_MAX_CHARS // 2 - 1) + "|", NAMES) == ["a"]


def test_a_pattern_that_others_would_take_ages_for_ends_at_once() -> None:
    # Backtracking would take 2^200 steps.
    assert matching("(a|a)*(a|a)*b", ["a" * 200, "a" * 200 + "b"]) == ["a" * 200 + "b"]
