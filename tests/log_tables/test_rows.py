"""Records that wait as rows become the columns that they would have been from the beginning."""

import gc
import tracemalloc
from itertools import chain, pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.limits import ROWS_MAX
from log_tables.record import INPUT_SCHEMA, Record, input_batch
from log_tables.rows import (
    Records,
    Rows,
    as_batch,
    as_batches,
    bytes_of,
    count_of,
    grouped,
    rows_or_batch,
    taken,
    timestamps_of,
)

TIME_US = 1_700_000_000_000_123

payloads = st.none() | st.binary(max_size=9)
headers = st.lists(st.tuples(st.text(max_size=3), payloads), max_size=2).map(tuple)
records = st.lists(
    st.builds(Record, payloads, payloads, headers, st.just(TIME_US) | st.integers(0, 9), st.none()),
    min_size=1,
    max_size=6,
)


def rows_of(given: list[Record]) -> Rows:
    """`given` as rows, with as few lists as they need."""
    times = [record.timestamp_us or 0 for record in given]
    return Rows(
        [record.value for record in given],
        times[0] if len(set(times)) == 1 else times,
        [record.key for record in given] if any(record.key is not None for record in given) else None,
        [record.headers for record in given] if any(record.headers for record in given) else None,
    )


@given(records)
def test_rows_are_the_batch_that_their_records_make(given: list[Record]) -> None:
    rows, batch = rows_of(given), input_batch(given, 0)
    as_batch(rows).validate(full=True)
    assert as_batch(rows).equals(batch)
    assert (count_of(rows), timestamps_of(rows)) == (count_of(batch), timestamps_of(batch))


@given(st.lists(st.tuples(records, st.booleans()), min_size=1, max_size=5))
def test_requests_in_both_forms_are_one_after_the_other(requests: list[tuple[list[Record], bool]]) -> None:
    parts: list[Records] = [
        rows_of(given) if as_rows else input_batch(given, 0) for given, as_rows in requests
    ]
    batches = as_batches(parts)
    whole = input_batch([*chain.from_iterable(given for given, _ in requests)], 0)
    assert (
        pa.Table.from_batches(batches, INPUT_SCHEMA)
        .combine_chunks()
        .equals(pa.Table.from_batches([whole]).combine_chunks())
    )
    runs = 1 + sum(not (before and after) for (_, before), (_, after) in pairwise(requests))
    assert len(batches) == runs


@given(records, st.data())
def test_the_same_rows_are_taken_of_both_forms(given: list[Record], data: st.DataObject) -> None:
    indexes = data.draw(st.lists(st.integers(0, len(given) - 1), max_size=6))
    of_rows = as_batch(taken(rows_of(given), indexes))
    assert of_rows.equals(taken(input_batch(given, 0), np.array(indexes, np.int64)))


@given(records, st.data())
def test_groups_are_what_is_taken_one_by_one(given: list[Record], data: st.DataObject) -> None:
    places = st.lists(st.integers(0, len(given) - 1), min_size=1, max_size=6)
    groups = data.draw(st.lists(places, min_size=1, max_size=4))
    for records in (rows_of(given), input_batch(given, 0)):
        found, alone = grouped(records, groups), [taken(records, group) for group in groups]
        assert found == alone
        assert [bytes_of(each) for each in found] == [bytes_of(each) for each in alone]


@pytest.mark.parametrize(("count", "form"), [(ROWS_MAX, Rows), (ROWS_MAX + 1, pa.RecordBatch)])
def test_many_rows_become_columns_at_once(count: int, form: type) -> None:
    made = rows_or_batch(Rows([b"v"] * count, TIME_US))
    assert isinstance(made, form)
    assert count_of(made) == count


@pytest.mark.parametrize("value_bytes", [0, 1, 100, 10_000])
@pytest.mark.parametrize("header_count", [0, 1, 3])
@pytest.mark.parametrize("with_keys", [False, True])
def test_rows_take_about_the_memory_that_is_counted(
    value_bytes: int, header_count: int, with_keys: bool
) -> None:
    def made() -> Rows:
        count = 500
        return Rows(
            [bytes([n % 256]) * value_bytes for n in range(count)],
            [TIME_US + n for n in range(count)],
            [b"key %d" % n for n in range(count)] if with_keys else None,
            [[(f"{n} {m}", b"%d" % (n * m)) for m in range(header_count)] for n in range(count)]
            if header_count
            else None,
        )

    gc.collect()
    tracemalloc.start()
    try:
        rows = made()
        taken_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken_bytes <= bytes_of(rows) * 1.05
    assert bytes_of(rows) <= max(4 * taken_bytes, 500 * 160)
