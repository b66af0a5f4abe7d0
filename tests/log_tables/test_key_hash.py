"""The partition of a key is that of its hash: ours, or that of Java's Kafka clients."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from log_tables.key_hash import (
    KEY_HASHES,
    MURMUR2,
    MURMUR3,
    murmur2,
    partition_for_key,
    partitions_for_keys,
)

MURMUR3_OF = {
    b"": 0,
    b"a": 0x3C2569B2,
    b"abc": 0xB3DD93FA,
    b"Hello, world!": 0xC0363E43,
    b"hello": 613_153_351,
    b"hello, world": 345_750_399,
}
"""Of murmur3 for x86 in 32 bits with seed 0, from its reference implementation."""

MURMUR2_OF = {
    b"21": -973_932_308,
    b"foobar": -790_332_482,
    b"a-little-bit-long-string": -985_981_536,
    b"a-little-bit-longer-string": -1_486_304_829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58_897_971,
    b"abc": 479_470_107,
}
"""Those of UtilsTest.testMurmur2 of Apache Kafka."""

COUNTS = (1, 2, 7, 1000, 10_000, 2**31)


@pytest.mark.parametrize(("key_hash", "known"), [(MURMUR3, MURMUR3_OF), (MURMUR2, MURMUR2_OF)])
def test_the_partition_of_a_key_is_that_of_its_hash_without_the_sign(
    key_hash: str, known: dict[bytes, int]
) -> None:
    for count in COUNTS:
        expected = [(hashed & 0x7FFFFFFF) % count for hashed in known.values()]
        assert [partition_for_key(key, count, key_hash) for key in known] == expected
        assert partitions_for_keys(pa.array(known, pa.binary()), count, key_hash).tolist() == expected


def plain_murmur2(key: bytes) -> int:
    """MurmurHash2 as its reference has it, byte by byte."""
    factor, word, found = 0x5BD1E995, 2**32 - 1, 0x9747B28C ^ len(key)
    for start in range(0, len(key) - 3, 4):
        block = int.from_bytes(key[start : start + 4], "little") * factor & word
        found = found * factor & word ^ (block ^ block >> 24) * factor & word
    rest = key[len(key) // 4 * 4 :]
    for place, byte in enumerate(rest):
        found ^= byte << 8 * place
    if rest:
        found = found * factor & word
    found = (found ^ found >> 13) * factor & word
    return found ^ found >> 15


keys = st.binary(max_size=20) | st.binary(max_size=600) | st.sampled_from([*MURMUR2_OF])


@given(st.lists(keys, max_size=6), st.integers(1, 10_000), st.integers(0, 3))
def test_many_keys_have_the_partitions_of_each(found: list[bytes], count: int, skipped: int) -> None:
    array = pa.array([*[b"skipped"] * skipped, *found, b"left out"], pa.binary())[skipped:-1]
    for key_hash in KEY_HASHES:
        each = [partition_for_key(key, count, key_hash) for key in found]
        assert partitions_for_keys(array, count, key_hash).tolist() == each
        assert all(0 <= partition < count for partition in each)
    assert [murmur2(key) for key in found] == [plain_murmur2(key) for key in found]
