"""The topic's table at a version: the segments of each partition, and how far each was folded."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import msgspec

from log_tables.columns.declaration import Declaration, declaration_of_schema
from log_tables.errors import CorruptLog, UnsupportedTable
from log_tables.layout import PARTITION, PROPERTY_CLUSTER, TXN_DELETED, is_data_file
from log_tables.table.checkpoint import Checkpoint
from log_tables.table.commit import RESTORE, Add, Commit, Metadata, Protocol, Remove
from log_tables.table.snapshot import Segment, Snapshot, segment_of
from log_tables.table.tombstones import Tombstones
from log_tables.table.txns import Txns

FEATURE = "lakelogTopic"
PROTOCOL = Protocol(1, 7, writerFeatures=("invariants", FEATURE))
"""A writer feature that no other program has: Delta's rules forbid all others to write, and let them read.
Columns that are never null need `invariants`."""

_PATH = re.compile(rf"{PARTITION}=(0|[1-9][0-9]{{0,8}})/([^/]+)")
_NOTED = re.compile(r"lakelog\.fold\.(?P<partition>\d+)\.(version|target)")
_SHOWN_CHARS = 200


def noted_txn(partition: int) -> str:
    """The txn that says which version of the partition's table the topic's table holds."""
    return f"lakelog.fold.{partition}.version"


def target_txn(partition: int) -> str:
    """The txn that says which version of the partition's table is being folded, in each commit of it."""
    return f"lakelog.fold.{partition}.target"


def is_noted_txn(app_id: str) -> bool:
    """Whether `app_id` is that of a `noted_txn` or a `target_txn`: -1 is nothing."""
    return _NOTED.fullmatch(app_id) is not None


def noted_partition(app_id: str) -> int | None:
    """The partition of a `noted_txn` or a `target_txn`; None for any other."""
    match = _NOTED.fullmatch(app_id)
    return int(match["partition"]) if match else None


def end_txn(partition: int) -> str:
    """The txn that says up to which offset the partition is folded."""
    return f"lakelog.fold.{partition}.end"


def path_in_topic(partition: int, path: str) -> str:
    """The path of a segment of `partition`, relative to the topic's table."""
    return f"{PARTITION}={partition}/{path}"


def partition_of(path: str) -> tuple[int, str]:
    """The partition of a file of the topic's table, and its path in there. Raises CorruptLog."""
    match = _PATH.fullmatch(path)
    if match is None or not is_data_file(match[2]):
        raise CorruptLog(
            f"an action names the file {path[:_SHOWN_CHARS]!r}, which is no segment of a partition, so "
            "another tool wrote the table of the topic; make it again with `lakelog root refold`"
        )
    return int(match[1]), match[2]


def add_of(partition: int, segment: Segment, data_change: bool) -> Add:
    """`segment` of `partition` as an add to the topic's table."""
    return msgspec.structs.replace(
        segment.add(data_change),
        path=path_in_topic(partition, segment.path),
        partitionValues={PARTITION: str(partition)},
    )


def remove_of(partition: int, segment: Segment, now_ms: int, data_change: bool) -> Remove:
    """The action that takes `segment` of `partition` out of the topic's table."""
    return msgspec.structs.replace(
        segment.remove(now_ms, data_change),
        path=path_in_topic(partition, segment.path),
        partitionValues={PARTITION: str(partition)},
    )


@dataclass(frozen=True, slots=True)
class TopicSnapshot:
    """The table of a topic at `version`. The segments of each partition are ordered by base offset."""

    version: int
    protocol: Protocol
    metadata: Metadata
    segments: Mapping[int, tuple[Segment, ...]] = field(default_factory=dict)
    txns: Txns = field(default_factory=Txns)
    tombstones: Tombstones = field(default_factory=Tombstones)

    def noted(self, partition: int) -> int:
        """The newest version of the partition's table that is folded wholly; -1 for none."""
        txn = self.txns.get(noted_txn(partition))
        return -1 if txn is None else txn.version

    def target(self, partition: int) -> int:
        """The newest version of the partition's table of which anything is folded; -1 for none."""
        txn = self.txns.get(target_txn(partition))
        return -1 if txn is None else txn.version

    def end(self, partition: int) -> int:
        """The offset up to which the partition is folded."""
        txn = self.txns.get(end_txn(partition))
        return 0 if txn is None else txn.version

    def of(self, partition: int) -> tuple[Segment, ...]:
        """The segments of one partition, with paths in its directory."""
        return self.segments.get(partition, ())

    @property
    def declared(self) -> Declaration:
        """All columns that were ever declared, as far as they are folded."""
        return declaration_of_schema(self.metadata.schemaString)

    @property
    def deletions(self) -> int:
        """As `Snapshot.deletions`."""
        txn = self.txns.get(TXN_DELETED)
        return 0 if txn is None else txn.version

    @property
    def deleted(self) -> bool:
        """Whether the topic was deleted: then the table is empty until it is brought back."""
        return self.deletions % 2 == 1

    @property
    def cluster(self) -> str | None:
        """The id of the cluster that owns the table, if it is in a remote root; None otherwise."""
        return self.metadata.configuration.get(PROPERTY_CLUSTER)

    def holds(self, path: str) -> bool:
        """Whether the file `path` is part of the table, or recently was."""
        if path in self.tombstones:
            return True
        partition, name = partition_of(path)
        return any(segment.path == name for segment in reversed(self.of(partition)))

    def is_level(self, partition: int, snapshot: Snapshot) -> bool:
        """Whether `snapshot` of the partition has no file that is not here, and lacks none that is."""
        return self.noted(partition) >= snapshot.version or same(self.of(partition), snapshot.segments)

    def apply(self, commit: Commit) -> "TopicSnapshot":
        """The table after `commit`, which is the next version."""
        txns, tombstones, segments = self.txns, self.tombstones, self.segments
        if commit.txns:
            txns = txns.after(commit.txns)
        if commit.removes:
            tombstones = tombstones.after(commit.removes)
        if commit.info.operation == RESTORE:
            tombstones = tombstones.without(add.path for add in commit.adds)
        if commit.removes or commit.adds:
            segments = {**segments, **_changed(segments, commit)}
        protocol, metadata = commit.protocol or self.protocol, commit.metadata or self.metadata
        return TopicSnapshot(self.version + 1, protocol, metadata, segments, txns, tombstones)

    def pruned(self, now_ms: int, producer_expiration_ms: int) -> "TopicSnapshot":  # noqa: ARG002 (it has no producers)
        """This table without old tombstones."""
        return replace(self, tombstones=self.tombstones.pruned(now_ms))

    def checkpoint(self) -> Checkpoint:
        """This table as the content of a Delta checkpoint."""
        adds = [
            add_of(partition, segment, data_change=False)
            for partition, segments in sorted(self.segments.items())
            for segment in segments
        ]
        return Checkpoint(self.version, self.protocol, self.metadata, self.txns, adds, self.tombstones)


def same(one: tuple[Segment, ...], other: tuple[Segment, ...]) -> bool:
    """Whether two lists of segments name the same files."""
    return len(one) == len(other) and all(a.path == b.path for a, b in zip(one, other, strict=True))


def _changed(before: Mapping[int, tuple[Segment, ...]], commit: Commit) -> dict[int, tuple[Segment, ...]]:
    """The segments of the partitions that `commit` changes, after it."""
    added, gone = _added(commit.adds), dict[int, set[str]]()
    for remove in commit.removes:
        partition, name = partition_of(remove.path)
        gone.setdefault(partition, set()).add(name)
    after = {}
    for partition in {*added, *gone}:
        known = before.get(partition, ())
        if partition in gone:
            known = tuple(segment for segment in known if segment.path not in gone[partition])
        after[partition] = _merged(known, added.get(partition, []))
    return after


def _added(adds: Iterable[Add]) -> dict[int, list[Segment]]:
    """The segments of `adds`, of each partition in order. Raises CorruptLog."""
    added = dict[int, list[Segment]]()
    for add in adds:
        partition, name = partition_of(add.path)
        if add.partitionValues.get(PARTITION) != str(partition):
            raise CorruptLog(
                f"the add of {add.path} has the partition values {add.partitionValues}; make it again "
                "with `lakelog root refold`"
            )
        added.setdefault(partition, []).append(segment_of(msgspec.structs.replace(add, path=name)))
    for segments in added.values():
        segments.sort(key=_base)
    return added


def _merged(known: tuple[Segment, ...], added: list[Segment]) -> tuple[Segment, ...]:
    if not added:
        return known
    if not known or known[-1].base_offset < added[0].base_offset:
        return (*known, *added)
    return tuple(sorted((*known, *added), key=_base))


def _base(segment: Segment) -> int:
    return segment.base_offset


def below(segments: tuple[Segment, ...], end: int) -> int:
    """How many of `segments`, which are in order, begin below offset `end`."""
    return bisect_left(segments, end, key=_base)


def first_folded(commit: Commit, table: str) -> TopicSnapshot:
    """The table at version 0. Raises CorruptLog when it lacks protocol or metadata."""
    if commit.protocol is None or commit.metadata is None:
        raise CorruptLog(f"version 0 of {table} has no protocol or metadata; restore the file")
    return TopicSnapshot(-1, commit.protocol, commit.metadata).apply(commit)


def from_checkpoint(checkpoint: Checkpoint) -> TopicSnapshot:
    """The table that a checkpoint holds. Raises CorruptLog."""
    return TopicSnapshot(
        checkpoint.version,
        checkpoint.protocol,
        checkpoint.metadata,
        {partition: tuple(segments) for partition, segments in _added(checkpoint.adds).items()},
        checkpoint.txns,
        checkpoint.removes,
    )


def check_supported(table: str, folded: TopicSnapshot) -> None:
    """Raise UnsupportedTable unless the table asks for exactly what PROTOCOL says."""
    found = folded.protocol
    if found != PROTOCOL:
        named = {*(found.readerFeatures or ()), *(found.writerFeatures or ())}
        asked = sorted(named - {*(PROTOCOL.writerFeatures or ())})
        text = ", ".join(asked) or f"reader {found.minReaderVersion}, writer {found.minWriterVersion}"
        raise UnsupportedTable(
            f"{table} needs Delta features that lakelog does not have: {text}; make it again with "
            "`lakelog root refold`",
            feature=text,
        )
