"""Records that are written all at once are the bytes of those that are written one after the other."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.records.column_writer import sizes_of, write_columns
from api.kafka.records.fetched import write_rows
from log_tables.record import Record, input_batch, with_offsets

contents = st.none() | st.binary(max_size=200)
records_of_a_log = st.builds(
    Record,
    contents,
    contents,
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3),
    st.just(0),
)
deltas = st.tuples(st.integers(0, 2**31 - 1), st.integers(-(2**53), 2**53))


@given(st.lists(st.tuples(records_of_a_log, deltas), min_size=1, max_size=20), st.data())
def test_both_writers_write_the_same_bytes(
    given_records: list[tuple[Record, tuple[int, int]]], data: st.DataObject
) -> None:
    offset_deltas = [offset for _, (offset, _) in given_records]
    time_deltas = [time for _, (_, time) in given_records]
    whole: pa.RecordBatch = with_offsets(
        [input_batch([record for record, _ in given_records], 0)], np.arange(len(given_records))
    )
    begin = data.draw(st.integers(0, len(given_records) - 1))
    batch = whole[begin:]
    one = write_rows(batch, offset_deltas[begin:], time_deltas[begin:])
    written, places = write_columns(
        batch, sizes_of(batch), np.array(offset_deltas[begin:]), np.array(time_deltas[begin:])
    )
    assert bytes(written[places[0] : places[-1]]) == one
    assert len(places) == batch.num_rows + 1
