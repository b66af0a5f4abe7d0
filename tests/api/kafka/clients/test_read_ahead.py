"""Reading ahead for a consumer that is far behind."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain
from pathlib import Path

import pytest

from api.kafka.clients.read_ahead import KEPT_S, PARTITIONS_AHEAD_MAX, ReadAhead
from api.kafka.clients.record_cache import ReadRecords, RecordCache, read_records
from api.kafka.records.compression import Compression
from ingest.buffer import Buffer
from log_tables.clock import ManualClock
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from tests.kit.partitions import another, append, new_partition

LIMIT = 1_000
NONE = Compression.NONE


@pytest.fixture
def log(tmp_path: Path) -> Partition:
    """A partition of 100 records, about nine of which are read at a time."""
    made = new_partition(open_store(str(tmp_path)), ManualClock())
    append(made, *(b"%02d" % number * 50 for number in range(100)))
    return made


def content(read: ReadRecords | None) -> bytes:
    assert read is not None
    return b"".join(chain.from_iterable(read.batches))


def shown(act: Callable[[ReadAhead, Buffer], Awaitable[None]], room: int = 1 << 20) -> None:
    """Let `act` use a client's records, and see that they hold no room in the end."""

    async def run() -> None:
        buffer = Buffer(room)
        ahead = ReadAhead(buffer, "client", RecordCache())
        await act(ahead, buffer)
        ahead.close()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert buffer.used == 0

    asyncio.run(run())


def given(ahead: ReadAhead, log: Partition, offset: int, compression: Compression = NONE) -> ReadRecords:
    """A fetch from `offset` on, of records that are read for it."""
    read = read_records(log, offset, LIMIT, compression)
    ahead.note(log, offset, LIMIT, read, compression)
    return read


def went_on(ahead: ReadAhead, log: Partition, compression: Compression = NONE) -> int:
    """The offset at which a client goes on after it has fetched two stretches, one after the other."""
    return given(ahead, log, given(ahead, log, 0, compression).end, compression).end


def test_from_the_second_stretch_on_the_next_is_read_ahead(log: Partition) -> None:
    async def act(ahead: ReadAhead, _: Buffer) -> None:
        first = given(ahead, log, 0)
        assert log not in ahead
        second = given(ahead, log, first.end)
        assert log in ahead
        third = await ahead.take(log, second.end, LIMIT, NONE)
        assert content(third) == content(read_records(log, second.end, LIMIT, NONE))
        assert log not in ahead

    shown(act)


def test_a_client_reads_all_records_in_order(log: Partition) -> None:
    async def act(ahead: ReadAhead, _: Buffer) -> None:
        offset, was_ahead, parts = 0, 0, []
        while offset < log.high_watermark:
            read = await ahead.take(log, offset, LIMIT, NONE)
            was_ahead += read is not None
            read = read or read_records(log, offset, LIMIT, NONE)
            ahead.note(log, offset, LIMIT, read, NONE)
            parts.append(read.count)
            offset = read.end
        assert sum(parts) == 100
        assert was_ahead >= len(parts) - 4  # not the first two, nor the last ones, which are not full

    shown(act)


def test_nothing_is_read_ahead_where_the_log_ends(log: Partition) -> None:
    async def act(ahead: ReadAhead, _: Buffer) -> None:
        first = given(ahead, log, 84)
        given(ahead, log, first.end)
        assert log not in ahead

    shown(act)


@pytest.mark.parametrize("change", ["offset", "compression", "limit"])
def test_another_fetch_than_expected_gets_nothing_and_frees_it(log: Partition, change: str) -> None:
    async def act(ahead: ReadAhead, buffer: Buffer) -> None:
        offset = went_on(ahead, log)
        assert buffer.used
        asked = (
            offset + (change == "offset"),
            LIMIT - (change == "limit"),
            Compression.GZIP if change == "compression" else NONE,
        )
        assert await ahead.take(log, *asked) is None
        assert log not in ahead

    shown(act)


def test_records_that_nobody_asks_for_are_dropped(log: Partition) -> None:
    async def act(ahead: ReadAhead, buffer: Buffer) -> None:
        went_on(ahead, log)
        now = asyncio.get_running_loop().time()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert 0 < buffer.used < 2 * LIMIT
        ahead.expire(now + KEPT_S / 2)
        assert log in ahead
        ahead.expire(now + 2 * KEPT_S)
        assert log not in ahead
        assert buffer.used == 0

    shown(act)


def test_a_client_that_leaves_meanwhile_frees_its_room(log: Partition) -> None:
    async def act(ahead: ReadAhead, buffer: Buffer) -> None:
        went_on(ahead, log)
        ahead.close()
        assert buffer.used == 2 * LIMIT, "the thread still reads"

    shown(act)


def test_nothing_is_read_ahead_without_room(log: Partition) -> None:
    async def act(ahead: ReadAhead, _: Buffer) -> None:
        went_on(ahead, log)
        assert log not in ahead

    shown(act, 3 * LIMIT)


def test_what_cannot_be_read_is_left_to_the_fetch_itself(log: Partition, tmp_path: Path) -> None:
    reader = another(log)
    first = read_records(log, 0, LIMIT, NONE)
    second = read_records(log, first.end, LIMIT, NONE)
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()

    async def act(ahead: ReadAhead, _: Buffer) -> None:
        ahead.note(reader, 0, LIMIT, first, NONE)
        ahead.note(reader, first.end, LIMIT, second, NONE)
        assert reader in ahead
        assert await ahead.take(reader, second.end, LIMIT, NONE) is None

    shown(act)


def test_so_many_partitions_are_read_ahead_for_one_client(tmp_path: Path) -> None:
    logs = [
        new_partition(open_store(str(tmp_path / str(number))), ManualClock())
        for number in range(PARTITIONS_AHEAD_MAX + 1)
    ]

    async def act(ahead: ReadAhead, _: Buffer) -> None:
        for each in logs:
            append(each, *[b"v" * 100] * 100)
            went_on(ahead, each)
        assert [each in ahead for each in logs] == [True] * PARTITIONS_AHEAD_MAX + [False]

    shown(act)


def test_a_partition_that_a_fetch_names_twice_is_read_ahead_once(log: Partition) -> None:
    """Each later place was known as the end of what was answered just before."""

    async def act(ahead: ReadAhead, buffer: Buffer) -> None:
        given(ahead, log, went_on(ahead, log))
        assert log in ahead
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert 0 < buffer.used < 2 * LIMIT

    shown(act)
