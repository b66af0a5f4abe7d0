"""Check every invariant of a root from its files alone, offline: what `lakelog fsck` prints.

Nothing is trusted: the log is replayed from its oldest readable version, each checkpoint on the way is
compared with the replay, and every segment is read and compared with its stats.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress

from log_tables.clock import SystemClock
from log_tables.cluster.admin.audit_spill import spill_problems
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.registry_topic import Follow
from log_tables.cluster.root_location import check_finished, check_format, check_not_old
from log_tables.cluster.schema_files import schema_problems
from log_tables.cluster.schema_sources import SchemaSources
from log_tables.cluster.standby import check_level, read_mark
from log_tables.cluster.topic import is_internal
from log_tables.errors import CorruptLog, InvalidArgument, LakelogError, UnknownTopic
from log_tables.layout import (
    AUDIT,
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    METADATA_DIRECTORY,
    PROPERTY_REMOTE_ROOT,
    TOPICS,
    partition_directory,
    topic_directory,
)
from log_tables.partition.reader import PartitionReader
from log_tables.record import Record
from log_tables.root.access_history import CredentialHistory, check_events
from log_tables.root.column_replay import ValueSchemas
from log_tables.root.fold_replay import check_fold, check_remote_fold
from log_tables.root.group_history import GroupHistory, GroupProducers, States, misused, producers_of, shared
from log_tables.root.group_replay import GroupReplay, records
from log_tables.root.inspection import lost_files
from log_tables.root.log_replay import replay
from log_tables.root.table_check import Report, check_remote, checked, declared_columns
from log_tables.root.table_metadata import check_settings
from log_tables.root.topic_history import TopicHistory
from log_tables.segments.producer_staging import files_of
from log_tables.segments.staging import is_whole, old_files
from log_tables.store.store import Store, open_store
from log_tables.table.snapshot import Snapshot

DELETION_MAX_MS = 10 * 60_000
"""A deletion that has not ended its logs after this time has died, or never was."""


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
        check_level(store)
    except CorruptLog as error:
        report.root_problems.append(error.message)
    named = checked(store, METADATA_DIRECTORY, report)
    if named is not None:
        check_format(named)
    remote = None if named is None else _remote_store(store, named, report)
    producers: dict[str, States] = {}
    ends: dict[tuple[str, str, int], int] = {}
    history = _history(store, named, report)
    topics = _live(history)
    report.root_problems += history.problems
    places = {
        partition_directory(topic.directory, partition): (topic, partition)
        for topic in topics
        for partition in range(topic.partitions)
    }
    report.schemas = _schemas(store, history, places)
    groups = [each for each in places if each.startswith(f"{topic_directory(CONSUMER_OFFSETS)}/")]
    staged = _staged(store, groups)
    for directory, (topic, number) in places.items():
        here = checked(store, directory, report)
        if here is None:
            _forget_deleted(store, history, topic, report)
            continue
        producers[directory] = producers_of(here)
        ends[topic.name, topic.topic_id, number] = here.high_watermark
        report.partitions[-1].problems += _unexplained(store, directory, history, topic, here)
        report.partitions[-1].problems += _unknown_epochs(store, named, here)
        if remote is not None and named is not None:
            check_remote(remote, directory, here, named.metadata.id, report)
    for topic in topics:
        if not is_internal(topic.name):
            report.root_problems += _check_folds(store, remote, topic, history, named)
    report.root_problems += _check_deletions(store, history)
    _check_groups(store, groups, history, ends, producers, report)
    _check_credentials(store, report)
    report.root_problems += schema_problems(store)
    report.root_problems += spill_problems(store)
    report.root_problems += lost_files(store, staged, lambda: _staged(store, groups), is_whole)
    _check_staging(store, len(groups), staged.staged(), report)
    return report


def _unknown_epochs(store: Store, metadata: Snapshot | None, here: Snapshot) -> Iterator[str]:
    """The log epochs of a table that are none of its root: a claim notes that of the metadata log."""
    unknown = set() if metadata is None else {*here.log_epochs.numbers()} - {*metadata.log_epochs.numbers()}
    now = replay(store, METADATA_DIRECTORY, deep=False) if unknown else None  # a root in use goes on
    if now is not None:
        for epoch in sorted(unknown - {*now.snapshot.log_epochs.numbers()}):
            yield f"it notes the log epoch {epoch}, which the metadata log does not have"


def _check_staging(store: Store, coordinators: int, named: Collection[str], report: Report) -> None:
    """The staged files whose transactions cannot be known, and those that no transaction can need."""
    for coordinator in range(coordinators):
        report.root_problems += (error.message for error in files_of(store, coordinator)[1])
    report.doubts += (
        f"the staged file {file.path} is older than a day, and no transaction needs it; `lakelog maintain` "
        "deletes it"
        for file in old_files(store)
        if file.path not in named
    )


def check_topic(store: Store, name: str, partition: int | None = None, deep: bool = False) -> Report:
    """Check the tables of one topic, or of one `partition` of it; `deep` as in `check`.

    The rest of the root is left out: the metadata log, from which only the topic is read; groups and
    credentials; and whether the producers of its partitions are those of groups. Raises InvalidArgument when
    there is no such topic or partition, CorruptLog when the metadata log cannot be read.
    """
    report = Report(deep=deep)
    log = replay(store, METADATA_DIRECTORY, deep=False)
    named = None if log is None else log.snapshot
    history = _history(store, named, report)
    topic = next((topic for topic in _live(history) if topic.name == name), None)
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
    numbers = range(topic.partitions) if partition is None else (partition,)
    places = {partition_directory(topic.directory, number): (topic, number) for number in numbers}
    report.schemas = _schemas(store, history, places)
    for directory in places:
        here = checked(store, directory, report)
        if here is not None and remote is not None:
            check_remote(remote, directory, here, named.metadata.id, report)
    if partition is None and not is_internal(topic.name):
        report.root_problems += _check_folds(store, remote, topic, history, named)
    return report


def _schemas(
    store: Store, history: TopicHistory, places: Mapping[str, tuple[TopicRecord, int]]
) -> dict[str, ValueSchemas]:
    """The schemas of the values in each of `places`, as they can be read in the root."""

    def follow(name: str) -> Follow:
        topic = history.latest.get(name)
        if topic is None or not topic.live:
            raise UnknownTopic(f"there is no topic {name!r}, of which other topics have their schemas")
        directory = partition_directory(topic.directory, 0)
        partition = PartitionReader(store, directory, SystemClock())
        return lambda act: act(partition)

    sources = SchemaSources(store, SystemClock(), follow)
    found = {}
    for directory, (topic, _) in places.items():
        with suppress(LakelogError):  # the check of the topic says so
            config = TopicConfig(topic.configs)
            found[directory] = ValueSchemas(sources.of(config.schema_source), config.encoding.schema)
    return found


def _now(store: Store, before: TopicHistory) -> TopicHistory:
    """The topics by the metadata log as it is now, which a root in use may have changed since `before` was
    read; `before` where it cannot be read.
    """
    try:
        found = replay(store, METADATA_DIRECTORY, deep=False)
    except LakelogError:
        return before
    unread = Report()
    history = _history(store, None if found is None else found.snapshot, unread)
    return before if found is None or unread.root_problems else history


def _still_live(now: TopicHistory, topic: TopicRecord) -> bool:
    known = now.latest.get(topic.name)
    return known is not None and known.live and known.incarnation == topic.incarnation


def _forget_deleted(store: Store, history: TopicHistory, topic: TopicRecord, report: Report) -> None:
    """Drop the newest partition of `report`, which cannot be read, if its topic was deleted meanwhile."""
    if not _still_live(_now(store, history), topic):
        report.partitions.pop()


def _unexplained(
    store: Store, directory: str, history: TopicHistory, topic: TopicRecord, here: Snapshot
) -> list[str]:
    """The problems by `_check_topic` that no change of the topic since `history` explains."""
    said = [*_check_topic(store, directory, history, topic, here)]
    if said:
        now = _now(store, history)
        live = _still_live(now, topic)
        return [*_check_topic(store, directory, now, now.latest[topic.name], here)] if live else []
    return said


def _check_folds(
    store: Store, remote: Store | None, topic: TopicRecord, history: TopicHistory, named: Snapshot | None
) -> list[str]:
    """The problems of the tables over a topic that neither its deletion nor its new partitions explain, which
    came after `history` was read.
    """
    said = [*_folds(store, remote, topic, named)]
    if said:
        now = _now(store, history)
        if not _still_live(now, topic):
            return []
        if now.latest[topic.name].partitions != topic.partitions:
            return [*_folds(store, remote, now.latest[topic.name], named)]
    return said


def _folds(store: Store, remote: Store | None, topic: TopicRecord, named: Snapshot | None) -> Iterator[str]:
    """The problems of the tables over a topic, in the root and in the remote one."""
    directory = topic.directory
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
            found = replay(store, directory, deep=False)
            if found is not None:
                groups.follow(store, directory, found.snapshot)
    except LakelogError:  # `_check_producers` says so
        return GroupReplay()
    return groups


def _check_groups(
    store: Store,
    directories: list[str],
    topics: TopicHistory,
    ends: Mapping[tuple[str, str, int], int],
    producers: Mapping[str, States],
    report: Report,
) -> None:
    """Check what the groups say, and compare their producers with those in partitions, which were read
    before. The topics are read again, for groups know those that were made meanwhile.
    """
    heard = GroupProducers()
    try:
        found = {directory: replay(store, directory, deep=False) for directory in directories}
        topics = _now(store, topics)
        for number, (directory, log) in enumerate(found.items()):
            if log is None:
                continue
            whole = log.snapshot.cleaned == log.snapshot.log_start == 0
            history = GroupHistory(directory, number, len(directories), whole, topics, ends)
            for record in records(store, directory, log.snapshot):
                heard.hear(*history.take(record))
            report.root_problems += history.problems
            history.ends = _ends_now(store, history)
            report.doubts += history.beyond()
    except LakelogError as error:
        report.root_problems.append(f"the log of consumer groups cannot be read: {error}")
        return
    report.root_problems += shared(heard)
    for partition in report.partitions:
        partition.problems += misused(heard, producers.get(partition.directory, {}))


def _ends_now(store: Store, groups: GroupHistory) -> dict[tuple[str, str, int], int]:
    """The ends, read again, of the partitions beyond whose end a group seems to have committed. Raises
    LakelogError.
    """
    ends = dict[tuple[str, str, int], int]()
    for key, value in groups.ahead():
        topic, place = groups.topics.latest.get(key.topic), (key.topic, value.topic_id, key.partition)
        if topic is None or topic.topic_id != value.topic_id or place in ends:
            continue
        directory = partition_directory(topic.directory, key.partition)
        found = replay(store, directory, deep=False)
        if found is not None:
            ends[place] = found.snapshot.high_watermark
    return ends


def _check_topic(
    store: Store, directory: str, history: TopicHistory, topic: TopicRecord, here: Snapshot
) -> Iterator[str]:
    """A table has the columns of its topic, and is not deleted, as its topic is not; its properties are those
    of the topic's settings, now or before: a change may have died between the two. Events are what they say.
    A standby has an undelete before the logs go on, and may stand still between, as with a deletion.
    """
    if here.deleted and here.deletions < 2 * topic.revived:
        if read_mark(store) is None:
            yield (
                "its topic was brought back, and its log has not gone on; repeat `lakelog topic undelete "
                f"{topic.name}`"
            )
    elif here.deleted:
        yield (
            "it says that its topic was deleted, and the metadata log says that it exists; restore both from "
            "the same time"
        )
    columns = declared_columns(here)
    if columns is not None and not {*columns.columns} <= history.declared(topic):
        yield (
            f"its table has the columns {columns.text!r}, and the metadata log declares {topic.columns!r}; "
            "restore both from the same time"
        )
    given = history.properties.get((topic.name, topic.incarnation), [])
    if given and history.whole:
        yield from check_settings(here.metadata, given)
    if topic.name == AUDIT:
        yield from check_events(_readable(store, directory, here))


def _readable(store: Store, directory: str, snapshot: Snapshot) -> Iterator[Record]:
    """The records of a table, as far as they can be read: the check of the table says why not."""
    with suppress(LakelogError):
        yield from records(store, directory, snapshot)


def _check_deletions(store: Store, history: TopicHistory) -> Iterator[str]:
    """Nothing of a standby, which has the ends of logs later than the deletion, and may stand still between:
    its promotion ends them.
    """
    if read_mark(store) is not None:
        return
    owners = {home: topic.name for topic in history.latest.values() for home in topic.homes.values()}
    for topic in history.latest.values():
        if owners.get(topic.directory, topic.name) == topic.name:  # or it came back as another topic
            yield from _check_deleted(store, topic)


def _check_deleted(store: Store, topic: TopicRecord) -> Iterator[str]:
    """A deletion by the metadata log has ended the topic's logs, or was a moment ago, by the clock of a
    gateway that may be ahead.
    """
    deleted_ms = topic.deleted.get(topic.incarnation)
    if topic.live or (deleted_ms is not None and abs(store.now_ms() - deleted_ms) < DELETION_MAX_MS):
        return
    for number in range(topic.partitions):
        directory = partition_directory(topic.directory, number)
        try:
            found = replay(store, directory, deep=False)
        except LakelogError:
            continue  # a damaged log cannot be ended
        if found is not None and found.snapshot.deletions < 2 * topic.revived + 1:
            yield (
                f"topic {topic.name} is deleted by the metadata log, and {directory} has not ended; if "
                "nobody deleted it, restore the metadata log from a backup before a gateway runs, which ends "
                "it; else start one"
            )


def _check_credentials(store: Store, report: Report) -> None:
    """Check the log of credentials, if there is one, and its records."""
    try:
        if not any(True for _ in store.list(f"{CREDENTIALS_DIRECTORY}/")):
            return
        snapshot = checked(store, CREDENTIALS_DIRECTORY, report)
        if snapshot is not None:
            history = CredentialHistory(snapshot.cleaned == snapshot.log_start == 0)
            for record in records(store, CREDENTIALS_DIRECTORY, snapshot):
                history.take(record)
            report.root_problems += history.problems
    except LakelogError as error:
        report.root_problems.append(f"the log of credentials cannot be read: {error}")


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


def _history(store: Store, snapshot: Snapshot | None, report: Report) -> TopicHistory:
    """The topics by the metadata log."""
    history = TopicHistory()
    if snapshot is None:
        return history
    history.whole = history.access.whole = snapshot.cleaned == snapshot.log_start == 0
    try:
        for record in records(store, METADATA_DIRECTORY, snapshot):
            history.take(record)
    except LakelogError as error:
        report.root_problems.append(f"the metadata log cannot be read: {error}")
    if not history.whole:
        report.root_problems += (f"the metadata log {each}" for each in history.access.lonely())
    return history


def _live(history: TopicHistory) -> list[TopicRecord]:
    """Every live topic."""
    return [topic for _, topic in sorted(history.latest.items()) if topic.live]
