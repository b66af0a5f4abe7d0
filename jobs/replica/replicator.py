"""A standby that follows its root: which table is looked at when, and which commit is put next."""

import heapq
import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from msgspec.structs import replace

from jobs.replica.carrier import Carrier, StagedGone
from jobs.replica.causes import Cause, Decided, Records, Version, data_causes, fold_causes, group_causes
from jobs.replica.opening import Opened, deleted_tables, open_standby, records_of, topics_of
from jobs.replica.table_log import Base, Diverged, ReadCommit, high_watermark
from jobs.replica.tables import ROOT, Kind, Standing, TableCopy, Waiting, tables_of
from log_tables.clock import Clock
from log_tables.cluster.metadata_log import TopicRecord
from log_tables.cluster.standby import StandbyMark, put_mark, read_mark
from log_tables.errors import Conflict, LakelogError, ObjectMissing, StoreFull
from log_tables.layout import METADATA_DIRECTORY, commit_path
from log_tables.limits import LOG_RETENTION_MS, REPLACED_FILE_RETENTION_MS
from log_tables.record import Record, to_records
from log_tables.root.group_replay import applied
from log_tables.segments import segment as segments
from log_tables.store.store import Store, requests_are_paid
from log_tables.table.snapshot import segment_of
from log_tables.table.table import Table

_log = logging.getLogger(__name__)

_THREADS = 16

_WAITING_COMMITS = 256
_WAITING_BYTES = 64 * 1024 * 1024
"""A table with so many commits, or bytes, that wait for others is not read on."""

_PAUSE_S, _PAID_PAUSE_S = 0.05, 0.25
_PAUSE_GROWS = 1.5
_QUIET_S = 1.0
"""The pauses between two looks at a table: after news, also where requests are paid, how they grow without
news, and the longest."""

_QUIET_LOOKS_S, _QUIET_PAID_LOOKS_S = 2000, 8
"""The most looks a second at tables that are quiet, where requests cost nothing and where they do."""

_AWAIT_S = 0.5
_COUNT_S = 1.0
_FAILED_S = 1.0
_FAILED_MAX_S = 30.0

_LATE_S = LOG_RETENTION_MS / 2000
"""A table that was not looked at for so long, by a clock that goes on in sleep, may have lost its next
commits: the original keeps them for an hour.
"""

_TIDY_COMMITS = 50
"""So many commits after it was looked for last, the original's newest checkpoint is looked for."""

_CLEAN_S = REPLACED_FILE_RETENTION_MS / 1000
"""How often the files of a table are compared that has removed some."""


@dataclass(slots=True)
class _Done:
    """A task of a thread that has ended: what it made, or its error."""

    copy: TableCopy
    act: Callable[[TableCopy, Any], None]
    made: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """Where the standby is, at a moment: it has all that was there `lag_s` ago, and lacks at least so many
    `commits`, `records` and `bytes` of the `tables` that this process copies. `trouble` keeps it; empty if
    nothing does.
    """

    is_level: bool = False
    lag_s: float = 0.0
    commits: int = 0
    records: int = 0
    bytes: int = 0
    tables: int = 0
    put_bytes: int = 0
    trouble: str = ""


def _is_begun(copy: TableCopy) -> bool:
    """Whether the standby does not have a table as of a version of the original yet."""
    if copy.is_gone:
        return False
    return copy.version < 0 or copy.needs_base or (copy.is_others and not copy.is_known)


def _ignore(_copy: TableCopy, _made: object) -> None:
    """Do nothing with a result."""


class Replicator:
    """Lets the root of `target` follow that of `source`. One thread decides, in `run`; others carry."""

    def __init__(
        self,
        source: Store,
        target: Store,
        clock: Clock,
        with_credentials: bool = False,
        owns: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """`owns` says whether this process copies a table, or `ROOT`, the tables on which others rest."""
        self._source, self._target, self._clock = source, target, clock
        self._with_credentials, self._owns = with_credentials, owns
        self._carrier = Carrier(source, target, clock)
        self.standing = Standing()
        self.standing.wanted = self._want
        self._done = queue.SimpleQueue[_Done]()
        self._due = list[tuple[float, int, TableCopy]]()
        self._order = count()
        self._running = 0
        self._obligations = list[Cause]()
        self._obliged_s = 0.0
        self._mark: StandbyMark | None = None
        self._ended: BaseException | None = None
        self._put_bytes = 0
        self._unmarked, self._unmarked_s = "", -math.inf
        self._lost, self._source_s = "", clock.monotonic()
        self._is_full = False
        self._is_paid = requests_are_paid(source.url)
        self._pause_s = _PAID_PAUSE_S if self._is_paid else _PAUSE_S
        self._busy: Collection[str] = ()
        self._newly_busy = deque[str]()
        self._begun_s, self._counted_s = clock.monotonic(), -math.inf
        self.figures = Figures()
        """The newest figures; another object with each round of counting."""

    @property
    def is_level(self) -> bool:
        """Whether the standby is of one moment."""
        return self._mark is not None and self._mark.is_level

    def check_source(self) -> None:
        """Note whether the root of the original is there. Of any thread. Raises StoreUnavailable."""
        began_s = self._clock.monotonic()
        try:
            self._carrier.check_source()
        except LakelogError as error:
            self._lost = str(error)
            raise
        self._lost, self._source_s = "", began_s

    def end(self, error: Exception) -> None:
        """Let `run` raise `error` soon. Of any thread."""
        self._ended = self._ended or error

    def run(self, stopping: threading.Event, level: Callable[[Figures], None] = lambda _: None) -> None:
        """Follow until `stopping` is set. `level` is called about once a second while the standby is of one
        moment. Raises Diverged, Conflict, and what the stores raise at the start.
        """
        self._begin()
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="replicate") as pool:
            self._pool = pool
            try:
                self._stage_missing()
                while not stopping.is_set() and self._ended is None:
                    self._start_looks()
                    self._put_what_may_be_seen()
                    self._note_level()
                    self._count(level)
                    self._await_some()
            finally:
                while self._running:
                    self._take(self._done.get())
        if self._ended is not None:
            raise self._ended

    # Beginning

    def _begin(self) -> None:
        begun = open_standby(self._source, self._target, self._clock, self._with_credentials)
        self._mark = begun.mark
        self._carrier.witness = begun.witness
        for record in begun.topics:
            self.standing.topics.take(record)
        for found in begun.tables:
            copy = self._added(found.directory, found.kind)
            if found.version >= 0:
                copy.begin_at(found.version, found.end, found.decided)
                self._obligations += [Decided(*each) for each in found.decided]
            copy.needs_base = not found.goes_on
            if found.kind is Kind.GROUPS and found.snapshot is not None:
                self.standing.groups.follow(self._target, found.directory, found.snapshot)
        self.standing.begin_with_groups()
        self._oblige_groups()
        if not self.is_level:
            self.standing.unstaged = self.standing.staged()

    def _begin_with_groups(self) -> None:
        """All is known of groups that the standby has; it may lack their staged files."""
        self.standing.begin_with_groups()
        self.standing.unstaged = self.standing.staged()
        self._stage_missing()

    def _stage_missing(self) -> None:
        """Bring the staged files over for which transactions wait that the standby has."""
        log = self.standing.tables[METADATA_DIRECTORY]
        paths = {*self.standing.unstaged}
        if paths:
            self._submit(
                log, partial(self._carrier.stage, paths), lambda _, gone: self._staged_but(paths, gone)
            )

    def _staged_but(self, paths: set[str], gone: set[str]) -> None:
        self.standing.unstaged -= paths - gone

    def _added(self, directory: str, kind: Kind) -> TableCopy:
        copy = self.standing.tables.get(directory)
        if copy is None:
            copy = self.standing.tables[directory] = TableCopy(directory, kind)
            self._plan(copy, 0.0)
        return copy

    def _oblige_groups(self) -> None:
        """Groups may be ahead of tables that begin later: until these are there, nothing is of one moment."""
        places = self.standing.topics.places
        for key, value in self.standing.groups.offsets.items():
            at = places.get((key.topic, value.topic_id, key.partition))
            if at is not None:
                self._obligations.append(Records(at, value.offset))
        self._obliged_s = self._clock.monotonic()

    def _oblige(self, causes: Iterable[Cause]) -> None:
        """Nothing is of one moment until the standby has `causes`."""
        self._obligations += causes
        self._obliged_s = self._clock.monotonic()

    # Looking

    def _plan(self, copy: TableCopy, pause_s: float) -> None:
        copy.due_s = self._clock.monotonic() + pause_s
        heapq.heappush(self._due, (copy.due_s, next(self._order), copy))

    def _want(self, copy: TableCopy) -> None:
        """Look at a table at once: a commit of another one rests on it."""
        copy.is_wanted = True
        if not copy.is_looking and not copy.is_held and copy.due_s > self._clock.monotonic():
            self._plan(copy, 0.0)

    def _start_looks(self) -> None:
        while self._newly_busy:
            copy = self.standing.tables.get(self._newly_busy.pop())
            if copy is not None:
                self._want(copy)
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now and self._running < 4 * _THREADS:
            due_s, _, copy = heapq.heappop(self._due)
            if due_s != copy.due_s or copy.is_looking or copy.is_gone:
                continue  # it was planned anew
            copy.is_held = False
            if not self._owns(copy.part):
                self._leave_to_others(copy)
            elif copy.is_others:
                copy.is_looking = True
                self._submit(copy, partial(self._carrier.opened, copy), self._taken_over)
            elif copy.needs_base:
                self._start_base(copy)
            elif len(copy.waiting) >= _WAITING_COMMITS or copy.waiting_bytes >= _WAITING_BYTES:
                self._plan(copy, _PAUSE_S)
            else:
                copy.is_looking = True
                now_s = self._clock.boottime()
                is_late = copy.seen_version < 0 or now_s > copy.looked_on_s + _LATE_S
                look = partial(self._carrier.look, copy, copy.seen_version + 1, is_late)
                self._submit(copy, look, partial(self._looked, self._clock.monotonic(), now_s))

    def _submit(
        self, copy: TableCopy, task: Callable[[], Any], act: Callable[[TableCopy, Any], None]
    ) -> None:
        def work() -> None:
            done = _Done(copy, act)
            try:
                done.made = task()
            except BaseException as error:  # noqa: BLE001 -- the thread that decides looks at it
                done.error = error
            self._done.put(done)

        self._running += 1
        self._pool.submit(work)

    def _looked(self, began_s: float, on_s: float, copy: TableCopy, found: list[ReadCommit]) -> None:
        copy.is_looking, copy.looked_s, copy.looked_on_s = False, began_s, on_s
        now = self._clock.monotonic()
        for read in found:
            waiting = self._waiting(copy, read, now)
            copy.seen_version = read.version
            copy.seen_end = max(copy.seen_end, read.high_watermark)
            copy.seen_applied |= applied(read.commit.txns)
            copy.waiting.append(waiting)
            copy.waiting_bytes += read.size
        if found:
            copy.pause_s = self._pause_s
            self._plan(copy, 0.0 if len(found) > 1 and not self._is_paid else self._pause_s)
        else:
            copy.pause_s = min(max(self._pause_s, copy.pause_s * _PAUSE_GROWS), self._quiet_s(copy))
            self._plan(copy, copy.pause_s)
            copy.saw_end_s = began_s
            if not copy.waiting:
                copy.level_s = began_s
                copy.went_well()
        if copy.kind is Kind.METADATA:
            self._carrier.witness = commit_path(copy.directory, copy.seen_version)

    def _quiet_s(self, copy: TableCopy) -> float:
        """The longest pause between two looks at a table."""
        if self._is_paid and (copy.kind is Kind.METADATA or copy.directory in self._busy):
            return _QUIET_S
        most = _QUIET_PAID_LOOKS_S if self._is_paid else _QUIET_LOOKS_S
        return max(_QUIET_S, len(self.standing.tables) / most)

    @property
    def is_paid(self) -> bool:
        """Whether requests to the original are paid, so that it needs to know which tables are busy."""
        return self._is_paid

    def note_busy(self, tables: Collection[str]) -> None:
        """Look often at these tables, by directory, and at those over their topics. Of any thread."""
        before = self._busy
        self._busy = {*tables, *(directory.rsplit("/", 1)[0] for directory in tables)}
        self._newly_busy.extend(self._busy - {*before})

    def _waiting(self, copy: TableCopy, read: ReadCommit, now: float) -> Waiting:
        match copy.kind:
            case Kind.PARTITION:
                return Waiting(read, now, [*data_causes(read.commit, read.version)])
            case Kind.FOLD:
                return Waiting(read, now, [*fold_causes(read.commit.txns, copy.directory)])
            case Kind.GROUPS:
                groups, places = self.standing.groups, self.standing.topics.places
                causes, facts = group_causes(self._new_rows(copy, read), copy.directory, groups, places)
                return Waiting(read, now, [*causes, *data_causes(read.commit, read.version)], facts)
            case Kind.METADATA:
                causes, gone = self._topic_causes([*topics_of(self._new_rows(copy, read))])
                return Waiting(read, now, causes, gone=gone)
            case Kind.CREDENTIALS:
                return Waiting(read, now, [])

    def _new_rows(self, copy: TableCopy, read: ReadCommit) -> Iterator[Record]:
        """The records that a commit appends."""
        if read.high_watermark <= (copy.end if copy.is_others else copy.seen_end):
            return
        for add in read.commit.adds:
            data = read.files.get(add.path)
            if data is None:
                data = self._target.get(f"{copy.directory}/{add.path}")
            for batch in segments.read_bytes(data, copy.directory, segment_of(add)):
                yield from to_records(batch)

    def _topic_causes(self, topics: Sequence[TopicRecord]) -> tuple[list[Cause], set[str]]:
        """The tables that topics name, which are looked at from now on; and the directories that are gone."""
        causes, gone = list[Cause](), set[str]()
        for record in topics:
            gone |= self.standing.topics.take(record)
            for directory, kind in tables_of(record) if record.live else ():
                self._added(directory, kind)
                causes.append(Version(directory, 0))
        return causes, gone

    # Tables that other processes copy

    def _leave_to_others(self, copy: TableCopy) -> None:
        """Look at a table that another process copies only as far as tables of this one rest on it."""
        if copy.is_putting:
            self._plan(copy, _PAUSE_S)
            return
        if not copy.is_others:
            copy.leave()
        if not (self.is_level or copy.is_known) and self._owns(ROOT):
            copy.is_looking = True
            self._submit(copy, partial(self._carrier.opened, copy), self._known)
        elif copy.is_wanted or copy.kind is Kind.METADATA:
            copy.is_looking, copy.is_wanted = True, False
            look = partial(self._carrier.look_afar, copy, copy.version + 1, copy.seen_version + 1)
            self._submit(copy, look, partial(self._looked_afar, self._clock.monotonic()))
        else:
            self._plan(copy, _QUIET_S)

    def _looked_afar(
        self, began_s: float, copy: TableCopy, found: tuple[list[ReadCommit], list[ReadCommit]]
    ) -> None:
        copy.is_looking, copy.looked_s, now = False, began_s, self._clock.monotonic()
        here, there = found
        for read in there:
            copy.seen_version = read.version
            copy.seen_end = max(copy.seen_end, read.high_watermark)
            copy.seen_applied |= applied(read.commit.txns)
        for read in here:
            self.standing.note_put(copy, self._waiting(copy, read, now))
        copy.seen_version = max(copy.seen_version, copy.version)
        self._plan(copy, _PAUSE_S if here or there else _QUIET_S)

    def _known(self, copy: TableCopy, found: Opened) -> None:
        """Another process has brought a table so far: what it rests on has to come before all is level."""
        copy.is_looking = False
        if found.version >= 0:
            copy.begin_at(found.version, found.end, found.decided)
            copy.is_known = found.goes_on
            self._oblige(Decided(*each) for each in found.decided)
        self._plan(copy, _QUIET_S)

    def _taken_over(self, copy: TableCopy, found: Opened) -> None:
        """This process copies a table that another one did."""
        copy.is_looking = copy.is_others = False
        if found.version >= 0:
            copy.begin_at(found.version, found.end, found.decided)
        copy.needs_base = not found.goes_on
        if copy.kind is Kind.GROUPS and found.snapshot is not None:
            self.standing.groups.follow(self._target, copy.directory, found.snapshot)
            if self.is_level:
                self.standing.begin_with_groups()
            else:
                self._begin_with_groups()
        self._plan(copy, 0.0)

    # Beginning a table at a checkpoint

    def _start_base(self, copy: TableCopy) -> None:
        is_first = copy.kind is Kind.METADATA and copy.version < 0
        is_early = copy.kind is Kind.FOLD and self._lacks_partitions(copy)
        if copy.is_putting or is_early or (is_first and self._is_any_missing()):
            self._plan(copy, _PAUSE_S)
            return
        try:
            self._set_level(False)
        except LakelogError as error:
            self._failed(copy, error)
            return
        copy.is_looking = True
        copy.waiting.clear()
        copy.waiting_bytes = 0
        self._submit(copy, partial(self._carrier.base, copy), partial(self._based, self._clock.monotonic()))

    def _is_any_missing(self) -> bool:
        """Whether the standby lacks a table that the metadata log may name."""
        return any(
            copy.version < 0 and not copy.is_gone and copy.kind is not Kind.METADATA
            for copy in self.standing.tables.values()
        )

    def _lacks_partitions(self, fold: TableCopy) -> bool:
        """Whether a partition below `fold` has still to begin: its files are those of the fold."""
        prefix = f"{fold.directory}/"
        return any(_is_begun(copy) for at, copy in self.standing.tables.items() if at.startswith(prefix))

    def _based(self, began_s: float, copy: TableCopy, base: Base | None) -> None:
        copy.is_looking = False
        if base is None:
            copy.is_gone = copy.kind is not Kind.METADATA
            copy.level_s = began_s
            return
        if copy.kind is Kind.METADATA:
            # It is put when all tables are there that it names: without it the root is none.
            # Of a topic that was made and swept before there is nothing to begin with.
            rows = records_of(self._target, copy.directory, base.adds)
            topics = {record.name: record for record in topics_of(rows)}.values()
            self._topic_causes([*topics])
            for record in topics:
                for directory, kind in deleted_tables(self._source, record):
                    self._added(directory, kind)
            if self._is_any_missing():
                self._plan(copy, _PAUSE_S)
                return
        copy.is_looking = True
        put = partial(self._carrier.put_base, copy, base)
        self._submit(copy, put, partial(self._base_put, began_s, base))

    def _base_put(self, began_s: float, base: Base, copy: TableCopy, _: None) -> None:
        copy.is_looking, copy.looked_s = False, began_s
        copy.begin_at(base.version, high_watermark(base.txns), applied(base.txns))
        copy.went_well()
        self._put_bytes += sum(add.size for add in base.adds)
        if copy.kind is Kind.GROUPS:
            snapshot = Table(self._target, copy.directory, self._clock).snapshot
            self.standing.groups.follow(self._target, copy.directory, snapshot)
            self._begin_with_groups()
            self._oblige_groups()
        if copy.kind is Kind.PARTITION:
            self._oblige(Decided(*each) for each in applied(base.txns))
            fold = self.standing.tables.get(copy.directory.rsplit("/", 1)[0])
            if fold is not None:  # it may name files that this table has not had
                fold.needs_base = True
        if copy.kind is Kind.FOLD:
            self._oblige(fold_causes(base.txns, copy.directory))
        self._plan(copy, 0.0)

    # Putting

    def _put_what_may_be_seen(self) -> None:
        for copy in [*self.standing.tables.values()]:
            if not copy.waiting or copy.is_putting or copy.needs_base or copy.is_held:
                continue
            ready = [*self._ready(copy)]
            if ready:
                copy.is_putting = True
                self._submit(copy, partial(self._carrier.put, copy, ready), self._noted)

    def _ready(self, copy: TableCopy) -> Iterator[Waiting]:
        """The next commits of a table that may be seen now."""
        for waiting in copy.waiting:
            waiting.causes = self.standing.lacks(waiting.causes, waiting.seen_s)
            if waiting.causes:
                return
            yield waiting

    def _noted(self, copy: TableCopy, made: tuple[int, LakelogError | None]) -> None:
        number, error = made
        copy.is_putting = False
        staged, gone = set[str](), set[str]()
        for _ in range(number):
            put = copy.waiting.popleft()
            copy.waiting_bytes -= put.read.size
            self._put_bytes += put.read.size
            staged |= self.standing.note_put(copy, put)
            gone |= put.gone
        if not copy.waiting:
            copy.level_s = max(copy.level_s, copy.saw_end_s)
        if staged:
            self._submit(copy, partial(self._carrier.unstage, sorted(staged)), _ignore)
        for directory in gone:
            self._drop(directory)
        if isinstance(error, StagedGone):
            self.standing.unstaged |= error.paths
            self._set_level(False)
            copy.waiting[0].may_be_torn = True
            return
        if error is not None:
            self._failed(copy, error)
            return
        copy.went_well()
        if copy.version >= copy.tidied + _TIDY_COMMITS and not copy.is_tidying:
            copy.is_tidying, copy.tidied = True, copy.version
            self._submit(
                copy, partial(self._carrier.tidy, copy, copy.checkpointed, copy.version), self._tidied
            )

    # Keeping the standby small

    def _tidied(self, copy: TableCopy, newest: int) -> None:
        copy.is_tidying, copy.checkpointed = False, newest

    def _drop(self, directory: str) -> None:
        """Forget a topic whose files the original has removed, and remove those of the standby."""
        for table in [*self.standing.tables]:
            if table == directory or table.startswith(f"{directory}/"):
                self.standing.tables.pop(table).is_gone = True
        metadata = self.standing.tables[METADATA_DIRECTORY]
        self._submit(metadata, partial(self._carrier.remove, directory), _ignore)

    def _clean_one(self) -> None:
        """Compare the files of one table with the original's, if it has removed some and is due."""
        now = self._clock.monotonic()
        due = (
            copy
            for copy in self.standing.tables.values()
            if copy.has_removed
            and copy.kind is not Kind.FOLD
            and not (copy.waiting or copy.is_tidying or copy.is_others)
        )
        copy = min(due, key=lambda each: each.cleaned_s, default=None)
        if copy is not None and now >= copy.cleaned_s + _CLEAN_S:
            copy.is_tidying, copy.has_removed, copy.cleaned_s = True, False, now
            self._submit(copy, partial(self._carrier.clean, copy), self._cleaned)

    def _cleaned(self, copy: TableCopy, _: None) -> None:
        copy.is_tidying = False

    # Failing

    def _failed(self, copy: TableCopy, error: BaseException) -> None:
        if isinstance(error, Diverged) or not isinstance(error, LakelogError):
            self._ended = self._ended or error
            return
        if isinstance(error, ObjectMissing):
            copy.needs_base = True
        copy.failed, copy.is_held = copy.failed + 1, True
        if isinstance(error, StoreFull):
            if not self._is_full:
                _log.warning("the standby %s has no room: %s", self._target.url, error)
            self._is_full = copy.lacks_room = True
        elif str(error) != copy.failure:
            _log.warning("%s is not replicated now: %s", copy.directory, error)
        copy.failure = str(error)
        self._plan(copy, min(_FAILED_MAX_S, _FAILED_S * 2 ** (copy.failed - 1)))

    def _look_at_room(self) -> None:
        """Say when no table waits for room any more."""
        if self._is_full and not any(copy.lacks_room for copy in self.standing.tables.values()):
            self._is_full = False
            _log.warning("the standby %s has room again", self._target.url)

    def _await_some(self) -> None:
        """Take what threads have done, or wait until a look is due."""
        wait_s = self._due[0][0] - self._clock.monotonic() if self._due else _AWAIT_S
        try:
            if wait_s > 0 or self._running:
                self._take(self._done.get(timeout=min(max(wait_s, 0.001), _AWAIT_S)))
            while True:
                self._take(self._done.get_nowait())
        except queue.Empty:
            pass
        self._look_at_room()

    def _take(self, done: _Done) -> None:
        self._running -= 1
        error = done.error
        if error is None:
            try:
                done.act(done.copy, done.made)
            except LakelogError as failure:
                error = failure
        if error is not None:
            done.copy.is_looking = done.copy.is_tidying = False
            self._failed(done.copy, error)

    # Level

    def _note_level(self) -> None:
        if self._obligations:
            self._obligations = self.standing.lacks(self._obligations, self._obliged_s)
        elif not self.is_level and self._owns(ROOT) and not self._is_apart():
            self._try_level()

    def _try_level(self) -> None:
        now = self._clock.monotonic()
        if now < self._unmarked_s + _FAILED_S:
            return
        try:
            self._set_level(True)
            self._unmarked = ""
        except LakelogError as error:
            if str(error) != self._unmarked:
                _log.warning("the standby is not marked as of one moment now: %s", error)
            self._unmarked, self._unmarked_s = str(error), now

    def _is_apart(self) -> bool:
        """Whether some table is not as of the moment of the others."""
        return self.standing.is_torn or any(map(_is_begun, self.standing.tables.values()))

    def note_mark(self, mark: StandbyMark) -> None:
        """Note what the mark of the standby says, which another process may have changed. Of any thread."""
        if self._mark is not None and self._mark.is_level and not mark.is_level:
            for copy in [*self.standing.tables.values()]:
                copy.is_known = False
        self._mark = mark

    def _count(self, level: Callable[[Figures], None]) -> None:
        now = self._clock.monotonic()
        if now < self._counted_s + _COUNT_S:
            return
        self._counted_s = now
        own = [copy for copy in self.standing.tables.values() if not copy.is_gone and not copy.is_others]
        as_of_s = min((copy.level_s for copy in own), default=self._begun_s)
        if self._lost:
            as_of_s = min(as_of_s, self._source_s)
        self.figures = Figures(
            self.is_level,
            now - max(as_of_s, self._begun_s),
            sum(len(copy.waiting) for copy in own),
            sum(copy.seen_end - copy.end for copy in own if copy.kind is Kind.PARTITION),
            sum(copy.waiting_bytes for copy in own),
            len(own),
            self._put_bytes,
            self._lost
            or self._unmarked
            or next((f"{copy.directory}: {copy.failure}" for copy in own if copy.failure), ""),
        )
        self._clean_one()
        if self.is_level:
            level(self.figures)

    def _set_level(self, is_level: bool) -> None:
        assert self._mark is not None
        if self._mark.is_level == is_level:
            return
        found = read_mark(self._target)
        if found is None or found.is_promoted:
            self._ended = Conflict("the standby was promoted; nothing is replicated to it any more")
            return
        mark = replace(self._mark, is_level=is_level)
        put_mark(self._target, mark)
        self._mark = mark
        _log.info("the standby %s of one moment", "is" if is_level else "is not yet")
