"""Reading one partition: follow its log, plan and read records from an offset on, find an offset by time.

A fetch, a consumer, Spark's source and SQL need no more than this. A reader asks for no leadership and
commits nothing. The partition to which a leader appends (partition.py) is a reader that can do more.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from log_tables.clock import Clock
from log_tables.columns.declaration import NOTHING, Declaration
from log_tables.layout import HEADERS, OFFSET, TIMESTAMP
from log_tables.limits import TIMESTAMP_MAX_US, TIMESTAMP_MIN_US
from log_tables.partition.read_plan import ReadPlan, check_offset, planned, read_on
from log_tables.partition.remote import RemoteRoot, RemoteTier
from log_tables.record import RECORD_SCHEMA, int64s, timestamp_text, timestamp_us
from log_tables.schemas.schema import NO_SCHEMAS, Schemas
from log_tables.segments import segment as segments
from log_tables.segments.segment import SEGMENT_LIMITS, SegmentLimits
from log_tables.segments.segment_cache import SegmentCache
from log_tables.store.store import Store
from log_tables.table.delta_log import topic_deleted
from log_tables.table.snapshot import Segment, Snapshot
from log_tables.table.table import Table


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """The part of a topic's configuration that a partition needs, and the sizes of its segments."""

    compression: str = "zstd"
    log_append_time: bool = False
    producer_expiration_ms: int = 24 * 60 * 60 * 1000
    limits: SegmentLimits = SEGMENT_LIMITS
    columns: Declaration = NOTHING
    schemas: Schemas = NO_SCHEMAS


class PartitionReader:
    """One partition of a topic, as it is read. Thread-safe; blocking."""

    def __init__(
        self,
        store: Store,
        directory: str,
        clock: Clock,
        config: PartitionConfig | None = None,
        cache: SegmentCache | None = None,
        remote: Callable[[], RemoteRoot | None] = lambda: None,
    ) -> None:
        """Open the partition whose table is at `directory`; `remote` gives the root of its remote tier.

        Raises ObjectMissing, UnsupportedTable, ForeignCommit. Once the topic is deleted, the snapshot stays
        as it is, and every method that reads the log of the table raises TopicDeleted.
        """
        self.directory, self.clock = directory, clock
        self.config = config or PartitionConfig()
        self.table = Table(store, directory, clock)
        self._cache = cache or SegmentCache()
        self._tier = RemoteTier(directory, remote)
        self._listeners: dict[object, Callable[[], None]] = {}
        self._seen = (self.high_watermark, self.snapshot.deleted)

    @property
    def snapshot(self) -> Snapshot:
        return self.table.snapshot

    @property
    def log_start(self) -> int:
        return self.snapshot.log_start

    @property
    def high_watermark(self) -> int:
        return self.snapshot.high_watermark

    @property
    def confirmed(self) -> float:
        """When (`Clock.boottime`) the snapshot was last known to be the newest: at a refresh, or a commit."""
        return self.table.confirmed

    def refresh(self, wait: bool = False) -> Snapshot:
        """Follow the commits of other processes (`Table.refresh`). With `wait`, a commit of this process that
        is in flight is waited for.

        Raises TopicDeleted when the topic was deleted, StoreUnavailable, Damaged.
        """
        try:
            return self.table.refresh(wait)
        finally:
            self._notify()

    def check_live(self) -> None:
        """Raise TopicDeleted if the snapshot says that the topic is deleted; does not ask the store."""
        if self.snapshot.deleted:
            raise topic_deleted(self.directory)

    def prune(self) -> None:
        """Forget idle producers and old tombstones, for a process that only follows."""
        self.table.prune(self.config.producer_expiration_ms)

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

    def plan_read(self, offset: int, max_bytes: int, max_segments: int | None = None) -> ReadPlan:
        """A plan to read from `offset` on: about `max_bytes` of records, and at least one if there is one, in
        at most `max_segments`.

        The plan is made from the snapshot (`refresh` first for newer records), without I/O if it `reaches`
        the offset. At the high watermark it is empty. It takes a segment with gaps whole, which `bound` cuts
        down to `max_bytes`. Raises InvalidOffset, OffsetOutOfRange, and what `log_from` raises.
        """
        here = self.snapshot
        check_offset(here, offset)
        return planned(self._log_from(here, offset), offset, max_bytes, max_segments)

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
        """The records of `plan`, lazily, one RECORD_SCHEMA batch a row group, in order; or with only
        `columns`, which may be declared ones, too.

        Where a file of the plan was replaced and deleted since, the partition is refreshed, and the read goes
        on in the file that has the records now. Raises CorruptSegment, StoreUnavailable, TopicDeleted;
        OffsetOutOfRange where they were deleted, too.
        """
        schema = RECORD_SCHEMA if columns is None else self._schema_of(columns)
        with_offset = schema if OFFSET in schema.names else pa.schema([RECORD_SCHEMA.field(OFFSET), *schema])

        def read(segment: Segment, start: int, end: int) -> Iterator[pa.RecordBatch]:
            return self._read(segment, start, end, with_offset)

        def look_up(offset: int) -> tuple[Sequence[Segment], int]:
            self._tier.expire()
            here = self.refresh(wait=True)
            check_offset(here, offset)
            return self._log_from(here, offset).between(offset, plan.end), offset

        for batch in read_on(plan.segments, plan.start, plan.end, read, look_up):
            yield batch.select(schema.names)

    def _schema_of(self, columns: Sequence[str]) -> pa.Schema:
        declared = self.snapshot.declared.schema
        return pa.schema([field for field in (*RECORD_SCHEMA, *declared) if field.name in columns])

    def _read(self, segment: Segment, start: int, end: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        cached = self._in_memory(segment)
        if cached is not None and _holds(cached, schema):
            if (part := segments.between(cached, start, end)).num_rows:
                yield segments.conform(part, schema)
        elif schema is RECORD_SCHEMA:
            yield from self._in_groups(segment, start, min(end, segment.last_offset + 1))
        else:
            yield from self._stored(segment, start, end, schema)

    def _in_groups(self, segment: Segment, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Whole records. A row group in which the read ends is kept for the one that goes on there: to decode
        it takes longer than anything else in a fetch, and a fetch takes a fourth of it.
        """
        path = f"{self.directory}/{segment.path}"
        for group in self._groups(path, segment, start, end):
            if _last_offset(group) >= end:
                self._cache.keep_begun(path, group)
            if (part := segments.between(group, start, end)).num_rows:
                yield part

    def _groups(self, path: str, segment: Segment, start: int, end: int) -> Iterator[pa.RecordBatch]:
        begun = self._cache.take_begun(path, start)
        if begun is not None:
            yield begun
            start = _last_offset(begun) + 1
        if start < end:
            yield from self._stored(segment, start, end, RECORD_SCHEMA, whole_groups=True)

    def _in_memory(self, segment: Segment) -> pa.RecordBatch | None:
        """The records of a segment that is cached, or small: then it is read whole, and cached.

        Opening a small file costs more than its content, and many groups read the same tail. Declared arrays,
        maps and structs are left out, as they can take a thousand times the memory of the values.
        """
        path = f"{self.directory}/{segment.path}"
        cached = self._cache.get(path)
        if cached is None and segment.raw_bytes <= self.config.limits.small_bytes:
            end = segment.last_offset + 1
            flat = [field for field in self.snapshot.declared.schema if not pa.types.is_nested(field.type)]
            batches = self._stored(segment, segment.base_offset, end, pa.schema([*RECORD_SCHEMA, *flat]))
            cached = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
            self._cache.put(path, cached)
        return cached

    def _stored(
        self, segment: Segment, start: int, end: int, schema: pa.Schema | None, whole_groups: bool = False
    ) -> Iterator[pa.RecordBatch]:
        whole = self.config.limits.whole_bytes
        if segment.remote:
            return self._tier.read(segment, start, end, schema, whole, whole_groups)
        return segments.read(
            self.table.store, self.directory, segment, start, end, schema, whole, whole_groups
        )

    def row_groups(self, segment: Segment) -> list[segments.RowGroup]:
        """The row groups of the file of `segment`, in order. Raises CorruptSegment, StoreUnavailable."""
        store = self._tier.store() if segment.remote else self.table.store
        return segments.row_groups(store, self.directory, segment)

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
            for batch in self._times(snapshot, segment):
                found = segments.first_at(batch, sought)
                if found is not None:
                    return found
        return None

    def _times(self, snapshot: Snapshot, segment: Segment) -> Iterator[pa.RecordBatch]:
        """The offsets and times of the records of `segment` that are not deleted."""
        start = max(segment.base_offset, snapshot.log_start)
        plan = ReadPlan(
            start=start,
            end=segment.last_offset + 1,
            log_start=start,
            high_watermark=snapshot.high_watermark,
            segments=(segment,),
        )
        return self.read(plan, (OFFSET, TIMESTAMP))

    def newest(self, count: int) -> tuple[int, int]:
        """The offset from which on the log has its newest `count` records, or all if these are fewer; and how
        many they are. In a segment with gaps its offsets are read. Raises as `position`.
        """
        here = self.snapshot
        if sum(segment.records for segment in here.segments) < count:
            here = self._log_from(here, here.log_start)
        start, left = here.high_watermark, count
        for segment in reversed(here.segments):
            if left <= 0 or segment.last_offset < here.log_start:
                break
            start, taken = self._newest_of(here, segment, left)
            left -= taken
        return start, count - left

    def _newest_of(self, here: Snapshot, segment: Segment, count: int) -> tuple[int, int]:
        """Where the newest `count` records of `segment` that are not deleted begin, and how many they are."""
        first = max(segment.base_offset, here.log_start)
        if first == segment.base_offset and segment.records <= count:
            return first, segment.records
        if segment.dense:
            taken = min(count, segment.last_offset + 1 - first)
            return segment.last_offset + 1 - taken, taken
        offsets = np.concatenate([int64s(batch.column(OFFSET)) for batch in self._times(here, segment)])
        taken = min(count, len(offsets))
        return int(offsets[-taken]), taken

    def timestamp_at(self, offset: int) -> int | None:
        """The time in microseconds of the first record at or after `offset`; None without one.

        Raises what `plan_read` and `read` raise.
        """
        for batch in self.read(self.plan_read(offset, 1, 1), (OFFSET, TIMESTAMP)):
            if batch.num_rows:
                return int(int64s(batch.column(TIMESTAMP))[0])
        return None

    def latest_record(self) -> tuple[int, int] | None:
        """The offset and the time in microseconds of the record with the latest time, the first one of
        several (KIP-734); None in an empty log. Raises as `position`.
        """
        snapshot = self.snapshot
        snapshot = self._log_from(snapshot, snapshot.log_start)
        live = snapshot.segments[snapshot.first_segment(snapshot.log_start) :]
        best: tuple[int, int] | None = None
        for segment in sorted(live, key=lambda each: each.max_timestamp, reverse=True):
            # The bound of a segment may be the time of a deleted record, and is rounded up.
            if best is not None and timestamp_us(segment.max_timestamp) < best[1]:
                break
            for batch in self._times(snapshot, segment):
                times = int64s(batch.column(TIMESTAMP))
                if len(times):
                    place = int(times.argmax())
                    found = int(int64s(batch.column(OFFSET))[place]), int(times[place])
                    best = found if best is None else max(best, found, key=lambda each: (each[1], -each[0]))
        return best


def _last_offset(batch: pa.RecordBatch) -> int:
    return int(int64s(batch.column(OFFSET))[-1])


def _holds(cached: pa.RecordBatch, schema: pa.Schema) -> bool:
    """Whether `cached` has all declared arrays, maps and structs of `schema`."""
    nested = {field.name for field in schema if pa.types.is_nested(field.type)}
    return nested - {HEADERS} <= {*cached.schema.names}
