"""Records become columns and come back; what no reader could show is refused."""

import json
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from deltalake import Schema
from hypothesis import given
from hypothesis import strategies as st

from log_tables.errors import InvalidRecord
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.record import (
    HEADERS_TYPE,
    INPUT_SCHEMA,
    RECORD_SCHEMA,
    Record,
    batch_bytes,
    binary_array,
    constant_timestamps,
    delta_schema,
    headers_array,
    input_batch,
    input_batch_from_columns,
    int64s,
    record_sizes,
    size_bound,
    time_or_append_us,
    timestamp_array,
    to_records,
    with_offsets,
)

NOW_US = 1_700_000_000_000_123

payloads = st.none() | st.binary(max_size=20)
rows = st.lists(
    st.builds(
        Record,
        payloads,
        payloads,
        st.lists(st.tuples(st.text(max_size=5), payloads), max_size=3).map(tuple),
        st.integers(TIMESTAMP_MIN_US, TIMESTAMP_MAX_US),
        st.none(),
    ),
    max_size=10,
)


@given(rows)
def test_records_become_columns_and_come_back(given_rows: list[Record]) -> None:
    batch = input_batch(given_rows, NOW_US)
    batch.validate(full=True)
    assert batch.schema.equals(INPUT_SCHEMA)
    placed = with_offsets([batch], np.arange(5, 5 + len(given_rows)))
    placed.validate(full=True)
    assert placed.schema.equals(RECORD_SCHEMA)
    assert to_records(placed) == [
        Record(row.value, row.key, row.headers, row.timestamp_us, 5 + n) for n, row in enumerate(given_rows)
    ]


@given(st.lists(payloads, max_size=20))
def test_a_binary_column_is_what_arrow_would_make_of_it(items: list[bytes | None]) -> None:
    made = binary_array(items)
    made.validate(full=True)
    assert made.equals(pa.array(items, pa.binary()))


def test_a_binary_column_takes_every_kind_of_bytes() -> None:
    made = binary_array([b"a", bytearray(b"bc"), memoryview(b"xdefx")[1:4], None, b""])
    assert made.to_pylist() == [b"a", b"bc", b"def", None, b""]


def test_a_record_without_a_timestamp_gets_the_time_of_arrival() -> None:
    batch = input_batch([Record(b""), Record(b"", timestamp_us=7)], NOW_US)
    assert int64s(batch.column("timestamp")).tolist() == [NOW_US, 7]


@pytest.mark.parametrize("wrong", [TIMESTAMP_MIN_US - 1, TIMESTAMP_MAX_US + 1, -(2**63), 2**63 - 1])
def test_a_time_that_no_reader_could_show_is_refused(wrong: int) -> None:
    attempts: list[Callable[[], object]] = [
        lambda: input_batch([Record(b"", timestamp_us=5), Record(b"", timestamp_us=wrong)], NOW_US),
        lambda: timestamp_array(np.array([wrong])),
        lambda: input_batch_from_columns(
            pa.array([b""]), now_us=NOW_US, timestamps=pa.array([wrong], pa.timestamp("us"))
        ),
    ]
    for attempt in attempts:
        shown = f"{wrong // 1000}.{wrong % 1000:03d}"  # so much of it is wrong
        with pytest.raises(
            InvalidRecord, match=f"the timestamp {shown} ms is outside the years 1 to 9999 wi"
        ):
            attempt()


def test_a_wrong_time_of_whole_milliseconds_is_shown_so() -> None:
    with pytest.raises(InvalidRecord, match="the timestamp 253402300799001 ms is outside"):
        timestamp_array(np.array([TIMESTAMP_MAX_US + 1_000]))


@given(st.lists(st.integers(-3, 3) | st.integers(-4_000, 4_000) | st.none(), min_size=1), st.data())
def test_a_time_of_minus_one_millisecond_is_none_and_nanoseconds_are_cut_down(
    times: list[int | None], data: st.DataObject
) -> None:
    unit, nanoseconds = data.draw(st.sampled_from([("ms", 10**6), ("us", 10**3), ("ns", 1)]))
    column = pa.array([0, *times], pa.timestamp(unit, "UTC"))[1:]
    batch = input_batch_from_columns(pa.array([b""] * len(times)), now_us=NOW_US, timestamps=column)
    cut = [None if each is None else each * nanoseconds // 1000 for each in times]
    expected = [NOW_US if each in {None, -1_000} else each for each in cut]
    assert int64s(batch.column("timestamp")).tolist() == expected
    for time, time_us in zip(times, expected, strict=True):
        assert unit != "ms" or time_or_append_us(time, NOW_US) == time_us


def test_a_record_without_headers_has_null_headers() -> None:
    made = headers_array([(), (("k", b"v"), ("k", None)), ()])
    made.validate(full=True)
    assert made.to_pylist() == [None, [{"key": "k", "value": b"v"}, {"key": "k", "value": None}], None]
    assert headers_array([(), ()]).null_count == 2
    assert headers_array([]).type == HEADERS_TYPE


def test_columns_that_are_missing_are_null_and_now() -> None:
    batch = input_batch_from_columns(pa.array([b"a", None]), now_us=NOW_US)
    assert batch.schema.equals(INPUT_SCHEMA)
    assert int64s(batch.column("timestamp")).tolist() == [NOW_US, NOW_US]
    assert batch.column("value").to_pylist() == [b"a", None]
    assert batch.column("key").null_count == batch.column("headers").null_count == 2


@pytest.mark.parametrize(
    ("stamps", "expected"),
    [
        (pa.array([1, None], pa.int64()), [1000, NOW_US]),
        (pa.array([1, 2], pa.uint32()), [1000, 2000]),
        (pa.array([5, None], pa.timestamp("us", tz="UTC")), [5, NOW_US]),
        (pa.array([5, 6], pa.timestamp("ms")), [5000, 6000]),
        (pa.array([5000, 6999], pa.timestamp("ns", tz="Europe/Berlin")), [5, 6]),
        (pa.array([-(2**63), -999], pa.timestamp("ns")), [-9_223_372_036_854_776, -1]),
        (pa.array([-1, -2], pa.int64()), [NOW_US, -2000]),
        (pa.array([9, 5, 6], pa.timestamp("us", tz="UTC"))[1:], [5, 6]),
    ],
)
def test_times_may_come_in_milliseconds_or_as_any_timestamp(stamps: pa.Array, expected: list[int]) -> None:
    batch = input_batch_from_columns(pa.array([b"a", b"b"]), now_us=NOW_US, timestamps=stamps)
    assert int64s(batch.column("timestamp")).tolist() == expected


def test_strings_are_taken_for_bytes_and_slices_stay_slices() -> None:
    batch = input_batch_from_columns(
        pa.array(["x", "ä"]), now_us=NOW_US, keys=pa.array([b"no", b"k1", b"k2"], pa.large_binary())[1:]
    )
    assert batch.column("value").to_pylist() == [b"x", "ä".encode()]
    assert batch.column("key").to_pylist() == [b"k1", b"k2"]


@pytest.mark.parametrize(
    "columns",
    [
        {"keys": pa.array([1, 2])},
        {"keys": pa.array([[b"a"], [b"b"]])},
        {"timestamps": pa.array(["2013-01-01", "today"])},
        {"timestamps": pa.array([1.5, 2.5])},
        {"timestamps": pa.array([2**63, 1], pa.uint64())},
        {"timestamps": pa.array([2**62, 1], pa.int64())},
        {"headers": pa.array(["a", "b"])},
        {"headers": pa.array([[1], [2]])},
    ],
)
def test_a_column_of_another_type_is_refused(columns: dict[str, pa.Array]) -> None:
    with pytest.raises(InvalidRecord, match="a column has the wrong type"):
        input_batch_from_columns(pa.array([b"a", b"b"]), now_us=NOW_US, **columns)


def test_batches_get_their_offsets_one_after_the_other() -> None:
    parts = [input_batch([Record(b"a"), Record(b"b")], 1), input_batch([Record(b"c")], 2)]
    placed = with_offsets(parts, np.array([3, 4, 9]))
    assert [(r.offset, r.value, r.timestamp_us) for r in to_records(placed)] == [
        (3, b"a", 1), (4, b"b", 1), (9, b"c", 2),
    ]  # fmt: skip


def test_the_size_of_a_record_counts_key_and_value() -> None:
    batch = input_batch([Record(b"123"), Record(b"1", b"123"), Record(None, b"12"), Record(None)], NOW_US)
    assert record_sizes(batch).to_pylist() == [3, 4, 2, 0]
    assert record_sizes(batch.slice(2)).to_pylist() == [2, 0]


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=20), st.none() | st.binary(max_size=20)), min_size=1)
)
def test_no_record_is_larger_than_the_bound(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
    batch = with_offsets([input_batch([Record(*pair) for pair in pairs], 0)], np.arange(len(pairs)))
    for part in (batch, batch.slice(len(pairs) // 2)):
        longest = [max(len(pair[column] or b"") for pair in pairs[-part.num_rows :]) for column in (0, 1)]
        assert size_bound(part) == sum(longest) >= max(record_sizes(part).to_pylist())


def test_a_slice_counts_its_own_bytes() -> None:
    batch = input_batch([Record(b"x" * 1000)] * 100, NOW_US)
    assert batch_bytes(batch) > 100_000
    assert 1_000 < batch_bytes(batch.slice(50, 1)) < 2_000


def test_constant_timestamps_are_one_time_over_and_over() -> None:
    assert int64s(constant_timestamps(7, 3)).tolist() == [7, 7, 7]
    assert int64s(constant_timestamps(7, 0)).tolist() == []


def test_delta_reads_our_schema_as_the_five_columns() -> None:
    schema = Schema.from_json(delta_schema())
    assert [(field.name, field.nullable) for field in schema.fields] == [
        ("offset", False), ("timestamp", False), ("key", True), ("value", True), ("headers", True),
    ]  # fmt: skip
    kinds = [field["type"] for field in json.loads(delta_schema())["fields"]]
    assert kinds[:4] == ["long", "timestamp", "binary", "binary"]
    assert kinds[4]["elementType"]["fields"][0]["type"] == "string"
