"""The commits that bring a topic's table to the newest snapshots of its partitions: a pure function of both.

Delta's streaming source skips a whole commit that removes records. So a commit is of one kind: it adds new
records, writes old ones into other files, takes records out or changes their columns, or brings some back. A
path is never added and removed at once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import merge

from log_tables.layout import segment_base_offset
from log_tables.table.commit import RESTORE, Commit, CommitInfo, Txn
from log_tables.table.invariant import Violation, schema_only_grows
from log_tables.table.snapshot import Segment, Snapshot, column_runs
from log_tables.topic_table.topic_snapshot import (
    TopicSnapshot,
    add_of,
    below,
    end_txn,
    noted_txn,
    partition_of,
    remove_of,
    same,
    target_txn,
)


class Kind(Enum):
    """The effect of a commit of the fold, by the name of Delta's operation."""

    REWRITE = "OPTIMIZE"
    CHANGE = "DELETE"
    RESTORE = RESTORE
    APPEND = "WRITE"


@dataclass(slots=True)
class Step:
    """One commit: files of partitions that it removes and adds, and the txns that it sets."""

    kind: Kind
    removes: list[tuple[int, Segment]] = field(default_factory=list)
    adds: list[tuple[int, Segment]] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    targets: dict[int, int] = field(default_factory=dict)
    noted: dict[int, int] = field(default_factory=dict)

    @property
    def actions(self) -> int:
        return len(self.removes) + len(self.adds)

    def commit(self, info: CommitInfo) -> Commit:
        """This step as a commit."""
        changes = self.kind in (Kind.CHANGE, Kind.APPEND)
        txns = [Txn(end_txn(partition), end) for partition, end in sorted(self.ends.items())]
        txns += [Txn(target_txn(partition), version) for partition, version in sorted(self.targets.items())]
        txns += [Txn(noted_txn(partition), version) for partition, version in sorted(self.noted.items())]
        return Commit(
            info,
            txns=tuple(txns),
            adds=tuple(add_of(partition, segment, changes) for partition, segment in self.adds),
            removes=tuple(
                remove_of(partition, segment, info.timestamp, changes) for partition, segment in self.removes
            ),
        )


@dataclass(frozen=True, slots=True)
class _Rewrite:
    """Segments of one partition that are replaced together: `old` ones by `new` ones of the same offsets."""

    partition: int
    old: tuple[Segment, ...]
    new: tuple[Segment, ...]

    @property
    def kind(self) -> Kind:
        """A rewrite takes records out, brings some back, or gives them other columns: otherwise it keeps them
        as they are.
        """
        if not self.old:
            return Kind.RESTORE
        return Kind.REWRITE if column_runs(self.old) == column_runs(self.new) else Kind.CHANGE

    @property
    def base_offset(self) -> int:
        return min(segment.base_offset for segment in (*self.old, *self.new))


def plan(folded: TopicSnapshot, partitions: Mapping[int, Snapshot], most: int) -> list[Step]:
    """The steps from `folded` to `partitions`, by number, in order: rewrites, changes, appends.

    Each has at most `most` actions, unless one rewrite has more. Offsets ascend within a kind, so a tombstone
    goes after the records that it deletes. A partition without a change of files is left out.
    """
    parts: list[_Rewrite] = []
    fresh: list[tuple[int, Segment]] = []
    touched: dict[int, Snapshot] = {}
    for partition, snapshot in sorted(partitions.items()):
        # An older snapshot lacks files that are folded already, and has others that are gone.
        if snapshot.version < folded.target(partition) or folded.is_level(partition, snapshot):
            continue
        touched[partition] = snapshot
        cut = below(snapshot.segments, folded.end(partition))
        if not same(folded.of(partition), snapshot.segments[:cut]):
            parts += _parts(partition, folded.of(partition), snapshot.segments[:cut])
        fresh += ((partition, segment) for segment in snapshot.segments[cut:])
    steps: list[Step] = []
    for kind in (Kind.REWRITE, Kind.CHANGE, Kind.RESTORE):
        chosen = sorted((part for part in parts if part.kind is kind), key=lambda part: part.base_offset)
        steps += _replacing(kind, chosen, most)
    steps += _appending(fresh, most)
    _note(steps, touched)
    return steps


def _parts(partition: int, old: Sequence[Segment], new: Sequence[Segment]) -> Iterator[_Rewrite]:
    """The differences of two lists of segments, in the smallest parts of which none overlaps another."""
    kept = {segment.path for segment in old} & {segment.path for segment in new}
    gone = [(segment, False) for segment in old if segment.path not in kept]
    made = [(segment, True) for segment in new if segment.path not in kept]
    part: tuple[list[Segment], list[Segment]] = ([], [])
    end = -1
    for segment, is_new in merge(gone, made, key=lambda pair: pair[0].base_offset):
        if segment.base_offset > end >= 0:
            yield _Rewrite(partition, tuple(part[0]), tuple(part[1]))
            part = ([], [])
        part[is_new].append(segment)
        end = max(end, segment.last_offset)
    if end >= 0:
        yield _Rewrite(partition, tuple(part[0]), tuple(part[1]))


def _replacing(kind: Kind, parts: Iterable[_Rewrite], most: int) -> Iterator[Step]:
    step = Step(kind)
    for part in parts:
        if step.actions and step.actions + len(part.old) + len(part.new) > most:
            yield step
            step = Step(kind)
        step.removes += ((part.partition, segment) for segment in part.old)
        step.adds += ((part.partition, segment) for segment in part.new)
    if step.actions:
        yield step


def _appending(fresh: Sequence[tuple[int, Segment]], most: int) -> Iterator[Step]:
    for start in range(0, len(fresh), most):
        adds = [*fresh[start : start + most]]
        yield Step(Kind.APPEND, adds=adds, ends={at: segment.last_offset + 1 for at, segment in adds})


def _note(steps: Sequence[Step], touched: Mapping[int, Snapshot]) -> None:
    """Let each step say which versions it folds, and the last one of a partition note it, and its end."""
    left = dict(touched)
    for step in reversed(steps):
        found = {number for number, _ in (*step.removes, *step.adds)}
        step.targets = {number: touched[number].version for number in found}
        for partition in found & {*left}:
            snapshot = left.pop(partition)
            step.noted[partition] = snapshot.version
            step.ends[partition] = snapshot.high_watermark


def broken_fold(before: TopicSnapshot, commit: Commit, after: TopicSnapshot) -> Violation:
    """The first rule of the fold that `commit`, after `before`, would violate."""
    if commit.metadata is not None:
        if commit.metadata.id != before.metadata.id:
            return None  # the table is re-created
        return schema_only_grows(before.metadata.schemaString, commit.metadata.schemaString, partitioned=True)
    if before.deleted and after.deletions == before.deletions:
        return "the topic was deleted before, and nothing is committed after that until it is brought back"
    changes = {add.dataChange for add in commit.adds} | {remove.dataChange for remove in commit.removes}
    if len(changes) > 1:
        return "it both changes records and keeps them"
    return (
        _unknown(before, commit)
        or _moved_back(before, after)
        or _lost(before, commit, after)
        or _repeated(before, commit)
    )


def _unknown(before: TopicSnapshot, commit: Commit) -> Violation:
    """Whether it removes what is not there."""
    names = dict[int, set[str]]()
    for remove in commit.removes:
        partition, name = partition_of(remove.path)
        if partition not in names:
            names[partition] = {segment.path for segment in before.of(partition)}
        if name not in names[partition]:
            return f"it removes {remove.path}, which is not in the table"
    return None


def _moved_back(before: TopicSnapshot, after: TopicSnapshot) -> Violation:
    """Whether a partition was folded further before."""
    back = [txn.app_id for app_id, txn in before.txns.items() if after.txns[app_id].version < txn.version]
    return f"{back[0]} moved back" if back else None


def _lost(before: TopicSnapshot, commit: Commit, after: TopicSnapshot) -> Violation:
    """Whether a commit that says it keeps all records does not."""
    if not commit.removes or commit.changes_data():
        return None
    for partition in {partition_of(remove.path)[0] for remove in commit.removes}:
        had, has = (column_runs(state.of(partition)) for state in (before, after))
        if had != has:
            counts = [sum(records for _, records in runs) for runs in (had, has)]
            if counts[0] != counts[1]:
                return f"a rewrite of partition {partition} with {counts[0]} records leaves {counts[1]}"
            return f"a rewrite of partition {partition} changes columns, and says that it does not"
    return None


def _repeated(before: TopicSnapshot, commit: Commit) -> Violation:
    """Whether a commit that removes nothing adds what is below the end: those records were there before, and
    come back only in a commit that says it changes nothing.
    """
    for add in () if commit.removes or not commit.changes_data() else commit.adds:
        partition, name = partition_of(add.path)
        base_offset = segment_base_offset(name)
        if base_offset is not None and base_offset < before.end(partition):
            return f"it adds {add.path}, below the end {before.end(partition)} of partition {partition}"
    return None
