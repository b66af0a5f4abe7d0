"""The state of a table at a version: segments, high watermark, log start, leader epoch, producers.

A Snapshot is a value, and `apply` gives the next one. It is opened from the newest checkpoint, and follows
the log commit by commit.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import msgspec

from log_tables.columns.column_stats import NO_STATS, Bound, ColumnStats, exact
from log_tables.columns.columns_tag import declaration_id, joined_tag
from log_tables.columns.declaration import Declaration, declaration_of_schema
from log_tables.errors import CorruptLog, UnsupportedTable
from log_tables.layout import (
    HEADERS,
    KEY,
    OFFSET,
    PROPERTY_CLUSTER,
    TIMESTAMP,
    TXN_CLEANED,
    TXN_DELETED,
    TXN_HIGH_WATERMARK,
    TXN_LEADER,
    TXN_LEADER_BROKER,
    TXN_LOG_START,
    TXN_MIRRORED,
    TXN_TIERED,
    VALUE,
    is_data_file,
)
from log_tables.record import timestamp_us
from log_tables.table.checkpoint import Checkpoint
from log_tables.table.commit import RESTORE, Add, Commit, Metadata, Protocol, Remove
from log_tables.table.log_epochs import LogEpochs
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import ProducerState, Txns

READER_VERSION = 1
WRITER_VERSION = 2
TAG_BYTES = "lakelog.bytes"
TAG_HORIZONS = "lakelog.deleteHorizons"
TAG_COLUMNS = "lakelog.columns"
TAG_DIGEST = "lakelog.digest"
TAG_LOG_START = "lakelog.logStart"
TAG_MODIFIED = "lakelog.modificationTime"
DIGEST_BYTES = 8
_OWN_COLUMNS = frozenset((OFFSET, TIMESTAMP, KEY, VALUE, HEADERS))
_SHOWN_CHARS = 200
_NUMBER_CHARS = 18


class _Bounds(msgspec.Struct, frozen=True):
    offset: int
    timestamp: str


class _Stats(msgspec.Struct, frozen=True):
    numRecords: int  # noqa: N815
    minValues: _Bounds  # noqa: N815
    maxValues: _Bounds  # noqa: N815
    nullCount: dict[str, int] = {}  # noqa: N815


class _TypedStats(msgspec.Struct, frozen=True):
    """The stats of a file with declared columns."""

    numRecords: int  # noqa: N815
    minValues: dict[str, Any]  # noqa: N815
    maxValues: dict[str, Any]  # noqa: N815
    nullCount: dict[str, int]  # noqa: N815


_stats_decoder = msgspec.json.Decoder(_Stats)
_typed_stats_decoder = msgspec.json.Decoder(_TypedStats, float_hook=exact)
_column_stats_decoder = msgspec.json.Decoder(ColumnStats, float_hook=exact)
_stats_encoder = msgspec.json.Encoder()

Horizons = tuple[tuple[int, int], ...]
"""(last offset, milliseconds since 1970): the time from which tombstones up to that offset may be dropped."""

_horizons_decoder = msgspec.json.Decoder(Horizons)


class Segment(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One data file of a table, with its Delta stats.

    Timestamps are ISO 8601 strings in UTC with milliseconds, the minimum rounded down and the maximum up.
    Strings of one width compare as times do, so a table with 10,000 segments opens without parsing them.
    `raw_bytes` are the uncompressed bytes of its records, 0 if the writer did not say. `horizons` are those
    of its tombstones that compaction by key has met already (KIP-534), in order of offset. `remote` says that
    the file is in the remote table of the partition; it is no part of the Delta action. `columns` is the id
    of its declaration, "" without one, and `packed_stats` are the encoded stats of declared columns. `digest`
    is that of the bytes of the file (DIGEST_BYTES), b"" where an older version wrote it.
    """

    path: str
    size: int
    base_offset: int
    last_offset: int
    records: int
    min_timestamp: str
    max_timestamp: str
    modification_time: int
    nulls: tuple[int, int, int]
    raw_bytes: int
    horizons: Horizons = ()
    remote: bool = False
    columns: str = ""
    packed_stats: bytes = b""
    digest: bytes = b""

    @property
    def dense(self) -> bool:
        """Whether every offset from the first to the last has a record."""
        return self.records == self.last_offset - self.base_offset + 1

    @property
    def declaration_id(self) -> str:
        """The id of the declaration of its columns, "" without one."""
        return declaration_id(self.columns)

    @property
    def column_stats(self) -> ColumnStats:
        """The stats of its declared columns."""
        return _column_stats_decoder.decode(self.packed_stats) if self.packed_stats else NO_STATS

    def add(self, data_change: bool) -> Add:
        """This segment as a Delta add action."""
        tags = {TAG_BYTES: str(self.raw_bytes)}
        if self.columns:
            tags[TAG_COLUMNS] = self.columns
        if self.horizons:
            tags[TAG_HORIZONS] = msgspec.json.encode(self.horizons).decode()
        if self.digest:
            tags[TAG_DIGEST] = self.digest.hex()
        return Add(
            self.path,
            self.size,
            self.modification_time,
            data_change,
            _stats_encoder.encode(self._stats()).decode(),
            tags,
        )

    def _stats(self) -> _Stats | _TypedStats:
        keys, values, headers = self.nulls
        nulls = {OFFSET: 0, TIMESTAMP: 0, KEY: keys, VALUE: values, HEADERS: headers}
        if not self.packed_stats:
            low = _Bounds(self.base_offset, self.min_timestamp)
            return _Stats(self.records, low, _Bounds(self.last_offset, self.max_timestamp), nulls)
        of_columns = self.column_stats
        return _TypedStats(
            self.records,
            {OFFSET: self.base_offset, TIMESTAMP: self.min_timestamp, **of_columns.least},
            {OFFSET: self.last_offset, TIMESTAMP: self.max_timestamp, **of_columns.greatest},
            {**nulls, **of_columns.nulls},
        )

    def remove(self, now_ms: int, data_change: bool) -> Remove:
        """The Delta action that takes this segment out of the table."""
        return Remove(self.path, data_change, now_ms, self.size, True, {})

    def delete(self, now_ms: int, log_start: int) -> Remove:
        """The Delta action that takes this segment out of the table because its records are deleted, with
        all that it takes to bring them back (`deleted_segment`): the log began at `log_start`.
        """
        add = self.add(data_change=True)
        own = {TAG_LOG_START: str(log_start), TAG_MODIFIED: str(self.modification_time)}
        tags = {**(add.tags or {}), **own}
        return Remove(self.path, True, now_ms, self.size, True, {}, add.stats, tags)


def column_runs(segments: Iterable[Segment]) -> list[tuple[str, int]]:
    """(Tag of columns, number of records) of each run of `segments`, in order, that have the same columns.

    Two lists of segments of the same offsets hold the same rows if these are equal: no rewrite adds records,
    declared columns are a function of the values and of the schemas that were known, and a merge keeps the
    ids of those that were not.
    """
    runs = [[*run] for _, run in groupby(segments, key=lambda segment: segment.declaration_id)]
    return [(joined_tag(each.columns for each in run), sum(each.records for each in run)) for run in runs]


def segment_of(add: Add) -> Segment:
    """The segment of a Delta add. Raises CorruptLog for a file outside of the table, or without stats of its
    offsets and times.
    """
    check_data_file(add.path)
    try:
        stats = _stats_decoder.decode(add.stats or "")
        timestamp_us(stats.minValues.timestamp), timestamp_us(stats.maxValues.timestamp)
    except (ValueError, TypeError, RecursionError):
        raise CorruptLog(
            f"the add of {add.path} has no usable stats, and without offsets a segment has no place in the "
            "log; restore the table to the version before it"
        ) from None
    low, high, nulls = stats.minValues, stats.maxValues, stats.nullCount
    tags = add.tags or {}
    columns = tags.get(TAG_COLUMNS, "")
    return Segment(
        path=add.path,
        size=add.size,
        base_offset=low.offset,
        last_offset=high.offset,
        records=stats.numRecords,
        min_timestamp=low.timestamp,
        max_timestamp=high.timestamp,
        modification_time=add.modificationTime,
        nulls=(nulls.get(KEY, 0), nulls.get(VALUE, 0), nulls.get(HEADERS, 0)),
        raw_bytes=_number(tags.get(TAG_BYTES, "")),
        horizons=_horizons(tags[TAG_HORIZONS], add.path) if TAG_HORIZONS in tags else (),
        columns=columns,
        packed_stats=_packed_stats(add.stats or "") if columns else b"",
        digest=_digest(tags[TAG_DIGEST], add.path) if TAG_DIGEST in tags else b"",
    )


def deleted_segment(remove: Remove) -> tuple[Segment, int]:
    """The segment that a remove of deleted records names (`Segment.delete`), and where the log began before.

    Raises CorruptLog as `segment_of`.
    """
    tags = remove.tags or {}
    modified = _number(tags.get(TAG_MODIFIED, ""))
    segment = segment_of(Add(remove.path, remove.size or 0, modified, False, remove.stats, tags))
    return segment, _number(tags.get(TAG_LOG_START, ""))


def _number(text: str) -> int:
    """The number of bytes in a tag; 0, which is unknown, for any other text."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _NUMBER_CHARS else 0


def _digest(text: str, path: str) -> bytes:
    with suppress(ValueError):
        digest = bytes.fromhex(text)
        if len(text) == 2 * len(digest) == 2 * DIGEST_BYTES:
            return digest
    raise CorruptLog(
        f"the tag {TAG_DIGEST} of {path} is {text[:40]!r}, not {2 * DIGEST_BYTES} hexadecimal digits; "
        "restore the table to the version before it"
    )


def _packed_stats(stats: str) -> bytes:
    try:
        found = _typed_stats_decoder.decode(stats)
    except (ValueError, RecursionError):
        return b""  # the stats of another writer, which only leave out less
    least, greatest = (
        {name: bound for name, bound in part.items() if name not in _OWN_COLUMNS and isinstance(bound, Bound)}
        for part in (found.minValues, found.maxValues)
    )
    nulls = {name: count for name, count in found.nullCount.items() if name not in _OWN_COLUMNS}
    return pack_stats(ColumnStats(least, greatest, nulls))


def pack_stats(stats: ColumnStats) -> bytes:
    """`stats` as a segment keeps them: thousands of objects would take a multiple of that."""
    return _stats_encoder.encode(stats) if stats.nulls else b""


def check_data_file(path: str) -> None:
    """Raise CorruptLog unless `path`, of an add, names a file of its own table."""
    if not is_data_file(path):
        raise CorruptLog(
            f"an add names the file {path[:_SHOWN_CHARS]!r}, which is outside of its table, so another "
            "tool wrote the log; restore the table to the version before it"
        )


def _horizons(text: str, path: str) -> Horizons:
    try:
        return _horizons_decoder.decode(text)
    except msgspec.MsgspecError:
        raise CorruptLog(
            f"the tag {TAG_HORIZONS} of {path} is {text[:40]!r}, not a list of offsets and times; restore "
            "the table to the version before it"
        ) from None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table at `version`. Segments are ordered by base offset and never overlap."""

    version: int
    protocol: Protocol
    metadata: Metadata
    segments: tuple[Segment, ...] = ()
    txns: Txns = field(default_factory=Txns)
    tombstones: Tombstones = field(default_factory=Tombstones)

    @property
    def high_watermark(self) -> int:
        """The offset that the next record gets."""
        return self._own(TXN_HIGH_WATERMARK)

    @property
    def log_start(self) -> int:
        """The first offset that may be read."""
        return self._own(TXN_LOG_START)

    @property
    def cleaned(self) -> int:
        """The offset up to which the log was compacted by key: below it records may be missing."""
        return self._own(TXN_CLEANED)

    @property
    def mirrored(self) -> int:
        """The offset up to which the log is a copy of another one: below it records may be missing."""
        return self._own(TXN_MIRRORED)

    @property
    def whole_from(self) -> int:
        """The offset from which on every offset has a record, here or in the remote table."""
        return max(self.log_start, self.cleaned, self.mirrored)

    @property
    def tiered(self) -> int:
        """The offset at which the table begins: records below are in the remote table. 0 without one."""
        return self._own(TXN_TIERED)

    @property
    def deletions(self) -> int:
        """2n - 1 when the topic was deleted n times, and 2n when it was brought back after that."""
        return self._own(TXN_DELETED)

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted: then nothing is committed here until it is brought back."""
        return self.deletions % 2 == 1

    @property
    def cluster(self) -> str | None:
        """The id of the cluster that owns the table, if it is a remote one; None otherwise."""
        return self.metadata.configuration.get(PROPERTY_CLUSTER)

    @property
    def declared(self) -> Declaration:
        """All columns that were ever declared."""
        return declaration_of_schema(self.metadata.schemaString)

    @property
    def leader_epoch(self) -> int:
        return self._own(TXN_LEADER)

    @property
    def leader_broker(self) -> int:
        """The id of the gateway that made the newest claim; 0 if a job or a tool made it."""
        return self._own(TXN_LEADER_BROKER)

    @property
    def log_epochs(self) -> LogEpochs:
        return LogEpochs.of(self.txns.all_named())

    def _own(self, app_id: str) -> int:
        """The version of the txn `app_id`, which is no producer's; 0 without one."""
        txn = self.txns.named(app_id)
        return 0 if txn is None else txn.version

    def version_of(self, app_id: str) -> int:
        """The version of the txn `app_id`; 0 without one."""
        txn = self.txns.get(app_id)
        return 0 if txn is None else txn.version

    def producer_ids(self) -> set[int]:
        """The ids of all producers that the log knows."""
        return self.txns.producer_ids()

    def producer(self, producer_id: int) -> ProducerState | None:
        """The state of a producer; None if the log does not know it."""
        return self.txns.producer(producer_id)

    def holds(self, path: str) -> bool:
        """Whether the file `path` is part of the table, or recently was."""
        return path in self.tombstones or any(s.path == path for s in reversed(self.segments))

    def first_segment(self, offset: int) -> int:
        """The index of the first segment that has an offset ≥ `offset`."""
        index = bisect_right(self.segments, offset, key=lambda segment: segment.base_offset)
        return index - 1 if index and self.segments[index - 1].last_offset >= offset else index

    def between(self, start: int, end: int) -> tuple[Segment, ...]:
        """The segments that may hold records with start ≤ offset < end, in order."""
        beyond = bisect_left(self.segments, end, key=lambda segment: segment.base_offset)
        return self.segments[self.first_segment(start) : beyond]

    def apply(self, commit: Commit) -> "Snapshot":
        """The snapshot after `commit`, which is the next version."""
        txns, tombstones, segments = self.txns, self.tombstones, self.segments
        if commit.txns:
            txns = txns.after(commit.txns)
        if commit.removes:
            gone = {remove.path for remove in commit.removes}
            tombstones = tombstones.after(commit.removes)
            segments = tuple(s for s in segments if s.path not in gone)
        if commit.adds:
            segments = _insert(segments, [segment_of(add) for add in commit.adds])
            if commit.info.operation == RESTORE:
                tombstones = tombstones.without(add.path for add in commit.adds)
        protocol, metadata = commit.protocol or self.protocol, commit.metadata or self.metadata
        return Snapshot(self.version + 1, protocol, metadata, segments, txns, tombstones)

    def pruned(self, now_ms: int, producer_expiration_ms: int) -> "Snapshot":
        """This snapshot without old tombstones and idle producers."""
        return replace(
            self,
            txns=self.txns.pruned(now_ms, producer_expiration_ms),
            tombstones=self.tombstones.pruned(now_ms),
        )

    def checkpoint(self) -> Checkpoint:
        """This snapshot as the content of a Delta checkpoint."""
        adds = [segment.add(False) for segment in self.segments]
        return Checkpoint(self.version, self.protocol, self.metadata, self.txns, adds, self.tombstones)


def _insert(segments: tuple[Segment, ...], added: Sequence[Segment]) -> tuple[Segment, ...]:
    if len(added) == 1 and (not segments or segments[-1].base_offset < added[0].base_offset):
        return segments + (added[0],)  # noqa: RUF005 (that copies them twice, and there may be thousands)
    return tuple(sorted((*segments, *added), key=lambda segment: segment.base_offset))


def check_supported(table: str, snapshot: Snapshot) -> None:
    """Raise UnsupportedTable, with the feature, when the table needs one that this program does not have."""
    protocol = snapshot.protocol
    features = sorted({*(protocol.readerFeatures or ()), *(protocol.writerFeatures or ())})
    if protocol.minReaderVersion > READER_VERSION or protocol.minWriterVersion > WRITER_VERSION or features:
        asked = (
            ", ".join(features) or f"reader {protocol.minReaderVersion}, writer {protocol.minWriterVersion}"
        )
        raise UnsupportedTable(
            f"{table} needs Delta features that lakelog does not have: {asked}; restore the table to a "
            "version before they were enabled",
            feature=asked,
        )


def first_snapshot(commit: Commit, table: str) -> Snapshot:
    """The snapshot of version 0. Raises CorruptLog when it lacks protocol or metadata."""
    if commit.protocol is None or commit.metadata is None:
        raise CorruptLog(f"version 0 of {table} has no protocol or metadata; restore the file")
    empty = Snapshot(-1, commit.protocol, commit.metadata)
    return empty.apply(commit)


def from_checkpoint(checkpoint: Checkpoint) -> Snapshot:
    """The snapshot that a checkpoint holds."""
    segments = sorted((segment_of(add) for add in checkpoint.adds), key=lambda s: s.base_offset)
    return Snapshot(
        checkpoint.version,
        checkpoint.protocol,
        checkpoint.metadata,
        tuple(segments),
        checkpoint.txns,
        checkpoint.removes,
    )
