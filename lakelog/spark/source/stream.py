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

from lakelog.spark.boundary import short_errors
from lakelog.spark.source.loss import report_loss
from lakelog.spark.source.offsets import UNDECIDED, StreamOffset, decode, decode_begin, encode
from lakelog.spark.source.options import parse
from lakelog.spark.source.plan import plan
from lakelog.spark.source.ranges import Range, share_out
from lakelog.spark.source.slices import read
from lakelog.spark.source.subscription import Subscription
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
        """Made at the first use, too. It loads what only talks to gateways, and executors do without."""
        from lakelog.spark.source.progress import Progress

        assert self._options.group_id is not None
        return Progress(self._options.group_id, self._options.gateway, self._clock)

    def initialOffset(self) -> StreamOffset:  # noqa: N802
        """Undecided: Spark would forget it. The end of the first micro-batch says where that begins."""
        return UNDECIDED

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """That there is a limit; what it is, `latestOffset` takes from the options, both of them."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: what is there now."""
        self._final = self._latest()

    def latestOffset(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:  # noqa: N802
        """Where the next micro-batch ends; `start` when there is to be none.

        The first one comes at once, though it be empty: with it the checkpoint knows where the query began.
        `start` is the end of a micro-batch that is done: Spark says so here earlier than by `commit`, and
        here alone when nothing comes after it.
        """
        end = self._end(start, limit)
        if self._options.group_id is not None and start != UNDECIDED:
            there = self._latest()
            done = {
                TopicPartition(at.topic, at.partition): offset
                for at, offset in decode(start).items()
                if at in there
            }
            self._progress.report(done, last=end == start)
        return end

    def _end(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        first = self._decided() if start == UNDECIDED else None
        self._subscription.refresh()
        if first is None:
            self._check_there(decode(start))
        begins, ends = self._begins(decode(start) if first is None else first), self._latest()
        if self._final is not None:
            ends = {at: min(end, self._final[at]) for at, end in ends.items() if at in self._final}
        if not isinstance(limit, ReadAllAvailable):
            if self._final is None and self._too_early(begins, ends):
                return start
            if self._options.max_offsets_per_trigger is not None:
                ends = share_out(self._options.max_offsets_per_trigger, begins, ends)
        return start if first is None and ends == decode(start) else encode(ends, first)

    def _decided(self) -> dict[TopicIdPartition, int]:
        """Where a new query begins. Before anything is refreshed: not after the end of AvailableNow."""
        subscription = self._subscription
        for error in subscription.missing.values():
            raise error
        offsets = subscription.resolve(self._options.starting, self._options.without_match)
        return {subscription.at(partition): offset for partition, offset in offsets.items()}

    def _latest(self) -> dict[TopicIdPartition, int]:
        subscription = self._subscription
        return {subscription.at(partition): end for partition, end in subscription.latest().items()}

    def _begins(self, start: Mapping[TopicIdPartition, int]) -> dict[TopicIdPartition, int]:
        """Where each partition that there is now goes on after `start`: a new one at its beginning."""
        subscription = self._subscription
        begins = {subscription.at(partition): first for partition, first in subscription.earliest().items()}
        if self._options.fail_on_data_loss:
            self._check_kept(start, begins)
        return {at: start.get(at, first) for at, first in begins.items()}

    def _check_there(self, start: Iterable[TopicIdPartition]) -> None:
        """Raise for what the options name and is not there, unless it may be missing.

        What the query has read is told as lost, in `_check_kept`.
        """
        read = {(at.topic, at.partition) for at in start}
        for (topic, partition), error in self._subscription.missing.items():
            known = any(topic == name and partition in (None, index) for name, index in read)
            if not known and self._options.fail_on_data_loss:
                raise error

    def _check_kept(self, before: Iterable[TopicIdPartition], after: Iterable[TopicIdPartition]) -> None:
        """Raise DataLost, or warn, when partitions that were read are so no longer."""
        kept = set(after)
        topics = {at.topic: at.topic_id for at in kept}
        for at in sorted({*before} - kept):
            again = topics.get(at.topic, at.topic_id) != at.topic_id
            what = (
                "was deleted and made again" if again else "was deleted, or the options no longer choose it"
            )
            report_loss(f"{at} is gone: its topic {what}", self._options.fail_on_data_loss)

    def _too_early(
        self, begins: Mapping[TopicIdPartition, int], ends: Mapping[TopicIdPartition, int]
    ) -> bool:
        """Whether there is less than minOffsetsPerTrigger, and maxTriggerDelay is not over."""
        least = self._options.min_offsets_per_trigger
        if least is None:
            return False
        now = self._clock.monotonic()
        waited_ms = math.inf if self._last_trigger is None else (now - self._last_trigger) * 1000
        new = sum(max(0, end - begins[at]) for at, end in ends.items())
        if new < least and waited_ms < self._options.max_trigger_delay_ms:
            return True
        self._last_trigger = now
        return False

    def reportLatestOffset(self) -> StreamOffset | None:  # noqa: N802
        """The ends of the logs, for the progress report."""
        return encode(self._latest())

    def partitions(self, start: StreamOffset, end: StreamOffset) -> list[InputPartition]:
        """The slices of a micro-batch."""
        begins, ends, now = decode_begin(start, end), decode(end), self._latest()
        self._check_kept(begins, ends)
        self._check_kept(ends, now)
        wanted = [
            Range(at.topic, at.partition, begins[at] if at in begins else self._first(at), stop)
            for at, stop in ends.items()
            if at in now
        ]
        return [*plan(self._subscription, wanted, self._options)]

    def _first(self, at: TopicIdPartition) -> int:
        """Where a partition begins that the query has not read before."""
        first = self._subscription.partitions[TopicPartition(at.topic, at.partition)].log_start
        if first > 0:
            report_loss(
                f"{at} is new to the query and begins at offset {first}", self._options.fail_on_data_loss
            )
        return first

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options)

    def stop(self) -> None:
        """Let go of what the query held. Spark does not call it; it ends the process."""
        if self._opened is not None:
            self._opened.close()
        if "_progress" in self.__dict__:
            self._progress.close()
