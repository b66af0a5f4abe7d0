"""The log of a partition's table, replayed from its oldest readable version, each commit and checkpoint
checked.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from log_tables.errors import CorruptLog, Damaged, LakelogError
from log_tables.layout import checkpoint_path, checkpoint_version, commit_path, commit_version, log_directory
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.root.checkpoint_replay import (
    check_removes,
    check_rows,
    check_segments,
    check_table,
    check_txns,
)
from log_tables.root.commit_replay import CHANGED, check_commit, check_first, check_shape
from log_tables.root.segment_replay import check_segment
from log_tables.root.table_metadata import TRANSACTION_RETENTION, check_metadata
from log_tables.store.store import Store
from log_tables.table.checkpoint import decode as decode_checkpoint
from log_tables.table.commit import Commit, read_data
from log_tables.table.commit import decode as decode_commit
from log_tables.table.invariant import followed, is_ours
from log_tables.table.snapshot import Segment, Snapshot, check_supported, first_snapshot, from_checkpoint

_DAY_MS = 24 * 3_600_000
_SECONDS = re.compile(r"interval (\d{1,15}) seconds")


@dataclass(slots=True)
class LogReplay:
    """A table as its log gives it, version by version.

    `added` says which version added a file, `begun_ms` when the checkpoint was made from which it begins, if
    it begins from one. `batches` are the ids of all commits.
    """

    store: Store
    directory: str
    snapshot: Snapshot
    begun_ms: int | None = None
    problems: list[str] = field(default_factory=list)
    added: dict[str, int] = field(default_factory=dict)
    batches: dict[str, int] = field(default_factory=dict)
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)

    def begin(self, first: Commit | None, data: bytes) -> None:
        """Check the version from which it begins: the commit `first` with its `data`, if it is version 0."""
        if first is not None:
            self._blame(first, [*check_shape(data), *check_first(first)])
            self._note(first)
        said = [*check_metadata(self.snapshot.protocol, self.snapshot.metadata)]
        if first is not None:
            self._blame(first, said)
        else:
            self.problems += [f"checkpoint {self.snapshot.version}: {problem}" for problem in said]

    def take(self, commit: Commit, data: bytes, deep: bool) -> None:
        """Apply the next commit, whose file is `data`; check all of it if `deep`. Raises Damaged."""
        before = self.snapshot
        self.snapshot, _ = followed(self.directory, before, commit)
        if not deep:
            return
        if is_ours(commit):
            said = [*check_shape(data), *check_commit(before, commit)]
            if commit.metadata is not None:
                said += check_metadata(self.snapshot.protocol, commit.metadata)
            self._blame(commit, said)
        self._note(commit)
        self.problems += _check_sequences(self.snapshot.version, commit, self.producers)

    def _note(self, commit: Commit) -> None:
        version = self.snapshot.version
        self.added |= {add.path: version for add in commit.adds}
        other = self.batches.setdefault(commit.info.batchId, version)
        if other != version and is_ours(commit):
            self._blame(commit, [f"its batchId is that of version {other}"])

    def _blame(self, commit: Commit, said: list[str]) -> None:
        for problem in said:
            version = f"version {self.snapshot.version} ({commit.info.operation})"
            self.problems.append(f"{version} {CHANGED}: {problem}; restore this commit from a backup")

    def check_checkpoint(self) -> None:
        """Compare the checkpoint of this version with the commits before it."""
        version, path = self.snapshot.version, checkpoint_path(self.directory, self.snapshot.version)
        try:
            data, made_ms = self.store.get(path), self.store.head(path).modified_ms
            checkpoint = decode_checkpoint(data, version, self.directory)
            written = from_checkpoint(checkpoint)
        except LakelogError as error:
            self.problems.append(str(error))
            return
        changed = any(CHANGED in problem for problem in self.problems)
        remedy = (
            "restore the commit that is named here, too; if it still differs then, delete the checkpoint"
            if changed
            else f"delete checkpoint {version} and _last_checkpoint: gateways make the next one"
        )
        now, begun = self.snapshot, self.begun_ms
        said = [
            *check_rows(data, checkpoint),
            *check_table((now.protocol, written.protocol), (now.metadata, written.metadata)),
            *check_txns(now.txns, written.txns, begun, made_ms, _kept_ms(now)),
            *check_removes(now.tombstones, written.tombstones, begun, made_ms),
        ]
        self.problems += [
            f"checkpoint {version} differs from the commits before it: {each}; {remedy}" for each in said
        ]
        for each in check_segments(now.segments, written.segments, self._culprit, remedy):
            self.problems.append(f"checkpoint {version} differs from the commits before it: {each}")

    def _culprit(self, due: Segment, found: Segment) -> str:
        """Which of two segments of one path the file is, and what to do."""
        version = self.added.get(due.path)
        commit = "the checkpoint before" if version is None else f"version {version}"
        wrong = [any(check_segment(self.store, self.directory, item)) for item in (due, found)]
        if wrong == [True, False]:
            return (
                f"the file is what the checkpoint says, so {commit} was changed; restore that from a backup"
            )
        if wrong == [False, True]:
            of = self.snapshot.version
            return f"the file is what {commit} says; delete checkpoint {of} and _last_checkpoint"
        return f"one of the two was changed; compare {commit} with a backup, else delete the checkpoint"


def _kept_ms(snapshot: Snapshot) -> int:
    found = _SECONDS.fullmatch(snapshot.metadata.configuration.get(TRANSACTION_RETENTION, ""))
    return _DAY_MS if found is None else int(found[1]) * 1000


def replay(store: Store, directory: str, deep: bool = True) -> LogReplay | None:
    """The log of the table at `directory`; None without a table. Commits and checkpoints are checked if
    `deep`.

    Raises Damaged where nothing can be read, UnsupportedTable, StoreUnavailable.
    """
    paths = [item.path for item in store.list(log_directory(directory) + "/")]
    commits = sorted(v for v in map(commit_version, paths) if v is not None)
    checkpoints = sorted(v for v in map(checkpoint_version, paths) if v is not None)
    found = _begun(store, directory, commits, checkpoints, deep)
    if found is None:
        return None
    while (data := read_data(store, directory, found.snapshot.version + 1)) is not None:
        commit = decode_commit(data, commit_path(directory, found.snapshot.version + 1))
        try:
            found.take(commit, data, deep)
        except Damaged as error:
            found.problems.append(str(error))
            return found
        if deep and found.snapshot.version in checkpoints:
            found.check_checkpoint()
    beyond = [version for version in commits if version > found.snapshot.version]
    if beyond:
        found.problems.append(
            f"version {found.snapshot.version + 1} is missing, though version {beyond[0]} is there; restore "
            "the file"
        )
    return found


def _begun(
    store: Store, directory: str, commits: list[int], checkpoints: list[int], deep: bool
) -> LogReplay | None:
    """The oldest version from which all later commits exist; without one, the version that lacks the fewest.

    A checkpoint whose own commit is gone may have been written late, and the commit after it be that of a
    fenced leader: another one is taken if there is any. Raises CorruptLog when there are commits and nothing
    to begin from.
    """
    first, known = commits[-1] if commits else -1, set(commits)
    while first - 1 in known:
        first -= 1
    usable = [version for version in checkpoints if version >= first]
    usable = usable or [version for version in checkpoints if version == first - 1]
    if first == 0 or (not usable and 0 in commits):
        data = read_data(store, directory, 0)
        if data is None:
            return None
        commit = decode_commit(data, commit_path(directory, 0))
        found = LogReplay(store, directory, first_snapshot(commit, directory))
        check_supported(directory, found.snapshot)
        if deep:
            found.begin(commit, data)
            if 0 in checkpoints:
                found.check_checkpoint()
        return found
    usable = usable or checkpoints[-1:]
    if not usable:
        if commits:
            raise CorruptLog(
                f"version 0 of {directory} is missing, though version {commits[0]} is there; restore the file"
            )
        return None
    path = checkpoint_path(directory, usable[0])
    checkpoint = decode_checkpoint(data := store.get(path), usable[0], directory)
    found = LogReplay(store, directory, from_checkpoint(checkpoint), store.head(path).modified_ms)
    check_supported(directory, found.snapshot)
    if deep:
        found.begin(None, b"")
        found.problems += (f"checkpoint {usable[0]}: {each}" for each in check_rows(data, checkpoint))
    return found


def _check_sequences(version: int, commit: Commit, producers: dict[int, tuple[int, int]]) -> Iterator[str]:
    """The sequences of every idempotent producer are contiguous within an epoch (KIP-98).

    A producer that was forgotten begins again at 0, in any epoch.
    """
    for made in commit.info.producers:
        epoch, expected = producers.get(made.id, (made.epoch, made.sequence))
        if made.epoch < epoch and made.sequence != 0:
            yield f"version {version} has producer {made.id} at epoch {made.epoch}, after epoch {epoch}"
        if made.epoch == epoch and made.sequence not in (expected, 0):
            yield f"version {version} has producer {made.id} at sequence {made.sequence}, {expected} is next"
        producers[made.id] = (made.epoch, (made.sequence + made.count) % SEQUENCE_MODULUS)
