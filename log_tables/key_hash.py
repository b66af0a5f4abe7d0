"""The partition of a key: the hashes that a topic may choose it by."""

import struct

import mmh3
import numpy as np
import pyarrow as pa

MURMUR3, MURMUR2 = "murmur3", "murmur2"
KEY_HASHES = (MURMUR3, MURMUR2)
"""Hashes by which a key's partition is chosen: ours, and that of Java's Kafka clients."""

_POSITIVE, _WORD = 2**31 - 1, 2**32 - 1
_SEED, _FACTOR = 0x9747B28C, 0x5BD1E995
_BLOCKS_AT_ONCE = 64
"""Longer keys, in blocks of four bytes, are hashed one by one."""


def partition_for_key(key: bytes, count: int, key_hash: str) -> int:
    """The partition of `key` among `count`: its hash (32 bits, sign bit masked) modulo the count.

    `key_hash` is one of KEY_HASHES.
    """
    return (_HASHES[key_hash](key) & _POSITIVE) % count


def partitions_for_keys(keys: pa.BinaryArray, count: int, key_hash: str) -> np.ndarray:
    """`partition_for_key` of each of `keys`, none of which is null, as int64."""
    if key_hash == MURMUR2:
        hashes = murmur2_of_each(keys).astype(np.int64)
    else:
        hashes = np.fromiter(map(mmh3.hash, keys.to_pylist()), np.int64, len(keys))
    placed: np.ndarray = (hashes & _POSITIVE) % count
    return placed


def murmur2(key: bytes) -> int:
    """The hash, from 0 to 2^32 - 1, by which Java's Kafka clients choose the partition of a key.

    It is `org.apache.kafka.common.utils.Utils.murmur2`: MurmurHash2 in 32 bits, with a seed of Kafka's.
    """
    whole, found = len(key) & ~3, _SEED ^ len(key)
    if whole <= 4 * _BLOCKS_AT_ONCE:
        for block in struct.unpack_from(f"<{whole // 4}I", key):
            mixed = block * _FACTOR & _WORD
            found = (found * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _WORD
    else:
        for block in _mixed(np.frombuffer(key, "<u4", whole // 4)).tolist():
            found = (found * _FACTOR ^ block) & _WORD
    if whole < len(key):
        found = (found ^ int.from_bytes(key[whole:], "little")) * _FACTOR & _WORD
    found = (found ^ found >> 13) * _FACTOR & _WORD
    return found ^ found >> 15


def murmur2_of_each(keys: pa.BinaryArray) -> np.ndarray:
    """`murmur2` of each of `keys`, none of which is null, as uint32: a block of all keys at a time."""
    if not len(keys):
        return np.empty(0, np.uint32)
    _, offsets, data = keys.buffers()
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    begins, lengths = ends[:-1], np.diff(ends)
    # Each byte with the three after it, as one number.
    held = np.frombuffer((b"" if data is None else data.to_pybytes()) + bytes(4), np.uint8)
    words = np.ndarray((len(held) - 3,), "<u4", held, strides=(1,))
    found = lengths.astype(np.uint32) ^ np.uint32(_SEED)
    blocks = np.minimum(lengths // 4, _BLOCKS_AT_ONCE)
    order = np.argsort(-blocks, kind="stable")
    ordered, at, hashes = blocks[order], begins[order], found[order]
    for block in range(int(ordered[0])):
        longer = int(np.searchsorted(-ordered, -block))
        mixed = _mixed(words[at[:longer] + 4 * block])
        hashes[:longer] = hashes[:longer] * np.uint32(_FACTOR) ^ mixed
    found[order] = hashes
    rest = lengths & 3
    tails = words[begins + (lengths - rest)] & ((1 << 8 * rest) - 1).astype(np.uint32)
    found = np.where(rest > 0, (found ^ tails) * np.uint32(_FACTOR), found)
    found = (found ^ found >> np.uint32(13)) * np.uint32(_FACTOR)
    found ^= found >> np.uint32(15)
    for place in np.flatnonzero(lengths // 4 > _BLOCKS_AT_ONCE).tolist():
        found[place] = murmur2(keys[place].as_py())
    return found


def _mixed(blocks: np.ndarray) -> np.ndarray:
    mixed = blocks * np.uint32(_FACTOR)
    mixed ^= mixed >> np.uint32(24)
    mixed *= np.uint32(_FACTOR)
    return mixed


_HASHES = {MURMUR3: mmh3.hash, MURMUR2: murmur2}
