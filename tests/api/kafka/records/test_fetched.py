"""Record batches of a fetch, as Kafka's Python clients read them."""

import struct
import subprocess
import sys
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.records.compression import Compression, inflate
from api.kafka.records.fetched import BATCH_BYTES
from api.kafka.records.fetched import encode_batches as encoded_batches
from log_tables.limits import MIB
from log_tables.record import RECORD_SCHEMA, Record, input_batch, with_offsets
from tests.kit.record_batches import (
    HEADER_BYTES,
    Got,
    aiokafka_reads,
    checked,
    kafka_python_reads,
    with_body,
)

records_of_a_log = st.builds(
    Record,
    st.none() | st.binary(max_size=200),
    st.none() | st.binary(max_size=200),
    st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
    st.integers(-(10**12), 2**51),
)


def batch_of(records: Sequence[Record], offsets: Sequence[int]) -> pa.RecordBatch:
    return with_offsets([input_batch(records, 0)], np.array(offsets, np.int64))


def seen(records: Sequence[Record], offsets: Sequence[int]) -> list[Got]:
    """The records as consumers should have them."""
    return [
        Got(offset, (record.timestamp_us or 0) // 1000, record.key, record.value, [*record.headers])
        for offset, record in zip(offsets, records, strict=True)
    ]


def last_offset(batch: bytes) -> int:
    return int(struct.unpack_from(">q", batch)[0] + struct.unpack_from(">i", batch, 23)[0])


def count_in(batch: bytes) -> int:
    return int(struct.unpack_from(">i", batch, 57)[0])


MANY = [Record(b"x" * (i % 300), b"key-%d" % i, (("n", b"1"),) * (i % 3), 10**15 + i) for i in range(500)]


def encode_batches(*told: Any, **named: Any) -> list[bytes]:
    """Each batch in one piece."""
    return [b"".join(pieces) for pieces in encoded_batches(*told, **named)]


@given(
    st.lists(records_of_a_log, min_size=1, max_size=8),
    st.sampled_from([1, 101]),
    st.lists(st.integers(1, 5_000), min_size=8, max_size=8),
    st.integers(0, 2**62),
    st.integers(0, 9),
)
def test_consumers_read_all_that_the_log_has(
    records: list[Record], times: int, gaps: list[int], first: int, beyond: int
) -> None:
    records = records * times
    offsets = [first + offset for offset in accumulate((gaps * len(records))[: len(records)])]
    batch = batch_of(records, offsets)
    middle = len(records) // 2
    for batches in ([batch], [batch[:middle], batch[middle:]], [batch[middle:]]):
        made = encode_batches(batches, first, offsets[-1] + 1 + beyond)
        count = sum(each.num_rows for each in batches)
        data = b"".join(made)
        want = seen(records[-count:], offsets[-count:])
        assert kafka_python_reads(data) == want
        assert aiokafka_reads(data) == want
        assert last_offset(made[-1]) == offsets[-1] + beyond


@pytest.mark.parametrize("compression", Compression)
@pytest.mark.parametrize("count", [1, 500])
def test_answers_are_compressed(count: int, compression: Compression) -> None:
    records, offsets = MANY[:count], range(count)
    plain = encode_batches([batch_of(records, offsets)], 0, count)
    for made, batch in zip(
        encode_batches([batch_of(records, offsets)], 0, count, compression), plain, strict=True
    ):
        assert checked(made) == made
        body = bytes(inflate(memoryview(made)[HEADER_BYTES:], compression, MIB, lambda _: None))
        assert with_body(batch, body) == batch
        assert struct.unpack_from(">h", made, 21) == (compression,)
        if compression in (Compression.NONE, Compression.GZIP):
            assert kafka_python_reads(made) == aiokafka_reads(made) == seen(records, offsets)


def test_a_range_without_records_is_a_batch_without_records() -> None:
    for batches in ([], [batch_of(MANY[:1], [0])[:0]]):
        [made] = encode_batches(batches, 70, 75, Compression.ZSTD)
        assert kafka_python_reads(made) == aiokafka_reads(made) == []
        assert (last_offset(made), count_in(made), len(made)) == (74, 0, HEADER_BYTES)
    assert encode_batches([], 75, 75) == []


@pytest.mark.parametrize("beyond", [1, 2**31 - 1, 2**31, 2**40])
def test_a_batch_goes_on_as_far_as_its_header_can_say(beyond: int) -> None:
    [made] = encode_batches([], 5, 5 + beyond)
    assert last_offset(made) == 5 + min(beyond - 1, 2**31 - 1)


@pytest.mark.parametrize("count", [3, 300])
def test_offsets_far_from_one_another_are_in_batches_of_their_own(count: int) -> None:
    offsets = [index * 2**30 for index in range(count)]
    made = encode_batches([batch_of(MANY[:count], offsets)], 0, offsets[-1] + 1)
    assert kafka_python_reads(b"".join(made)) == seen(MANY[:count], offsets)
    assert [count_in(batch) for batch in made] == [2] * (count // 2) + [1] * (count % 2)


@pytest.mark.parametrize("size", [10, 1_000, 300_000])
def test_batches_are_cut_at_their_limit(size: int) -> None:
    count = 4 * MIB // size
    batch = batch_of([Record(bytes(size), timestamp_us=0)] * count, range(count))
    made = encode_batches([batch[: count // 3], batch[count // 3 :]], 0, count)
    assert sum(map(count_in, made)) == count
    assert [last_offset(each) for each in made][-1] == count - 1
    assert max(map(len, made)) <= BATCH_BYTES + HEADER_BYTES
    assert len(made) <= 24


def test_a_record_that_is_larger_than_a_batch_comes_alone() -> None:
    records = [Record(b"s"), Record(bytes(3 * MIB)), Record(b"t")]
    made = encode_batches([batch_of(records, range(3))], 0, 3)
    assert [count_in(batch) for batch in made] == [1, 1, 1]
    assert [got.value for got in kafka_python_reads(b"".join(made))] == [record.value for record in records]


def test_small_batches_of_the_log_are_one_batch() -> None:
    batches = [batch_of([record], [index]) for index, record in enumerate(MANY)]
    [made] = encode_batches(batches, 0, len(MANY))
    assert kafka_python_reads(made) == seen(MANY, range(len(MANY)))


@pytest.mark.parametrize("count", [4, 400])
def test_with_the_time_of_their_append_each_batch_has_one_time(count: int) -> None:
    records = [Record(b"v", timestamp_us=1_000 * (index // 2)) for index in range(count)]
    made = encode_batches([batch_of(records, range(count))], 0, count, append_time=True)
    assert [count_in(batch) for batch in made] == [2] * (count // 2)
    assert kafka_python_reads(b"".join(made)) == seen(records, range(count))
    assert {struct.unpack_from(">h", batch, 21) for batch in made} == {(8,)}


@pytest.mark.parametrize("count", [4, 400])
def test_the_header_has_the_first_and_the_latest_time(count: int) -> None:
    times_us = [5_000, -1, 9_999, 0] * (count // 4)
    records = [Record(b"v", timestamp_us=time) for time in times_us]
    [made] = encode_batches([batch_of(records, range(count))], 0, count)
    assert struct.unpack_from(">qq", made, 27) == (5, 9)
    assert [got.time_ms for got in kafka_python_reads(made)][:4] == [5, -1, 9, 0]


@pytest.mark.parametrize("count", [1, 200])
def test_a_header_without_a_key_has_an_empty_one(count: int) -> None:
    headers = [{"key": None, "value": b"v"}, {"key": "n", "value": None}]
    rows = [{"offset": index, "timestamp": 0, "headers": headers} for index in range(count)]
    [made] = encode_batches([pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)], 0, count)
    assert [got.headers for got in kafka_python_reads(made)] == [[("", b"v"), ("n", None)]] * count


def test_neither_reading_nor_writing_loads_pandas() -> None:
    """Loading pandas holds the event loop for 0.9 s, and several of Arrow's functions load it."""
    program = """
import sys
from api.kafka.records.fetched import encode_batches
from api.kafka.records.produced import decode_batch
from log_tables.record import with_offsets
from log_tables.rows import Rows, as_batch
import numpy as np
for count in (2, 200):
    half = count // 2
    rows = Rows([b"v", None] * half, 0, [None, b"k"] * half, [[("h", None)], []] * half)
    [made] = encode_batches([with_offsets([as_batch(rows)], np.arange(count))], 0, count)
    decode_batch(b"".join(made), 1 << 20, 0)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
