"""What a record may be that a program sends."""

from typing import Any

import pytest

from lakelog.outgoing import check_record
from log_tables.errors import InvalidRecord
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US

FINE: dict[str, Any] = {"value": b"1", "key": b"k", "headers": [("h", b"1")], "timestamp_ms": 0}


@pytest.mark.parametrize(
    "other",
    [
        {},
        {"value": None, "key": None, "headers": [("h", None)]},
        {"timestamp_ms": TIMESTAMP_MIN_US // 1_000},
        {"timestamp_ms": TIMESTAMP_MAX_US // 1_000},
    ],
)
def test_bytes_of_a_time_that_a_log_takes_can_be_sent(other: dict[str, Any]) -> None:
    check_record(**{**FINE, **other})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "text"}, "the value is str, not bytes; encode it"),
        ({"key": 7}, "the key is int, not bytes; encode it"),
        ({"headers": [("h", b"1"), ("h", "text")]}, "the header is str, not bytes; encode it"),
        ({"timestamp_ms": TIMESTAMP_MIN_US // 1_000 - 1}, "outside the years 1 to 9999"),
        ({"timestamp_ms": TIMESTAMP_MAX_US // 1_000 + 1}, "outside the years 1 to 9999"),
    ],
)
def test_what_no_log_takes_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        check_record(**{**FINE, **wrong})
