"""The partition of a key is that of Kafka."""

import pytest

from log_tables.topic_partition import partition_for_key


@pytest.mark.parametrize(
    ("key", "hashed"),
    # Of murmur3 for x86 in 32 bits with seed 0, from its reference implementation; the sign bit is masked.
    [(b"", 0), (b"a", 0x3C2569B2), (b"abc", 0xB3DD93FA), (b"Hello, world!", 0xC0363E43)],
)
def test_the_partition_of_a_key_is_its_murmur3(key: bytes, hashed: int) -> None:
    for count in (1, 2, 7, 1000, 10_000):
        assert partition_for_key(key, count) == (hashed & 0x7FFFFFFF) % count
