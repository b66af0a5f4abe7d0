"""Arrow streams that are small on the wire and would be large in memory, or are none at all."""

import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import MalformedBody
from api.wire.arrow import decode_stream as decode
from log_tables.errors import InvalidRecord
from log_tables.limits import MIB


def decode_stream(body: bytes) -> pa.RecordBatch:
    return decode(body, lambda _: None)


def stream(*batches: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def column(values: pa.Array, name: str = "value") -> pa.RecordBatch:
    return pa.record_batch({"value": pa.nulls(len(values)), name: values})


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_a_stream_of_several_batches_is_one_batch(compression: str | None) -> None:
    batch = column(pa.array([b"a" * 1_000, None, b""]))
    decoded = decode_stream(stream(batch, batch, compression=compression))
    assert decoded.column("value").to_pylist() == [b"a" * 1_000, None, b""] * 2


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_stream_that_unpacks_to_too_much_is_refused_before_it_is_unpacked(compression: str) -> None:
    body = stream(column(pa.array([bytes(65 * MIB)])), compression=compression)
    assert len(body) < MIB
    before = pa.total_allocated_bytes()
    with pytest.raises(InvalidRecord, match="unpacks to more than"):
        decode_stream(body)
    assert pa.total_allocated_bytes() - before < MIB


def test_a_buffer_that_says_it_unpacks_to_more_than_memory_is_refused() -> None:
    body = bytearray(stream(column(pa.array([b"x" * 10_000])), compression="zstd"))
    at = body.rindex(struct.pack("<q", 10_000))
    body[at : at + 8] = struct.pack("<q", 2**60)
    with pytest.raises(InvalidRecord, match="unpacks to more than"):
        decode_stream(bytes(body))


def test_compression_as_before_arrow_1_is_refused() -> None:
    batch = column(pa.array([b"x"]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={"ARROW:experimental_compression": "zstd"})
    with pytest.raises(InvalidRecord, match=r"Arrow before 1\.0"):
        decode_stream(bytes(sink.getvalue()))


def repeated(count: int) -> pa.Array:
    view = struct.pack("<i4sii", MIB, b"yyyy", 0, 0)
    return pa.Array.from_buffers(
        pa.binary_view(), count, [None, pa.py_buffer(view * count), pa.py_buffer(b"y" * MIB)]
    )


@pytest.mark.parametrize(
    ("values", "name"),
    [
        (pa.DictionaryArray.from_arrays(pa.array([0] * 3_000), pa.array([b"x" * MIB])), "value"),
        (repeated(3_000), "key"),
        (pa.RunEndEncodedArray.from_arrays([3_000], [b"x"]), "value"),
        (pa.array([1]), "value"),
        (pa.array([1.0]), "partition"),
        (pa.array(["1"]), "partition"),
        (pa.array([True]), "partition"),
        (pa.array(["2020-01-01"]), "timestamp"),
        (pa.array([[{"key": "a", "value": "b", "more": 1}]]), "headers"),
        (pa.array([["a"]]), "headers"),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else value,
)
def test_a_column_of_another_type_is_refused(values: pa.Array, name: str) -> None:
    with pytest.raises(InvalidRecord, match=f"the column '{name}' has type"):
        decode_stream(stream(column(values, name)))


def test_offsets_that_point_outside_their_values_are_refused() -> None:
    offsets = pa.py_buffer(struct.pack("<iii", 0, 2**30, 3))
    broken = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"abc")])
    with pytest.raises(MalformedBody):
        decode_stream(stream(pa.record_batch({"value": broken})))


SOUND = [
    stream(
        pa.record_batch({"value": pa.array([b"a", None]), "key": pa.array(["k", "l"])}), compression=packing
    )
    for packing in (None, "zstd")
]


@given(body=st.sampled_from(SOUND), data=st.data())
def test_a_damaged_stream_is_refused_or_decoded_and_never_worse(body: bytes, data: Any) -> None:
    damaged = bytearray(body)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    length = data.draw(st.integers(0, len(body)))
    with suppress(MalformedBody, InvalidRecord):
        decode_stream(bytes(damaged[:length])).validate(full=True)


def test_a_column_whose_name_is_not_utf8_is_refused() -> None:
    body = stream(pa.record_batch({"value": pa.array([b"a"]), "key": pa.array(["k"])}))
    with pytest.raises(MalformedBody):
        decode_stream(body.replace(b"key", b"\x80ey"))
