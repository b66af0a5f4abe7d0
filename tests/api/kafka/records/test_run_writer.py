"""Records of one length are written as tables of bytes: the bytes of those that are written one by one."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.records.column_writer import RUN_RECORDS, sizes_of, write_columns, write_runs
from api.kafka.records.fetched import write_rows
from api.kafka.records.varint import zigzag
from log_tables.layout import KEY, VALUE
from log_tables.record import Record, input_batch, with_offsets
from tests.kit.record_batches import content, lengths

steps = st.lists(st.sampled_from([0, 1, -1, 63, 64, -(2**40), 2**40]), min_size=1, max_size=3)


def batch_of(key: int | None, value: int | None, count: int) -> pa.RecordBatch:
    """Records whose keys and values have these lengths."""
    records = [Record(content(value, number), content(key, 7 * number)) for number in range(count)]
    return with_offsets([input_batch(records, 0)], np.arange(count))


def in_runs(batch: pa.RecordBatch, offsets: np.ndarray, times: np.ndarray) -> bytes | None:
    """The records of `batch` with these deltas, if they are written as tables."""
    found = sizes_of(batch)
    columns = (batch.column(KEY), batch.column(VALUE))
    written = write_runs(columns, (found.keys, found.values), zigzag(offsets), zigzag(times))
    return None if written is None else bytes(written[0])


@given(lengths, lengths, st.integers(1, 5 * RUN_RECORDS), st.integers(0, 9), steps, st.integers(1, 300))
def test_both_writers_write_the_same_bytes(
    key: int | None, value: int | None, count: int, skipped: int, time_steps: list[int], gap: int
) -> None:
    batch = batch_of(key, value, count + skipped)[skipped:]
    offsets = np.arange(count, dtype=np.int64) * gap
    times = np.array([time_steps[number % len(time_steps)] for number in range(count)], np.int64)
    one = write_rows(batch, offsets.tolist(), times.tolist())
    assert in_runs(batch, offsets, times) in (one, None)
    written, places = write_columns(batch, sizes_of(batch), offsets, times)
    assert bytes(written[places[0] : places[-1]]) == one


@pytest.mark.parametrize("key", [None, 0, 10, 64])
@pytest.mark.parametrize("value", [None, 0, 63, 100, 9_000])
def test_records_of_one_length_are_written_as_tables(key: int | None, value: int | None) -> None:
    batch = batch_of(key, value, 9_000 if value != 9_000 else 200)
    offsets = np.arange(batch.num_rows)
    times = offsets // 100
    assert in_runs(batch, offsets, times) == write_rows(batch, offsets.tolist(), times.tolist())


def test_records_of_several_lengths_are_left_to_others() -> None:
    short = batch_of(3, 5, 50)
    for other in (batch_of(3, 6, 50), batch_of(None, 5, 50), batch_of(3, None, 50)):
        batch = pa.concat_batches([short, other])
        assert in_runs(batch, np.arange(100), np.zeros(100, np.int64)) is None


def test_times_that_jump_are_left_to_others() -> None:
    times = np.arange(100) % 2 * 1_000
    assert in_runs(batch_of(3, 5, 100), np.arange(100), times) is None
