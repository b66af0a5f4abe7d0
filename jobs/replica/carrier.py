"""All that is read of a root and put into its standby, by threads that decide nothing."""

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice, takewhile, zip_longest

from msgspec.structs import replace

from jobs.replica.opening import Opened, opened
from jobs.replica.table_log import (
    Base,
    ReadCommit,
    copy_checkpoint,
    delete_before,
    first_version,
    goes_on,
    put_base,
    put_of,
    put_read,
    read_base,
    read_file,
    read_on,
)
from jobs.replica.tables import Kind, TableCopy, Waiting
from log_tables.clock import Clock
from log_tables.cluster.topic import is_internal
from log_tables.errors import LakelogError, ObjectMissing, StoreUnavailable
from log_tables.layout import (
    SCHEMAS,
    TOPICS,
    commit_path,
    incarnation_of,
    partition_directory,
    segment_base_offset,
)
from log_tables.limits import REPLACED_FILE_RETENTION_MS
from log_tables.store.store import Put, Store
from log_tables.table.commit import Add
from log_tables.topic_table.topic_snapshot import partition_of

_log = logging.getLogger(__name__)

HELD_BYTES = 1024 * 1024
"""A file up to this size is held in memory, and put together with the commit that adds it."""

_TOGETHER, _TOGETHER_BYTES = 128, 8 * 1024 * 1024
"""The most commits, and bytes of these and their files, that are put together."""

_TURNS = 8
"""The most of one table: each is a wait for the disk that the other tables have, too."""

_LARGE_AT_ONCE = 4
"""Larger files that are in memory at once."""


class StagedGone(LakelogError):
    """A commit names staged files that the original has no longer: their transactions are applied there.

    Its table and those of their partitions are torn until the standby has that, too.
    """

    def __init__(self, paths: set[str]) -> None:
        super().__init__(f"the staged files {', '.join(sorted(paths))} are gone")
        self.paths = paths


class Carrier:
    """Carries files and commits from `source` to `target`. Thread-safe; blocking."""

    def __init__(self, source: Store, target: Store, clock: Clock) -> None:
        self.source, self.target, self._clock = source, target, clock
        self._large = threading.Semaphore(_LARGE_AT_ONCE)
        self._schemas, self._staged = set[str](), set[str]()
        self.witness = ""
        """An object of the original that is there as long as its root is; empty until one is known."""

    def check_source(self) -> None:
        """Raise StoreUnavailable if the root of the original is not there: a mount that is lost looks like a
        table without news.
        """
        if not self.witness:
            return  # a large root is being opened still, which says what it does not find
        try:
            self.source.head(self.witness)
        except ObjectMissing:
            raise StoreUnavailable(
                f"{self.witness} is no longer in the root {self.source.url}; check that it is mounted"
            ) from None

    def look(self, copy: TableCopy, version: int, is_late: bool = False) -> list[ReadCommit]:
        """Read a table on from `version`, and bring large files over. `is_late`: the log may go on beyond
        that without it.

        Raises ObjectMissing when a file is gone, or the log before `version`, and what the stores raise.
        """
        found = read_on(self.source, copy.directory, version, lambda add: self._fetched(copy, add))
        if not found and is_late and not goes_on(self.source, copy.directory, version):
            raise ObjectMissing(f"version {version} of {copy.directory} is no longer in its log")
        return found

    def look_afar(self, copy: TableCopy, here: int, there: int) -> tuple[list[ReadCommit], list[ReadCommit]]:
        """The commits from version `here` on that another process has put into the standby, and those from
        `there` on of the original, without their files but for those of groups and metadata.
        """
        with_files = copy.kind in (Kind.GROUPS, Kind.METADATA)

        def fetched(add: Add) -> bytes | None:
            return read_file(self.target, copy.directory, add) if with_files else None

        seen = read_on(self.source, copy.directory, there, lambda _: None)
        return read_on(self.target, copy.directory, here, fetched), seen

    def opened(self, copy: TableCopy) -> Opened:
        """Where the standby has a table that another process copies, or did. Raises Diverged."""
        return opened(self.source, self.target, self._clock, (copy.directory, copy.kind))

    def _fetched(self, copy: TableCopy, add: Add) -> bytes | None:
        if copy.kind is Kind.FOLD:
            return None  # its files are the partitions'
        if add.size <= HELD_BYTES:
            return read_file(self.source, copy.directory, add)
        self._copy_file(copy.directory, add)
        return None

    def _copy_file(self, directory: str, add: Add) -> None:
        with self._large:
            self.target.put(f"{directory}/{add.path}", read_file(self.source, directory, add))

    def copy_schemas(self) -> None:
        """Copy schemas that are new: they are older than any file that names them."""
        for item in [*self.source.list(f"{SCHEMAS}/")]:
            if item.path not in self._schemas:
                with suppress(ObjectMissing):  # an operator has just removed it
                    self.target.put(item.path, self.source.get(item.path))
                    self._schemas.add(item.path)

    def base(self, copy: TableCopy) -> Base | None:
        """A table as of its newest checkpoint, with its files brought over; None if the original has none."""
        base = read_base(self.source, copy.directory)
        if base is None:
            self.check_source()
            return None
        # Those of a fold are the partitions', which may have replaced some since.
        there = {item.path: item.size for item in self.target.list(f"{copy.directory}/")}
        # The small ones first: they are merged, and gone, soonest.
        for add in sorted(base.adds, key=lambda add: add.size):
            if there.get(f"{copy.directory}/{add.path}") != add.size:
                self._copy_file(*_place(copy, add))
        self.copy_schemas()
        return base

    def put_base(self, copy: TableCopy, base: Base) -> None:
        """Let the standby's log of a table begin at `base`. Raises Diverged, and what the stores raise."""
        put_base(self.target, copy.directory, base, self._clock)

    def put_together(self, batch: Sequence[tuple[TableCopy, Sequence[Waiting]]]) -> list[int]:
        """Put the next commits of several tables with few waits for the disk, the first of each table before
        the second of any; returns how many of each are put. A table of which none is, for whatever reason, is
        to be put by `put`.
        """
        puts, size, left = list[Put](), 0, set[str]()
        for turn in islice(zip_longest(*(ready for _, ready in batch)), _TURNS):
            for (copy, _), waiting in zip(batch, turn, strict=True):
                if waiting is None or copy.directory in left:
                    continue
                more = waiting.read.held_bytes
                if len(puts) == _TOGETHER or size + more > _TOGETHER_BYTES or waiting.names_staged():
                    left.add(copy.directory)
                    continue
                size += more
                puts.append(put_of(copy.directory, waiting.read))
        there = self.target.put_together(puts) if len(puts) > 1 else ()

        def is_there(copy: TableCopy, waiting: Waiting) -> bool:
            return commit_path(copy.directory, waiting.read.version) in there

        return [sum(takewhile(bool, (is_there(copy, each) for each in ready))) for copy, ready in batch]

    def put(self, copy: TableCopy, ready: Sequence[Waiting]) -> tuple[int, LakelogError | None]:
        """Put commits in order; returns how many, and the error that kept the next one: StagedGone where one
        names files that are gone, and may not be torn.
        """
        for number, waiting in enumerate(ready):
            try:
                gone = self.stage(waiting.facts.staged()) if waiting.facts is not None else set[str]()
                if gone and not waiting.may_be_torn:
                    return number, StagedGone(gone)
                put_read(self.target, copy.directory, waiting.read, self._clock)
            except LakelogError as error:
                return number, error
        return len(ready), None

    def stage(self, paths: Iterable[str]) -> set[str]:
        """Bring staged files over; returns those that are gone: their transactions were applied since, as
        their table says further on.
        """
        gone = set[str]()
        for path in sorted({*paths} - self._staged):
            try:
                self.target.put(path, self.source.get(path))
                self._staged.add(path)
            except ObjectMissing:
                gone.add(path)
        return gone

    def try_stage(self, paths: Iterable[str]) -> set[str] | None:
        """Bring staged files over as `stage`; None if a store has failed."""
        gone = set[str]()
        return (
            gone if self._tried("staged files are brought", lambda: gone.update(self.stage(paths))) else None
        )

    def unstage(self, paths: Sequence[str]) -> None:
        """Remove staged files for which nobody waits any longer."""
        if self._tried("staged files are removed", lambda: self.target.delete_objects(paths)):
            self._staged.difference_update(paths)

    def tidy(self, copy: TableCopy, known: int, version: int) -> int:
        """Copy a checkpoint that is newer than `known`, and take off the log that the original has no longer;
        returns the newest checkpoint that is known.
        """
        newest = known

        def act() -> None:
            nonlocal newest
            newest = copy_checkpoint(self.source, self.target, copy.directory, known, version)
            if newest > known:
                first = first_version(self.source, copy.directory)
                delete_before(self.target, copy.directory, min(first, newest))

        return newest if self._tried(f"the log of {copy.directory} is kept short", act) else known

    def clean(self, copy: TableCopy) -> bool:
        """Remove the files that the original has removed, of a table that is level with it; returns whether
        that is done.

        All that the newest version names is at the original, which removes nothing that is named.
        """
        prefix = f"{copy.directory}/"

        def act() -> None:
            horizon = self.target.now_ms() - REPLACED_FILE_RETENTION_MS
            old = [item.path for item in self.target.list(prefix) if item.modified_ms < horizon]
            there = {item.path for item in self.source.list(prefix)}
            gone = [path for path in old if path not in there and _is_segment(path.removeprefix(prefix))]
            if gone:
                self.check_source()
                self.target.delete_objects(gone)

        return self._tried(f"the files of {copy.directory} are removed that the original has removed", act)

    def left_over(self, named: Collection[str]) -> set[str] | None:
        """The directories of topics of the standby that the original has not, but for those `named`; None if
        a store has failed.
        """
        gone = set[str]()

        def act() -> None:
            here = {each.rstrip("/") for each in self.target.list_dirs(f"{TOPICS}/")} - {*named}
            if here:
                here -= {each.rstrip("/") for each in self.source.list_dirs(f"{TOPICS}/")}
                self.check_source()
                gone.update(each for each in here if _is_topic(each))

        return gone if self._tried("topics that the original has removed are looked for", act) else None

    def remove(self, directory: str) -> bool:
        """Remove what the standby has in the directory of a topic; returns whether that is done."""
        return self._tried(
            f"{directory} is removed",
            lambda: self.target.delete_objects([item.path for item in [*self.target.list(f"{directory}/")]]),
        )

    def _tried(self, about: str, act: Callable[[], object]) -> bool:
        """Do what the standby can be without for a while; returns whether it is done."""
        try:
            act()
        except LakelogError as error:
            _log.warning("not now: %s: %s", about, error)
            return False
        return True


def _place(copy: TableCopy, add: Add) -> tuple[str, Add]:
    """The table to which the file of `add` belongs, and the add as it is there."""
    if copy.kind is not Kind.FOLD:
        return copy.directory, add
    number, name = partition_of(add.path)
    return partition_directory(copy.directory, number), replace(add, path=name)


def _is_topic(directory: str) -> bool:
    """Whether it is the directory of a topic that may go: a record names those of lakelog's own for ever."""
    named = incarnation_of(directory)
    return named is not None and not is_internal(named[0])


def _is_segment(name: str) -> bool:
    return "/" not in name and segment_base_offset(name) is not None
