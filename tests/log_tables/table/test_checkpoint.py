"""A checkpoint holds what the commits before it hold, and one that is broken is told, not believed."""

import io
from dataclasses import replace

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from log_tables.clock import ManualClock
from log_tables.errors import CorruptLog
from log_tables.layout import checkpoint_path, last_checkpoint_path, producer_end_txn
from log_tables.store.store import Store, open_store
from log_tables.table.checkpoint import (
    Checkpoint,
    decode,
    encode,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from log_tables.table.commit import Add, Format, Metadata, Protocol, Remove, Txn
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import Txns
from tests.kit.partitions import TABLE, another, append_each, new_partition

FULL = Checkpoint(
    12,
    Protocol(1, 2),
    Metadata(
        "id", '{"type":"struct"}', Format("parquet", {"a": "b"}), (), {"delta.x": "1", "y": ""}, 99, "n"
    ),
    Txns([Txn("lakelog.log", 9), Txn("lakelog.producer.1.seq", 2**62, 77)]),
    [
        Add("a.parquet", 10, 20, False, '{"numRecords":1}', {"lakelog.bytes": "5", "more": ""}),
        Add("b.parquet", 11, 21, False, None, None),
        Add("c.parquet", 12, 22, False, "{}", {}),
    ],
    Tombstones(
        [Remove("r.parquet", False, 30, 40, True, {}), Remove("s.parquet", False, None, None, True, {})]
    ),
)
EMPTY = Checkpoint(0, Protocol(1, 2), Metadata("id", "{}"), Txns(), [], Tombstones())


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.mark.parametrize("checkpoint", [FULL, EMPTY])
def test_a_checkpoint_is_read_back_as_it_was_written(checkpoint: Checkpoint) -> None:
    assert decode(encode(checkpoint), checkpoint.version, TABLE) == checkpoint


def test_a_large_checkpoint_is_read_back_as_it_was_written() -> None:
    numbers = range(40_000)
    txns = Txns(Txn(producer_end_txn(number), number, number) for number in numbers).after(FULL.txns.values())
    adds = [Add(f"{number}.parquet", number, 20, False, "{}", {"more": ""}) for number in numbers]
    removes = Tombstones(Remove(f"r{number}", False, number, None, True, {"p": None}) for number in numbers)
    large = replace(FULL, txns=txns, adds=adds, removes=removes)
    assert decode(encode(large), 12, TABLE) == large


def test_each_row_of_a_checkpoint_is_one_action(store: Store) -> None:
    table = pq.read_table(pa.BufferReader(encode(FULL)))
    assert table.num_rows == 9
    filled = [sum(table.column(name)[row].is_valid for name in table.column_names) for row in range(9)]
    assert filled == [1] * 9


def test_the_hint_names_the_newest_checkpoint(store: Store) -> None:
    write_checkpoint(store, TABLE, EMPTY)
    write_checkpoint(store, TABLE, FULL)
    hint = msgspec.json.decode(store.get(last_checkpoint_path(TABLE)))
    data = store.get(checkpoint_path(TABLE, 12))
    assert hint == {"version": 12, "size": 9, "sizeInBytes": len(data), "numOfAddFiles": 3}
    assert read_checkpoint(store, TABLE) == FULL


def test_without_a_checkpoint_there_is_none(store: Store) -> None:
    assert read_checkpoint(store, TABLE) is None
    assert newest_checkpoint(store, TABLE) is None


@pytest.mark.parametrize(
    "hint", [b"", b"{", b"[]", b'{"version":"x","size":1}', b'{"version":999,"size":1}', None]
)
def test_a_hint_that_is_wrong_or_missing_is_made_up_for_by_a_listing(
    store: Store, hint: bytes | None
) -> None:
    write_checkpoint(store, TABLE, EMPTY)
    write_checkpoint(store, TABLE, FULL)
    if hint is None:
        store.delete(last_checkpoint_path(TABLE))
    else:
        store.put(last_checkpoint_path(TABLE), hint)
    assert read_checkpoint(store, TABLE) == FULL


def test_a_hint_with_more_in_it_is_understood(store: Store) -> None:
    write_checkpoint(store, TABLE, FULL)
    store.put(last_checkpoint_path(TABLE), b'{"version":12,"size":9,"checksum":"x","tags":{}}')
    assert read_checkpoint(store, TABLE) == FULL


def test_a_checkpoint_equals_the_commits_before_it(store: Store, clock: ManualClock) -> None:
    partition = new_partition(store, clock)
    append_each(partition, [b"%d" % number for number in range(7)])
    partition.truncate(3)
    replayed = another(partition).snapshot
    partition.checkpoint()
    opened = another(partition).snapshot
    assert replace(opened, tombstones=replayed.tombstones) == replayed
    assert opened.tombstones.keys() == replayed.tombstones.keys() != set()
    append_each(partition, [b"tail"])
    assert another(partition).snapshot.segments == partition.snapshot.segments
    assert another(partition).snapshot.txns == partition.snapshot.txns


def test_a_checkpoint_of_delta_rs_holds_the_same(tmp_path_factory: pytest.TempPathFactory) -> None:
    local = open_store(tmp_path_factory.mktemp("delta"))
    partition = new_partition(local, ManualClock())
    append_each(partition, [b"%d" % number for number in range(5)])
    partition.truncate(2)
    ours = another(partition).snapshot
    DeltaTable(local.delta_location(TABLE)[0]).create_checkpoint()
    theirs = another(partition).snapshot
    assert (theirs.version, theirs.segments, theirs.txns) == (ours.version, ours.segments, ours.txns)
    assert theirs.metadata.schemaString == ours.metadata.schemaString


def parquet(**columns: list[object]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PAR1",
        encode(FULL)[:-1],
        encode(FULL)[:100],
        parquet(x=[1]),
        parquet(protocol=[1], metaData=[1]),
    ],
)
def test_a_broken_checkpoint_is_named_by_version_and_table(data: bytes) -> None:
    with pytest.raises(CorruptLog, match="checkpoint 12 of topics/t/partition=0 cannot be read"):
        decode(data, 12, TABLE)


@given(st.integers(0, len(encode(FULL)) - 1), st.integers(1, 255))
def test_a_byte_that_rots_is_reported_or_does_not_matter(at: int, bits: int) -> None:
    data = bytearray(encode(FULL))
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    data[at] ^= bits
    try:
        found = decode(bytes(data), 12, TABLE)
    except CorruptLog:
        return
    assert found == FULL or at >= footer  # Parquet has checksums for its pages, and none for its footer
