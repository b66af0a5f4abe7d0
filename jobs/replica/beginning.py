"""Tables that a standby begins with: where it has them, or as of a checkpoint of the original."""

from collections.abc import Collection
from functools import partial

from jobs.replica.carrier import Carrier
from jobs.replica.causes import Metadata, Records, fold_causes, txn_causes
from jobs.replica.level import Level
from jobs.replica.opening import Begun, Opened, deleted_tables, records_of, topics_of
from jobs.replica.resting import topic_causes
from jobs.replica.schedule import PAUSE_S, QUIET_S, Schedule
from jobs.replica.table_log import Base, high_watermark
from jobs.replica.tables import Kind, Standing, TableCopy
from jobs.replica.work import Work
from log_tables.clock import Clock
from log_tables.layout import METADATA_DIRECTORY
from log_tables.table.commit import Txn
from log_tables.table.table import Table


class Beginning:
    """Begins the tables of `standing`. Nothing is level before all that they rest on is there. Of the thread
    that decides.
    """

    def __init__(
        self, carrier: Carrier, clock: Clock, standing: Standing, schedule: Schedule, work: Work, level: Level
    ) -> None:
        self._carrier, self._clock = carrier, clock
        self._standing, self._schedule, self._work, self._level = standing, schedule, work, level
        self._to_stage = set[str]()

    def open(self, begun: Begun) -> None:
        """Go on where the standby is."""
        self._carrier.witness = begun.witness
        for record in begun.topics:
            self._standing.topics.take(record)
        for found in begun.tables:
            copy = self._standing.added(found.directory, found.kind)
            self._take(copy, found)
            copy.needs_base = not found.goes_on
        self._level.oblige([Metadata()])
        self._oblige_groups()
        self._begin_with_groups()

    def take_over(self, copy: TableCopy, found: Opened) -> None:
        """This process copies a table that another one did."""
        copy.is_looking = copy.is_others = False
        self._take(copy, found)
        copy.needs_base = not found.goes_on
        if copy.kind is Kind.GROUPS and found.snapshot is not None:
            self._begin_with_groups()
        self._schedule.plan(copy, 0.0)

    def know(self, copy: TableCopy, found: Opened) -> None:
        """Another process has brought a table so far: what it rests on has to come before all is level."""
        copy.is_looking = False
        self._take(copy, found)
        copy.is_known = found.version >= 0 and found.goes_on
        self._schedule.plan(copy, QUIET_S)

    def _take(self, copy: TableCopy, found: Opened) -> None:
        """Take where the standby has a table."""
        if found.version >= 0:
            copy.begin_at(found.version, found.end, found.txns)
            self._oblige(copy, found.txns)
        if copy.kind is Kind.GROUPS and found.snapshot is not None and not copy.is_others:
            self._standing.groups.follow(self._carrier.target, copy.directory, found.snapshot)

    def _oblige(self, copy: TableCopy, txns: Collection[Txn]) -> None:
        """Nothing is of one moment until all is there on which a table with `txns` rests."""
        is_fold = copy.kind is Kind.FOLD
        self._level.oblige(fold_causes(txns, copy.directory) if is_fold else txn_causes(txns))

    def _oblige_groups(self) -> None:
        """Groups may be ahead of tables that begin later: until these are there, nothing is of one moment."""
        places = self._standing.topics.places
        for key, value in self._standing.groups.offsets.items():
            at = places.get((key.topic, value.topic_id, key.partition))
            if at is not None:
                self._level.oblige([Records(at, value.offset)])

    def _begin_with_groups(self) -> None:
        """All is known of groups that the standby has; unless it is level, it may lack their staged files."""
        self._standing.begin_with_groups()
        if self._level.is_level:
            return
        self._standing.unstaged = self._standing.staged() | self._standing.torn()
        self._to_stage = {*self._standing.unstaged}

    def keep(self) -> None:
        """Bring staged files over for which transactions wait that the standby has."""
        paths, self._to_stage = self._to_stage & self._standing.unstaged, set()
        if paths:
            log, stage = self._standing.tables[METADATA_DIRECTORY], partial(self._carrier.try_stage, paths)
            self._work.submit(log, stage, partial(self._staged_but, paths))

    def _staged_but(self, paths: set[str], _: TableCopy, gone: set[str] | None) -> None:
        if gone is None:
            self._to_stage |= paths
        else:
            self._standing.unstaged -= paths - gone

    def start(self, copy: TableCopy) -> None:
        """Begin a table at the original's newest checkpoint. Raises as `Level.set`."""
        is_first = copy.kind is Kind.METADATA and copy.version < 0
        is_early = copy.kind is Kind.FOLD and self._lacks_partitions(copy)
        if copy.is_putting or is_early or (is_first and self._is_any_missing()):
            self._schedule.plan(copy, PAUSE_S)
            return
        self._level.set(False)
        copy.is_looking = True
        copy.waiting.clear()
        copy.waiting_bytes = 0
        task = partial(self._carrier.base, copy)
        self._work.submit(copy, task, partial(self._read, self._clock.monotonic()))

    def _is_any_missing(self) -> bool:
        """Whether the standby lacks a table that the metadata log may name."""
        return any(
            copy.version < 0 and not copy.is_gone and copy.kind is not Kind.METADATA
            for copy in self._standing.tables.values()
        )

    def _lacks_partitions(self, fold: TableCopy) -> bool:
        """Whether a partition below `fold` has still to begin: its files are those of the fold."""
        prefix = f"{fold.directory}/"
        return any(copy.is_to_begin for at, copy in self._standing.tables.items() if at.startswith(prefix))

    def _read(self, began_s: float, copy: TableCopy, base: Base | None) -> None:
        copy.is_looking = False
        if base is None:
            copy.is_gone = copy.kind is not Kind.METADATA
            copy.level_s = began_s
            return
        if copy.kind is Kind.METADATA:
            # It is put when all tables are there that it names: without it the root is none.
            # Of a topic that was made and swept before there is nothing to begin with.
            rows = records_of(self._carrier.target, copy.directory, base.adds)
            topics = {record.name: record for record in topics_of(rows)}.values()
            topic_causes(self._standing, [*topics])
            for record in topics:
                for directory, kind in deleted_tables(self._carrier.source, record):
                    self._standing.added(directory, kind)
            if self._is_any_missing():
                self._schedule.plan(copy, PAUSE_S)
                return
        copy.is_looking = True
        put = partial(self._carrier.put_base, copy, base)
        self._work.submit(copy, put, partial(self._put, began_s, base))

    def _put(self, began_s: float, base: Base, copy: TableCopy, _: None) -> None:
        copy.is_looking, copy.looked_s = False, began_s
        copy.begin_at(base.version, high_watermark(base.txns), base.txns)
        copy.went_well()
        self._standing.put_bytes += sum(add.size for add in base.adds)
        self._oblige(copy, base.txns)
        if copy.kind is Kind.GROUPS:
            snapshot = Table(self._carrier.target, copy.directory, self._clock).snapshot
            self._standing.groups.follow(self._carrier.target, copy.directory, snapshot)
            self._oblige_groups()
            self._begin_with_groups()
        if copy.kind is Kind.PARTITION:
            fold = self._standing.tables.get(copy.directory.rsplit("/", 1)[0])
            if fold is not None:  # it may name files that this table has not had
                fold.needs_base = True
        self._schedule.plan(copy, 0.0)
