"""One partition: append, read, find by time, truncate; who leads it, and how a leader is fenced.

An append is sequenced (offsets, cheap, in memory) and then committed (a segment file and one Delta commit).
Everything that goes wrong between the two ends the term of leadership: what was sequenced and not committed
is void, and the next claim starts from what the log says.
"""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import mmh3
import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from log_tables.clock import Clock
from log_tables.errors import (
    InvalidArgument,
    InvalidOffset,
    LakelogError,
    NotLeader,
    OffsetOutOfRange,
    TopicDeleted,
)
from log_tables.layout import (
    OFFSET,
    TIMESTAMP,
    TXN_DELETED,
    TXN_HIGH_WATERMARK,
    TXN_LEADER,
    TXN_LEADER_BROKER,
    TXN_LOG_START,
    producer_end_txn,
    producer_sequence_txn,
    segment_name,
)
from log_tables.limits import (
    MODIFICATION_STEP_MS,
    SMALL_SEGMENT_BYTES,
    TIMESTAMP_MAX_US,
    TIMESTAMP_MIN_US,
)
from log_tables.partition.remote import RemoteRoot, RemoteTier
from log_tables.partition.sequencer import (
    AppendRequest,
    ProducerStamp,
    SequencedAppend,
    Sequencer,
    producers_of,
)
from log_tables.record import RECORD_SCHEMA, constant_timestamps, int64s, with_offsets
from log_tables.segments import segment as segments
from log_tables.store.store import Store
from log_tables.table.commit import Commit, CommitInfo, ProducedBatch, Txn
from log_tables.table.snapshot import ProducerState, Segment, Snapshot, timestamp_text, timestamp_us
from log_tables.table.table import Table, commit_info, topic_deleted

__all__ = [
    "AppendRequest",
    "Partition",
    "PartitionConfig",
    "ProducerStamp",
    "ReadPlan",
    "SequencedAppend",
    "partition_for_key",
]


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What a partition needs of its topic's configuration."""

    compression: str = "zstd"
    log_append_time: bool = False
    producer_expiration_ms: int = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """Which offsets a read gives: start ≤ offset < end, and the segments that hold them.

    With a `limit` the last segment has gaps and so many of its records would be enough: where they end only
    the file knows (`Partition.bound`).
    """

    start: int
    end: int
    log_start: int
    high_watermark: int
    segments: tuple[Segment, ...] = ()
    limit: int | None = None


def partition_for_key(key: bytes, count: int) -> int:
    """The partition of `key` among `count`: murmur3 (32 bit, sign bit masked) modulo the count."""
    return (mmh3.hash(key, signed=False) & 0x7FFFFFFF) % count


class Partition:
    """One partition of a topic. Thread-safe; blocking, except `sequence`, which only touches memory."""

    def __init__(
        self,
        store: Store,
        directory: str,
        clock: Clock,
        config: PartitionConfig | None = None,
        cache: segments.SegmentCache | None = None,
        remote: Callable[[], RemoteRoot | None] = lambda: None,
    ) -> None:
        """Open the partition whose table is at `directory`; `remote` gives the root of its remote tier.

        Raises ObjectMissing, UnsupportedTable, ForeignCommit. What is known of a partition of a deleted topic
        stays as it was: every method that looks at the table or commits raises TopicDeleted.
        """
        self.directory, self.clock, self._store = directory, clock, store
        self.config = config or PartitionConfig()
        self._cache = cache or segments.SegmentCache()
        self.table = Table(store, directory, clock)
        self._tier = RemoteTier(directory, remote)
        self._sequencing = threading.Lock()
        self._committing = threading.Lock()
        self._epoch: int | None = None
        self._term = 0
        self._sequencer: Sequencer | None = None
        self._listeners: dict[int, Callable[[], None]] = {}
        self._seen = (self.high_watermark, self.snapshot.deleted)

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot

    def reaches(self, offset: int) -> bool:
        """Whether `log_from(offset)`, and with it `plan_read`, answers from memory."""
        here = self.snapshot
        return offset >= here.tiered or self._tier.is_known(here)

    def log_from(self, offset: int) -> Snapshot:
        """`snapshot`, and if `offset` is below its first segment the remote ones, too (`Segment.remote`).

        Raises StoreUnavailable when the remote root is needed and does not answer, CorruptLog, ForeignCommit.
        """
        return self._log_from(self.snapshot, offset)

    def _log_from(self, here: Snapshot, offset: int) -> Snapshot:
        return here if offset >= here.tiered else self._tier.joined(here)

    @property
    def log_start(self) -> int:
        return self.snapshot.log_start

    @property
    def high_watermark(self) -> int:
        return self.snapshot.high_watermark

    @property
    def log_end(self) -> int:
        """The offset after the last sequenced record: provisional above the high watermark."""
        sequencer = self._sequencer
        return self.high_watermark if sequencer is None else sequencer.log_end

    @property
    def leading(self) -> bool:
        """Whether this process may append, as far as it knows."""
        return self._sequencer is not None and self._epoch == self.snapshot.leader_epoch

    @property
    def term(self) -> int:
        """Which term of leadership in this process this is: it changes whenever one begins or ends."""
        return self._term

    def claim(self, url: str, broker: int = 0) -> None:
        """Become the leader, by one commit that fences every older one.

        `url` says where this gateway is, `broker` which it is (0: none, as a job or a tool).
        Raises OutcomeUnknown, StoreUnavailable, Damaged; TopicDeleted when the topic was deleted.
        """
        with self._committing:
            claimed = self._claim(url, (Txn(TXN_LEADER_BROKER, broker),))
            with self._sequencing:
                self._epoch = claimed.info.leaderEpoch
                self._sequencer = Sequencer(self.snapshot, self._term)
        self._notify()

    def delete(self, url: str) -> bool:
        """Say that the topic is deleted, by a claim that is the last commit: it fences every leader for good,
        and every look at the table finds it. Returns False when that was said already, durably.

        Raises OutcomeUnknown, StoreUnavailable, Damaged.
        """
        try:
            with self._committing:
                self._claim(url, (Txn(TXN_LEADER_BROKER, 0), Txn(TXN_DELETED, 1)))
        except TopicDeleted:
            self.table.make_durable()
            return False
        finally:
            self._notify()
        return True

    def _claim(self, url: str, txns: tuple[Txn, ...]) -> Commit:
        """Commit a claim that says `txns`, too; whoever led, this process or another, does no longer."""

        def build(snapshot: Snapshot) -> Commit:
            epoch = snapshot.leader_epoch + 1
            info = commit_info(self.clock, "CLAIM", leader_epoch=epoch, leader_url=url)
            return Commit(info, txns=(Txn(TXN_LEADER, epoch), *txns))

        self._step_down()
        self.table.refresh(wait=True)
        claimed = self.table.transact(build)
        assert claimed is not None
        return claimed

    def resign(self) -> None:
        """Stop leading: what was sequenced and is not committed is void."""
        with self._committing:
            self._step_down()

    def sequence(self, request: AppendRequest) -> SequencedAppend:
        """Give the records of `request` their offsets, provisional until `commit`.

        Raises NotLeader, TopicDeleted, OffsetMismatch, SequenceGap, StaleProducerEpoch, ProducerTaken;
        InvalidArgument without records.
        """
        if request.batch.num_rows == 0:
            raise InvalidArgument("an append needs at least one record; send some")
        with self._sequencing:
            if self._sequencer is None or not self.leading:
                raise self._not_leader()
            return self._sequencer.sequence(request)

    def commit(self, batch: Sequence[SequencedAppend]) -> int | None:
        """Make sequenced requests durable, all or none, in the order in which they were sequenced.

        `batch` begins where the last commit ended; of what was sequenced since nothing may be left out but
        from the end. What the requests rest on is made durable first. Returns the time of the append in
        microseconds for a LogAppendTime topic, else None. Whatever is raised (NotLeader, TopicDeleted,
        OutcomeUnknown, StoreUnavailable, …), this process has stopped leading and everything sequenced and
        not committed is void.
        """
        fresh = [item for item in batch if not item.duplicate]
        with self._committing:
            if any(item.term != self._term for item in batch) or not self.leading:
                raise self._not_leader()
            try:
                if not _in_turn(batch, self.high_watermark):
                    raise self._not_leader()
                append_time = self._write(fresh) if fresh else None
            except BaseException:
                self._step_down()
                self._notify()  # it may have met the end of the topic
                raise
        self._notify()
        return append_time

    def append(self, requests: Sequence[AppendRequest]) -> list[SequencedAppend]:
        """Sequence and commit: an append for callers that need no batching over requests.

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

    def _write(self, fresh: list[SequencedAppend]) -> int | None:
        base, epoch = fresh[0].base_offset, self._epoch
        assert base is not None
        for item in fresh:
            if item.request.rests_on is not None:
                item.request.rests_on()
        append_time = self._append_time() if self.config.log_append_time else None
        records = _records(fresh, base, append_time)
        data = segments.encode(records, self.config.compression)
        path = segment_name(base, self.clock.random_hex(8))
        segment = segments.describe(path, records, data.size, 0)
        self._store.put_new(f"{self.directory}/{path}", data)
        info = commit_info(self.clock, "WRITE", leader_epoch=epoch)
        txns = _append_txns(fresh, base + records.num_rows, self.clock.now_ms())

        def build(snapshot: Snapshot) -> Commit:
            if snapshot.leader_epoch != epoch or snapshot.high_watermark != base:
                raise self._not_leader()
            return _append_commit(info, txns, fresh, _timed(segment, snapshot, self.clock.now_ms()))

        self.table.transact(build)
        self._cache.put(f"{self.directory}/{path}", records)
        return append_time

    def _append_time(self) -> int:
        """Now, but never before the newest record: LogAppendTime stands still when the clock jumps back."""
        last = self.snapshot.segments[-1:]
        return max(self.clock.now_us(), *(timestamp_us(segment.max_timestamp) for segment in last), 0)

    def refresh(self, wait: bool = False) -> Snapshot:
        """Follow the commits of other processes; `wait` for one of this process that is in flight, too
        (`Table.refresh`).

        Raises TopicDeleted when the topic was deleted, StoreUnavailable, Damaged.
        """
        try:
            return self.table.refresh(wait)
        finally:
            if self._sequencer is not None and not self.leading:
                with self._sequencing:
                    self._end_term()
            self._notify()

    @property
    def confirmed(self) -> float:
        """Until when (`Clock.boottime`) what is known here is known to be all: at a look, or a commit."""
        return self.table.confirmed

    def check_live(self) -> None:
        """Raise TopicDeleted if the topic is known to be deleted; without asking the store."""
        if self.snapshot.deleted:
            raise topic_deleted(self.directory)

    def prune(self) -> None:
        """Forget the idle producers and old tombstones that following others' commits has gathered."""
        self.table.prune(self.config.producer_expiration_ms)

    def plan_read(self, offset: int, max_bytes: int) -> ReadPlan:
        """Choose what to read from `offset` on: about `max_bytes` of records, at least one if there is one.

        The plan is made from what is known now (`refresh` first to know more), without I/O for an offset that
        it `reaches`. At the high watermark it is empty. A segment with gaps it takes whole: `bound` cuts
        that down to `max_bytes`. Raises InvalidOffset, OffsetOutOfRange, and what `log_from` raises.
        """
        snapshot = self.snapshot
        low, high = snapshot.log_start, snapshot.high_watermark
        if offset < 0:
            raise InvalidOffset(f"offset {offset} is negative; ask for one from {low} to {high}")
        if not low <= offset <= high:
            raise OffsetOutOfRange(
                f"offset {offset} is out of range: the log holds {low} to {high}; start inside it",
                log_start_offset=low,
                high_watermark=high,
            )
        snapshot = self._log_from(snapshot, offset)
        chosen: list[Segment] = []
        end, room, limit = offset, max_bytes, None
        for segment in snapshot.segments[snapshot.first_segment(offset) :]:
            start = max(offset, segment.base_offset)
            width = max(1, segment.raw_bytes // segment.records)
            wanted = max(1 if not chosen else 0, room // width)
            if wanted == 0:
                break
            chosen.append(segment)
            available = segment.last_offset + 1 - start
            taken = min(wanted, available, segment.records)
            end, room = start + taken, room - taken * width
            if not segment.dense:
                # Between its records are gaps: only all of it surely holds `taken` records, or even one.
                end = segment.last_offset + 1
                limit = wanted if wanted < min(available, segment.records) else None
            if limit is not None or end <= segment.last_offset:
                break
        else:
            end = high
        return ReadPlan(
            start=offset, end=end, log_start=low, high_watermark=high, segments=tuple(chosen), limit=limit
        )

    def bound(self, plan: ReadPlan) -> ReadPlan:
        """`plan` with an end that keeps to its `limit`, which takes a look at the offsets of one segment.

        Raises CorruptSegment, StoreUnavailable.
        """
        if plan.limit is None:
            return plan
        last, left = dataclasses.replace(plan, segments=plan.segments[-1:]), plan.limit
        for batch in self.read(last, (OFFSET,)):
            if batch.num_rows >= left:
                end = int(int64s(batch.column(OFFSET))[left - 1]) + 1
                return dataclasses.replace(plan, end=end, limit=None)
            left -= batch.num_rows
        return dataclasses.replace(plan, limit=None)

    def read(self, plan: ReadPlan, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The records of `plan`, lazily, one RECORD_SCHEMA batch (or its `columns`) a row group, in order."""
        # A segment ends where the next one begins, whatever lies around the border to the remote tier.
        ends = (*(segment.base_offset for segment in plan.segments[1:]), plan.end)
        for segment, following in zip(plan.segments, ends, strict=False):
            end = min(following, plan.end)
            cached = self._in_memory(segment)
            if cached is None:
                yield from self._stored(segment, plan.start, end, columns)
                continue
            part = segments.between(cached, plan.start, end)
            names = [name for name in RECORD_SCHEMA.names if columns is None or name in columns]
            yield part.select(names)

    def _in_memory(self, segment: Segment) -> pa.RecordBatch | None:
        """The records of a segment that was written or read here lately; a small one is read now.

        Opening a small file costs more than what is in it, and many groups read the same tail.
        """
        path = f"{self.directory}/{segment.path}"
        cached = self._cache.get(path)
        if cached is None and segment.raw_bytes <= SMALL_SEGMENT_BYTES:
            end = segment.last_offset + 1
            batches = self._stored(segment, segment.base_offset, end)
            cached = pa.Table.from_batches(batches, RECORD_SCHEMA).combine_chunks().to_batches()[0]
            self._cache.put(path, cached)
        return cached

    def _stored(
        self, segment: Segment, start: int, end: int, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        if segment.remote:
            return self._tier.read(segment, start, end, columns)
        return segments.read(self._store, self.directory, segment, start, end, columns)

    def fetch(self, offset: int, max_bytes: int) -> pa.Table:
        """`plan_read`, `bound` and `read` in one, as a Table of RECORD_SCHEMA."""
        plan = self.bound(self.plan_read(offset, max_bytes))
        return pa.Table.from_batches(self.read(plan), RECORD_SCHEMA)

    def position(self, timestamp_us: int) -> int | None:
        """The earliest offset whose timestamp is ≥ `timestamp_us` (microseconds), else None.

        Raises what `log_from` raises, CorruptSegment.
        """
        snapshot = self.snapshot
        snapshot = self._log_from(snapshot, snapshot.log_start)
        sought = min(max(timestamp_us, TIMESTAMP_MIN_US), TIMESTAMP_MAX_US + 1)
        text = timestamp_text(sought)
        for segment in snapshot.segments[snapshot.first_segment(snapshot.log_start) :]:
            if segment.max_timestamp < text:
                continue
            start = max(segment.base_offset, snapshot.log_start)
            plan = ReadPlan(
                start=start,
                end=segment.last_offset + 1,
                log_start=start,
                high_watermark=snapshot.high_watermark,
                segments=(segment,),
            )
            for batch in self.read(plan, (OFFSET, TIMESTAMP)):
                found = segments.first_at(batch, sought)
                if found is not None:
                    return found
        return None

    def truncate(self, before: int) -> int:
        """Delete the records below offset `before` (Kafka's DeleteRecords); returns the new log start.

        Segments that lie wholly below are removed; inside a segment readers of ours skip. The log start
        never moves back: a smaller `before` changes nothing. Raises InvalidOffset, OffsetOutOfRange, and what
        `refresh` raises.
        """
        self.refresh(wait=True)
        if before < 0:
            raise InvalidOffset(f"offset {before} is negative; name one up to {self.high_watermark}")
        if before > self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {before} is beyond the high watermark {self.high_watermark}; delete up to there",
                log_start_offset=self.log_start,
                high_watermark=self.high_watermark,
            )
        info = commit_info(self.clock, "DELETE RECORDS")

        def build(snapshot: Snapshot) -> Commit | None:
            if before <= snapshot.log_start:
                return None
            now_ms = self.clock.now_ms()
            gone = (segment for segment in snapshot.segments if segment.last_offset < before)
            removes = tuple(segment.remove(now_ms, data_change=True) for segment in gone)
            return Commit(info, txns=(Txn(TXN_LOG_START, before),), removes=removes)

        self.table.transact(build)
        return self.log_start

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Set table properties, for Delta tools to see; no commit when they are set already."""
        info = commit_info(self.clock, "SET TBLPROPERTIES")

        def build(snapshot: Snapshot) -> Commit | None:
            configuration = {**snapshot.metadata.configuration, **properties}
            if configuration == snapshot.metadata.configuration:
                return None
            return Commit(info, metadata=replace(snapshot.metadata, configuration=configuration))

        self.table.transact(build)

    def checkpoint_due(self) -> bool:
        return self.table.checkpoint_due()

    def checkpoint(self) -> None:
        """Write a checkpoint of what is known now; off the append path."""
        self.table.checkpoint(self.config.producer_expiration_ms)

    def delete_expired_log(self) -> int:
        """Delete log files that no reader needs any more; returns how many."""
        return self.table.delete_expired_log()

    def on_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` (in any thread) whenever the high watermark has moved, or the topic is known to be
        deleted; returns what ends that.
        """
        token = object()
        self._listeners[id(token)] = callback

        def unsubscribe(key: object = token) -> None:
            self._listeners.pop(id(key), None)

        return unsubscribe

    def _notify(self) -> None:
        now = (self.high_watermark, self.snapshot.deleted)
        if now != self._seen:
            self._seen = now
            for callback in list(self._listeners.values()):
                callback()

    def _step_down(self) -> None:
        with self._sequencing:
            self._end_term()

    def _end_term(self) -> None:
        self._epoch, self._sequencer = None, None
        self._term += 1

    def _not_leader(self) -> LakelogError:
        if self.snapshot.deleted:
            return topic_deleted(self.directory)
        return NotLeader(
            f"this gateway does not lead {self.directory} (leader epoch {self.snapshot.leader_epoch}); "
            "repeat the request"
        )


def _in_turn(batch: Sequence[SequencedAppend], high_watermark: int) -> bool:
    """Whether `batch` follows the high watermark, and each repeat in it what it is a repeat of."""
    end = high_watermark
    for item in batch:
        if item.duplicate:
            if item.log_end > end:
                return False
        elif item.base_offset == end:
            end = item.log_end
        else:
            return False
    return True


def _records(fresh: Sequence[SequencedAppend], base: int, append_time: int | None) -> pa.RecordBatch:
    batches = [item.request.batch for item in fresh]
    count = sum(batch.num_rows for batch in batches)
    records = with_offsets(batches, np.arange(base, base + count, dtype=np.int64))
    if append_time is None:
        return records
    return records.set_column(1, RECORD_SCHEMA.field(1), constant_timestamps(append_time, count))


def _append_txns(fresh: list[SequencedAppend], end: int, now_ms: int) -> tuple[Txn, ...]:
    states: Mapping[int, ProducerState] = producers_of(fresh)
    txns = [Txn(TXN_HIGH_WATERMARK, end)]
    for producer_id, state in states.items():
        seen_ms = None if state.kept else now_ms
        txns.append(Txn(producer_sequence_txn(producer_id), state.packed, seen_ms))
        txns.append(Txn(producer_end_txn(producer_id), state.end_offset, seen_ms))
    return tuple(txns)


def _timed(segment: Segment, snapshot: Snapshot, now_ms: int) -> Segment:
    """`segment` with a modification time after that of the newest one in `snapshot`."""
    newest = snapshot.segments[-1].modification_time + MODIFICATION_STEP_MS if snapshot.segments else 0
    return replace(segment, modification_time=max(now_ms, newest))


def _append_commit(
    info: CommitInfo, txns: tuple[Txn, ...], fresh: list[SequencedAppend], segment: Segment
) -> Commit:
    produced = tuple(
        ProducedBatch(stamp.id, stamp.epoch, stamp.sequence, item.base_offset or 0, item.count)
        for item in fresh
        if (stamp := item.request.producer) is not None
    )
    info = replace(info, operationParameters={"mode": "Append"}, isBlindAppend=True, producers=produced)
    return Commit(info, txns=txns, adds=(segment.add(data_change=True),))
