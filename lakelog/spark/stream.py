"""A streaming query: which offsets the next micro-batch reads, and the slices that its tasks read.

The methods are those of Spark's Python data source (PySpark 4.2); Spark calls them one after the other, in
a process of its own that lives as long as the query. `read` alone runs in the executors, on a fresh copy.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from lakelog.spark.loss import lost
from lakelog.spark.options import TopicPartition, parse
from lakelog.spark.plan import plan
from lakelog.spark.ranges import Range, share_out
from lakelog.spark.slices import read
from lakelog.spark.subscription import Offsets, Subscription
from log_tables.clock import SystemClock

TOPIC_ID = "id"
"""Beside the offsets of a topic's partitions: which incarnation of the topic they belong to."""


def encode(offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str]) -> dict[str, Any]:
    """Offsets as Spark keeps them: `{"orders": {"id": …, "0": 23}}`, always in the same order.

    The form is that of Spark's Kafka source, and the topic's id: Spark compares the text.
    """
    topics: dict[str, Any] = {
        name: {TOPIC_ID: topic_ids[name]} for name in sorted({name for name, _ in offsets})
    }
    for (name, partition), offset in sorted(offsets.items()):
        topics[name][str(partition)] = offset
    return topics


def decode(topics: Mapping[str, Mapping[str, Any]]) -> tuple[Offsets, dict[str, str]]:
    """What `encode` was given."""
    offsets = {
        (name, int(partition)): offset
        for name, entries in topics.items()
        for partition, offset in entries.items()
        if re.fullmatch(r"\d+", partition)
    }
    return offsets, {name: entries[TOPIC_ID] for name, entries in topics.items()}


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the micro-batches of one query. Its methods raise the errors of `Subscription` and DataLost."""

    def __init__(self, given: Mapping[str, str]) -> None:
        """Raises InvalidArgument."""
        self._options = parse(given, streaming=True)
        self._clock = SystemClock()
        self._opened: Subscription | None = None
        self._final: Offsets | None = None
        self._last_trigger: float | None = None

    @property
    def _subscription(self) -> Subscription:
        """Opened at the first use: the copy that goes to the executors has none."""
        if self._opened is None:
            self._opened = Subscription(self._options)
            self._opened.refresh()
        return self._opened

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query starts."""
        subscription = self._subscription
        offsets = subscription.resolve(self._options.starting, self._options.without_match)
        return encode(offsets, subscription.topic_ids())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """That there is a limit; what it is, `latestOffset` takes from the options, both of them."""
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.min_offsets_per_trigger is not None:
            return ReadMinRows(self._options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix the end of the query: what is there now."""
        self._final = self._subscription.latest()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends; `start` when there is to be none."""
        subscription = self._subscription
        subscription.refresh()
        begins, ends = self._begins(start), subscription.latest()
        if self._final is not None:
            ends = {at: min(end, self._final[at]) for at, end in ends.items() if at in self._final}
        if not isinstance(limit, ReadAllAvailable):
            if self._final is None and self._too_early(begins, ends):
                return start
            if self._options.max_offsets_per_trigger is not None:
                ends = share_out(self._options.max_offsets_per_trigger, begins, ends)
        return encode(ends, subscription.topic_ids())

    def _begins(self, start: dict[str, Any]) -> Offsets:
        """Where each partition that there is now goes on after `start`: a new one at its beginning."""
        offsets, topic_ids = decode(start)
        now = self._subscription.topic_ids()
        self._check_kept(topic_ids, now)
        return {
            at: offsets[at] if at in offsets and topic_ids[at[0]] == now[at[0]] else partition.log_start
            for at, partition in self._subscription.partitions.items()
        }

    def _check_kept(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        for topic, topic_id in before.items():
            if topic not in after:
                what = f"topic {topic} was deleted, or the options no longer choose it"
            elif after[topic] != topic_id:
                what = f"topic {topic} was deleted and made again"
            else:
                continue
            lost(what, self._options.fail_on_data_loss)

    def _too_early(self, begins: Offsets, ends: Offsets) -> bool:
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

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The ends of the logs, for the progress report."""
        return encode(self._subscription.latest(), self._subscription.topic_ids())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The slices of a micro-batch."""
        (offsets, before), (ends, topic_ids) = decode(start), decode(end)
        now = self._subscription.topic_ids()
        self._check_kept(before, topic_ids)
        self._check_kept(topic_ids, now)
        wanted = []
        for (topic, partition), stop in ends.items():
            if now.get(topic) == topic_ids[topic]:
                known = before.get(topic) == topic_ids[topic]
                begin = offsets.get((topic, partition)) if known else None
                wanted.append(
                    Range(topic, partition, self._first(topic, partition) if begin is None else begin, stop)
                )
        return [*plan(self._subscription, wanted, self._options)]

    def _first(self, topic: str, partition: int) -> int:
        """Where a partition begins that the query has not read before."""
        first = self._subscription.partitions[topic, partition].log_start
        if first > 0:
            name = f"{topic}/{partition}"
            lost(
                f"{name} is new to the query and starts at offset {first}, not 0",
                self._options.fail_on_data_loss,
            )
        return first

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(partition, self._options)

    def stop(self) -> None:
        """Let go of what the query held."""
        if self._opened is not None:
            self._opened.close()
