"""Pointers into values, followed on their text, as a plain decoder of JSON finds the same places."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.wire.values import JsonPointer
from log_tables.errors import InvalidArgument, InvalidRecord
from log_tables.limits import KEY_STEPS_MAX, NESTED_FIELD_MAX_BYTES

NAMES = st.sampled_from(["", "a", "b", "~", "/", "~1", "0", "1", "01", "é", "'"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


def led_to(value: Any, steps: list[str]) -> Any:
    """The model: None if it is absent."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step in map(str, range(len(value))):
            value = value[int(step)]
        else:
            return None
    return value


@given(VALUES, st.lists(NAMES, min_size=1, max_size=3), st.sampled_from([None, 1]))
def test_a_pointer_leads_where_a_decoder_finds_it(value: Any, steps: list[str], indent: int | None) -> None:
    pointer = "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)
    found = JsonPointer(pointer).find(json.dumps(value, indent=indent).encode())
    expected = led_to(value, steps)
    assert (found is None) == (expected is None)
    assert found is None or json.loads(found) == expected


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (b'{"a":"N1"}', b'"N1"'),
        (b'{"a": 1.50 }', b"1.50"),
        (b'{"a":{"b": [ ]}}', b'{"b": [ ]}'),
        (b'{"a":"\\u00e9"}', b'"\\u00e9"'),
        (b'{"a":1,"a":2}', b"2"),
        (b'{"\\u0061":3}', b"3"),
        (b'{"a":null}', None),
        (b'{"b":1}', None),
        (b"[1]", None),
        (b'"a"', None),
        (b"null", None),
    ],
)
def test_what_is_found_is_the_text_that_was_sent(value: bytes, found: bytes | None) -> None:
    assert JsonPointer("/a").find(value) == found


@pytest.mark.parametrize("text", ["a", "", "a/b", "/~", "/~2", "/a/~x", "#/a", '/"', "/\\", "/\n"])
def test_what_is_no_pointer_to_a_field_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match="JSON pointer"):
        JsonPointer(text)


def test_a_field_that_is_too_deep_is_not_looked_for() -> None:
    value = b'{"a":' * KEY_STEPS_MAX + b"1" + b"}" * KEY_STEPS_MAX
    assert JsonPointer("/a" * KEY_STEPS_MAX).find(value) == b"1"
    with pytest.raises(InvalidArgument, match="9 fields, 8 are allowed"):
        JsonPointer("/a" * (KEY_STEPS_MAX + 1))


def test_an_item_is_not_looked_for_in_an_array_that_would_fill_the_memory() -> None:
    large = b'{"a":[%b0]}' % (b"0," * NESTED_FIELD_MAX_BYTES)
    with pytest.raises(InvalidRecord, match="take the key from a field"):
        JsonPointer("/a/1").find(large)
    assert JsonPointer("/b/1").find(large) is None
