"""Times and sizes with units."""

import pytest

from log_tables.units import explained, plain


@pytest.mark.parametrize(
    ("name", "text", "stored"),
    [
        ("retention.ms", "7d", "604800000"),
        ("retention.ms", "1.5 h", "5400000"),
        ("retention.ms", "1M", "1M"),
        ("retention.ms", "7D", "7D"),
        ("retention.ms", "30min", "1800000"),
        ("retention.ms", "2w", "1209600000"),
        ("retention.ms", "20ms", "20"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "soon", "soon"),
        ("retention.ms", "1GiB", "1GiB"),
        ("retention.ms", "0.5ms", "0.5ms"),
        ("retention.bytes", "1GiB", "1073741824"),
        ("retention.bytes", "1 gb", "1000000000"),
        ("retention.bytes", "12B", "12"),
        ("linger_ms", "2s", "2000"),
        ("producer_byte_rate", "10MiB", "10485760"),
        ("request_rate", "10MiB", "10MiB"),
        ("value.columns", "a d", "a d"),
    ],
)
def test_a_unit_becomes_the_number_that_is_stored(name: str, text: str, stored: str) -> None:
    assert plain(name, text) == stored


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("retention.ms", "604800000", "604800000 (7d)"),
        ("retention.ms", "90000000", "90000000 (25h)"),
        ("retention.ms", "1500", "1500"),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "9223372036854775807", "9223372036854775807"),
        ("segment.bytes", "134217728", "134217728 (128MiB)"),
        ("segment.bytes", "5000000", "5000000 (5MB)"),
        ("segment.bytes", "1048588", "1048588"),
        ("min.cleanable.dirty.ratio", "0.5", "0.5"),
    ],
)
def test_a_number_is_shown_with_its_unit_where_it_is_a_whole_one(name: str, text: str, shown: str) -> None:
    assert explained(name, text) == shown
    assert plain(name, shown.partition("(")[2].rstrip(")") or text) == text
