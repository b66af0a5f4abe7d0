"""The check of the table over a topic: it is a fold of the partitions' tables at the versions that it
notes.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from hashlib import blake2b

from log_tables.errors import CorruptLog, Damaged, LakelogError, ObjectMissing
from log_tables.layout import (
    PARTITION,
    PROPERTY_CLUSTER,
    TXN_HIGH_WATERMARK,
    checkpoint_path,
    checkpoint_version,
    commit_path,
    commit_version,
    log_directory,
    partition_directory,
)
from log_tables.root.checkpoint_replay import (
    check_removes,
    check_rows,
    check_segments,
    check_table,
    check_txns,
)
from log_tables.root.commit_replay import CHANGED, check_info, check_shape
from log_tables.root.fold_commit import check_commit, own
from log_tables.root.table_metadata import check_schema
from log_tables.store.store import Store
from log_tables.table.checkpoint import decode as decode_checkpoint
from log_tables.table.commit import Commit, Metadata, read_commit, read_data
from log_tables.table.commit import decode as decode_commit
from log_tables.table.invariant import is_ours
from log_tables.table.snapshot import Segment, segment_of
from log_tables.table.tombstones import Tombstones
from log_tables.topic_table.topic_snapshot import (
    TopicSnapshot,
    check_supported,
    first_folded,
    from_checkpoint,
    noted_txn,
    partition_of,
)
from log_tables.topic_table.topic_table import REFOLD, classify_fold, properties

_REMEDY = "make the table again with `lakelog root refold`"

_Added = tuple[str, Segment, int]
"""The name of a file of a partition, what the table says of it, and at which version it was added."""


@dataclass(slots=True)
class _Replay:
    """The table over a topic as its log gives it, version by version.

    `files` is a number for the set of files of each partition: the sum, modulo 2, of hashes of their names.
    `noted` has what the table had of a partition when it noted a version of it: the version, `files`, the
    end, and its own version. `added` has every file that it added, by partition and name, and the version.
    """

    state: TopicSnapshot
    files: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    noted: dict[int, list[tuple[int, int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    added: dict[tuple[int, str], tuple[Segment, int]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    begun_ms: int | None = None


def check_remote_fold(store: Store, directory: str, count: int, cluster_id: str) -> Iterator[str]:
    """`check_fold` in the remote root of a cluster, where the next run of jobs makes a table that
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
    added = defaultdict[int, list[_Added]](list)
    for (number, name), (segment, at) in found.added.items():
        added[number].append((name, segment, at))
    if found.state.cluster != cluster_id:
        yield f"it is of cluster {found.state.cluster}, not of {cluster_id}; set another remote root"
    for number in sorted({*range(count), *found.state.segments}):
        if number >= count:
            yield f"it has files of partition {number}, which the topic does not have"
            continue
        yield from _compare(store, partition_directory(directory, number), number, found, added[number])


def _changed_properties(metadata: Metadata) -> Iterator[str]:
    for name, value in properties().items():
        now = metadata.configuration.get(name)
        if now != value:
            yield (
                f"the table property {name} is {now!r}, not {value!r}: another tool's VACUUM or checkpoint "
                f"may delete files; {_REMEDY}"
            )
    for name in sorted({*metadata.configuration} - {*properties(), PROPERTY_CLUSTER}):
        yield f"it has the table property {name}, which lakelog does not set; {_REMEDY}"
    if metadata.partitionColumns != (PARTITION,):
        yield f"its partition columns are {metadata.partitionColumns}; {_REMEDY}"
    yield from (f"{problem}; {_REMEDY}" for problem in check_schema(metadata.schemaString, partitioned=True))


def _compare(store: Store, directory: str, number: int, found: _Replay, added: list[_Added]) -> Iterator[str]:
    """The differences between what the table noted of a partition and what that partition's log says."""
    try:
        history = _history(store, directory)
    except LakelogError:
        return  # the check of the partition says so
    for version, files, end, at in found.noted[number]:
        had_files, had_end = history.at.get(version, (files, end))
        if version > history.newest:
            yield f"version {at} notes version {version} of {directory}, which ends at {history.newest}"
        elif had_files != files:
            yield f"version {at} has other files than {directory} has at its version {version}"
        elif had_end != end:
            yield (
                f"version {at} says that {directory} is folded up to offset {end}, and its version {version} "
                f"ends at {had_end}; {_REMEDY}"
            )
    yield from _other_stats(added, directory, history)
    missing = [segment for segment in found.state.of(number) if not _is_there(store, directory, segment.path)]
    if missing:
        # The table may be in use, and let go of files.
        later = _replay(store, directory.rsplit("/", 1)[0])
        now = (found if later is None else later).state.of(number)
        for segment in missing:
            if segment in now:
                yield f"it names {directory}/{segment.path}, which is missing; restore it from a backup"


def _other_stats(added: list[_Added], directory: str, history: "_History") -> Iterator[str]:
    """The files of which the table says something else than their partition does, or did before a restore:
    that may change the modification time of a file that the table has had all along.
    """
    for name, segment, at in added:
        said = history.files.get(name)
        if said is not None and segment not in said:
            due = said[-1]
            each = next(
                each for each in due.__struct_fields__ if getattr(due, each) != getattr(segment, each)
            )
            yield (
                f"version {at} says of {directory}/{name} that {each} is {getattr(segment, each)}, and the "
                f"partition's log {getattr(due, each)}: other programs may skip its records; {_REMEDY}"
            )


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
    replay.problems += _changed_properties(start.metadata)
    if start.version == 0 and 0 in commits:
        replay.problems += _first(store.get(commit_path(directory, 0)))
    if start.version not in commits or start.version > 0:
        replay.begun_ms = store.head(checkpoint_path(directory, start.version)).modified_ms
    for number, segments in start.segments.items():
        for segment in segments:
            replay.files[number] ^= _hash(segment.path)
            replay.added[number, segment.path] = segment, start.version
    while (data := read_data(store, directory, replay.state.version + 1)) is not None:
        try:
            commit = decode_commit(data, commit_path(directory, replay.state.version + 1))
            classify_fold(directory, replay.state, commit)
        except Damaged as error:
            later = _refolded(store, directory, [at for at in checkpoints if at > replay.state.version])
            if later is not None:
                return later
            replay.problems.append(str(error))
            break
        before = replay.state
        _follow(replay, commit)
        replay.problems += _changed(before, commit, data)
        if replay.state.version in checkpoints:
            replay.problems += _check_checkpoint(store, directory, replay)
    return replay


def _first(data: bytes) -> Iterator[str]:
    """The problems of version 0."""
    commit = decode_commit(data, "version 0")
    said = [*check_shape(data), *check_info(commit.info)]
    if commit.info.operation != "CREATE TABLE" or not is_ours(commit):
        said.append(f"it is the first, and is {commit.info.operation!r} of {commit.info.engineInfo!r}")
    yield from (f"version 0 {CHANGED}: {each}; {_REMEDY}" for each in said)


def _changed(before: TopicSnapshot, commit: Commit, data: bytes) -> Iterator[str]:
    version = f"version {before.version + 1} ({commit.info.operation})"
    for each in (*check_shape(data), *check_commit(before, commit)) if is_ours(commit) else ():
        yield f"{version} {CHANGED}: {each}; {_REMEDY}"
    if commit.metadata is not None:
        yield from _changed_properties(commit.metadata)


def _check_checkpoint(store: Store, directory: str, replay: _Replay) -> Iterator[str]:
    path, now = checkpoint_path(directory, replay.state.version), replay.state
    data, made_ms = store.get(path), store.head(path).modified_ms
    checkpoint = decode_checkpoint(data, now.version, directory)
    written = from_checkpoint(checkpoint)
    said = [
        *check_rows(data, checkpoint),
        *check_table((now.protocol, written.protocol), (now.metadata, written.metadata)),
        *check_txns(now.txns, written.txns, replay.begun_ms, made_ms, 0),
        *check_removes(now.tombstones, written.tombstones, replay.begun_ms, made_ms),
    ]
    said = [f"{each}; {_REMEDY}" for each in said]
    for number in sorted({*now.segments, *written.segments}):
        said += check_segments(now.of(number), written.of(number), lambda *_: _REMEDY, _REMEDY)
    for each in said:
        yield f"checkpoint {now.version} differs from the commits before it: {each}"


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
        # It was begun again, maybe because a partition was restored as it was before: readers begin here.
        replay.noted.clear()
        replay.added.clear()
        replay.problems.clear()
    replay.state = replay.state.apply(commit)
    if commit.info.operation == REFOLD:
        # Its checkpoint, where our processes open the table, has no removed files; those that follow may.
        replay.state = replace(replay.state, tombstones=Tombstones())
        replay.begun_ms = max(replay.begun_ms or 0, commit.info.timestamp + 1)
    for path in _paths(commit):
        number, name = partition_of(path)
        replay.files[number] ^= _hash(name)
    for add in commit.adds:
        replay.added[partition_of(add.path)] = segment_of(own(add)), replay.state.version
    if commit.metadata is not None:
        return  # the table was re-created
    said = {txn.app_id: txn.version for txn in commit.txns}
    for number in replay.state.segments:
        version = said.get(noted_txn(number))
        if version is not None:
            end = replay.state.end(number)
            replay.noted[number].append((version, replay.files[number], end, replay.state.version))


@dataclass(slots=True)
class _History:
    """The log of a partition from a checkpoint on, up to the version `newest`.

    `at` has a number for its set of files, and its high watermark, at each version; `files` all that it had,
    each as it was added, again and again if it was restored.
    """

    newest: int = -1
    at: dict[int, tuple[int, int]] = field(default_factory=dict)
    files: defaultdict[str, list[Segment]] = field(default_factory=lambda: defaultdict(list))


def _history(store: Store, directory: str) -> _History:
    """The log of the partition at `directory`. Raises Damaged."""
    paths = [item.path for item in store.list(log_directory(directory) + "/")]
    checkpoints = sorted(v for v in map(checkpoint_version, paths) if v is not None)
    commits = sorted(v for v in map(commit_version, paths) if v is not None)
    version, files, end, found = -1, 0, 0, _History()
    if commits and commits[0] != 0:
        usable = [v for v in checkpoints if v >= commits[0] - 1]
        if not usable:
            return _History(commits[-1])
        version = usable[0]
        made = decode_checkpoint(store.get(checkpoint_path(directory, version)), version, directory)
        end = made.txns[TXN_HIGH_WATERMARK].version
        for add in made.adds:
            files ^= _hash(add.path)
            found.files[add.path].append(segment_of(add))
    found.at[version] = files, end
    while (commit := read_commit(store, directory, version + 1)) is not None:
        version += 1
        for path in _paths(commit):
            files ^= _hash(path)
        for add in commit.adds:
            found.files[add.path].append(segment_of(add))
        end = next((txn.version for txn in commit.txns if txn.app_id == TXN_HIGH_WATERMARK), end)
        found.at[version] = files, end
    found.newest = version
    return found


def _paths(commit: Commit) -> list[str]:
    """The files that `commit` adds or removes: none both."""
    return [add.path for add in commit.adds] + [remove.path for remove in commit.removes]


def _hash(name: str) -> int:
    return int.from_bytes(blake2b(name.encode(), digest_size=16).digest())
