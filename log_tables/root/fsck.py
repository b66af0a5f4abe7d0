"""Check every invariant of a root from its files alone, offline: what `lakelog fsck` prints.

Nothing is trusted: the log is replayed from its oldest readable version, each checkpoint on the way is
compared with the replay, and every segment is read and compared with its stats.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from log_tables.cluster.credential_log import decode as decode_credential
from log_tables.cluster.group_log import Key, Value
from log_tables.cluster.group_log import decode as decode_group
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.metadata_log import decode as decode_record
from log_tables.cluster.root_format import check_format, check_not_old
from log_tables.cluster.root_location import check_finished
from log_tables.cluster.topic import is_internal
from log_tables.errors import CorruptLog, Damaged, InvalidArgument, LakelogError
from log_tables.layout import (
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    METADATA_DIRECTORY,
    PROPERTY_REMOTE_ROOT,
    TOPICS,
    checkpoint_path,
    checkpoint_version,
    commit_version,
    log_directory,
    partition_directory,
    segment_base_offset,
    topic_directory,
)
from log_tables.limits import SEQUENCE_MODULUS
from log_tables.root import kept_producers
from log_tables.root.fold_replay import check_fold, check_remote_fold
from log_tables.root.group_replay import GroupReplay, records
from log_tables.root.inspection import lost_files
from log_tables.root.segment_replay import check_segment
from log_tables.store.store import Store, open_store
from log_tables.table.checkpoint import Checkpoint
from log_tables.table.checkpoint import decode as decode_checkpoint
from log_tables.table.commit import Commit, read_commit
from log_tables.table.invariant import broken_state, followed, gaps
from log_tables.table.snapshot import Segment, Snapshot, check_supported, first_snapshot, from_checkpoint


@dataclass(slots=True)
class PartitionReport:
    """The result for one table. `unreferenced` counts segment files that are not part of its newest version:
    they are harmless, and a vacuum deletes them.
    """

    directory: str
    version: int = -1
    segments: int = 0
    records: int = 0
    log_start: int = 0
    high_watermark: int = 0
    leader_epoch: int = 0
    unreferenced: int = 0
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Report:
    """The result for a root, which is sound when `problems` is empty. `deep` says whether declared columns
    are derived once more.
    """

    partitions: list[PartitionReport] = field(default_factory=list)
    root_problems: list[str] = field(default_factory=list)
    deep: bool = False

    @property
    def problems(self) -> list[str]:
        """Every problem, with the table that has it."""
        return self.root_problems + [f"{p.directory}: {text}" for p in self.partitions for text in p.problems]

    def as_dict(self) -> dict[str, object]:
        return {
            "sound": not self.problems,
            "problems": self.problems,
            "partitions": [asdict(partition) for partition in self.partitions],
        }


def check(store: Store, deep: bool = False) -> Report:
    """Check the root of `store`; with `deep`, derive all declared columns once more, and compare.

    Raises InvalidArgument when there is no lakelog data, UnsupportedTable for a root of another format.
    """
    if not any(True for _ in store.list(f"{TOPICS}/")):
        raise InvalidArgument(f"there is no lakelog data at {store.url}; name the root that a gateway serves")
    check_not_old(store)
    report = Report(deep=deep)
    try:
        check_finished(store)
    except CorruptLog as error:
        report.root_problems.append(error.message)
    named = _checked(store, METADATA_DIRECTORY, report)
    if named is not None:
        check_format(named)
    remote = None if named is None else _remote_store(store, named, report)
    producers: dict[str, kept_producers.States] = {}
    topics = _topics(store, named, report)
    directories = [
        partition_directory(topic_directory(topic.name, topic.incarnation), partition)
        for topic in topics
        for partition in range(topic.partitions)
    ]
    groups = [each for each in directories if each.startswith(f"{topic_directory(CONSUMER_OFFSETS)}/")]
    staged = _staged(store, groups)
    for directory in directories:
        here = _checked(store, directory, report)
        if here is not None and here.deleted:
            report.partitions[-1].problems.append(
                "it says that its topic was deleted, and the metadata log says that it exists; restore both "
                "from the same time"
            )
        if here is not None:
            producers[directory] = kept_producers.producers(here)
        if here is not None and remote is not None and named is not None:
            _check_remote(remote, directory, here, named.metadata.id, report)
    for topic in topics:
        if not is_internal(topic.name):
            report.root_problems += _check_folds(store, remote, topic, named)
    _check_producers(store, groups, producers, report)
    _check_credentials(store, report)
    report.root_problems += lost_files(store, staged, lambda: _staged(store, groups))
    return report


def check_topic(store: Store, name: str, partition: int | None = None, deep: bool = False) -> Report:
    """Check the tables of one topic, or of one `partition` of it; `deep` as in `check`.

    The rest of the root is left out: the metadata log, from which only the topic is read; groups and
    credentials; and whether the producers of its partitions are those of groups. Raises InvalidArgument when
    there is no such topic or partition, CorruptLog when the metadata log cannot be read.
    """
    report = Report(deep=deep)
    named = _replay(store, METADATA_DIRECTORY, PartitionReport(METADATA_DIRECTORY))
    topic = next((topic for topic in _topics(store, named, report) if topic.name == name), None)
    if named is None or report.root_problems:
        raise CorruptLog("the metadata log of this root cannot be read; run `lakelog fsck` without a topic")
    check_format(named)
    if topic is None:
        raise InvalidArgument(f"there is no topic {name!r}; list them with `lakelog topic list`")
    if partition is not None and not 0 <= partition < topic.partitions:
        raise InvalidArgument(
            f"topic {name} has no partition {partition}; it has 0 to {topic.partitions - 1}"
        )
    remote = _remote_store(store, named, report)
    for number in range(topic.partitions) if partition is None else (partition,):
        directory = partition_directory(topic_directory(topic.name, topic.incarnation), number)
        here = _checked(store, directory, report)
        if here is not None and remote is not None:
            _check_remote(remote, directory, here, named.metadata.id, report)
    if partition is None and not is_internal(topic.name):
        report.root_problems += _check_folds(store, remote, topic, named)
    return report


def _check_folds(
    store: Store, remote: Store | None, topic: TopicRecord, named: Snapshot | None
) -> Iterator[str]:
    """The problems of the tables over a topic, in the root and in the remote one."""
    directory = topic_directory(topic.name, topic.incarnation)
    for problem in check_fold(store, directory, topic.partitions):
        yield f"the table over {directory}: {problem}"
    if remote is not None and named is not None:
        for problem in check_remote_fold(remote, directory, topic.partitions, named.metadata.id):
            yield f"the table over {directory} (remote): {problem}"


def _staged(store: Store, directories: Iterable[str]) -> GroupReplay:
    """The groups, as far as they can be read."""
    groups = GroupReplay()
    try:
        for directory in directories:
            snapshot = _replay(store, directory, PartitionReport(directory))
            if snapshot is not None:
                groups.follow(store, directory, snapshot)
    except LakelogError:  # `_check_producers` says so
        return GroupReplay()
    return groups


def _check_producers(
    store: Store, groups: list[str], producers: Mapping[str, kept_producers.States], report: Report
) -> None:
    """Compare the groups' producers in partitions with those that the groups name, which are read later."""
    try:
        heard = kept_producers.heard(pair for directory in groups for pair in _said(store, directory))
    except LakelogError as error:
        report.root_problems.append(f"the log of consumer groups cannot be read: {error}")
        return
    report.root_problems += kept_producers.shared(heard)
    for partition in report.partitions:
        partition.problems += kept_producers.misused(heard, producers.get(partition.directory, {}))


def _check_credentials(store: Store, report: Report) -> None:
    """Check the log of credentials, if there is one, and that all of its records can be read."""
    try:
        if not any(True for _ in store.list(f"{CREDENTIALS_DIRECTORY}/")):
            return
        snapshot = _checked(store, CREDENTIALS_DIRECTORY, report)
        for record in () if snapshot is None else records(store, CREDENTIALS_DIRECTORY, snapshot):
            decode_credential(record)
    except LakelogError as error:
        report.root_problems.append(f"the log of credentials cannot be read: {error}")


def _said(store: Store, directory: str) -> Iterator[tuple[Key, Value | None]]:
    """The records of a partition of `__consumer_offsets`, in order."""
    snapshot = _replay(store, directory, PartitionReport(directory))
    if snapshot is None:
        return
    for record in records(store, directory, snapshot):
        yield decode_group(record, directory)


def _remote_store(store: Store, named: Snapshot, report: Report) -> Store | None:
    """The remote root that the metadata log names."""
    url = named.metadata.configuration.get(PROPERTY_REMOTE_ROOT)
    if url is None:
        return None
    try:
        return open_store(url, store.options, create=False)
    except LakelogError as error:
        report.root_problems.append(f"the remote root cannot be opened: {error}")
        return None


def _topics(store: Store, snapshot: Snapshot | None, report: Report) -> list[TopicRecord]:
    """Every live topic, by the metadata log."""
    latest: dict[str, TopicRecord] = {}
    try:
        for record in () if snapshot is None else records(store, METADATA_DIRECTORY, snapshot):
            found = decode_record(record)
            if isinstance(found, TopicRecord):
                latest[found.name] = found
    except LakelogError as error:
        report.root_problems.append(f"the metadata log cannot be read: {error}")
    return [topic for _, topic in sorted(latest.items()) if topic.live]


def check_partition(store: Store, directory: str, deep: bool = False) -> PartitionReport:
    """Check the table at `directory`, without its remote table; `deep` as in `check`."""
    report = Report(deep=deep)
    _checked(store, directory, report)
    return report.partitions[0]


def _checked(store: Store, directory: str, report: Report) -> Snapshot | None:
    """Check the table at `directory`, and that it has all offsets from its border on; None if it is
    unreadable.
    """
    found = PartitionReport(directory)
    report.partitions.append(found)
    snapshot = _check_table(store, directory, found, report.deep)
    if snapshot is not None:
        begin = max(snapshot.log_start, snapshot.cleaned, snapshot.tiered)
        found.problems += gaps(snapshot, begin, snapshot.high_watermark)
    return snapshot


def _check_table(store: Store, directory: str, report: PartitionReport, deep: bool) -> Snapshot | None:
    try:
        snapshot = _replay(store, directory, report)
    except LakelogError as error:
        report.problems.append(str(error))
        return None
    if snapshot is None:
        report.problems.append(
            "there is no table, though the metadata log names it; restore it from a backup"
        )
        return None
    report.version, report.segments = snapshot.version, len(snapshot.segments)
    report.log_start, report.high_watermark = snapshot.log_start, snapshot.high_watermark
    report.leader_epoch = snapshot.leader_epoch
    report.problems += broken_state(snapshot)
    problems = {}
    for segment in snapshot.segments:
        report.records += segment.records
        declared = snapshot.declared if deep else None
        problems[segment] = [*check_segment(store, directory, segment, declared)]
    report.problems += _lasting(store, directory, problems)
    live = {segment.path for segment in snapshot.segments}
    report.unreferenced = sum(
        segment_base_offset(item.path) is not None and item.path.rsplit("/", 1)[-1] not in live
        for item in store.list(f"{directory}/")
    )
    return snapshot


def _lasting(store: Store, directory: str, problems: Mapping[Segment, Sequence[str]]) -> Iterator[str]:
    """The problems of segments that are still in the table: it may be in use, and the check take hours."""
    if any(problems.values()):
        now = _replay(store, directory, PartitionReport(directory))
        live = set() if now is None else {segment.path for segment in now.segments}
        for segment, said in problems.items():
            yield from said if segment.path in live else ()


def _check_remote(store: Store, directory: str, here: Snapshot, cluster_id: str, report: Report) -> None:
    """Check the remote table of a partition, and that it has all offsets up to the local one."""
    needed = here.tiered > here.log_start
    if not needed and not any(True for _ in store.list(log_directory(directory) + "/")):
        return
    found = PartitionReport(f"{directory} (remote)")
    report.partitions.append(found)
    there = _check_table(store, directory, found, report.deep)
    if there is None:
        return
    if there.cluster != cluster_id:
        found.problems.append(
            f"it is of cluster {there.cluster}, not of {cluster_id}; set another remote root"
        )
    if needed:
        # Offsets that retention has removed since `here` was read are not missing.
        found.problems += gaps(there, max(here.log_start, here.cleaned, there.log_start), here.tiered)


def _replay(store: Store, directory: str, report: PartitionReport) -> Snapshot | None:
    """The newest snapshot, by all commits; violations become problems. None without a table."""
    paths = [item.path for item in store.list(log_directory(directory) + "/")]
    commits = sorted(v for v in map(commit_version, paths) if v is not None)
    checkpoints = sorted(v for v in map(checkpoint_version, paths) if v is not None)
    snapshot = _oldest(store, directory, commits, checkpoints)
    if snapshot is None:
        return None
    check_supported(directory, snapshot)
    producers: dict[int, tuple[int, int]] = {}
    while (commit := read_commit(store, directory, snapshot.version + 1)) is not None:
        try:
            snapshot, _ = followed(directory, snapshot, commit)
        except Damaged as error:
            report.problems.append(str(error))
            return snapshot
        report.problems += _check_sequences(snapshot.version, commit, producers)
        if snapshot.version in checkpoints:
            report.problems += _check_checkpoint(store, directory, snapshot)
    beyond = [version for version in commits if version > snapshot.version]
    if beyond:
        report.problems.append(
            f"version {snapshot.version + 1} is missing, though version {beyond[0]} is there; restore "
            "the file"
        )
    return snapshot


def _oldest(store: Store, directory: str, commits: list[int], checkpoints: list[int]) -> Snapshot | None:
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
        commit = read_commit(store, directory, 0)
        return None if commit is None else first_snapshot(commit, directory)
    usable = usable or checkpoints[-1:]
    if not usable:
        if commits:
            raise CorruptLog(
                f"version 0 of {directory} is missing, though version {commits[0]} is there; restore the file"
            )
        return None
    return from_checkpoint(_read_checkpoint(store, directory, usable[0]))


def _read_checkpoint(store: Store, directory: str, version: int) -> Checkpoint:
    return decode_checkpoint(store.get(checkpoint_path(directory, version)), version, directory)


def _check_checkpoint(store: Store, directory: str, replayed: Snapshot) -> Iterator[str]:
    try:
        written = from_checkpoint(_read_checkpoint(store, directory, replayed.version))
    except LakelogError as error:
        yield str(error)
        return
    kept = replayed.txns.lasting()
    if written.segments != replayed.segments or any(written.txns.get(txn.app_id) != txn for txn in kept):
        yield f"checkpoint {replayed.version} differs from the commits before it; delete it"


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
