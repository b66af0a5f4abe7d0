"""A streaming query: which offsets the next micro-batch reads, and the slices that its tasks read.

The methods are those of Spark's Python data source (PySpark 4.2); Spark calls them one after the other, in
a process of its own that lives as long as the query. `read` alone runs in the executors, on a fresh copy.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from lakelog.spark.source.offsets import (
    UNDECIDED,
    OffsetRange,
    StreamOffset,
    begin_of,
    decode,
    encode,
    epochs,
    share_out,
)
from lakelog.spark.source.options import parse
from lakelog.spark.source.plan import plan
from lakelog.spark.source.slices import read, report_loss
from lakelog.spark.source.subscription import Subscription
from lakelog.spark.worker import short_errors
from log_tables.clock import Clock, SystemClock
from log_tables.errors import InvalidArgument
from log_tables.topic_partition import TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from lakelog.spark.source.progress import Progress


@short_errors
class RefusedReader(DataSourceStreamReader):
    """The reader of a query whose options are wrong: it raises that error when it is asked for an offset."""

    def __init__(self, error: InvalidArgument) -> None:
        self._error = error

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """Raises InvalidArgument."""
        raise self._error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raises InvalidArgument."""
        raise self._error

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: ARG002, N802
        """Raises InvalidArgument."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Raises InvalidArgument."""
        raise self._error


@short_errors
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of one query. Its methods raise the errors of `Subscription` and DataLost."""

    def __init__(self, given: Mapping[str, str], clock: Clock | None = None) -> None:
        """Raises InvalidArgument."""
        self._options = parse(given, streaming=True)
        self._clock = clock or SystemClock()
        self._opened: Subscription | None = None
        self._final: dict[TopicIdPartition, int] | None = None
        self._last_trigger: float | None = None

    @property
    def _subscription(self) -> Subscription:
        """Opened at the first use: the copy that goes to the executors has none."""
        if self._opened is None:
            self._opened = Subscription(self._options)
            self._opened.refresh()
        return self._opened

    @cached_property
    def _progress(self) -> "Progress":
        """Made at the first use, too: executors do without the imports of a client of gateways."""
        from lakelog.spark.source.progress import Progress

        assert self._options.group_id is not None
        return Progress(self._options.group_id, self._options.gateway, self._clock)

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """Undecided: Spark would forget it. The end of the first micro-batch says where that begins."""
        return UNDECIDED

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Says that there is a limit. `latestOffset` takes the limits themselves from the options."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: the ends of the logs now."""
        self._final = self._latest()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        """The end of the next micro-batch; `start` if there is to be none.

        `start` is the end of a micro-batch that is done. Spark says so here earlier than by `commit`, and
        only here if nothing follows.
        """
        if start == UNDECIDED:
            return self._first_end(limit)
        subscription = self._subscription
        subscription.refresh()
        begins = self._kept(start, planned=False)
        self._check_existing(begins)
        ends = self._ends(begins, limit)
        end = start
        if ends is not None and not ends == begins == decode(start):
            end = encode(ends, subscription.log_epoch)
        if self._options.group_id is not None:
            self._report(begins, last=end == start)
        return end

    def _first_end(self, limit: ReadLimit) -> StreamOffset:
        """The end of the first micro-batch, which comes at once, even if it is empty.

        It records in the checkpoint where the query begins. That is resolved before the logs are
        refreshed, so that it is not after the end of AvailableNow.
        """
        subscription = self._subscription
        for error in subscription.missing.values():
            raise error
        offsets = subscription.resolve(self._options.starting, self._options.without_match)
        begins = {subscription.with_topic_id(partition): offset for partition, offset in offsets.items()}
        subscription.refresh()
        ends = self._ends(begins, limit)
        return UNDECIDED if ends is None else encode(ends, subscription.log_epoch, begins)

    def _kept(self, offset: StreamOffset, planned: bool) -> dict[TopicIdPartition, int]:
        """The offsets of a place in the checkpoint; those at which logs have gone on from older states since.

        It is lost data: DataLost, or a warning for the micro-batch that is `planned`.
        """
        kept, fail = decode(offset), self._options.fail_on_data_loss
        taken_in = epochs(offset)
        for partition, end in kept.items():
            kept[partition], why = self._subscription.parting(partition, end, taken_in[partition.topic])
            if why and (fail or planned):
                report_loss(why, fail)
        return kept

    def _ends(
        self, begins: Mapping[TopicIdPartition, int], limit: ReadLimit
    ) -> dict[TopicIdPartition, int] | None:
        """The ends of the micro-batch after `begins`; None as long as minOffsetsPerTrigger delays it."""
        starts, ends = self._starts(begins), self._latest()
        if self._final is not None:
            final = self._final
            ends = {
                partition: min(end, final[partition]) for partition, end in ends.items() if partition in final
            }
        if not isinstance(limit, ReadAllAvailable):
            if self._final is None and self._too_early(starts, ends):
                return None
            if self._options.max_offsets_per_trigger is not None:
                ends = share_out(self._options.max_offsets_per_trigger, starts, ends)
        return ends

    def _report(self, done: Mapping[TopicIdPartition, int], last: bool) -> None:
        """Report the offsets that are done, of the partitions that still exist."""
        existing = self._latest()
        offsets = {
            TopicPartition(partition.topic, partition.partition): offset
            for partition, offset in done.items()
            if partition in existing
        }
        self._progress.report(offsets, last)

    def _latest(self) -> dict[TopicIdPartition, int]:
        subscription = self._subscription
        return {
            subscription.with_topic_id(partition): end for partition, end in subscription.latest().items()
        }

    def _starts(self, begins: Mapping[TopicIdPartition, int]) -> dict[TopicIdPartition, int]:
        """The first offset to read of each current partition: `begins`, or the log start of a new one."""
        subscription = self._subscription
        earliest = {
            subscription.with_topic_id(partition): start
            for partition, start in subscription.earliest().items()
        }
        if self._options.fail_on_data_loss:
            self._check_kept(begins, earliest)
        return {partition: begins.get(partition, start) for partition, start in earliest.items()}

    def _check_existing(self, read: Iterable[TopicIdPartition]) -> None:
        """Raise for topics and partitions that the options name and that do not exist.

        `_check_kept` reports those that were `read` before as lost.
        """
        before = {(partition.topic, partition.partition) for partition in read}
        for (topic, number), error in self._subscription.missing.items():
            was_read = any(topic == name and number in (None, partition) for name, partition in before)
            if not was_read and self._options.fail_on_data_loss:
                raise error

    def _check_kept(self, before: Iterable[TopicIdPartition], after: Iterable[TopicIdPartition]) -> None:
        """Raise DataLost, or warn, if partitions of `before` are missing `after`."""
        kept = set(after)
        topic_ids = {partition.topic: partition.topic_id for partition in kept}
        for lost in sorted({*before} - kept):
            recreated = topic_ids.get(lost.topic, lost.topic_id) != lost.topic_id
            what = "re-created" if recreated else "deleted, or the options no longer choose it"
            report_loss(f"{lost} is gone: its topic was {what}", self._options.fail_on_data_loss)

    def _too_early(
        self, starts: Mapping[TopicIdPartition, int], ends: Mapping[TopicIdPartition, int]
    ) -> bool:
        """Whether there are fewer than minOffsetsPerTrigger, and maxTriggerDelay is not over."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now = self._clock.monotonic()
        waited_ms = math.inf if self._last_trigger is None else (now - self._last_trigger) * 1000
        new = sum(max(0, end - starts[partition]) for partition, end in ends.items())
        if new < least and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_trigger = now
        return False

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """The ends of the logs, for the progress report."""
        return encode(self._latest(), self._subscription.log_epoch)

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The slices of the micro-batch from `start` to `end`."""
        begins, ends = self._kept(begin_of(start, end), planned=True), self._kept(end, planned=True)
        existing = self._latest()
        self._check_kept(begins, ends)
        self._check_kept(ends, existing)
        wanted = [
            OffsetRange(
                TopicPartition(partition.topic, partition.partition),
                begins[partition] if partition in begins else self._log_start(partition),
                end_offset,
            )
            for partition, end_offset in ends.items()
            if partition in existing
        ]
        return [*plan(self._subscription, wanted, self._options)]

    def _log_start(self, new: TopicIdPartition) -> int:
        """The log start of a partition that is new to the query."""
        log_start = self._subscription.partitions[TopicPartition(new.topic, new.partition)].log_start
        if log_start > 0:
            report_loss(
                f"{new} is new to the query and begins at offset {log_start}", self._options.fail_on_data_loss
            )
        return log_start

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options)

    def stop(self) -> None:
        """Close what the query holds open. Spark ends the process without calling this."""
        if self._opened is not None:
            self._opened.close()
        if "_progress" in self.__dict__:
            self._progress.close()
