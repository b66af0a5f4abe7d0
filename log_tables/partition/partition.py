"""One partition: append, read, find by time and truncate; how a leader claims it, and how a claim fences.

An append is sequenced, which gives it offsets in memory, and then committed, which is a segment file and one
Delta commit. Any error between the two ends the term of leadership: appends that were sequenced and not
committed are void, and the next claim starts from the log.
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
    """The part of a topic's configuration that a partition needs."""

    compression: str = "zstd"
    log_append_time: bool = False
    producer_expiration_ms: int = 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPlan:
    """The offsets that a read gives, start ≤ offset < end, and the segments that hold them.

    With a `limit` the last segment has gaps, and so many of its records are enough. Where these end only the
    file says (`Partition.bound`).
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

        Raises ObjectMissing, UnsupportedTable, ForeignCommit. Once the topic is deleted, the snapshot stays
        as it is, and every method that reads the log of the table or commits raises TopicDeleted.
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
        self._listeners: dict[object, Callable[[], None]] = {}
        self._seen = (self.high_watermark, self.snapshot.deleted)

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot

    def reaches(self, offset: int) -> bool:
        """Whether `log_from(offset)` and `plan_read(offset, …)` do no I/O."""
        here = self.snapshot
        return offset >= here.tiered or self._tier.is_known(here)

    def log_from(self, offset: int) -> Snapshot:
        """`snapshot`; with the remote segments if `offset` is below its first one (`Segment.remote`).

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
        """The offset after the last sequenced record. It is provisional above the high watermark."""
        sequencer = self._sequencer
        return self.high_watermark if sequencer is None else sequencer.log_end

    @property
    def leading(self) -> bool:
        """Whether this process leads the partition, as of the snapshot."""
        return self._sequencer is not None and self._epoch == self.snapshot.leader_epoch

    @property
    def term(self) -> int:
        """The number of the term of leadership in this process: it changes whenever a term begins or ends."""
        return self._term

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
        self._notify()

    def delete(self, url: str) -> bool:
        """Record that the topic is deleted, by a claim that is the last commit of the log.

        It fences every leader for good, and every process that refreshes reads it. Returns False when that
        was recorded before; it is durable then.

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
        """Commit a claim, with `txns`. It ends every leadership, also that of this process."""

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
        """Stop leading: appends that are sequenced and not committed are void."""
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
        """Make sequenced appends durable, all or none, in the order in which they were sequenced.

        `batch` begins where the last commit ended, and leaves out only the last of the appends that were
        sequenced since. First `rests_on` of each request is called. Returns the time of the append in
        microseconds for a LogAppendTime topic, else None. After any error (NotLeader, TopicDeleted,
        OutcomeUnknown, StoreUnavailable, …) this process has stopped leading, and all appends that are
        sequenced and not committed are void.
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
                self._notify()  # the log may have ended
                raise
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
        """Now, or the time of the newest record: LogAppendTime stands still when the clock jumps back."""
        last = self.snapshot.segments[-1:]
        return max(self.clock.now_us(), *(timestamp_us(segment.max_timestamp) for segment in last), 0)

    def refresh(self, wait: bool = False) -> Snapshot:
        """Follow the commits of other processes (`Table.refresh`). With `wait`, a commit of this process that
        is in flight is waited for.

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
        """When (`Clock.boottime`) the snapshot was last known to be the newest: at a refresh, or a commit."""
        return self.table.confirmed

    def check_live(self) -> None:
        """Raise TopicDeleted if the snapshot says that the topic is deleted; does not ask the store."""
        if self.snapshot.deleted:
            raise topic_deleted(self.directory)

    def prune(self) -> None:
        """Forget idle producers and old tombstones, for a process that only follows."""
        self.table.prune(self.config.producer_expiration_ms)

    def plan_read(self, offset: int, max_bytes: int) -> ReadPlan:
        """A plan to read from `offset` on: about `max_bytes` of records, and at least one if there is one.

        The plan is made from the snapshot (`refresh` first for newer records), without I/O if it `reaches`
        the offset. At the high watermark it is empty. It takes a segment with gaps whole, which `bound` cuts
        down to `max_bytes`. Raises InvalidOffset, OffsetOutOfRange, and what `log_from` raises.
        """
        snapshot = self.snapshot
        low, high = snapshot.log_start, snapshot.high_watermark
        if offset < 0:
            raise InvalidOffset(f"offset {offset} is negative; use one from {low} to {high}")
        if not low <= offset <= high:
            raise OffsetOutOfRange(
                f"offset {offset} is out of range; use one from {low} to {high}",
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
                # Between its records are gaps: only the whole segment surely holds `taken` records, or even
                # one.
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
        """`plan` with an end that keeps to its `limit`; this reads the offsets of one segment.

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
        """The records of a segment that is cached, or small: then it is read whole, and cached.

        Opening a small file costs more than its content, and many groups read the same tail.
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

        Segments wholly below it are removed; inside of a segment our readers skip the records. The log start
        never moves back: a smaller `before` changes nothing. Raises InvalidOffset, OffsetOutOfRange, and what
        `refresh` raises.
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
        """Set table properties, which Delta tools see; no commit if they are set already."""
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
        """Write a checkpoint of the snapshot; not on the append path."""
        self.table.checkpoint(self.config.producer_expiration_ms)

    def delete_expired_log(self) -> int:
        """Delete the files of the table's log that no reader needs; returns how many."""
        return self.table.delete_expired_log()

    def on_commit(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, in any thread, when the high watermark moves or the topic is found deleted.

        Returns a function that ends the subscription.
        """
        token = object()
        self._listeners[token] = callback

        def unsubscribe() -> None:
            self._listeners.pop(token, None)

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
    """Whether `batch` follows the high watermark, and each repeat in it comes after its first time."""
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
