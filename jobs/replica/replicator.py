"""A standby that follows its root: looks at its tables, and puts each commit when it may be seen."""

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from jobs.replica.beginning import Beginning
from jobs.replica.carrier import Carrier, StagedGone
from jobs.replica.cleaning import Cleaning
from jobs.replica.level import Level
from jobs.replica.objects import SchemaFiles, Spills
from jobs.replica.opening import open_standby
from jobs.replica.resting import waiting
from jobs.replica.schedule import LOOKS_IN_TURN, PAUSE_S, QUIET_S, Schedule
from jobs.replica.table_log import Diverged, ReadCommit, is_cut_short
from jobs.replica.tables import ROOT, Kind, Standing, TableCopy, Waiting
from jobs.replica.work import Work
from log_tables.clock import Clock
from log_tables.cluster.standby import StandbyMark
from log_tables.errors import LakelogError, ObjectMissing, StoreFull
from log_tables.layout import commit_path
from log_tables.limits import LOG_RETENTION_MS
from log_tables.store.store import Store, requests_are_paid

_log = logging.getLogger(__name__)

_WAITING_COMMITS = 256
_WAITING_BYTES = 64 * 1024 * 1024
"""A table with so many commits, or bytes, that wait for others is not read on."""

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
        self._schedule = Schedule(self.standing, clock, requests_are_paid(source.url))
        self.standing.wanted = self._schedule.want
        self._level = Level(target, clock, self.standing, owns)
        self._work = Work(self._look_failed)
        self._beginning = Beginning(
            self._carrier, clock, self.standing, self._schedule, self._work, self._level
        )
        self._waiting: dict[str, TableCopy] = {}
        """The tables, by directory, with commits that are not put yet; and some whose are."""
        self._cleaning = Cleaning(self._carrier, clock, self.standing, self._work)
        self._schemas = SchemaFiles(self._carrier, clock, self.standing, self._work)
        self._spills = Spills(source, target, clock, self.standing, self._work)
        self._is_ending = False
        self._ended: BaseException | None = None
        self._lost, self._source_s = "", clock.monotonic()
        self._is_full = False
        self._begun_s, self._counted_s = clock.monotonic(), -math.inf
        self.figures = Figures()
        """The newest figures; another object with each round of counting."""

    @property
    def is_paid(self) -> bool:
        """Whether requests to the original are paid, so that it needs to know which tables are busy."""
        return self._schedule.is_paid

    def check_source(self) -> None:
        """Note whether the root of the original is there. Of any thread. Raises StoreUnavailable."""
        began_s = self._clock.monotonic()
        try:
            self._carrier.check_source()
        except LakelogError as error:
            self._lost = str(error)
            raise
        self._lost, self._source_s = "", began_s

    def note_busy(self, tables: Collection[str]) -> None:
        """Look often at these tables, by directory, and at those over their topics. Of any thread."""
        self._schedule.note_busy(tables)

    def note_mark(self, mark: StandbyMark) -> None:
        """Note what the mark of the standby says, which another process may have changed. Of any thread."""
        self._level.note(mark)

    def end(self, error: Exception) -> None:
        """Let `run` raise `error` soon. Of any thread."""
        self._ended = self._ended or error

    def run(self, stopping: threading.Event, level: Callable[[Figures], None] = lambda _: None) -> None:
        """Follow until `stopping` is set. `level` is called about once a second while the standby is of one
        moment. Raises Diverged, Conflict, and what the stores raise at the start.
        """
        begun = open_standby(self._source, self._target, self._clock, self._with_credentials)
        self._level.begin(begun.mark)
        try:
            self._beginning.open(begun)
            while not stopping.is_set() and self._ended is None:
                self._work.take_some(self._schedule.wait_s(self._schemas.wait_s(_AWAIT_S)))
                self._start_looks()
                self._put_what_may_be_seen()
                self._schemas.look()
                self._beginning.keep()
                self._level.keep()
                self._look_at_room()
                self._count(level)
        finally:
            self._is_ending = True
            self._work.close()
        if self._ended is not None:
            raise self._ended

    # Looking

    def _start_looks(self) -> None:
        looks = list[tuple[TableCopy, Callable[[], list[ReadCommit]]]]()
        now_s, on_s = self._clock.monotonic(), self._clock.boottime()
        for copy in self._schedule.due(self._work.has_room):
            if not self._owns(copy.part):
                self._leave_to_others(copy)
            elif copy.is_others:
                copy.is_looking = True
                self._work.submit(copy, partial(self._carrier.opened, copy), self._beginning.take_over)
            elif copy.needs_base:
                self._begin(copy)
            elif len(copy.waiting) >= _WAITING_COMMITS or copy.waiting_bytes >= _WAITING_BYTES:
                self._schedule.plan(copy, PAUSE_S)
            else:
                copy.is_looking = True
                is_late = copy.seen_version < 0 or on_s > copy.looked_on_s + _LATE_S
                looks.append((copy, partial(self._carrier.look, copy, copy.seen_version + 1, is_late)))
        in_turn = 1 if self.is_paid else LOOKS_IN_TURN
        for begin in range(0, len(looks), in_turn):
            self._work.submit_all(looks[begin : begin + in_turn], partial(self._looked, now_s, on_s))

    def _begin(self, copy: TableCopy) -> None:
        if copy.kind is Kind.METADATA:
            self._cleaning.expect_left()
        try:
            self._beginning.start(copy)
        except LakelogError as error:
            self._failed(copy, error)

    def _looked(self, began_s: float, on_s: float, copy: TableCopy, found: list[ReadCommit]) -> None:
        copy.is_looking, copy.looked_s, copy.looked_on_s = False, began_s, on_s
        now = self._clock.monotonic()
        for read in found:
            made = waiting(self.standing, self._target, copy, read, now)
            copy.see(read)
            copy.waiting.append(made)
            copy.waiting_bytes += read.size
        is_more = is_cut_short(found)
        if not copy.waiting:
            copy.level_s = began_s
            copy.went_well()
        else:
            self._waiting[copy.directory] = copy
            if not is_more:
                copy.waiting[-1].as_of_s = began_s
        self._schedule.plan_after(copy, bool(found), is_more)
        if copy.kind is Kind.METADATA:
            self._carrier.witness = commit_path(copy.directory, copy.seen_version)

    # Tables that other processes copy

    def _leave_to_others(self, copy: TableCopy) -> None:
        """Look at a table that another process copies only as far as tables of this one rest on it."""
        if copy.is_putting:
            self._schedule.plan(copy, PAUSE_S)
            return
        if not copy.is_others:
            copy.leave()
        if not (self._level.is_level or copy.is_known) and self._owns(ROOT):
            copy.is_looking = True
            self._work.submit(copy, partial(self._carrier.opened, copy), self._beginning.know)
        elif copy.is_wanted or copy.kind is Kind.METADATA:
            copy.is_looking, copy.is_wanted = True, False
            look = partial(self._carrier.look_afar, copy, copy.version + 1, copy.seen_version + 1)
            self._work.submit(copy, look, partial(self._looked_afar, self._clock.monotonic()))
        else:
            self._schedule.plan(copy, QUIET_S)

    def _looked_afar(
        self, began_s: float, copy: TableCopy, found: tuple[list[ReadCommit], list[ReadCommit]]
    ) -> None:
        copy.is_looking, copy.looked_s, now = False, began_s, self._clock.monotonic()
        here, there = found
        for read in there:
            copy.see(read)
        for read in here:
            put = waiting(self.standing, self._target, copy, read, now)
            self.standing.note_put(copy, put)
            for directory in put.gone:
                self._cleaning.forget(directory)
        copy.seen_version = max(copy.seen_version, copy.version)
        self._schedule.plan(copy, PAUSE_S if here or there else QUIET_S)

    # Putting

    def _put_what_may_be_seen(self) -> None:
        batch = list[tuple[TableCopy, Sequence[Waiting]]]()
        for directory, copy in [*self._waiting.items()]:
            if copy.is_gone or not copy.waiting:
                del self._waiting[directory]
            if copy.is_gone or not copy.waiting or copy.is_putting or copy.needs_base or copy.is_held:
                continue
            ready = [*self._ready(copy)]
            if ready:
                copy.is_putting = True
                batch.append((copy, ready))
        if batch:
            put = partial(self._carrier.put_together, batch)
            self._work.submit(batch[0][0], put, partial(self._put_together, batch))

    def _put_together(
        self, batch: Sequence[tuple[TableCopy, Sequence[Waiting]]], _: TableCopy, numbers: Sequence[int]
    ) -> None:
        for (copy, ready), number in zip(batch, numbers, strict=True):
            if number:
                self._put(copy, (number, None))  # the others come with the next ones
            else:
                self._work.submit(copy, partial(self._carrier.put, copy, ready), self._put)

    def _ready(self, copy: TableCopy) -> Iterator[Waiting]:
        """The next commits of a table that may be seen now."""
        for each in copy.waiting:
            each.causes = self.standing.lacks(each.causes, each.seen_s)
            if each.causes:
                return
            yield each

    def _put(self, copy: TableCopy, made: tuple[int, LakelogError | None]) -> None:
        number, error = made
        copy.is_putting = False
        staged, gone = set[str](), set[str]()
        for _ in range(number):
            put = copy.waiting.popleft()
            copy.waiting_bytes -= put.read.size
            copy.level_s = max(copy.level_s, put.as_of_s)
            staged |= self.standing.note_put(copy, put)
            gone |= put.gone
        if staged:
            self._work.submit(copy, partial(self._carrier.unstage, sorted(staged)))
        for directory in gone:
            self._cleaning.drop(directory)
        if isinstance(error, StagedGone):
            error = self._torn(copy, error)
            if error is None:
                return
        if error is not None:
            self._failed(copy, error)
            return
        copy.went_well()
        if copy.version >= copy.tidied + _TIDY_COMMITS and not copy.is_tidying:
            copy.is_tidying, copy.tidied = True, copy.version
            tidy = partial(self._carrier.tidy, copy, copy.checkpointed, copy.version)
            self._work.submit(copy, tidy, self._tidied)

    def _torn(self, copy: TableCopy, gone: StagedGone) -> LakelogError | None:
        """Let the next commit of a table come without its staged files; returns the error that keeps it."""
        self.standing.unstaged |= gone.paths
        if self._is_ending:  # the commit does not come, so the standby may stay level
            return None
        try:
            self._level.set(False)
        except LakelogError as error:
            return error
        copy.waiting[0].may_be_torn = True
        return None

    # Keeping the standby small

    def _tidied(self, copy: TableCopy, newest: int) -> None:
        copy.is_tidying, copy.checkpointed = False, newest

    # Failing

    def _look_failed(self, copy: TableCopy, error: BaseException) -> None:
        copy.is_looking = False
        self._failed(copy, error)

    def _failed(self, copy: TableCopy, error: BaseException) -> None:
        """Hold a table whose look, or whose next commit, has failed; the others go on."""
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
        self._schedule.plan(copy, min(_FAILED_MAX_S, _FAILED_S * 2 ** (copy.failed - 1)))

    def _look_at_room(self) -> None:
        """Say when no table waits for room any more."""
        if self._is_full and not any(copy.lacks_room for copy in self.standing.tables.values()):
            self._is_full = False
            _log.warning("the standby %s has room again", self._target.url)

    # Counting

    def _count(self, level: Callable[[Figures], None]) -> None:
        now = self._clock.monotonic()
        if now < self._counted_s + _COUNT_S:
            return
        self._counted_s = now
        own = [copy for copy in self.standing.tables.values() if not copy.is_gone and not copy.is_others]
        as_of_s = min((copy.level_s for copy in own), default=self._begun_s)
        if self._owns(ROOT):
            self._spills.look(as_of_s)
            as_of_s = min(as_of_s, self._spills.level_s)
        if self._lost:
            as_of_s = min(as_of_s, self._source_s)
        self.figures = Figures(
            self._level.is_level,
            now - max(as_of_s, self._begun_s),
            sum(len(copy.waiting) for copy in own),
            sum(copy.seen_end - copy.end for copy in own if copy.kind is Kind.PARTITION),
            sum(copy.waiting_bytes for copy in own),
            len(own),
            self.standing.put_bytes,
            self._lost
            or self._level.trouble
            or self._spills.trouble
            or self._schemas.trouble
            or next((f"{copy.directory}: {copy.failure}" for copy in own if copy.failure), ""),
        )
        self._cleaning.look()
        if self._level.is_level:
            level(self.figures)
