"""The process that lets a standby follow its root: looks at tables, and puts commits as far as their causes
allow. One thread decides, others read and write.
"""

import heapq
import logging
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

from jobs.replica.causes import Cause, Decided, Records, Version, data_causes, fold_causes, group_causes
from jobs.replica.opening import open_copy, records_of
from jobs.replica.table_log import (
    HELD_BYTES,
    Base,
    Diverged,
    ReadCommit,
    high_watermark,
    put_base,
    put_read,
    read_base,
    read_file,
    read_on,
)
from jobs.replica.tables import Kind, Standing, TableCopy, Waiting, tables_of
from log_tables.clock import Clock
from log_tables.cluster.metadata_log import TopicRecord, decode
from log_tables.cluster.standby import StandbyMark, put_mark, read_mark
from log_tables.errors import Conflict, LakelogError, ObjectMissing
from log_tables.layout import (
    SCHEMAS,
)
from log_tables.record import Record, to_records
from log_tables.root.group_replay import applied
from log_tables.segments import segment as segments
from log_tables.store.store import Store, requests_are_paid
from log_tables.table.commit import Add
from log_tables.table.snapshot import segment_of

_log = logging.getLogger(__name__)

_THREADS = 16
_LARGE_AT_ONCE = 4
"""Files of more than HELD_BYTES that are in memory at once."""

_WAITING_COMMITS = 256
_WAITING_BYTES = 64 * 1024 * 1024
"""A table with so many commits, or bytes, that wait for others is not read on."""

_PAUSE_S = 0.05
_PAUSE_GROWS = 1.5
_QUIET_S = 1.0
"""The pauses between two looks at a table: after news, how they grow without, and the longest."""

_QUIET_LOOKS_S, _QUIET_PAID_LOOKS_S = 2000, 8
"""The most looks a second at tables that are quiet, where requests cost nothing and where they do."""

_FAILED_S = 1.0
_FAILED_MAX_S = 30.0
_CHECKPOINT_COMMITS = 50
"""So many commits after it was looked for last, the original's newest checkpoint is looked for."""


@dataclass(slots=True)
class _Done:
    """A task that has ended: what it made, or its error."""

    copy: TableCopy
    act: Callable[[TableCopy, Any], None]
    made: Any = None
    error: Exception | None = None


class Replicator:
    """Lets the root of `target` follow that of `source`. Of one thread, which `run` is called in."""

    def __init__(self, source: Store, target: Store, clock: Clock, with_credentials: bool = False) -> None:
        self._source, self._target, self._clock = source, target, clock
        self._with_credentials = with_credentials
        self.standing = Standing()
        self.standing.wanted = self._want
        self._done = queue.SimpleQueue[_Done]()
        self._due = list[tuple[float, int, TableCopy]]()
        self._order = count()
        self._running = 0
        self._large = threading.Semaphore(_LARGE_AT_ONCE)
        self._obligations = list[Cause]()
        self._obliged_s = 0.0
        self._mark: StandbyMark | None = None
        self._ended: LakelogError | None = None
        self._schemas = set[str]()

    @property
    def is_level(self) -> bool:
        """Whether the standby is of one moment."""
        return self._mark is not None and self._mark.is_level

    def lag_s(self) -> float:
        """The age of the moment as of which the standby has everything: at least how old the look is."""
        now = self._clock.monotonic()
        return max((now - copy.level_s for copy in self.standing.tables.values()), default=0.0)

    def run(self, stopping: threading.Event, level: Callable[[], None] = lambda: None) -> None:
        """Follow until `stopping` is set. `level` is called whenever the standby is level with all that was
        seen. Raises Diverged, Conflict, and what the stores raise at the start.
        """
        self._begin()
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="replicate") as pool:
            self._pool = pool
            try:
                while not stopping.is_set() and self._ended is None:
                    self._start_looks()
                    self._put_what_may_be_seen()
                    self._note_level(level)
                    self._await_some()
            finally:
                while self._running:
                    self._take(self._done.get())
        if self._ended is not None:
            raise self._ended

    # Beginning

    def _begin(self) -> None:
        begun = open_copy(self._source, self._target, self._clock, self._with_credentials)
        self._mark = begun.mark
        for record in begun.topics:
            self.standing.topics.take(record)
        for found in begun.tables:
            copy = self._added(found.directory, found.kind)
            if found.version >= 0:
                copy.begin_at(found.version, found.end)
                copy.needs_base = not found.goes_on
                self._obligations += [Decided(*each) for each in found.decided]
            else:
                copy.needs_base = True
            if found.kind is Kind.GROUPS and found.snapshot is not None:
                self.standing.groups.follow(self._target, found.directory, found.snapshot)
        self.standing.begin_with_groups()
        self._oblige_groups()

    def _added(self, directory: str, kind: Kind) -> TableCopy:
        known = directory in self.standing.tables
        copy = self.standing.add(directory, kind)
        if not known:
            self._plan(copy, 0.0)
        return copy

    def _oblige_groups(self) -> None:
        places = self.standing.topics.places
        for key, value in self.standing.groups.offsets.items():
            at = places.get((key.topic, value.topic_id, key.partition))
            if at is not None:
                self._obligations.append(Records(at, value.offset))
        self._obliged_s = self._clock.monotonic()

    # Looking

    def _plan(self, copy: TableCopy, pause_s: float) -> None:
        copy.due_s = self._clock.monotonic() + pause_s
        heapq.heappush(self._due, (copy.due_s, next(self._order), copy))

    def _want(self, copy: TableCopy) -> None:
        if not copy.is_looking and copy.due_s > self._clock.monotonic():
            self._plan(copy, 0.0)

    def _start_looks(self) -> None:
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now and self._running < 4 * _THREADS:
            due_s, _, copy = heapq.heappop(self._due)
            if due_s != copy.due_s or copy.is_looking or copy.is_gone:
                continue  # it was planned anew
            if copy.needs_base:
                self._start_base(copy)
            elif len(copy.waiting) >= _WAITING_COMMITS or copy.waiting_bytes >= _WAITING_BYTES:
                self._plan(copy, _PAUSE_S)
            else:
                copy.is_looking, copy.looked_s = True, copy.looked_s
                began = self._clock.monotonic()
                self._submit(
                    copy, partial(self._look, copy, copy.seen_version + 1), partial(self._looked, began)
                )

    def _submit(
        self, copy: TableCopy, task: Callable[[], Any], act: Callable[[TableCopy, Any], None]
    ) -> None:
        def work() -> None:
            done = _Done(copy, act)
            try:
                done.made = task()
            except Exception as error:  # noqa: BLE001 -- the thread that decides looks at it
                done.error = error
            self._done.put(done)

        self._running += 1
        self._pool.submit(work)

    def _look(self, copy: TableCopy, version: int) -> list[ReadCommit]:
        """In a thread: read the table on, and bring large files over."""
        found = read_on(self._source, copy.directory, version, partial(self._fetch, copy))
        if any(commit.commit.adds for commit in found):
            self._copy_schemas()
        return found

    def _fetch(self, copy: TableCopy, add: Add) -> bytes | None:
        if copy.kind is Kind.FOLD:
            return None
        if add.size <= HELD_BYTES:
            return read_file(self._source, copy.directory, add)
        with self._large:
            self._target.put(f"{copy.directory}/{add.path}", read_file(self._source, copy.directory, add))
        return None

    def _copy_schemas(self) -> None:
        """Copy schemas that are new: they are older than any file that names them."""
        for item in [*self._source.list(f"{SCHEMAS}/")]:
            if item.path not in self._schemas:
                try:
                    self._target.put(item.path, self._source.get(item.path))
                except ObjectMissing:
                    continue  # an operator has just removed it
                self._schemas.add(item.path)

    def _looked(self, began: float, copy: TableCopy, found: list[ReadCommit]) -> None:
        copy.is_looking = False
        copy.looked_s = began
        now = self._clock.monotonic()
        for read in found:
            waiting = self._waiting(copy, read, now)
            copy.seen_version = read.version
            copy.seen_end = max(copy.seen_end, read.high_watermark)
            copy.waiting.append(waiting)
            copy.waiting_bytes += read.size
        if found:
            copy.pause_s = _PAUSE_S
            self._plan(copy, 0.0 if len(found) > 1 else _PAUSE_S)
        else:
            copy.pause_s = min(max(_PAUSE_S, copy.pause_s * _PAUSE_GROWS), self._quiet_s())
            self._plan(copy, copy.pause_s)
        if not copy.waiting and not found:
            copy.level_s = began

    def _quiet_s(self) -> float:
        most = _QUIET_PAID_LOOKS_S if requests_are_paid(self._source.url) else _QUIET_LOOKS_S
        return max(_QUIET_S, len(self.standing.tables) / most)

    def _waiting(self, copy: TableCopy, read: ReadCommit, now: float) -> Waiting:
        match copy.kind:
            case Kind.PARTITION:
                return Waiting(read, now, [*data_causes(read.commit, read.version)])
            case Kind.FOLD:
                topic = copy.directory
                return Waiting(read, now, [*fold_causes(read.commit.txns, topic)])
            case Kind.GROUPS:
                rows = self._new_rows(copy, read)
                causes, facts = group_causes(
                    rows, copy.directory, self.standing.groups, self.standing.topics.places
                )
                return Waiting(read, now, [*causes, *data_causes(read.commit, read.version)], facts)
            case Kind.METADATA:
                records = [decode(row) for row in self._new_rows(copy, read)]
                topics = [record for record in records if isinstance(record, TopicRecord)]
                return Waiting(read, now, self._topic_causes(topics), topics=topics)
            case Kind.CREDENTIALS:
                return Waiting(read, now, [])

    def _new_rows(self, copy: TableCopy, read: ReadCommit) -> Iterator[Record]:
        """The records that a commit appends."""
        if read.high_watermark <= copy.seen_end:
            return
        for add in read.commit.adds:
            data = read.files.get(add.path)
            if data is None:
                data = self._target.get(f"{copy.directory}/{add.path}")
            for batch in segments.read_bytes(data, copy.directory, segment_of(add)):
                yield from to_records(batch)

    def _topic_causes(self, topics: Sequence[TopicRecord]) -> list[Cause]:
        """The tables that topics name, which are looked at from now on."""
        causes: list[Cause] = []
        for record in topics:
            self.standing.topics.take(record)
            for directory, kind in tables_of(record) if record.live else ():
                self._added(directory, kind)
                causes.append(Version(directory, 0))
        return causes

    # Beginning a table at a checkpoint

    def _start_base(self, copy: TableCopy) -> None:
        if copy.is_putting:
            self._plan(copy, _PAUSE_S)
            return
        if copy.kind is Kind.METADATA and copy.version < 0 and self._is_any_missing():
            self._plan(copy, _PAUSE_S)
            return
        self._set_level(False)
        copy.is_looking = True
        copy.waiting.clear()
        copy.waiting_bytes = 0
        began = self._clock.monotonic()
        self._submit(copy, partial(self._read_base, copy), partial(self._based, began))

    def _is_any_missing(self) -> bool:
        return any(
            copy.version < 0 and not copy.is_gone and copy.kind is not Kind.METADATA
            for copy in self.standing.tables.values()
        )

    def _read_base(self, copy: TableCopy) -> Base | None:
        """In a thread: read a table's newest checkpoint and what came after it, and bring its files over."""
        base = read_base(self._source, copy.directory)
        if base is None:
            return None
        there = {item.path: item.size for item in self._target.list(f"{copy.directory}/")}
        if copy.kind is not Kind.FOLD:
            for add in sorted(base.adds, key=lambda add: add.size):
                if there.get(f"{copy.directory}/{add.path}") != add.size:
                    with self._large:
                        data = read_file(self._source, copy.directory, add)
                        self._target.put(f"{copy.directory}/{add.path}", data)
        self._copy_schemas()
        if copy.kind is not Kind.METADATA:
            put_base(self._target, copy.directory, base, self._clock)
        return base

    def _based(self, began: float, copy: TableCopy, base: Base | None) -> None:
        copy.is_looking = False
        if base is None:
            copy.is_gone = copy.kind is not Kind.METADATA
            copy.level_s = self._clock.monotonic()
            return
        if copy.kind is Kind.METADATA and self._names_others(copy, base):
            self._plan(copy, 0.0)
            return
        if copy.kind is Kind.METADATA:
            put_base(self._target, copy.directory, base, self._clock)
        copy.begin_at(base.version, high_watermark(base.txns))
        copy.looked_s = began
        if copy.kind is Kind.GROUPS:
            self._follow_groups(copy)
        self._obligations += (
            [Decided(*each) for each in applied(base.txns)] if copy.kind is Kind.PARTITION else []
        )
        self._plan(copy, 0.0)

    def _names_others(self, copy: TableCopy, base: Base) -> bool:
        """Whether the metadata log names tables that are not in the standby yet."""
        for row in records_of(self._target, copy.directory, base.adds):
            record = decode(row)
            if isinstance(record, TopicRecord):
                self._topic_causes([record])
        return self._is_any_missing()

    def _follow_groups(self, copy: TableCopy) -> None:
        from log_tables.table.table import Table

        snapshot = Table(self._target, copy.directory, self._clock).snapshot
        self.standing.groups.follow(self._target, copy.directory, snapshot)
        self.standing.begin_with_groups()
        self._oblige_groups()

    # Putting

    def _put_what_may_be_seen(self) -> None:
        for copy in self.standing.tables.values():
            if not copy.waiting or copy.is_putting or copy.needs_base:
                continue
            ready = list[Waiting]()
            for waiting in copy.waiting:
                waiting.causes = self.standing.lacks(waiting.causes, waiting.seen_s)
                if waiting.causes:
                    break
                ready.append(waiting)
            if ready:
                copy.is_putting = True
                self._submit(copy, partial(self._put, copy, ready), self._noted)

    def _put(self, copy: TableCopy, ready: Sequence[Waiting]) -> tuple[int, Exception | None]:
        """In a thread: put commits in order; returns how many, and the error that kept the next one."""
        for number, waiting in enumerate(ready):
            try:
                for path in sorted(waiting.facts.staged()) if waiting.facts is not None else ():
                    self._copy_staged(path)
                put_read(self._target, copy.directory, waiting.read, self._clock)
            except LakelogError as error:
                return number, error
        return len(ready), None

    def _copy_staged(self, path: str) -> None:
        try:
            self._target.put(path, self._source.get(path))
        except ObjectMissing:
            pass  # the transaction was applied since, as its table says further on

    def _noted(self, copy: TableCopy, made: tuple[int, Exception | None]) -> None:
        number, error = made
        copy.is_putting = False
        for _ in range(number):
            put = copy.waiting.popleft()
            copy.waiting_bytes -= put.read.size
            self.standing.note_put(copy, put)
        if not copy.waiting:
            copy.level_s = max(copy.level_s, min(copy.looked_s, self._clock.monotonic()))
        if error is not None:
            self._failed(copy, error)
        else:
            copy.failed, copy.failure = 0, ""

    # Failing

    def _failed(self, copy: TableCopy, error: Exception) -> None:
        if isinstance(error, Diverged):
            self._ended = error
            return
        if not isinstance(error, LakelogError):
            raise error
        if isinstance(error, ObjectMissing):
            copy.needs_base = True
        copy.failed += 1
        if str(error) != copy.failure:
            _log.warning("%s is not replicated now: %s", copy.directory, error)
        copy.failure = str(error)
        self._plan(copy, min(_FAILED_MAX_S, _FAILED_S * 2 ** (copy.failed - 1)))

    def _await_some(self) -> None:
        timeout = max(0.0, min(self._due[0][0] - self._clock.monotonic(), 0.5)) if self._due else 0.5
        try:
            self._take(self._done.get(timeout=timeout or None) if timeout else self._done.get_nowait())
            while True:
                self._take(self._done.get_nowait())
        except queue.Empty:
            pass

    def _take(self, done: _Done) -> None:
        self._running -= 1
        error = done.error
        if error is None:
            try:
                done.act(done.copy, done.made)
            except LakelogError as failure:
                error = failure
        if error is not None:
            done.copy.is_looking = False
            self._failed(done.copy, error)

    # Level

    def _note_level(self, level: Callable[[], None]) -> None:
        self._obligations = self.standing.lacks(self._obligations, self._obliged_s)
        tables = self.standing.tables.values()
        if self._obligations or any(
            (copy.version < 0 and not copy.is_gone) or copy.needs_base for copy in tables
        ):
            return
        self._set_level(True)
        level()

    def _set_level(self, is_level: bool) -> None:
        assert self._mark is not None
        if self._mark.is_level == is_level:
            return
        found = read_mark(self._target)
        if found is None or found.is_promoted:
            self._ended = Conflict("the standby was promoted; nothing is replicated to it any more")
            return
        self._mark = StandbyMark(self._mark.source, self._mark.cluster_id, is_level)
        put_mark(self._target, self._mark)
        _log.info("the standby %s of one moment", "is" if is_level else "is not yet")
