"""The checks of a record before a client sends it."""

from typing import Any

import pytest

from lakelog.client.client import quoted
from lakelog.client.producer.outgoing import check_record, check_target
from log_tables.errors import InvalidArgument, InvalidRecord, InvalidTopicName
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
        ({"timestamp_ms": TIMESTAMP_MIN_US // 1_000 - 1}, "outside the years 1 to 9999"),
        ({"timestamp_ms": TIMESTAMP_MAX_US // 1_000 + 1}, "outside the years 1 to 9999"),
        ({"headers": [("\ud800", b"1")]}, "is no Unicode text"),
    ],
)
def test_what_no_log_takes_is_named(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidRecord, match=said):
        check_record(**{**FINE, **wrong})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"value": "text"}, "the value is str, not bytes; encode it"),
        ({"value": {"a": 1}}, "the value is dict, not bytes; encode it"),
        ({"value": bytearray(b"1")}, "the value is bytearray, not bytes; encode it"),
        ({"key": 7}, "the key is int, not bytes; encode it"),
        ({"headers": [("h", b"1"), ("h", "text")]}, "the header is str, not bytes; encode it"),
        ({"headers": [(b"h", b"1")]}, "not a pair of str and bytes"),
        ({"headers": [("h",)]}, "not a pair of str and bytes"),
        ({"headers": {"h": b"1"}}, "'h' is not a pair of str and bytes"),
        ({"timestamp_ms": 1.5}, "timestamp_ms is float, not int; give milliseconds"),
        ({"timestamp_ms": "now"}, "timestamp_ms is str, not int"),
        ({"timestamp_ms": True}, "timestamp_ms is bool, not int"),
    ],
)
def test_what_has_another_type_is_a_mistake_of_the_program(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        check_record(**{**FINE, **wrong})


def test_a_topic_is_text_and_a_partition_a_number() -> None:
    check_target("t", None)
    check_target("t", 3)
    with pytest.raises(TypeError, match="the topic is bytes, not str"):
        check_target(b"t", None)
    with pytest.raises(TypeError, match="the partition is str, not int"):
        check_target("t", "3")
    with pytest.raises(TypeError, match="the partition is bool, not int"):
        check_target("t", True)


def test_an_internal_topic_is_not_sent_to() -> None:
    with pytest.raises(InvalidTopicName, match="is internal"):
        check_target("__consumer_offsets", None)


@pytest.mark.parametrize("name", ["\ud800", "a/b", "", ".."])
def test_what_no_topic_can_be_called_is_named(name: str) -> None:
    with pytest.raises(InvalidArgument, match="nothing can be called"):
        quoted(name)
