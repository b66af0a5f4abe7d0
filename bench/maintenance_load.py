"""Topics for the maintenance cells, appended straight to the tables: JSON of 100 to 200 bytes, by key."""

import random
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from bench.spark_load import TOPIC
from log_tables.clock import SystemClock
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import OFFSET, VALUE, partition_directory, topic_directory
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import binary_array, input_batch_from_columns, int64s
from log_tables.store.store import open_store

_WORDS = [f"{word:05x}" for word in range(4096)]
_ACTIONS = ("view", "search", "add-to-basket", "order", "sign-in")


class Events:
    """Random events, the same in every run; each has one of `keys` keys."""

    def __init__(self, keys: int) -> None:
        self._draw, self._keys = random.Random(1), keys
        self._numbers = np.random.default_rng(1)

    def batch(self, count: int, now_us: int) -> pa.RecordBatch:
        """`count` of them, of the time `now_us` (microseconds since 1970), as INPUT_SCHEMA."""
        users = self._numbers.integers(0, self._keys, count).tolist()
        took = self._numbers.integers(0, 100_000, count).tolist()
        ends = [0, *np.cumsum(self._numbers.integers(6, 20, count)).tolist()]
        words = self._draw.choices(_WORDS, k=ends[-1])
        actions = self._draw.choices(_ACTIONS, k=count)
        values = [
            f'{{"user": {user}, "action": "{action}", "ms": {ms}, "text": "{" ".join(words[start:end])}"}}'
            for user, action, ms, (start, end) in zip(users, actions, took, pairwise(ends), strict=True)
        ]
        keys = binary_array([b"user-%06d" % user for user in users])
        return input_batch_from_columns(
            binary_array([value.encode() for value in values]), now_us=now_us, keys=keys
        )


def fill(
    root: str | Path, partitions: int, segments: int, rows: int, configs: Mapping[str, str], events: Events
) -> None:
    """Make the topic and append to each partition `segments` segments of `rows` events."""
    clock = SystemClock()
    cluster = Cluster.open(open_store(str(root)), clock)
    topic = create_topic(cluster, TOPIC, partitions, configs)
    for index in range(partitions):
        append(cluster.claim(topic, index), segments, rows, events, clock.now_us())


def append(partition: Partition, segments: int, rows: int, events: Events, now_us: int) -> None:
    """Append `segments` segments of `rows` events of the time `now_us`, with the checkpoints that are due."""
    for _ in range(segments):
        partition.append([AppendRequest(events.batch(rows, now_us))])
        if partition.table.checkpoint_due():
            partition.checkpoint()


def table(root: str | Path, index: int = 0) -> str:
    """The path of a partition's table below `root`."""
    return str(Path(root, partition_directory(topic_directory(TOPIC), index)))


def content(root: str | Path, partitions: int) -> list[tuple[int, int, int, int]]:
    """For each partition: records, two sums over their offsets, bytes of values, as delta-rs reads them."""
    return [_content(table(root, index)) for index in range(partitions)]


def _content(path: str) -> tuple[int, int, int, int]:
    count = total = squares = size = 0
    for file in DeltaTable(path).file_uris():
        rows = pq.read_table(file, columns=[OFFSET, VALUE])
        for batch in rows.to_batches():
            offsets = int64s(batch.column(OFFSET))
            count += len(offsets)
            total += int(offsets.sum())
            squares += int((offsets * offsets).sum())
            size += pc.sum(pc.binary_length(batch.column(VALUE))).as_py()
    return count, total, squares % 2**64, size


def files(root: str | Path, partitions: int) -> int:
    """How many data files all tables have."""
    return sum(len(DeltaTable(table(root, index)).file_uris()) for index in range(partitions))
