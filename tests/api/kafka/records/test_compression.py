"""Codecs of record batches: all that clients send is unpacked, and nothing unpacks to more than its limit."""

import gzip
import resource
import struct
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.records.compression import Compression, deflate, inflate
from api.kafka.records.errors import BatchError, InvalidBatch
from log_tables.errors import BufferFull
from log_tables.limits import MIB

PACKED = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
CODEC = {each: each.name.lower() for each in PACKED}


def unpacked(data: bytes, compression: int, most_bytes: int = MIB) -> bytes:
    return bytes(inflate(memoryview(data), compression, most_bytes, lambda _: None))


def refusal(data: bytes, compression: int, most_bytes: int = MIB) -> BatchError:
    with pytest.raises(InvalidBatch) as caught:
        unpacked(data, compression, most_bytes)
    return caught.value.code


@pytest.mark.parametrize("compression", Compression)
@given(data=st.binary(max_size=2_000), times=st.sampled_from([1, 100]))
def test_all_codecs_give_back_what_they_were_given(compression: Compression, data: bytes, times: int) -> None:
    data *= times
    packed = deflate(data, compression)
    assert unpacked(packed, compression) == data
    if data and compression is not Compression.NONE:
        assert refusal(packed, compression, len(data) - 1) is BatchError.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("compression", PACKED)
@given(data=st.binary(min_size=1, max_size=2_000), times=st.sampled_from([1, 100]))
def test_what_arrows_codecs_pack_is_unpacked(compression: Compression, data: bytes, times: int) -> None:
    data *= times
    assert unpacked(pa.Codec(CODEC[compression]).compress(data, asbytes=True), compression) == data


def test_what_pythons_gzip_packs_is_unpacked_also_in_several_members() -> None:
    assert unpacked(gzip.compress(b"one") + gzip.compress(b"two"), Compression.GZIP) == b"onetwo"


def test_blocks_of_lz4_do_not_depend_on_one_another() -> None:
    """Java's consumer refuses others: it looks at this bit of the frame's first byte of flags."""
    packed = deflate(b"0123456789" * 100_000, Compression.LZ4)
    assert packed[:4] == struct.pack("<I", 0x184D2204)
    assert packed[4] & 0x20
    first = struct.unpack_from("<I", packed, 7)[0]
    assert len(pa.Codec("lz4_raw").decompress(packed[11 : 11 + first], 65_536, asbytes=True)) == 65_536


def test_random_bytes_are_stored_in_lz4() -> None:
    data = gzip.compress(bytes(range(256)) * 3)
    assert unpacked(deflate(data, Compression.LZ4), Compression.LZ4) == data


@pytest.mark.parametrize("compression", PACKED)
def test_a_gigabyte_of_zeros_takes_no_memory(compression: Compression) -> None:
    bomb = _zeros(compression, 64)
    peak, arrow = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, pa.total_allocated_bytes()
    assert refusal(bomb, compression) is BatchError.MESSAGE_TOO_LARGE
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak < 16 * 1024
    assert pa.total_allocated_bytes() - arrow <= MIB  # the stream has a buffer of that size


def _zeros(compression: Compression, parts: int) -> bytes:
    """A gigabyte of zeros: a small packed part of 16 MiB, which is repeated."""
    packed = bytes(pa.Codec(CODEC[compression]).compress(bytes(16 * MIB)))
    if compression is Compression.SNAPPY:
        return deflate(b"", compression) + (struct.pack(">i", len(packed)) + packed) * parts
    return packed * parts


@pytest.mark.parametrize("compression", PACKED)
def test_each_step_is_held_before_it_is_taken(compression: Compression) -> None:
    bomb = _zeros(compression, 1)
    held: list[int] = []

    def hold(size_bytes: int) -> None:
        held.append(size_bytes)
        if size_bytes > MIB:
            raise BufferFull("no room")

    with pytest.raises(BufferFull):
        inflate(memoryview(bomb), compression, 64 * MIB, hold)
    assert all(size <= MIB for size in held[:-1])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xff\xff\xff\x0f",
        b"\xff\xff\xff\xff\xff\x0f",
        b"\x80\x80\x40",
        b"\x05abc",
        b"\x82SNAPPY\0",
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0",
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\0",
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\xff\xff\xff\xff",
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\x7f\xff\xff\xff",
        b"\x82SNAPPY\0\0\0\0\1\0\0\0\1\0\0\0\1\xff",
    ],
)
def test_wrong_snappy_is_corrupt(data: bytes) -> None:
    assert refusal(data, Compression.SNAPPY) is BatchError.CORRUPT_MESSAGE


@pytest.mark.parametrize("compression", PACKED)
@given(data=st.binary(max_size=200))
def test_random_bytes_are_refused_or_unpack_within_the_limit(compression: Compression, data: bytes) -> None:
    with suppress(InvalidBatch):
        assert len(unpacked(data, compression)) <= MIB


@pytest.mark.parametrize("compression", PACKED)
@given(data=st.data())
def test_a_changed_byte_is_refused_or_unpacks_within_the_limit(
    compression: Compression, data: st.DataObject
) -> None:
    packed = bytearray(deflate(bytes(range(200)) * 50, compression))
    packed[data.draw(st.integers(0, len(packed) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(InvalidBatch):
        assert len(unpacked(bytes(packed), compression, 20_000)) <= 20_000


@pytest.mark.parametrize("compression", [-1, 5, 6, 7])
def test_other_codecs_are_not_supported(compression: int) -> None:
    assert refusal(b"data", compression) is BatchError.UNSUPPORTED_COMPRESSION_TYPE
