"""The tables of a root as a standby has them: how far each is, and what is still to come."""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from jobs.replica.causes import (
    Applied,
    Cause,
    Decided,
    Ended,
    GroupFacts,
    Metadata,
    Records,
    Schemas,
    Version,
)
from jobs.replica.table_log import ReadCommit
from log_tables.cluster.group_log import Intent, IntentKey
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.topic import is_internal
from log_tables.layout import (
    CONSUMER_OFFSETS,
    METADATA_DIRECTORY,
    partition_directory,
)
from log_tables.root.group_replay import GroupReplay, applied
from log_tables.table.commit import Txn

ROOT = "root"
"""The tables on which others rest: one process copies all of them."""


class Kind(Enum):
    """The sort of a table, which says what its commits rest on."""

    METADATA = "metadata"
    GROUPS = "groups"
    PARTITION = "partition"
    FOLD = "fold"
    CREDENTIALS = "credentials"


@dataclass(slots=True)
class Waiting:
    """A commit of the original that is not in the standby yet. `seen_s` is when it was read; with it the
    standby has all of the table as of `as_of_s`.
    """

    read: ReadCommit
    seen_s: float
    causes: list[Cause]
    facts: GroupFacts | None = None
    gone: set[str] = field(default_factory=set)
    """The directories of topics whose files go by this commit."""
    may_be_torn: bool = False
    """Whether it may come without its staged files: the standby says that it is not of one moment."""
    as_of_s: float = -math.inf

    def names_staged(self) -> bool:
        """Whether it comes with staged files."""
        return self.facts is not None and any(True for _ in self.facts.staged())


@dataclass(slots=True)
class TableCopy:
    """A table. The standby has `version` and the high watermark `end`; the original had `seen_version` and
    `seen_end` when it was looked at last. That look began at `looked_s`; by a clock that goes on in sleep, at
    `looked_on_s`. `level_s` is the time as of which the standby has all of it, `due_s` that of the next look.
    """

    directory: str
    kind: Kind
    version: int = -1
    end: int = 0
    seen_version: int = -1
    seen_end: int = 0
    looked_s: float = -math.inf
    looked_on_s: float = -math.inf
    level_s: float = -math.inf
    due_s: float = math.inf
    pause_s: float = 0.0
    checkpointed: int = -1
    tidied: int = 0
    cleaned_s: float = -math.inf
    waiting: deque[Waiting] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_looking: bool = False
    is_putting: bool = False
    needs_base: bool = False
    is_tidying: bool = False
    is_others: bool = False
    is_wanted: bool = False
    is_known: bool = False
    has_removed: bool = True
    is_gone: bool = False
    is_held: bool = False
    applied: dict[int, int] = field(default_factory=dict)
    seen_applied: dict[int, int] = field(default_factory=dict)
    """By producer of a group, the newest of its transactions of which the standby, and the original, has
    records."""
    failed: int = 0
    failure: str = ""
    lacks_room: bool = False

    @property
    def part(self) -> str:
        """The part of the work that it belongs to. Tables on which others rest are one."""
        return self.directory if self.kind is Kind.PARTITION else ROOT

    @property
    def is_to_begin(self) -> bool:
        """Whether the standby does not have it as of a version of the original yet."""
        if self.is_gone:
            return False
        return self.version < 0 or self.needs_base or (self.is_others and not self.is_known)

    def leave(self) -> None:
        """Leave it to another process."""
        self.is_others = True
        self.go_from(self.version, self.end, self.applied)
        self.went_well()

    def see(self, read: ReadCommit) -> None:
        """Note that the original has a commit, the next one that was seen."""
        self.seen_version = read.version
        self.seen_end = max(self.seen_end, read.high_watermark)
        self.seen_applied |= applied(read.commit.txns)

    def went_well(self) -> None:
        """Nothing keeps it any more."""
        self.failed, self.failure, self.lacks_room = 0, "", False

    def begin_at(self, version: int, end: int, txns: Iterable[Txn] = ()) -> None:
        """The standby has the table up to `version`, with `txns`."""
        self.go_from(version, end, dict(applied(txns)))

    def go_from(self, version: int, end: int, applied: dict[int, int]) -> None:
        """Go on from `version`, with records of the transactions `applied`."""
        self.applied = applied
        self.seen_applied = dict(self.applied)
        self.version = self.seen_version = version
        self.end = self.seen_end = end
        self.waiting.clear()
        self.waiting_bytes = 0
        self.needs_base = False


class Topics:
    """The topics of a root, as far as the records of its metadata log were taken."""

    def __init__(self) -> None:
        self._known: dict[str, TopicRecord] = {}
        self._homes = Counter[str]()
        self.places: dict[tuple[str, str, int], str] = {}
        """The tables of partitions, by name and id of the topic and number."""

    def take(self, record: TopicRecord) -> set[str]:
        """The directories of topics whose files are gone by this record."""
        before = self._known.get(record.name)
        self._known[record.name] = record
        self._homes.update(record.homes.values())
        if before is not None:
            self._homes.subtract(before.homes.values())
            for number in range(before.partitions):
                self.places.pop((record.name, before.topic_id, number), None)
        if record.live:
            directory = record.directory
            for number in range(record.partitions):
                self.places[record.name, record.topic_id, number] = partition_directory(directory, number)
        # A deleted topic may have come back under another name, whose record is taken first.
        left = set() if before is None else _directories(before) - _directories(record)
        return {directory for directory in left if self._homes[directory] <= 0}

    def all(self) -> Iterator[TopicRecord]:
        yield from self._known.values()

    def directories(self) -> set[str]:
        """The directories of all topics, and of those deleted ones whose files may be there still."""
        homes = {directory for directory, count in self._homes.items() if count > 0}
        return homes.union(*map(_directories, self._known.values()))


def _directories(record: TopicRecord) -> set[str]:
    numbers = {*record.deleted, *([record.incarnation] if record.live else [])}
    return {record.directory_of(number) for number in numbers}


def tables_of(record: TopicRecord) -> Iterator[tuple[str, Kind]]:
    """The tables of a live topic."""
    directory = record.directory
    kind = Kind.GROUPS if record.name == CONSUMER_OFFSETS else Kind.PARTITION
    for number in range(record.partitions):
        yield partition_directory(directory, number), kind
    if not is_internal(record.name):
        yield directory, Kind.FOLD


class Standing:
    """All that the standby has of tables and groups, and which commits may be seen now. Of one thread."""

    def __init__(self) -> None:
        self.tables: dict[str, TableCopy] = {}
        self.topics = Topics()
        self.groups = GroupReplay()
        """The groups as they were seen at the original."""
        self.epochs: dict[int, int] = {}
        self.ended: dict[str, int] = {}
        self.intents: dict[IntentKey, Intent] = {}
        self.unstaged = set[str]()
        """Staged files that the standby may lack."""
        self.schemas_s, self.wants_schemas = -math.inf, False
        """The time as of which the standby has all schemas, and whether commits wait for newer ones."""
        self.put_bytes = 0
        """The bytes of commits and files that were put."""
        self.wanted: Callable[[TableCopy], None] = lambda _: None
        """Is told of a table that has to be looked at."""

    def added(self, directory: str, kind: Kind) -> TableCopy:
        """The table at `directory`, which is looked at from now on."""
        copy = self.tables.get(directory)
        if copy is None:
            copy = self.tables[directory] = TableCopy(directory, kind)
            self.wanted(copy)
        return copy

    def begin_with_groups(self) -> None:
        """The standby has all that is known of groups."""
        self.epochs, self.ended = dict(self.groups.epochs), dict(self.groups.ended)
        self.intents = dict(self.groups.pending)

    def note_put(self, copy: TableCopy, put: Waiting) -> set[str]:
        """Note that the standby has a commit, the next one of its table; returns the staged files that nobody
        waits for any longer.
        """
        copy.version = put.read.version
        copy.applied |= applied(put.read.commit.txns)
        copy.end = max(copy.end, put.read.high_watermark)
        self.put_bytes += put.read.size
        copy.has_removed = copy.has_removed or bool(put.read.commit.removes)
        left = set[str]()
        if put.facts is not None:
            for producer, epoch in put.facts.epochs.items():
                self.epochs[producer] = max(epoch, self.epochs.get(producer, -1))
            self.ended |= put.facts.ended
            for key, intent in put.facts.intents.items():
                before = self.intents.pop(key, None)
                left |= {file.path for file in before.staged} if before is not None else set()
                if intent is not None:
                    self.intents[key] = intent
        left -= self.staged() if left else left
        self.unstaged -= left
        return left

    @property
    def is_torn(self) -> bool:
        """Whether a transaction waits for a staged file that the standby may lack."""
        return bool(self.unstaged)

    def staged(self) -> set[str]:
        """The staged files for which transactions wait that the standby has."""
        return {file.path for intent in self.intents.values() for file in intent.staged}

    def torn(self) -> set[str]:
        """The staged files without which commits may come that wait."""
        waiting = (each for copy in self.tables.values() for each in copy.waiting)
        torn = (each.facts for each in waiting if each.may_be_torn and each.facts is not None)
        return {path for facts in torn for path in facts.staged()}

    def lacks(self, causes: Iterable[Cause], since_s: float) -> list[Cause]:
        """The `causes`, of a commit that was seen at `since_s`, that the standby lacks, unless the
        original has lacked them since. What has to be looked at for that is wanted.
        """
        sharper = (self._sharper(cause, since_s) for cause in causes)
        return [cause for cause in sharper if not self._is_there(cause, since_s)]

    def _sharper(self, cause: Cause, since_s: float) -> Cause:
        """The version of the metadata log that a cause means, once it was looked at."""
        if not isinstance(cause, Metadata):
            return cause
        log = self.tables[METADATA_DIRECTORY]
        if log.looked_s > since_s:
            return Version(METADATA_DIRECTORY, log.seen_version)
        self.wanted(log)
        return cause

    def _is_there(self, cause: Cause, since_s: float) -> bool:
        match cause:
            case Version(directory, version):
                copy = self._going(directory)
                return (
                    copy is None
                    or copy.version >= version
                    or self._is_nowhere(copy, copy.seen_version < version, since_s)
                )
            case Records(directory, end):
                copy = self._going(directory)
                return copy is None or copy.end >= end or self._is_nowhere(copy, copy.seen_end < end, since_s)
            case Decided(producer, epoch):
                return self.epochs.get(producer, -1) >= epoch or self._is_in_no_group(
                    self.groups.epochs.get(producer, -1) < epoch, since_s
                )
            case Applied(directory, producer, epoch):
                copy = self._going(directory)
                return (
                    copy is None
                    or copy.applied.get(producer, -1) >= epoch
                    or self._is_nowhere(copy, copy.seen_applied.get(producer, -1) < epoch, since_s)
                )
            case Ended(name, number):
                return self.ended.get(name, 0) >= number or self._is_in_no_group(
                    self.groups.ended.get(name, 0) < number, since_s
                )
            case Schemas() | Metadata():
                return isinstance(cause, Schemas) and self._has_schemas(since_s)

    def _has_schemas(self, since_s: float) -> bool:
        is_there = self.schemas_s > since_s
        self.wants_schemas = self.wants_schemas or not is_there
        return is_there

    def _going(self, directory: str) -> TableCopy | None:
        """The table at `directory`; None if the original has none any more."""
        copy = self.tables.get(directory)
        return None if copy is None or copy.is_gone else copy

    def _is_nowhere(self, copy: TableCopy, is_unseen: bool, since_s: float) -> bool:
        """Whether the original was looked at since, and has not had it either."""
        if copy.looked_s > since_s:
            return is_unseen
        self.wanted(copy)
        return False

    def _is_in_no_group(self, is_unseen: bool, since_s: float) -> bool:
        groups = [copy for copy in self.tables.values() if copy.kind is Kind.GROUPS]
        if any(copy.is_others for copy in groups):  # of those is known what is in the standby, and no more
            for copy in groups:
                self.wanted(copy)
            return False
        looked = [self._is_nowhere(copy, is_unseen, since_s) for copy in groups]  # all are wanted at once
        return all(looked)
