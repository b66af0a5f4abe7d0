"""The tables of a root as of a moment that is past, for a copy.

Each table ends before its first commit of a later time. Transactions are whole, and no group is ahead of its
partition, as in a cut of now (cut.py). A transaction may have waited then, and its staged files be gone. If
all its records were there, the copy notes its end; if not, or if two clocks disagree, the moment becomes an
earlier one for all tables.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from log_tables.clock import Clock
from log_tables.cluster.group_log import Intent, IntentKey, Retry, RetryKey, decode
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.metadata_log import decode as decode_record
from log_tables.errors import InvalidArgument, ObjectMissing
from log_tables.layout import (
    CONSUMER_OFFSETS,
    CREDENTIALS_DIRECTORY,
    METADATA_DIRECTORY,
    PROPERTY_REMOTE_ROOT,
    partition_directory,
    topic_directory,
)
from log_tables.limits import COPY_LOOKS_MAX
from log_tables.record import Record, timestamp_text
from log_tables.root.cut import Cut, from_log_start, in_threads
from log_tables.root.group_replay import GroupReplay, applied, records
from log_tables.root.past import Past, TablePast
from log_tables.store.store import Store, open_store
from log_tables.table.commit import Commit
from log_tables.table.snapshot import Snapshot
from log_tables.table.table import Table

_STEP_MS = 1_000
"""How far the moment goes back where nothing says how far it has to."""


@dataclass(frozen=True, slots=True)
class PastCut:
    """The tables at `time_ms`, milliseconds since 1970: the moment that was asked for, or one before.

    `ends` are what the copy has yet to append to tables of groups: the ends of transactions that were applied
    then, and whose staged files are gone.
    """

    cut: Cut
    time_ms: int
    ends: Mapping[str, Sequence[Record]]


def cut_past(
    source: Store, target: Store, clock: Clock, time_ms: int, with_credentials: bool = False
) -> PastCut:
    """The tables of the root of `source` as of `time_ms`, or of the last moment before at which they agree.

    Puts the staged files of transactions that waited then into `target`. Raises InvalidArgument with the
    table, the version and the file where that moment cannot be had; Damaged, StoreUnavailable.
    """
    if time_ms > clock.now_ms():
        raise InvalidArgument(f"{_text(time_ms)} is in the future; leave it out for a copy of now")
    asked, staged = time_ms, set[str]()
    for _ in range(COPY_LOOKS_MAX):
        moment = _Moment(source, target, clock, time_ms, staged)
        found = moment.cut(with_credentials)
        if isinstance(found, Cut):
            _check_files(source, found, clock, time_ms)
            return PastCut(found, time_ms, moment.ends)
        time_ms = min(found, time_ms - 1)
    raise InvalidArgument(
        f"between {_text(time_ms)} and {_text(asked)} the tables agree at no moment; name an earlier one"
    )


@dataclass(slots=True)
class _Moment:
    """The attempt at one moment. `staged` are the files that attempts have put into the target."""

    source: Store
    target: Store
    clock: Clock
    time_ms: int
    staged: set[str]
    _groups: GroupReplay = field(default_factory=GroupReplay)
    _appeared: dict[str, int] = field(default_factory=dict)
    """When each staged file was first named, milliseconds since 1970."""
    ends: dict[str, list[Record]] = field(default_factory=dict)

    def cut(self, with_credentials: bool) -> Cut | int:
        """The tables, or an earlier moment at which they may agree."""
        metadata = self._at(METADATA_DIRECTORY).snapshot
        topics = _topics(self.source, metadata)
        pasts: dict[str, Past] = {}
        offsets = [each for each in topics if each.name == CONSUMER_OFFSETS]
        for directory in _directories(offsets):
            pasts[directory] = TablePast(self.source, directory).at(
                self.time_ms, seen=partial(self._follow, directory)
            )
        gone = self._staged_files()
        if self._groups.behind():
            return self.time_ms - _STEP_MS
        others = _directories([each for each in topics if each.name != CONSUMER_OFFSETS])
        pasts |= zip(others, in_threads(self._at, others), strict=True)
        for past in pasts.values():
            if past.snapshot.deleted:
                return past.newest_ms - 1
        named = {each.name: each for each in topics}
        earlier = self._unapplied(gone, named, pasts) or self._ahead(named, pasts)
        if earlier is not None:
            return earlier
        tables = {METADATA_DIRECTORY: metadata, **{name: each.snapshot for name, each in pasts.items()}}
        if with_credentials and self._has(CREDENTIALS_DIRECTORY):
            tables[CREDENTIALS_DIRECTORY] = self._at(CREDENTIALS_DIRECTORY).snapshot
        return self._with_remote(Cut(tables), metadata)

    def _at(self, directory: str) -> Past:
        """Raises InvalidArgument when the table is gone, or does not reach back so far."""
        try:
            return TablePast(self.source, directory).at(self.time_ms, self._is_later)
        except ObjectMissing:
            raise InvalidArgument(
                f"{directory} was there at {_text(self.time_ms)}, and its files are gone; name a time before "
                "its topic was made, or after it was deleted"
            ) from None

    def _has(self, directory: str) -> bool:
        try:
            TablePast(self.source, directory)
        except ObjectMissing:
            return False
        return True

    def _is_later(self, commit: Commit) -> bool:
        """Whether `commit` has records of a transaction that the groups' tables do not have."""
        return any(epoch > self._groups.epochs.get(number, -1) for number, epoch in applied(commit.txns))

    def _follow(self, directory: str, snapshot: Snapshot, time_ms: int) -> None:
        self._groups.follow(self.source, directory, snapshot)
        for path in self._groups.staged():
            self._appeared.setdefault(path, time_ms)

    def _staged_files(self) -> set[str]:
        """Copy the files that waited; returns those that are gone."""
        wanted = self._groups.staged().keys()
        for path in self.staged - wanted:
            self.target.delete(path)
            self.staged.discard(path)
        gone = set[str]()
        for path in wanted - self.staged:
            try:
                self.target.put(path, self.source.get(path))
            except ObjectMissing:
                gone.add(path)
            else:
                self.staged.add(path)
        return gone

    def _unapplied(
        self, gone: Set[str], topics: Mapping[str, TopicRecord], pasts: Mapping[str, Past]
    ) -> int | None:
        """A moment before a transaction was committed that lacks records here, and whose files are gone.

        Of those that lack none it finds the ends.
        """
        ended: dict[IntentKey, Intent] = {}
        for key, intent in self._groups.pending.items():
            paths = [file.path for file in intent.staged]
            if gone.isdisjoint(paths):
                continue
            if not _is_applied(intent, topics, pasts):
                return min(self._appeared[path] for path in paths) - 1
            ended[key] = intent
        left = {*ended}
        for directory, past in pasts.items():
            if not left:
                break
            if directory.startswith(f"{topic_directory(CONSUMER_OFFSETS)}/"):
                self.ends[directory] = [*self._ends_in(directory, past.snapshot, ended, left)]
        if left:
            return min(self._appeared[file.path] for key in left for file in ended[key].staged) - 1
        return None

    def _ends_in(
        self, directory: str, past: Snapshot, ended: Mapping[IntentKey, Intent], left: set[IntentKey]
    ) -> Iterator[Record]:
        """The records of the table of groups, after `past`, that end these transactions."""
        retries = {(key.group, intent.key): key.number for key, intent in ended.items() if intent.key}
        now = Table(self.source, directory, self.clock).snapshot
        for record in records(self.source, directory, now, past.high_watermark):
            match decode(record, directory):
                case IntentKey() as key, None if key in left:
                    left.discard(key)
                    yield _undated(record)
                case RetryKey(group, name), Retry() as retry if (
                    retries.get((group, name)) == retry.number and retry.placed is not None
                ):
                    yield _undated(record)
            if not left and not retries:
                return

    def _ahead(self, topics: Mapping[str, TopicRecord], pasts: Mapping[str, Past]) -> int | None:
        """A moment before a committed offset that its partition had not reached, though it has since.

        An offset that its partition has never reached was committed so.
        """
        for key, committed in self._groups.offsets.items():
            topic = topics.get(key.topic)
            if topic is None or topic.topic_id != committed.topic_id:
                continue
            directory = partition_directory(topic.directory, key.partition)
            past = pasts.get(directory)
            if past is None or committed.offset <= past.snapshot.high_watermark:
                continue
            now = TablePast(self.source, directory).at(max(self.clock.now_ms(), past.newest_ms))
            if past.early or committed.offset <= now.snapshot.high_watermark:
                return min(committed.committed_ms or self.time_ms, self.time_ms - _STEP_MS) - 1
        return None

    def _with_remote(self, cut: Cut, metadata: Snapshot) -> Cut:
        """`cut` with the remote tables as they were, without what retention had removed there."""
        moved = [name for name, here in cut.tables.items() if here.tiered > here.log_start]
        if not moved:
            return cut
        remote = _remote(self.source, metadata, self.clock)
        for directory in moved:
            here, there = cut.tables[directory], TablePast(remote, directory).at(self.time_ms).snapshot
            cut.tables[directory] = from_log_start(here, max(here.log_start, there.log_start))
            cut.remote[directory] = there
        return cut


def _is_applied(intent: Intent, topics: Mapping[str, TopicRecord], pasts: Mapping[str, Past]) -> bool:
    """Whether the tables have all records of a transaction; those of topics that are gone are dropped."""
    counts: dict[str, int] = {}
    for run in (run for file in intent.staged for run in file.runs):
        topic = topics.get(run.topic)
        if topic is not None and topic.topic_id == run.topic_id:
            directory = partition_directory(topic.directory, run.partition)
            counts[directory] = counts.get(directory, 0) + run.records
    for directory, count in counts.items():
        state = pasts[directory].snapshot.producer(intent.producer_id)
        if state is None or (state.epoch, state.next_sequence) < (intent.epoch, count):
            return False
    return True


def _undated(record: Record) -> Record:
    return Record(record.value, record.key, record.headers, record.timestamp_us)


def _remote(source: Store, metadata: Snapshot, clock: Clock) -> Store:
    url = metadata.metadata.configuration[PROPERTY_REMOTE_ROOT]
    return open_store(url, source.options, create=False, clock=clock)


def _topics(source: Store, metadata: Snapshot) -> list[TopicRecord]:
    """The topics that were live."""
    latest = {}
    for record in records(source, METADATA_DIRECTORY, metadata):
        found = decode_record(record)
        if isinstance(found, TopicRecord):
            latest[found.name] = found
    return [each for each in latest.values() if each.live]


def _directories(topics: Sequence[TopicRecord]) -> list[str]:
    return [
        partition_directory(each.directory, partition)
        for each in topics
        for partition in range(each.partitions)
    ]


def _check_files(source: Store, cut: Cut, clock: Clock, time_ms: int) -> None:
    """Raise InvalidArgument for a file of `cut` that is gone."""
    remote = _remote(source, cut.tables[METADATA_DIRECTORY], clock) if cut.remote else source
    there: dict[tuple[str, bool], set[str]] = {}
    for directory, segment, is_remote in cut.files():
        key = directory, is_remote
        if key not in there:
            there[key] = {item.path for item in (remote if is_remote else source).list(f"{directory}/")}
        path = f"{directory}/{segment.path}"
        if path not in there[key]:
            version = (cut.remote if is_remote else cut.tables)[directory].version
            raise InvalidArgument(
                f"{directory} cannot be had as of {_text(time_ms)}: its version {version} names "
                f"{segment.path}, which a vacuum has removed since; name a later time, `lakelog root "
                "history` has that of each topic"
            )


def _text(time_ms: int) -> str:
    return timestamp_text(time_ms * 1_000)
