"""Staged files of Kafka's clients: the records of transactions that are open, of any number of clients.

A file is a sequence of runs as in `staging`, each of what a client has sent for a partition while the file
before was put, and then a foot that says whose they are: so whoever takes over from their coordinator knows
them again. A file belongs to one coordinator, a partition of `__consumer_offsets`, in whose directory it is.
"""

import hashlib
import struct
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import msgspec
import pyarrow as pa

from log_tables.clock import Clock
from log_tables.errors import CorruptSegment, ObjectMissing
from log_tables.layout import staging_directory, staging_path
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.segments.digest import file_digest
from log_tables.segments.staging import EncodedRun, StagedRun
from log_tables.store.objects import ObjectInfo
from log_tables.store.store import Store
from log_tables.topic_partition import TopicIdPartition

FOOT_BYTES = 64 * 1024
"""About as much of a file's end is read to find its foot."""

_READ_AT_ONCE = 32
"""Files that are read at once: whoever takes over reads all of them, and an object store takes a while for
each.
"""

_LENGTH = struct.Struct(">Q")


class ProducerRun(msgspec.Struct, frozen=True, array_like=True):
    """Records of transaction `number` of the transactional id `id`: `run`, whose first has `sequence`.

    `epoch` is that of the producer `producer_id`.
    """

    id: str
    producer_id: int
    epoch: int
    number: int
    sequence: int
    run: StagedRun

    @property
    def at(self) -> TopicIdPartition:
        """The partition that the records are for."""
        return TopicIdPartition(self.run.topic, self.run.topic_id, self.run.partition)


class ProducerFile(msgspec.Struct, frozen=True, array_like=True):
    """A staged file, and the runs in it."""

    path: str
    runs: tuple[ProducerRun, ...]


class ProducerRecords(NamedTuple):
    """Records that a client has sent for a partition, as a batch of INPUT_SCHEMA, and whose they are."""

    id: str
    producer_id: int
    epoch: int
    number: int
    sequence: int
    at: TopicIdPartition
    batch: pa.RecordBatch


def joined(entries: Sequence[ProducerRecords]) -> list[list[int]]:
    """The places of `entries` whose records are one run: of a transaction and a partition, one after the
    other.
    """
    found: dict[tuple[object, ...], tuple[list[int], int]] = {}
    runs: list[list[int]] = []
    for place, entry in enumerate(entries):
        key = entry.id, entry.producer_id, entry.epoch, entry.number, entry.at
        run, expected = found.get(key, ([], -1))
        if entry.sequence != expected:
            run = []
            runs.append(run)
        run.append(place)
        found[key] = run, (entry.sequence + entry.batch.num_rows) % SEQUENCE_MODULUS
    return runs


def stage(
    store: Store,
    clock: Clock,
    coordinator: int,
    entries: Sequence[ProducerRecords],
    places: Iterable[Sequence[int]],
) -> ProducerFile:
    """Put `entries` into a new file of the partition `coordinator`, with a run for those at each of `places`;
    durable on return. Raises PutRefused, OutcomeUnknown.
    """
    runs: list[ProducerRun] = []
    data: list[pa.Buffer | bytes] = []
    start = 0
    for some in places:
        first, encoded = entries[some[0]], EncodedRun()
        for place in some:
            encoded.add(entries[place].batch)
        made = encoded.finish()
        digest = file_digest(memoryview(made)).hex()
        run = StagedRun(*first.at, start, made.size, encoded.records, digest)
        runs.append(ProducerRun(first.id, first.producer_id, first.epoch, first.number, first.sequence, run))
        data.append(made)
        start += made.size
    foot = msgspec.msgpack.encode(runs)
    seal = hashlib.sha256(foot).hexdigest()[:16]
    path = staging_path(clock.unique_id(), seal, coordinator)
    # Whole or not there: whoever takes over must know a damaged file from one that is on its way. Nobody else
    # chooses this name; a condition would fail where a bucket's client repeats a put that was not answered.
    store.put(path, b"".join((*data, foot, _LENGTH.pack(len(foot)))))
    return ProducerFile(path, tuple(runs))


def files_of(store: Store, coordinator: int) -> tuple[list[ProducerFile], list[CorruptSegment]]:
    """The staged files of the partition `coordinator`, in no order, and why others cannot be read. Files that
    end while they are listed are left out. Raises StoreUnavailable.
    """

    def read(found: ObjectInfo) -> ProducerFile | CorruptSegment | None:
        try:
            return read_foot(store, found.path, found.size)
        except ObjectMissing:
            return None
        except CorruptSegment as error:
            return error

    with ThreadPoolExecutor(_READ_AT_ONCE, thread_name_prefix="staged") as pool:
        read_ones = [*pool.map(read, store.list(staging_directory(coordinator)))]
    files = [each for each in read_ones if isinstance(each, ProducerFile)]
    return files, [each for each in read_ones if isinstance(each, CorruptSegment)]


def read_foot(store: Store, path: str, size: int) -> ProducerFile:
    """The runs of the file of `size` bytes. Raises CorruptSegment, ObjectMissing, StoreUnavailable."""
    end = store.get_range(path, max(0, size - FOOT_BYTES), FOOT_BYTES)
    try:
        (length,) = _LENGTH.unpack(end[-_LENGTH.size :])
        whole = length + _LENGTH.size
        if whole > size:
            raise ValueError(f"its foot would have {length} bytes")
        if whole > len(end):
            end = store.get_range(path, size - whole, whole)
        foot = end[len(end) - whole : len(end) - _LENGTH.size]
        if hashlib.sha256(foot).hexdigest()[:16] not in path:
            raise ValueError("its foot was changed")
        return ProducerFile(path, tuple(msgspec.msgpack.decode(foot, type=list[ProducerRun])))
    except (ValueError, struct.error) as error:
        raise CorruptSegment(
            f"the staged file {path} cannot be read: {error}; restore it from a backup, or leave it to "
            "`lakelog maintain`: the transactions that may have records in it are aborted"
        ) from None


def delete(store: Store, paths: Iterable[str]) -> None:
    """Delete files that no transaction needs. Raises StoreUnavailable."""
    store.delete_objects([*paths])
