"""Records that are encoded once for all clients that ask for them soon: the same as from the log."""

import asyncio
from contextlib import suppress
from itertools import chain
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.kafka.clients.record_cache import ReadRecords, RecordCache
from api.kafka.records.compression import Compression
from log_tables.clock import ManualClock
from log_tables.errors import LakelogError, NotLeader, OffsetOutOfRange
from log_tables.limits import ENCODED_STRETCHES_MAX
from log_tables.partition.partition import Partition
from log_tables.segments import rewrite
from log_tables.store.store import open_store
from tests.kit.partitions import append, entry, new_partition
from tests.kit.record_batches import kafka_python_reads

LIMIT = 1 << 20
NONE = Compression.NONE


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path, clock: ManualClock) -> Partition:
    return new_partition(open_store(str(tmp_path)), clock)


def offsets(read: ReadRecords | None) -> list[int]:
    assert read is not None
    got = kafka_python_reads(b"".join(chain.from_iterable(read.batches)))
    assert len(got) == read.count
    assert all(each.value == b"%d" % each.offset for each in got if each.value is not None)
    assert sum(map(len, chain.from_iterable(read.batches))) == read.size_bytes
    return [each.offset for each in got]


def numbered(log: Partition, count: int) -> None:
    """One commit of so many records, whose values are their offsets."""
    first = log.high_watermark
    append(log, *(b"%d" % offset for offset in range(first, first + count)))


def test_what_one_client_was_given_the_next_is_given_without_a_read(log: Partition) -> None:
    cache = RecordCache()
    numbered(log, 3)
    assert cache.find(log, 0, LIMIT, NONE) is None
    first = cache.read(log, 0, LIMIT, NONE)
    assert cache.find(log, 0, LIMIT, NONE) is first
    assert offsets(first) == [0, 1, 2]
    assert cache.find(log, 0, LIMIT, Compression.ZSTD) is None
    assert cache.find(log, 1, LIMIT, NONE) is None


def test_a_client_that_comes_later_gets_the_stretches_of_the_first_and_what_follows(log: Partition) -> None:
    cache, at = RecordCache(), 0
    for count in (1, 2, 3):
        numbered(log, count)
        at = cache.read(log, at, LIMIT, NONE).end
    numbered(log, 4)
    assert offsets(cache.read(log, 0, LIMIT, NONE)) == [*range(10)]
    assert offsets(cache.find(log, 0, LIMIT, NONE)) == [*range(10)]
    assert offsets(cache.find(log, 3, LIMIT, NONE)) == [*range(3, 10)]


def test_an_answer_is_made_of_a_bounded_number_of_stretches(log: Partition) -> None:
    cache, at = RecordCache(), 0
    for _ in range(ENCODED_STRETCHES_MAX + 5):
        numbered(log, 1)
        at = cache.read(log, at, LIMIT, NONE).end
    assert cache.find(log, 0, LIMIT, NONE) is None
    read = cache.read(log, 0, LIMIT, NONE)
    assert offsets(read) == [*range(at)]
    assert len(read.batches) == ENCODED_STRETCHES_MAX + 1


STEPS = st.tuples(
    st.integers(0, 60),  # records that come first
    st.integers(0, 3),  # who reads on
    st.integers(0, 3) | st.none(),  # from where another one is, if any
    st.sampled_from((1, 100, 400, 5_000)),
    st.booleans(),
)


@given(st.lists(STEPS, max_size=40), st.sampled_from((3_000, 1 << 20)))
def test_any_clients_get_all_records_in_order_within_their_limits(
    steps: list[tuple[int, int, int | None, int, bool]], kept_bytes: int
) -> None:
    """Clients at any place, of any limit, while the log grows; one record may be larger than the limit."""
    log, cache, clients = (
        new_partition(open_store("memory://"), ManualClock()),
        RecordCache(kept_bytes),
        [0] * 4,
    )
    for come, who, beside, limit, needs_one in steps:
        if come:
            numbered(log, come)
        at = clients[who if beside is None else beside]
        read = cache.read(log, at, limit, NONE, needs_one)
        assert offsets(read) == [*range(at, read.end)]
        assert read.size_bytes <= limit or (needs_one and read.count == 1)
        assert read.count or not needs_one or at == log.high_watermark
        clients[who] = read.end


def test_who_asks_for_what_somebody_reads_now_waits_for_that(log: Partition) -> None:
    cache, begins = RecordCache(), [(log, 0)]
    numbered(log, 3)

    async def follow() -> ReadRecords | None:
        return cache.find(log, 0, LIMIT, NONE) if await cache.others_read(log, 0, NONE) else None

    async def run() -> None:
        assert await follow() is None
        with cache.reading(begins, NONE):
            followers = [asyncio.create_task(follow()) for _ in range(4)]
            done, _ = await asyncio.wait(followers, timeout=0)
            assert not done
            first = cache.read(log, 0, LIMIT, NONE)
        assert all(found is first for found in await asyncio.gather(*followers))
        assert not await cache.others_read(log, 0, NONE)

    asyncio.run(run())


def test_who_waits_for_a_read_that_fails_goes_on(log: Partition) -> None:
    cache, begins = RecordCache(), [(log, 0)]

    async def run() -> None:
        with suppress(LakelogError), cache.reading(begins, NONE):
            waiting = asyncio.create_task(cache.others_read(log, 0, NONE))
            assert not (await asyncio.wait([waiting], timeout=0))[0]
            raise NotLeader("the read fails")
        assert await waiting

    asyncio.run(run())


def test_what_was_deleted_is_not_answered(log: Partition) -> None:
    cache = RecordCache()
    numbered(log, 3)
    cache.read(log, 0, LIMIT, NONE)
    log.truncate(1)
    for act in (cache.read, cache.find):
        with pytest.raises(OffsetOutOfRange):
            act(log, 0, LIMIT, NONE)


def test_what_a_compaction_has_removed_is_not_answered(log: Partition) -> None:
    cache = RecordCache()
    log.append([entry(b"0", b"1", b"2", keys=[b"a", b"a", b"a"])])
    assert offsets(cache.read(log, 0, LIMIT, NONE)) == [0, 1, 2]
    assert rewrite.compact_by_key(log.table, "zstd")
    assert cache.find(log, 0, LIMIT, NONE) is None
    assert offsets(cache.read(log, 0, LIMIT, NONE)) == [2]
    numbered(log, 1)
    cache.read(log, 3, LIMIT, NONE)
    assert offsets(cache.find(log, 3, LIMIT, NONE)) == [3]


def test_nor_is_what_a_later_compaction_removes(log: Partition, clock: ManualClock) -> None:
    """A second compaction removes old tombstones; the border up to which the log is compacted stays."""
    cache = RecordCache()
    log.append([entry(b"0", None, b"2", keys=[b"a", b"b", b"c"])])
    assert rewrite.compact_by_key(log.table, "zstd", delete_retention_ms=1_000)
    assert offsets(cache.read(log, 0, LIMIT, NONE)) == [0, 1, 2]
    clock.advance(2_000)
    assert rewrite.compact_by_key(log.table, "zstd", delete_retention_ms=1_000)
    assert cache.find(log, 0, LIMIT, NONE) is None
    assert offsets(cache.read(log, 0, LIMIT, NONE)) == [0, 2]


def test_a_stretch_that_is_larger_than_all_that_may_be_kept_drives_nothing_out(log: Partition) -> None:
    cache = RecordCache(3_000)
    numbered(log, 3)
    cache.read(log, 0, LIMIT, NONE)
    numbered(log, 300)
    cache.read(log, 3, LIMIT, NONE)
    assert cache.find(log, 3, LIMIT, NONE) is None
    assert offsets(cache.find(log, 0, 100, NONE)) == [0, 1, 2]


def test_what_a_client_reads_that_is_behind_is_not_kept(log: Partition) -> None:
    cache = RecordCache()
    numbered(log, 9)
    cache.read(log, 0, LIMIT, NONE)
    behind = cache.read(log, 1, 100, NONE)
    assert behind.end < log.high_watermark
    assert cache.find(log, 1, 100, NONE) is None
    assert offsets(cache.find(log, 0, LIMIT, NONE)) == [*range(9)]


def test_another_table_has_records_of_its_own(log: Partition, tmp_path: Path) -> None:
    cache = RecordCache()
    numbered(log, 1)
    cache.read(log, 0, LIMIT, NONE)
    (tmp_path / "other").mkdir()
    other = new_partition(open_store(str(tmp_path / "other")), ManualClock(seed=7))
    append(other, None)
    assert cache.find(other, 0, LIMIT, NONE) is None


def test_the_oldest_go_first(log: Partition) -> None:
    cache, at = RecordCache(5_000), 0
    for _ in range(10):
        numbered(log, 3)
        at = cache.read(log, at, LIMIT, NONE).end
    assert cache.find(log, 0, LIMIT, NONE) is None
    assert offsets(cache.find(log, 27, LIMIT, NONE)) == [27, 28, 29]
