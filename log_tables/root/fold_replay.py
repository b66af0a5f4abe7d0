"""The check of the table over a topic: it is a fold of the partitions' tables at the versions that it
notes.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b

from log_tables.errors import CorruptLog, Damaged, LakelogError, ObjectMissing
from log_tables.layout import (
    checkpoint_path,
    checkpoint_version,
    commit_version,
    log_directory,
    partition_directory,
)
from log_tables.store.store import Store
from log_tables.table.checkpoint import decode as decode_checkpoint
from log_tables.table.commit import Commit, read_commit
from log_tables.table.invariant import is_ours
from log_tables.topic_table.topic_snapshot import (
    TopicSnapshot,
    check_supported,
    first_folded,
    from_checkpoint,
    noted_txn,
    partition_of,
)
from log_tables.topic_table.topic_table import classify_fold, properties


@dataclass(slots=True)
class _Replay:
    """The table over a topic as its log gives it, version by version.

    `files` is a number for the set of files of each partition: the sum, modulo 2, of hashes of their names.
    `noted` has what the table had of a partition when it noted a version of it.
    """

    state: TopicSnapshot
    files: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    noted: dict[int, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    problems: list[str] = field(default_factory=list)


def check_remote_fold(store: Store, directory: str, count: int, cluster_id: str) -> Iterator[str]:
    """The same as `check_fold` in the remote root of a cluster, where the next run of jobs makes a table that
    is not there.
    """
    if any(True for _ in store.list(f"{log_directory(directory)}/")):
        yield from check_fold(store, directory, count, cluster_id)


def check_fold(store: Store, directory: str, count: int, cluster_id: str | None = None) -> Iterator[str]:
    """The problems of the table over the topic at `directory`, which has `count` partitions.

    It is in the remote root of a cluster if `cluster_id` is given. It is read before the partitions, which go
    on meanwhile.
    """
    try:
        found = _replay(store, directory)
    except LakelogError as error:
        yield str(error)
        return
    if found is None:
        yield "there is no table over the topic; make it with `lakelog root refold`"
        return
    yield from found.problems
    yield from _changed_properties(found.state)
    if found.state.cluster != cluster_id:
        yield f"it is of cluster {found.state.cluster}, not of {cluster_id}; set another remote root"
    for number in sorted({*range(count), *found.state.segments}):
        if number >= count:
            yield f"it has files of partition {number}, which the topic does not have"
            continue
        yield from _compare(store, partition_directory(directory, number), number, found)


def _changed_properties(state: TopicSnapshot) -> Iterator[str]:
    for name, value in properties().items():
        now = state.metadata.configuration.get(name)
        if now != value:
            yield (
                f"the table property {name} is {now!r}, not {value!r}: another tool's VACUUM or checkpoint "
                "may delete files; make the table again with `lakelog root refold`"
            )


def _compare(store: Store, directory: str, number: int, found: _Replay) -> Iterator[str]:
    """The differences between what the table noted of a partition and what that partition's log says."""
    try:
        history, newest = _history(store, directory)
    except LakelogError:
        return  # the check of the partition says so
    for version, files, at in found.noted[number]:
        if version > newest:
            yield f"version {at} notes version {version} of {directory}, which ends at {newest}"
        elif history.get(version, files) != files:
            yield f"version {at} has other files than {directory} has at its version {version}"
    missing = [segment for segment in found.state.of(number) if not _is_there(store, directory, segment.path)]
    if missing:
        # The table may be in use, and let go of files.
        later = _replay(store, directory.rsplit("/", 1)[0])
        now = (found if later is None else later).state.of(number)
        for segment in missing:
            if segment in now:
                yield f"it names {directory}/{segment.path}, which is missing; restore it from a backup"


def _is_there(store: Store, directory: str, name: str) -> bool:
    try:
        store.head(f"{directory}/{name}")
    except ObjectMissing:
        return False
    return True


def _replay(store: Store, directory: str, start_at: int = 0) -> _Replay | None:
    """The log of the table from the oldest version that can be read, and not before `start_at`. None without
    a table.
    """
    paths = [item.path for item in store.list(log_directory(directory) + "/")]
    commits = sorted(v for v in map(commit_version, paths) if v is not None)
    checkpoints = sorted(v for v in map(checkpoint_version, paths) if v is not None)
    start = _oldest(store, directory, [at for at in commits if at >= start_at], checkpoints)
    if start is None:
        return None
    check_supported(directory, start)
    replay = _Replay(start)
    for number, segments in start.segments.items():
        for segment in segments:
            replay.files[number] ^= _hash(segment.path)
    while True:
        try:
            commit = read_commit(store, directory, replay.state.version + 1)
            if commit is None:
                break
            classify_fold(directory, replay.state, commit)
        except Damaged as error:
            later = _refolded(store, directory, [at for at in checkpoints if at > replay.state.version])
            if later is not None:
                return later
            replay.problems.append(str(error))
            break
        _follow(replay, commit)
        if replay.state.version in checkpoints:
            written = _checkpoint(store, directory, replay.state.version)
            if written.segments != {at: s for at, s in replay.state.segments.items() if s}:
                replay.problems.append(
                    f"checkpoint {replay.state.version} differs from the commits before it; delete it"
                )
    return replay


def _refolded(store: Store, directory: str, checkpoints: list[int]) -> _Replay | None:
    """The table from the first of `checkpoints` on at which a refold has begun it again."""
    for version in checkpoints:
        commit = read_commit(store, directory, version)
        if commit is not None and is_ours(commit) and commit.metadata is not None:
            return _replay(store, directory, version)
    return None


def _oldest(store: Store, directory: str, commits: list[int], checkpoints: list[int]) -> TopicSnapshot | None:
    """The oldest state from which all later commits exist."""
    first, known = commits[-1] if commits else -1, set(commits)
    while first - 1 in known:
        first -= 1
    if first == 0:
        commit = read_commit(store, directory, 0)
        return None if commit is None else first_folded(commit, directory)
    usable = [version for version in checkpoints if version >= first] or checkpoints[-1:]
    if commits and not usable:
        raise CorruptLog(
            f"version {first - 1} of {directory} is missing; make the table again with `lakelog root refold`"
        )
    return _checkpoint(store, directory, usable[0]) if usable else None


def _checkpoint(store: Store, directory: str, version: int) -> TopicSnapshot:
    path = checkpoint_path(directory, version)
    return from_checkpoint(decode_checkpoint(store.get(path), version, directory))


def _follow(replay: _Replay, commit: Commit) -> None:
    if commit.metadata is not None and commit.metadata.id != replay.state.metadata.id:
        replay.noted.clear()  # it was begun again, maybe because a partition was restored as it was before
    replay.state = replay.state.apply(commit)
    for path in _paths(commit):
        number, name = partition_of(path)
        replay.files[number] ^= _hash(name)
    if commit.metadata is not None:
        return  # the table was re-created
    said = {txn.app_id: txn.version for txn in commit.txns}
    for number in replay.state.segments:
        version = said.get(noted_txn(number))
        if version is not None:
            replay.noted[number].append((version, replay.files[number], replay.state.version))


def _history(store: Store, directory: str) -> tuple[dict[int, int], int]:
    """The set of files of a partition at each version of its log from a checkpoint on, and the newest."""
    paths = [item.path for item in store.list(log_directory(directory) + "/")]
    checkpoints = sorted(v for v in map(checkpoint_version, paths) if v is not None)
    commits = sorted(v for v in map(commit_version, paths) if v is not None)
    version, files = -1, 0
    if commits and commits[0] != 0:
        usable = [v for v in checkpoints if v >= commits[0] - 1]
        if not usable:
            return {}, commits[-1]
        version = usable[0]
        made = decode_checkpoint(store.get(checkpoint_path(directory, version)), version, directory)
        for add in made.adds:
            files ^= _hash(add.path)
    history = {version: files}
    while (commit := read_commit(store, directory, version + 1)) is not None:
        version += 1
        for path in _paths(commit):
            files ^= _hash(path)
        history[version] = files
    return history, version


def _paths(commit: Commit) -> list[str]:
    """The files that `commit` adds or removes: none both."""
    return [add.path for add in commit.adds] + [remove.path for remove in commit.removes]


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
