"""The codecs of Kafka's record batches: none, gzip, snappy, lz4 and zstd.

A batch may unpack to very much more than it is. All of them are unpacked in steps, and each step is told
before its memory is taken.
"""

import struct
from collections.abc import Callable
from enum import IntEnum

import pyarrow as pa

from api.kafka.records.errors import BatchError, InvalidBatch, corrupt, too_large
from api.wire.room import Reserve, inflate_stream
from log_tables.limits import KIB


class Compression(IntEnum):
    """The codec of a batch: the lowest three bits of its attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_COPIED_MAX_BYTES = 256 * KIB
_SNAPPY_RATIO_MAX = 32
"""Three bytes of snappy stand for 64 at most. A block that promises more is no snappy."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_LENGTH = struct.Struct(">i")
_BLOCK_BYTES = 64 * KIB

_LZ4_HEADER = bytes.fromhex("04224d18604082")
"""A frame of independent blocks of up to 64 KiB, without checksums; its last byte is the header's checksum.

Java's consumer refuses blocks that depend on one another, which Arrow's lz4 makes.
"""
_LZ4_STORED = 1 << 31
_LZ4_BLOCK = struct.Struct("<I")
_LZ4_END = _LZ4_BLOCK.pack(0)


def inflate(data: memoryview, compression: int, most_bytes: int, hold: Reserve) -> bytes | memoryview:
    """`data` unpacked: `most_bytes` at most. Without a codec, a large one is `data` itself.

    Raises InvalidBatch, and what `hold` raises.
    """
    if compression not in _INFLATES:
        raise InvalidBatch(
            BatchError.UNSUPPORTED_COMPRESSION_TYPE,
            f"the batch has the compression type {compression}; send none, gzip, snappy, lz4 or zstd",
        )
    try:
        return _INFLATES[compression](data, most_bytes, hold)
    except (OSError, pa.ArrowException) as error:
        name = Compression(compression).name.lower()
        raise corrupt(f"the records are no whole {name}: {error}; send them again") from None


def deflate(data: bytes | memoryview, compression: Compression) -> bytes:
    """`data` packed, as clients of all languages read it."""
    return _DEFLATES[compression](pa.py_buffer(data))


def _stored(data: memoryview, most_bytes: int, hold: Reserve) -> bytes | memoryview:
    if len(data) > most_bytes:
        raise _unpacks_to_more(most_bytes)
    if len(data) > _COPIED_MAX_BYTES:
        return data
    hold(len(data))
    return bytes(data)  # single bytes of it are read faster


def _stream(name: str) -> Callable[[memoryview, int, Reserve], bytes]:
    def inflate_named(data: memoryview, most_bytes: int, hold: Reserve) -> bytes:
        found = inflate_stream(data, name, most_bytes, hold)
        if found is None:
            raise _unpacks_to_more(most_bytes)
        return found

    return inflate_named


def _unpacks_to_more(most_bytes: int) -> InvalidBatch:
    return too_large(f"the batch unpacks to more than {most_bytes} bytes; send fewer records at once")


def _inflate_snappy(data: memoryview, most_bytes: int, hold: Reserve) -> bytes:
    blocks = _xerial_blocks(data) if data[:8] == _XERIAL_MAGIC else [data]
    sizes = [_snappy_size(block) for block in blocks]
    total = sum(sizes)
    if total > most_bytes:
        raise _unpacks_to_more(most_bytes)
    hold(2 * total)
    codec = pa.Codec("snappy")
    parts = [
        codec.decompress(pa.py_buffer(block), decompressed_size=size, asbytes=True)
        for block, size in zip(blocks, sizes, strict=True)
    ]
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    """The blocks in the frame that Java's snappy puts around them."""
    blocks, at = [], len(_XERIAL_HEADER)
    if len(data) < at:
        raise corrupt("the records are no whole snappy: the head of the frame is cut; send them again")
    while at < len(data):
        begin = at + _LENGTH.size
        if begin > len(data):
            raise corrupt("the records are no whole snappy: the last block is cut; send them again")
        [size] = _LENGTH.unpack_from(data, at)
        at = begin + size
        if size <= 0 or at > len(data):
            raise corrupt(
                f"the records are no whole snappy: a block has {size} bytes, {len(data) - begin} are left; "
                "send them again"
            )
        blocks.append(data[begin:at])
    return blocks


def _snappy_size(block: memoryview) -> int:
    """The bytes that `block` says it unpacks to."""
    size = 0
    for index, byte in enumerate(block[:5]):
        size |= (byte & 127) << 7 * index
        if byte < 128:
            if size > _SNAPPY_RATIO_MAX * len(block):
                break
            return size
    raise corrupt("the records are no snappy: a block begins with a wrong size; send them again")


def _deflate_snappy(data: pa.Buffer) -> bytes:
    codec = pa.Codec("snappy")
    parts = [_XERIAL_HEADER]
    for block in _blocks(data):
        packed = codec.compress(block, asbytes=True)
        parts += [_LENGTH.pack(len(packed)), packed]
    return b"".join(parts)


def _deflate_lz4(data: pa.Buffer) -> bytes:
    codec = pa.Codec("lz4_raw")
    parts = [_LZ4_HEADER]
    for block in _blocks(data):
        packed = codec.compress(block, asbytes=True)
        if len(packed) < block.size:
            parts += [_LZ4_BLOCK.pack(len(packed)), packed]
        else:
            parts += [_LZ4_BLOCK.pack(block.size | _LZ4_STORED), block]
    parts.append(_LZ4_END)
    return b"".join(parts)


def _blocks(data: pa.Buffer) -> list[pa.Buffer]:
    return [data[at : at + _BLOCK_BYTES] for at in range(0, data.size, _BLOCK_BYTES)]


def _deflate_whole(name: str) -> Callable[[pa.Buffer], bytes]:
    def deflate_whole(data: pa.Buffer) -> bytes:
        packed: bytes = pa.Codec(name).compress(data, asbytes=True)
        return packed

    return deflate_whole


_INFLATES: dict[int, Callable[[memoryview, int, Reserve], bytes | memoryview]] = {
    Compression.NONE: _stored,
    Compression.GZIP: _stream("gzip"),
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _stream("lz4"),
    Compression.ZSTD: _stream("zstd"),
}

_DEFLATES: dict[Compression, Callable[[pa.Buffer], bytes]] = {
    Compression.NONE: pa.Buffer.to_pybytes,
    Compression.GZIP: _deflate_whole("gzip"),
    Compression.SNAPPY: _deflate_snappy,
    Compression.LZ4: _deflate_lz4,
    Compression.ZSTD: _deflate_whole("zstd"),
}
