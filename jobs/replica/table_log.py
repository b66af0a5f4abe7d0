"""The log of one table, read from a root and put into its standby: the same bytes, in the same order."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from log_tables.clock import Clock
from log_tables.errors import AlreadyExists, Conflict, ObjectMissing
from log_tables.layout import (
    TXN_HIGH_WATERMARK,
    checkpoint_path,
    checkpoint_version,
    commit_path,
    commit_version,
    last_checkpoint_path,
    log_directory,
)
from log_tables.segments import segment as segments
from log_tables.store.store import Put, Store
from log_tables.table.checkpoint import LastCheckpoint
from log_tables.table.checkpoint import decode as decode_checkpoint
from log_tables.table.commit import Add, Commit, Txn, decode, put_commit, read_data
from log_tables.table.snapshot import segment_of

READ_COMMITS = 64
READ_BYTES = 8 * 1024 * 1024
"""The most commits, and bytes of their files, that are read of a table at once."""


class Diverged(Conflict):
    """The standby has a commit that its original has not."""


@dataclass(frozen=True, slots=True)
class ReadCommit:
    """A commit of the original: its bytes, its actions, and the small files that it adds, by name, which are
    not in the standby yet.
    """

    version: int
    data: bytes
    commit: Commit
    files: dict[str, bytes] = field(default_factory=dict)

    @property
    def high_watermark(self) -> int:
        """The high watermark that it sets; 0 if it sets none."""
        return high_watermark(self.commit.txns)

    @property
    def size(self) -> int:
        """The bytes of its log file and of the files that it adds."""
        return len(self.data) + sum(add.size for add in self.commit.adds)

    @property
    def held_bytes(self) -> int:
        """The bytes of its log file and of the files that it holds."""
        return len(self.data) + sum(map(len, self.files.values()))


def high_watermark(txns: Iterable[Txn]) -> int:
    return max((txn.version for txn in txns if txn.app_id == TXN_HIGH_WATERMARK), default=0)


@dataclass(frozen=True, slots=True)
class Base:
    """A table as of a checkpoint of the original, or of its first version, with all commits after it, so that
    what is before need not be read: `adds` are the files at the end. Without a checkpoint its bytes are None.
    `hint` is the original's `_last_checkpoint`, if it names the checkpoint.
    """

    first: int
    checkpoint: bytes | None
    commits: Sequence[tuple[int, bytes]]
    adds: Sequence[Add]
    txns: Sequence[Txn]
    hint: bytes | None = None

    @property
    def version(self) -> int:
        return self.commits[-1][0] if self.commits else self.first


def read_on(
    source: Store, directory: str, version: int, fetch: Callable[[Add], bytes | None]
) -> list[ReadCommit]:
    """The commits of a table from `version` on, a bounded number of them. `fetch` brings the file of an add
    over, or returns its bytes if it is small.

    Raises ObjectMissing when a file is gone, CorruptLog, CorruptSegment, StoreUnavailable.
    """
    found = list[ReadCommit]()
    while not is_cut_short(found):
        data = read_data(source, directory, version)
        if data is None:
            break
        commit = decode(data, commit_path(directory, version))
        files = {}
        for add in commit.adds:
            content = fetch(add)
            if content is not None:
                files[add.path] = content
        found.append(ReadCommit(version, data, commit, files))
        version += 1
    return found


def is_cut_short(found: Sequence[ReadCommit]) -> bool:
    """Whether there may be more commits than `read_on` has found, as it reads no more at once."""
    return len(found) >= READ_COMMITS or sum(read.size for read in found) >= READ_BYTES


def read_file(source: Store, directory: str, add: Add) -> bytes:
    """The bytes of the file of `add`, checked. Raises ObjectMissing, CorruptSegment."""
    data = source.get(f"{directory}/{add.path}")
    segments.check_file(data, directory, segment_of(add))
    return data


def read_base(source: Store, directory: str) -> Base | None:
    """A table as of its newest checkpoint; None without a table. Raises CorruptLog, StoreUnavailable."""
    while True:
        versions, begins = list[int](), list[int]()
        for item in source.list(f"{log_directory(directory)}/"):
            at, checkpoint = commit_version(item.path), checkpoint_version(item.path)
            versions += [] if at is None else [at]
            begins += [] if checkpoint is None else [checkpoint]
        if not begins and 0 not in versions:
            return None
        try:
            return _base(source, directory, max(begins, default=None))
        except ObjectMissing:
            continue  # the checkpoint was deleted since, so there is a newer one


def _base(source: Store, directory: str, at: int | None) -> Base:
    """Raises ObjectMissing."""
    live, txns = dict[str, Add](), dict[str, Txn]()
    data = None
    if at is not None:
        data = source.get(checkpoint_path(directory, at))
        checkpoint = decode_checkpoint(data, at, directory)
        live = {add.path: add for add in checkpoint.adds}
        txns = {txn.app_id: txn for txn in checkpoint.txns.values()}
    commits = list[tuple[int, bytes]]()
    version = first = 0 if at is None else at
    while True:
        content = read_data(source, directory, version)
        if content is None and version > first:
            break
        if content is not None:
            commits.append((version, content))
            if version > first or at is None:
                _apply(decode(content, commit_path(directory, version)), live, txns)
        version += 1
    hint = read_hint(source, directory)
    named = hint[1] if hint is not None and hint[0] == at else None
    return Base(first, data, commits, [*live.values()], [*txns.values()], named)


def read_hint(source: Store, directory: str) -> tuple[int, bytes] | None:
    """The version that `_last_checkpoint` names, and its bytes; None if it cannot be read."""
    try:
        data = source.get(last_checkpoint_path(directory))
        return msgspec.json.decode(data, type=LastCheckpoint).version, data
    except (ObjectMissing, msgspec.MsgspecError):
        return None


def _apply(commit: Commit, live: dict[str, Add], txns: dict[str, Txn]) -> None:
    for remove in commit.removes:
        live.pop(remove.path, None)
    live.update((add.path, add) for add in commit.adds)
    txns.update((txn.app_id, txn) for txn in commit.txns)


def put_read(target: Store, directory: str, read: ReadCommit, clock: Clock) -> None:
    """Put a commit with the files that it holds. Raises Diverged, and as `put_commit`."""
    files = [*read.files.items()]
    for path, data in files[1:]:
        target.put(f"{directory}/{path}", data)
    if not files:
        put_same(target, directory, read.version, read.commit, read.data, clock)
        return
    path, data = f"{directory}/{files[0][0]}", files[0][1]
    try:
        with target.put_new_before(path, data) as put:
            found = put_commit(target, directory, read.version, read.commit, clock, put, read.data)
    except AlreadyExists:  # this was interrupted before, and the file may be a part of one
        target.put(path, data)
        found = put_commit(target, directory, read.version, read.commit, clock, data=read.data)
    _check_same(directory, read.version, found, read.commit)


def put_of(directory: str, read: ReadCommit) -> Put:
    """A commit with the files that it holds, to be put with others."""
    files = [(f"{directory}/{path}", data) for path, data in read.files.items()]
    return Put(commit_path(directory, read.version), read.data, files)


def put_same(target: Store, directory: str, version: int, commit: Commit, data: bytes, clock: Clock) -> None:
    """Put the bytes of a commit, or find them there. Raises Diverged, and as `put_commit`."""
    found = put_commit(target, directory, version, commit, clock, data=data)
    _check_same(directory, version, found, commit)


def _check_same(directory: str, version: int, found: Commit | None, commit: Commit) -> None:
    if found is not None and found != commit:
        raise diverged(directory, version)


def diverged(directory: str, version: int) -> Diverged:
    return Diverged(
        f"version {version} of {directory} in the standby is not that of the original: the standby was "
        "promoted, or somebody else writes to it; if it was not promoted, replicate to an empty directory"
    )


def put_base(target: Store, directory: str, base: Base, clock: Clock) -> None:
    """Let the log of a table begin at `base`, whose files are there. Older versions go.

    Raises Diverged, and what the store raises.
    """
    if base.checkpoint is not None:
        target.put(checkpoint_path(directory, base.first), base.checkpoint)
    for version, data in base.commits:
        put_same(target, directory, version, decode(data, commit_path(directory, version)), data, clock)
    if base.checkpoint is not None:
        if base.hint is not None:
            target.put(last_checkpoint_path(directory), base.hint)
        delete_before(target, directory, base.first)


def copy_checkpoint(source: Store, target: Store, directory: str, known: int, version: int) -> int:
    """Copy the newest checkpoint of the original, if it is newer than `known` and the standby has its
    version; returns the newest that is known now.
    """
    hint = read_hint(source, directory)
    if hint is None or not known < hint[0] <= version:
        return known
    try:
        data = source.get(checkpoint_path(directory, hint[0]))
    except ObjectMissing:
        return known  # there is a newer one
    target.put(checkpoint_path(directory, hint[0]), data)
    target.put(last_checkpoint_path(directory), hint[1])
    return hint[0]


def delete_before(target: Store, directory: str, first: int) -> None:
    """Delete the log before version `first`, the oldest first, as a reader goes on from what it finds."""
    target.make_durable(log_directory(directory))
    for path in log_before(target, directory, first):
        target.delete(path)


def first_version(store: Store, directory: str) -> int:
    """The oldest version of which the log of a table has a commit or a checkpoint; 0 without any."""
    for item in store.list(f"{log_directory(directory)}/"):
        version = commit_version(item.path)
        version = checkpoint_version(item.path) if version is None else version
        if version is not None:
            return version
    return 0


def goes_on(store: Store, directory: str, version: int) -> bool:
    """Whether a table's log can be read on from `version`, which it has not, or not yet."""
    newest = max(
        (commit_version(item.path) or 0 for item in store.list(f"{log_directory(directory)}/")), default=0
    )
    return newest < version or read_data(store, directory, version) is not None


def log_before(store: Store, directory: str, first: int) -> Iterator[str]:
    """The files of the log of versions before `first`, the oldest first."""
    for item in [*store.list(f"{log_directory(directory)}/")]:
        version = commit_version(item.path)
        version = checkpoint_version(item.path) if version is None else version
        if version is not None and version < first:
            yield item.path
