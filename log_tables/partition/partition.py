"""One partition: append and truncate; how a leader claims it, and how a claim fences.

An append is sequenced, which gives it offsets in memory, and then committed, which is a segment file and one
Delta commit. Any error between the two ends the term of leadership: appends that were sequenced and not
committed are void, and the next claim starts from the log.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from log_tables.clock import Clock, check_recent
from log_tables.columns.record_columns import RecordColumns
from log_tables.errors import (
    InvalidArgument,
    InvalidOffset,
    LakelogError,
    NotLeader,
    OffsetOutOfRange,
    TopicDeleted,
)
from log_tables.layout import OFFSET, TXN_DELETED, TXN_LEADER, TXN_LEADER_BROKER, log_epoch_txn, segment_name
from log_tables.limits import OFFER_LOOK_S, OFFER_MAX_AGE_MS
from log_tables.partition.append_commit import (
    Encoded,
    append_commit,
    encoded,
    encoded_records,
    mirror_commit,
)
from log_tables.partition.append_history import AppendHistory
from log_tables.partition.reader import PartitionConfig, PartitionReader
from log_tables.partition.remote import RemoteRoot
from log_tables.partition.sequencer import AppendRequest, Author, ProducerStamp, SequencedAppend, Sequencer
from log_tables.record import int64s, timestamp_us
from log_tables.segments.segment_cache import SegmentCache
from log_tables.store.store import Store
from log_tables.table.commit import DELETE_RECORDS, Commit, Txn
from log_tables.table.delta_log import commit_info, topic_deleted
from log_tables.table.first_segments import Due, below, remove_first
from log_tables.table.offer import has_offer
from log_tables.table.restore import Past, restore
from log_tables.table.snapshot import Segment, Snapshot

__all__ = ["AppendRequest", "Author", "Partition", "ProducerStamp", "SequencedAppend"]

_ROUNDED_US = 1_000
"""By how much the times of a segment may differ that are of one append: they are rounded apart."""


class Partition(PartitionReader):
    """A partition that this process may lead, and append to as its leader.

    Thread-safe; blocking, except `sequence`, which only touches memory. Once the topic is deleted, every
    method that commits raises TopicDeleted.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        clock: Clock,
        config: PartitionConfig | None = None,
        cache: SegmentCache | None = None,
        remote: Callable[[], RemoteRoot | None] = lambda: None,
        log_epoch: Callable[[], int] = lambda: 0,
    ) -> None:
        """As PartitionReader; this process does not lead the partition yet. `log_epoch` is that of the root,
        which each claim notes that finds an older one.
        """
        super().__init__(store, directory, clock, config, cache, remote)
        self._log_epoch = log_epoch
        self._sequencing = threading.Lock()
        self._committing = threading.Lock()
        self._epoch: int | None = None
        self._term = 0
        self._sequencer: Sequencer | None = None
        self._history: AppendHistory | None = None
        self._look_next = 0.0
        self._led_at: Snapshot | None = None

    @property
    def log_end(self) -> int:
        """The offset after the last sequenced record. It is provisional above the high watermark."""
        sequencer = self._sequencer
        return self.high_watermark if sequencer is None else sequencer.log_end

    @property
    def leading(self) -> bool:
        """Whether this process leads the partition, as of the snapshot."""
        if self._sequencer is None:
            return False
        snapshot = self.snapshot
        if snapshot is self._led_at:  # thousands of idle partitions are asked each second
            return True
        if self._epoch != snapshot.leader_epoch:
            return False
        self._led_at = snapshot
        return True

    @property
    def term(self) -> int:
        """The number of the term of leadership in this process: it changes whenever a term begins or ends."""
        return self._term

    def refresh(self, wait: bool = False) -> Snapshot:
        """As PartitionReader; this process stops leading when another has claimed the partition."""
        try:
            return super().refresh(wait)
        finally:
            if self._sequencer is not None and not self.leading:
                self._step_down()

    def claim(self, url: str, broker: int = 0) -> None:
        """Become the leader, by one commit that fences every earlier leader.

        `url` is the URL of this gateway, `broker` its id (0 for a job or a tool).
        Raises OutcomeUnknown, StoreUnavailable, Damaged; TopicDeleted when the topic was deleted.
        """
        with self._committing:
            claimed = self._claim(url, (Txn(TXN_LEADER_BROKER, broker),))
            with self._sequencing:
                self._epoch = claimed.info.leaderEpoch
                self._sequencer = Sequencer(self.snapshot, self._term)
            self._history = AppendHistory(self.table.store, self.directory, self.snapshot)
        self._notify()

    def begin_log_epoch(self, url: str) -> None:
        """Begin another log epoch, by a claim; only of the metadata log, whose epoch is that of the root.
        This process does not lead then. Raises as `claim`.
        """

        def build(snapshot: Snapshot) -> Commit:
            following = snapshot.log_epochs.following(self.clock.now_ms())
            return self._built_claim(url, (Txn(TXN_LEADER_BROKER, 0),), snapshot, following)

        with self._committing:
            self._step_down()
            self.table.refresh(wait=True)
            self.table.transact(build)
        self._notify()

    def delete(self, url: str, number: int = 1) -> bool:
        """Record the deletion `number` of the topic (the first is 1), by a claim that ends the log: only a
        `revive` may follow.

        It fences every leader for good, and every process that refreshes reads it. Returns False when that
        was recorded before, or a later `revive`; it is durable then.

        Raises OutcomeUnknown, StoreUnavailable, Damaged.
        """
        return self._mark(url, 2 * number - 1)

    def revive(self, url: str, number: int) -> bool:
        """Record that the topic is back after its deletion `number`, by a claim; 0 is none. Returns and
        raises as `delete`.
        """
        if self.snapshot.deletions >= 2 * number:
            return False
        return self._mark(url, 2 * number)

    def _mark(self, url: str, mark: int) -> bool:
        """Commit a claim that sets `lakelog.deleted` to `mark`, unless it is as far: who slept since an
        older deletion cannot end a log that goes on.
        """
        with self._committing:
            with suppress(TopicDeleted):
                self.table.refresh(wait=True)
            due = self.snapshot.deletions < mark
            if due:
                self._step_down()
                txns = (Txn(TXN_LEADER_BROKER, 0), Txn(TXN_DELETED, mark))
                claim = partial(self._built_claim, url, txns, log_epoch=self._log_epoch())
                due = None is not self.table.transact(
                    lambda snapshot: claim(snapshot) if snapshot.deletions < mark else None, ended=True
                )
        self.table.make_durable()
        self._notify()
        return due

    def _claim(self, url: str, txns: tuple[Txn, ...]) -> Commit:
        """Commit a claim, with `txns`. It ends every leadership, also that of this process."""
        self._step_down()
        self.table.refresh(wait=True)
        claim = partial(self._built_claim, url, txns, log_epoch=self._log_epoch())
        claimed = self.table.transact(claim)
        assert claimed is not None
        return claimed

    def _built_claim(self, url: str, txns: tuple[Txn, ...], snapshot: Snapshot, log_epoch: int) -> Commit:
        if log_epoch > snapshot.log_epochs.newest:
            txns = (*txns, Txn(log_epoch_txn(log_epoch), snapshot.high_watermark))
        epoch = snapshot.leader_epoch + 1
        info = commit_info(self.clock, "CLAIM", leader_epoch=epoch, leader_url=url)
        return Commit(info, txns=(Txn(TXN_LEADER, epoch), *txns))

    def resign(self) -> None:
        """Stop leading: appends that are sequenced and not committed are void."""
        with self._committing:
            self._step_down()

    def sequence(self, request: AppendRequest, term: int | None = None) -> SequencedAppend:
        """Give the records of `request` their offsets, provisional until `commit`; only in `term`, if given.

        Raises NotLeader, TopicDeleted, OffsetMismatch, SequenceGap, StaleProducerEpoch, ProducerTaken;
        InvalidArgument without records.
        """
        if request.count == 0:
            raise InvalidArgument("an append needs at least one record; send some")
        with self._sequencing:
            if self._sequencer is None or not self.leading or term not in (None, self._term):
                raise self._not_leader()
            return self._sequencer.sequence(request)

    def commit(self, batch: Sequence[SequencedAppend]) -> int | None:
        """Make sequenced appends durable, all or none, in the order in which they were sequenced.

        `batch` begins where the last commit ended, and leaves out only the last of the appends that were
        sequenced since. First `rests_on` of each request is called. Repeats are completed with where and when
        they were appended first, as far as the log says. Returns the time of the append in
        microseconds for a LogAppendTime topic, else None. After any error (NotLeader, TopicDeleted,
        OutcomeUnknown, StoreUnavailable, …) this process has stopped leading, and all appends that are
        sequenced and not committed are void.
        """
        fresh = [item for item in batch if not item.duplicate]
        with self._committing:
            if any(item.term != self._term for item in batch) or not self.leading:
                raise self._not_leader()
            with self._all_or_nothing():
                if not _in_turn(batch, self.high_watermark):
                    raise self._not_leader()
                append_time = self._write(fresh) if fresh else None
            for repeat in (item for item in batch if item.duplicate):
                self._complete(repeat)
        self._notify()
        return append_time

    def append(self, requests: Sequence[AppendRequest]) -> list[SequencedAppend]:
        """Sequence and commit `requests` at once, for callers that do not gather them.

        All or none: when one request is refused after others were sequenced, this process stops leading.
        """
        sequenced: list[SequencedAppend] = []
        try:
            sequenced.extend(self.sequence(request) for request in requests)
        except LakelogError:
            if sequenced:
                self.resign()
            raise
        self.commit(sequenced)
        return sequenced

    def mirror(self, records: pa.RecordBatch, end: int) -> None:
        """Append what another log has from the high watermark up to `end`: `records` (RECORD_SCHEMA, any
        number, ordered by offset) with their own offsets and times. Where it has none are gaps.

        The high watermark is the position in the other log, in the same commit: whoever goes on from there
        loses and doubles nothing. Raises InvalidOffset for offsets that are not in between, and `end` at the
        high watermark; else what `commit` raises, after which this process has stopped leading.
        """
        with self._committing:
            if not self.leading:
                raise self._not_leader()
            _check_mirrored(int64s(records.column(OFFSET)), self.high_watermark, end)
            with self._all_or_nothing():
                self._write_mirrored(records, end)
            with self._sequencing:
                self._sequencer = Sequencer(self.snapshot, self._term)
        self._notify()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """After any error within, this process has stopped leading."""
        try:
            yield
        except BaseException:
            self._step_down()
            self._notify()  # the log may have ended
            raise

    def _write(self, fresh: list[SequencedAppend]) -> int | None:
        base, config = fresh[0].base_offset, self.config
        assert base is not None
        for item in fresh:
            if item.request.rests_on is not None:
                item.request.rests_on()
        since = min((item.request.since for item in fresh if item.request.since is not None), default=None)
        append_time = self._append_time() if config.log_append_time else None
        info = commit_info(self.clock, "WRITE", leader_epoch=self._epoch)

        def build(segment: Segment, snapshot: Snapshot) -> Commit:
            self._check_turn(snapshot, base)
            if since is not None:
                # Before each put: jobs may have deleted what the records name while this process slept.
                check_recent(self.clock, since, f"an append to {self.directory}")
            return append_commit(info, fresh, segment, snapshot, self.clock.now_ms())

        self._put(
            base,
            lambda columns: encoded(fresh, append_time, columns, config.compression, config.limits),
            build,
        )
        return append_time

    def _write_mirrored(self, records: pa.RecordBatch, end: int) -> None:
        base, config = self.high_watermark, self.config
        info = commit_info(self.clock, "MIRROR", leader_epoch=self._epoch)

        def build(segment: Segment | None, snapshot: Snapshot) -> Commit:
            self._check_turn(snapshot, base)
            return mirror_commit(info, segment, end, snapshot, self.clock.now_ms())

        if records.num_rows == 0:
            self.table.transact(partial(build, None))
            return
        self._put(
            int(int64s(records.column(OFFSET))[0]),
            lambda columns: encoded_records(records, columns, config.compression, config.limits),
            build,
        )

    def _check_turn(self, snapshot: Snapshot, base: int) -> None:
        if snapshot.leader_epoch != self._epoch or snapshot.high_watermark != base:
            raise self._not_leader()

    def _put(
        self,
        first_offset: int,
        encode: Callable[[RecordColumns], Encoded],
        build: Callable[[Segment, Snapshot], Commit],
    ) -> None:
        """Put the segment that `encode` makes, with the commit that `build` makes of it."""
        self.table.widen(self.config.columns)
        path = segment_name(first_offset, self.clock.random_hex(8))
        declared = self.config.columns.held_by(self.snapshot.declared)
        columns = RecordColumns(declared, self.config.schemas)
        data, stats, records = encode(columns)
        segment = stats.segment(path, data, 0, columns=columns.tag)
        with self.table.store.put_new_before(f"{self.directory}/{path}", data) as put:
            self.table.transact(partial(build, segment), put)
        if records is not None:
            self._cache.put(f"{self.directory}/{path}", records)

    def _complete(self, repeat: SequencedAppend) -> None:
        """Say where and when `repeat` was appended first, if that is known."""
        if repeat.base_offset is None:
            repeat.base_offset = self._first_offset(repeat)
        base, segments_here = repeat.base_offset, self.snapshot.segments
        if base is None or not self.config.log_append_time:
            return
        index = self.snapshot.first_segment(base)
        if index < len(segments_here) and segments_here[index].base_offset <= base:
            found = segments_here[index]
            least, most = timestamp_us(found.min_timestamp), timestamp_us(found.max_timestamp)
            if most - least <= _ROUNDED_US:  # otherwise it has been merged with later ones
                repeat.append_time_us = least

    def _first_offset(self, repeat: SequencedAppend) -> int | None:
        stamp, history, older = repeat.request.producer, self._history, None
        with self._sequencing:
            if self._sequencer is not None and stamp is not None:
                older = self._sequencer.older(stamp)
        if older is None or stamp is None or history is None:
            return None
        try:
            return history.base_offset(stamp, repeat.count, *older)
        except LakelogError:
            return None  # it is durable, and that is what the client has to know

    def _append_time(self) -> int:
        """Now, or the time of the newest record: LogAppendTime stands still when the clock jumps back."""
        last = self.snapshot.segments[-1:]
        return max(self.clock.now_us(), *(timestamp_us(segment.max_timestamp) for segment in last), 0)

    @property
    def offer_due(self) -> bool:
        """Whether to look for an offer: this process leads, and has not looked for a while."""
        return self.leading and self.clock.monotonic() >= self._look_next

    def has_offer(self) -> bool:
        """Whether `take_offer` has something to take. May run during an append. Raises StoreUnavailable."""
        self._look_next = self.clock.monotonic() + OFFER_LOOK_S
        return has_offer(self.table.store, self.directory)

    def take_offer(self) -> None:
        """Commit, as the leader, what another process could not commit between this one's appends.

        Call it between two appends. After an error this process leads on: nothing of its own is lost, and no
        offer is looked for during the next minute. Raises StoreUnavailable, OutcomeUnknown, Damaged;
        CorruptLog for an offer that would break the log.
        """
        with self._committing:
            epoch = self._epoch
            try:
                if self.leading:
                    self.table.take_offer(lambda snapshot: snapshot.leader_epoch == epoch)
            except Exception:
                self._look_next = self.clock.monotonic() + OFFER_MAX_AGE_MS / 1000
                raise

    def truncate(self, before: int, known_start: int | None = None) -> int:
        """Delete the records below offset `before` (Kafka's DeleteRecords); returns the new log start.

        Segments wholly below it are removed, many of them in several commits; inside of a segment our readers
        skip the records. The log start never moves back: a smaller `before` changes nothing. Nor does one
        that was decided when the log started at `known_start`, if that was moved back since: what a restore
        has brought back stays. Raises InvalidOffset, OffsetOutOfRange, and what `refresh` raises;
        OutcomeUnknown where a part may be done.
        """
        self.refresh(wait=True)
        if before < 0:
            raise InvalidOffset(f"offset {before} is negative; use one from 0 to {self.high_watermark}")
        if before > self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {before} is beyond the high watermark {self.high_watermark}; use one up to that",
                log_start_offset=self.log_start,
                high_watermark=self.high_watermark,
            )

        def due(snapshot: Snapshot) -> Due | None:
            nonlocal known_start
            start = snapshot.log_start
            if before <= start or (known_start is not None and start < known_start):
                return None
            known_start = None if known_start is None else start
            return below(snapshot, before)

        remove_first(self.table, DELETE_RECORDS, due)
        return self.log_start

    def restore(self, past: Past) -> int:
        """Let the log begin where it did in `past` (`look_back`); returns the log start. Raises as the
        function `restore`.
        """
        start = restore(self.table, past)
        self._notify()
        return start

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties, which Delta tools see; no commit if they are set already."""
        info = commit_info(self.clock, "SET TBLPROPERTIES")

        def build(snapshot: Snapshot) -> Commit | None:
            configuration = {**snapshot.metadata.configuration, **properties}
            if configuration == snapshot.metadata.configuration:
                return None
            return Commit(info, metadata=replace(snapshot.metadata, configuration=configuration))

        self.table.transact(build)

    def checkpoint(self) -> None:
        """Write a checkpoint of the snapshot; not on the append path. Idle producers are forgotten."""
        self.table.checkpoint(self.config.producer_expiration_ms)
        snapshot = self.snapshot
        named = snapshot.producer_ids()
        with self._sequencing:
            if self._sequencer is not None and self.leading:
                self._sequencer.forget(snapshot, named)

    def _step_down(self) -> None:
        """End the term of leadership, if this is in one: appends that are not committed are void."""
        with self._sequencing:
            self._epoch, self._sequencer, self._history, self._led_at = None, None, None, None
            self._term += 1

    def _not_leader(self) -> LakelogError:
        if self.snapshot.deleted:
            return topic_deleted(self.directory)
        return NotLeader(
            f"this gateway does not lead {self.directory} (leader epoch {self.snapshot.leader_epoch}); "
            "repeat the request"
        )


def _in_turn(batch: Sequence[SequencedAppend], high_watermark: int) -> bool:
    """Whether `batch` follows the high watermark, and each repeat in it comes after its first time."""
    end = high_watermark
    for item in batch:
        if not (item.log_end <= end if item.duplicate else item.base_offset == end):
            return False
        end = max(end, item.log_end)
    return True


def _check_mirrored(offsets: np.ndarray, begin: int, end: int) -> None:
    if end <= begin:
        raise InvalidOffset(f"the copy ends at offset {begin} already, not before {end}; go on from there")
    if len(offsets) and not (begin <= offsets[0] and offsets[-1] < end and (np.diff(offsets) > 0).all()):
        raise InvalidOffset(
            f"the offsets {int(offsets[0])} to {int(offsets[-1])} do not increase from {begin} to {end}; "
            "read them again"
        )
