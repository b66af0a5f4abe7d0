"""Records that are read all at once are those that are read one after the other, also if they are wrong."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.kafka.records.errors import InvalidBatch
from api.kafka.records.produced import read_columns
from api.kafka.records.row_reader import read_rows
from log_tables.record import Record
from tests.kit.record_batches import HEADER_BYTES, Sent, kafka_python_batch, logged, sent_records

NOW_US = 7_000
EDGES_MS = [-(2**63), -62_135_596_800_001, -62_135_596_800_000, -1, 0, 253_402_300_798_999, 2**63 - 1]

changes = st.lists(
    st.tuples(st.integers(0, 10_000), st.sampled_from("=+-"), st.binary(min_size=1, max_size=4)), max_size=3
)


def outcome_of(body: bytes, count: int, base_ms: int, columns: bool) -> list[Record] | None:
    """The records in `body`; None if it is refused."""
    read = read_columns if columns else read_rows
    with suppress(InvalidBatch):
        return logged(read(body, count, base_ms, NOW_US, lambda _: None))
    return None


def broken(body: bytes, change: list[tuple[int, str, bytes]]) -> bytes:
    """`body` with some bytes replaced, added or removed."""
    for place, kind, data in change:
        at = place % (len(body) + 1)
        rest = at if kind == "+" else at + len(data)
        body = body[:at] + (b"" if kind == "-" else data) + body[rest:]
    return body


def check_both(records: list[Sent], base_ms: int, change: list[tuple[int, str, bytes]]) -> None:
    body = broken(kafka_python_batch(records)[HEADER_BYTES:], change)
    count = min(len(records), len(body) // 7)
    if count:
        one, all_at_once = (outcome_of(body, count, base_ms, columns) for columns in (False, True))
        assert one == all_at_once


@given(st.lists(sent_records, min_size=1, max_size=30), st.sampled_from(EDGES_MS), changes)
def test_both_readers_find_the_same(
    records: list[Sent], base_ms: int, change: list[tuple[int, str, bytes]]
) -> None:
    check_both(records, base_ms, change)


@pytest.mark.torture
@settings(max_examples=20_000)
@given(st.lists(sent_records, min_size=1, max_size=60), st.sampled_from(EDGES_MS), changes)
def test_both_readers_find_the_same_very_often(
    records: list[Sent], base_ms: int, change: list[tuple[int, str, bytes]]
) -> None:
    check_both(records, base_ms, change)


@given(st.binary(min_size=7, max_size=300), st.integers(1, 40), st.sampled_from(EDGES_MS))
def test_both_readers_treat_random_bytes_alike(body: bytes, count: int, base_ms: int) -> None:
    count = min(count, len(body) // 7)
    assert outcome_of(body, count, base_ms, False) == outcome_of(body, count, base_ms, True)


@pytest.mark.parametrize("size", [0, 63, 64, 8_191, 8_192, 1_048_575, 1_048_576])
def test_both_readers_know_lengths_of_every_width(size: int) -> None:
    records = [Sent(b"k" * size, b"v", 0), Sent(None, b"v" * size, 0, [("h", b"x" * size)])]
    body = kafka_python_batch(records)[HEADER_BYTES:]
    found = outcome_of(body, 2, 0, False)
    assert found == outcome_of(body, 2, 0, True)
    assert found is not None
    assert [len(record.key or b"") for record in found] == [size, 0]
