"""Records of a few layouts are read as tables of bytes; what comes out is what others read one by one."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.records.produced import read_columns
from api.kafka.records.row_reader import read_rows
from api.kafka.records.run_reader import FIRST_RECORDS, LOOKED_AT, RUN_RECORDS, read_runs
from log_tables.layout import KEY, TIMESTAMP, VALUE
from tests.api.kafka.records.test_column_reader import broken, changes, check_both, outcome_of
from tests.kit.record_batches import HEADER_BYTES, Sent, content, kafka_python_batch, lengths

runs = st.lists(
    st.tuples(lengths, lengths, st.integers(0, 2**40), st.integers(1, 3 * RUN_RECORDS)),
    min_size=1,
    max_size=4,
)


def records_of(told: list[tuple[int | None, int | None, int, int]]) -> list[Sent]:
    """Runs of records: the lengths of key and value, the time of the first, and how many there are."""
    return [
        Sent(content(key, number), content(value, 7 * number), time_ms + number)
        for key, value, time_ms, count in told
        for number in range(count)
    ]


def body_of(records: list[Sent]) -> bytes:
    return kafka_python_batch(records)[HEADER_BYTES:]


@given(runs, st.integers(0, 2**40), changes)
def test_runs_are_read_as_one_record_after_the_other(
    told: list[tuple[int | None, int | None, int, int]],
    base_ms: int,
    change: list[tuple[int, str, bytes]],
) -> None:
    check_both(records_of(told), base_ms, change)


@given(runs, changes)
def test_what_runs_have_is_right_or_nothing(
    told: list[tuple[int | None, int | None, int, int]], change: list[tuple[int, str, bytes]]
) -> None:
    records = records_of(told)
    body = broken(body_of(records), change)
    found = read_runs(body, len(records))
    if found is not None:
        assert outcome_of(body, len(records), 0, columns=False) is not None


@pytest.mark.parametrize("key", [None, 0, 10, 64])
@pytest.mark.parametrize("value", [None, 0, 63, 100, 9_000])
def test_records_of_one_length_are_read_as_tables(key: int | None, value: int | None) -> None:
    records = records_of([(key, value, 5_000, 9_000 if value != 9_000 else 200)])
    body = body_of(records)
    found = read_runs(body, len(records))
    assert found is not None
    times, keys, values = found
    assert keys.to_pylist() == [record.key for record in records]
    assert values.to_pylist() == [record.value for record in records]
    base_ms = records[0].time_ms
    assert [base_ms + delta for delta in times.tolist()] == [record.time_ms for record in records]
    keys.validate(full=True)
    values.validate(full=True)


def test_records_of_some_runs_are_read_as_tables() -> None:
    records = records_of([(5, 100, 0, 70), (None, 100, 90, 50), (5, None, 10, 60), (0, 7, 2**39, 40)])
    found = read_columns(body_of(records), len(records), records[0].time_ms, 0, lambda _: None)
    rows = read_rows(body_of(records), len(records), records[0].time_ms, 0, lambda _: None)
    assert read_runs(body_of(records), len(records)) is not None
    assert found.column(KEY).to_pylist() == rows.keys
    assert found.column(VALUE).to_pylist() == rows.values
    assert [time.value // 1_000 for time in found.column(TIMESTAMP)] == [each.time_ms for each in records]


def test_records_of_many_lengths_are_left_to_others() -> None:
    mixed = [Sent(None, b"x" * (number * 37 % 150), number) for number in range(200)]
    begin_alike = records_of([(3, 50, 0, RUN_RECORDS // 2)]) + mixed
    for records in (mixed, begin_alike):
        assert read_runs(body_of(records), len(records)) is None


def test_records_with_headers_are_left_to_others() -> None:
    records = [Sent(b"k", b"v", 0, [("name", b"x")])] * 100
    assert read_runs(body_of(records), 100) is None


def test_records_out_of_order_are_left_to_others() -> None:
    record = body_of([Sent(b"k", b"v" * 50, 0)])
    assert read_runs(record * 100, 100) is None


def test_a_short_run_is_found_without_a_look_at_all_that_follows() -> None:
    """Else a batch of a million records that changes with each 33rd takes minutes of the processor."""
    records = records_of([(None, 1, 0, RUN_RECORDS)]) + [
        Sent(None, b"x" * (number % 2), number) for number in range(20_000)
    ]
    body = body_of(records)
    tracemalloc.start()
    try:
        assert read_runs(body, len(records)) is None
        assert tracemalloc.get_traced_memory()[1] < len(body) // 4
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("count", [RUN_RECORDS, LOOKED_AT, LOOKED_AT + 1, 9 * LOOKED_AT, 9 * LOOKED_AT + 1])
@pytest.mark.parametrize("after", [0, 1, LOOKED_AT])
def test_a_run_ends_where_the_layout_does(count: int, after: int) -> None:
    records = records_of([(3, 50, 0, FIRST_RECORDS + count), (3, 51, 0, after)])
    found = read_runs(body_of(records), len(records))
    assert found is not None
    assert found[1].to_pylist() == [record.key for record in records]
    assert found[2].to_pylist() == [record.value for record in records]
