"""The address of a page that shows records."""

from urllib.parse import parse_qsl, urlsplit

import pytest

from api.console.record_query import RecordQuery, offset_of
from log_tables.errors import InvalidOffset


def test_an_address_has_the_fields_that_are_not_empty() -> None:
    query = RecordQuery(partition="0,2", start="offset", offset="41", key="a&b=c", key_format="json")
    address = urlsplit(query.url("/console/topics/t/messages", after="0:41"))
    assert address.path == "/console/topics/t/messages"
    assert dict(parse_qsl(address.query)) == {
        "partition": "0,2",
        "start": "offset",
        "offset": "41",
        "key": "a&b=c",
        "key_format": "json",
        "after": "0:41",
    }
    assert RecordQuery().url("/x") == "/x?"


def test_a_place_that_is_named_stays() -> None:
    assert RecordQuery().from_place("newest").start == "newest"
    assert RecordQuery(start="time").from_place("newest").start == "time"


def test_an_offset_is_a_number() -> None:
    assert offset_of(" 41 ") == 41
    for wrong in ("", "x", "-1", "041", "1.0"):
        with pytest.raises(InvalidOffset, match="write its digits"):
            offset_of(wrong)
