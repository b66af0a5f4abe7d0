"""Topics with given records, and the source `lakelog` on them: driven in this process, and by Spark."""

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadLimit

from lakelog.spark.java import java_home
from lakelog.spark.source.plan import BatchReader
from lakelog.spark.source.slices import Slice
from lakelog.spark.source.stream import StreamReader
from log_tables.clock import Clock, SystemClock
from log_tables.cluster.admin.topic_admin import create_topic, delete_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import log_directory
from log_tables.partition.partition import AppendRequest, Partition
from log_tables.record import Record, input_batch
from log_tables.segments import rewrite
from log_tables.store.store import Store
from tests.kit.queries import run_to_end, started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

NOW_MS = 1_700_000_000_000

Offsets = dict[str, list[int]]
"""The offsets read, by partition (`t-0`), in the order in which they came."""


class Topics:
    """The topics of one root, which a test fills and changes as other processes would."""

    def __init__(self, store: Store, storage: dict[str, str] | None = None) -> None:
        self.store = store
        self._storage = {f"storage.{name}": value for name, value in (storage or {}).items()}
        self.cluster = Cluster.open(store)

    def create(self, name: str = "t", partitions: int = 1, **configs: str) -> None:
        """Settings are named with underscores: `message_timestamp_type`."""
        create_topic(self.cluster, name, partitions, {k.replace("_", "."): v for k, v in configs.items()})

    def recreate(self, name: str = "t", partitions: int = 1) -> None:
        delete_topic(self.cluster, name)
        create_topic(self.cluster, name, partitions)

    def partition(self, name: str = "t", index: int = 0) -> Partition:
        """To append to: this process leads it."""
        partition = self.cluster.topic(name).partition(index)
        if not partition.leading:
            partition.claim("")
        return partition

    def append(self, name: str, index: int, count: int, at_ms: int = NOW_MS) -> None:
        """One commit of `count` records, whose values are `v`."""
        self.put(name, index, *[Record(b"v")] * count, at_ms=at_ms)

    def put(self, name: str, index: int, *records: Record, at_ms: int = NOW_MS) -> None:
        self.partition(name, index).append([AppendRequest(input_batch(records, at_ms * 1000))])

    def merge(self, name: str = "t", index: int = 0) -> None:
        """All segments become one, and the old files are removed, as compaction and vacuum do it."""
        partition = self.partition(name, index)
        inputs = partition.snapshot.segments
        made = rewrite.merge(self.store, partition.directory, inputs, "zstd", SystemClock())
        assert rewrite.commit_merge(partition.table, inputs, made)
        self.remove(partition, [item.path for item in inputs])

    def remove(self, partition: Partition, paths: Iterable[str]) -> None:
        """Delete data files of a partition."""
        for path in paths:
            self.store.delete(f"{partition.directory}/{path}")

    def sweep_data(self, directory: str) -> None:
        """Remove the data files of a deleted topic, as a gateway does after `file.delete.delay.ms`."""
        for item in list(self.store.list(f"{directory}/")):
            if log_directory("") not in item.path:
                self.store.delete(item.path)

    def options(self, **options: object) -> dict[str, str]:
        """The options of a query on this root: of the topic `t` unless they say otherwise."""
        chosen = {"subscribe", "subscribePattern", "assign"} & options.keys()
        given = {"path": self.store.url, **self._storage, **({} if chosen else {"subscribe": "t"})}
        texts = {k: v if isinstance(v, str) else json.dumps(v) for k, v in options.items()}
        return {**given, **texts}

    def stream_offset(self, **ends: list[int]) -> dict[str, dict[str, Any]]:
        """Offsets as a query reports them: `stream_offset(t=[10, 20])`."""
        return {
            name: {"id": self.cluster.topic(name).topic_id, **{str(i): end for i, end in enumerate(of)}}
            for name, of in ends.items()
        }

    def batch(self, **options: object) -> Offsets:
        """The offsets that a batch query reads."""
        reader = BatchReader(self.options(**options))
        return read(reader, reader.partitions())

    def query(self, **options: object) -> "Query":
        """A streaming query from the beginning, unless the options name another start."""
        return Query(self.options(**{"startingOffsets": "earliest", **options}))


def read(reader: BatchReader | StreamReader, slices: Sequence[InputPartition]) -> Offsets:
    """Read slices as tasks do: from copies, one after the other."""
    found: Offsets = {}
    for part in slices:
        copy: InputPartition = pickle.loads(pickle.dumps(part))
        for batch in reader.read(copy):
            columns = [batch.column(name).to_pylist() for name in ("topic", "partition", "offset")]
            for topic, partition, offset in zip(*columns, strict=True):
                found.setdefault(f"{topic}-{partition}", []).append(offset)
    return found


def rows(reader: BatchReader | StreamReader, slices: Sequence[InputPartition]) -> list[dict[str, Any]]:
    """The rows of `slices`, with all columns."""
    batches = [batch for part in slices for batch in reader.read(part)]
    return pa.Table.from_batches(batches).to_pylist() if batches else []


def ranges(slices: Sequence[InputPartition]) -> list[tuple[str, int, int]]:
    """(Partition, start, end) of each."""
    parts = [part for part in slices if isinstance(part, Slice)]
    assert len(parts) == len(slices)
    return [(f"{part.topic}-{part.partition}", part.start, part.end) for part in parts]


def joined(*batches: Offsets | None) -> Offsets:
    """The offsets that several micro-batches read, one after the other."""
    found: Offsets = {}
    for batch in batches:
        for partition, offsets in (batch or {}).items():
            found.setdefault(partition, []).extend(offsets)
    return found


class Query:
    """A streaming query, driven in this process by Spark's order of calls."""

    def __init__(
        self, options: dict[str, str], offset: dict[str, Any] | None = None, clock: Clock | None = None
    ) -> None:
        """`offset` is where the checkpoint says that it continues; None for a new query."""
        self.options, self.offset = options, offset
        self.reader = StreamReader(options, clock)
        self.planned: list[InputPartition] = []

    def restart(self, **options: str) -> "Query":
        """A query that starts from the checkpoint of this one, as in a new process; `options` change."""
        return Query({**self.options, **options}, self.offset)

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Plan the next micro-batch; False when there is none.

        The first one, with which a query writes down where it begins, does not count when it is empty.
        """
        begins = self.offset is None
        if self.offset is None:
            self.offset = _through_json(self.reader.initialOffset())
        limit = limit or self.reader.getDefaultReadLimit()
        end = _through_json(self.reader.latestOffset(self.offset, limit))
        if end == self.offset:
            return False
        self.planned = self.reader.partitions(self.offset, end)
        self.offset = end
        return self.plan(limit) if begins and not self.planned else True

    def trigger(self, limit: ReadLimit | None = None) -> Offsets | None:
        """Run one micro-batch; None if there was nothing to read."""
        return read(StreamReader(self.options), self.planned) if self.plan(limit) else None

    def available_now(self, between: Callable[[], None] = lambda: None) -> list[Offsets]:
        """The micro-batches of Trigger.AvailableNow; `between` them something may happen."""
        self.reader.prepareForTriggerAvailableNow()
        found = []
        while (batch := self.trigger()) is not None:
            found.append(batch)
            between()
        return found


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(json.dumps(offset))
    return decoded


@dataclass
class Collected:
    """The micro-batches that a query of Spark's has written; `meanwhile` happens before each."""

    meanwhile: Callable[[], None]
    batches: list[list[Any]] = field(default_factory=list)

    def take(self, batch: "DataFrame", _: int) -> None:
        self.meanwhile()
        self.batches.append(batch.collect())

    def offsets(self) -> Offsets:
        """All collected offsets, by partition."""
        found: Offsets = {}
        for row in sorted(row for batch in self.batches for row in map(_partition_and_offset, batch)):
            found.setdefault(row[0], []).append(row[1])
        return found


def _partition_and_offset(row: Any) -> tuple[str, int]:
    return f"{row.topic}-{row.partition}", row.offset


def loaded(spark: "SparkSession", options: dict[str, str], source: str = "lakelog") -> "DataFrame":
    """A batch query in Spark."""
    return spark.read.format(source).options(**options).load()


def start(
    spark: "SparkSession",
    options: dict[str, str],
    checkpoint: Path,
    meanwhile: Callable[[], None] = lambda: None,
    source: str = "lakelog",
    **trigger: Any,
) -> tuple["StreamingQuery", Collected]:
    """Start a query in Spark; without a trigger it runs until it is stopped."""
    collected = Collected(meanwhile)
    stream = _stream(spark, options, source)
    return started(_writer(stream, checkpoint, collected, trigger)), collected


def _stream(spark: "SparkSession", options: dict[str, str], source: str) -> "DataFrame":
    return spark.readStream.format(source).options(**options).load()


def _writer(
    stream: "DataFrame", checkpoint: Path, collected: Collected, trigger: dict[str, Any]
) -> "DataStreamWriter":
    writer = stream.writeStream.foreachBatch(collected.take).option("checkpointLocation", str(checkpoint))
    return writer.trigger(**trigger) if trigger else writer


def run(
    spark: "SparkSession",
    options: dict[str, str],
    checkpoint: Path,
    meanwhile: Callable[[], None] = lambda: None,
    source: str = "lakelog",
    **trigger: Any,
) -> tuple["StreamingQuery", Collected]:
    """Run a query in Spark to its end: Trigger.AvailableNow unless another is named."""
    collected = Collected(meanwhile)
    stream = _stream(spark, options, source)
    writer = _writer(stream, checkpoint, collected, trigger or {"availableNow": True})
    return run_to_end(writer), collected


def spark_submit(
    cwd: Path, master: str, *words: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a job as a user does, from a directory where the packages of this repository are not found."""
    home = Path(pyspark.__file__).parent
    settings = ("spark.ui.enabled=false", "spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1")
    options = [word for setting in settings for word in ("--conf", setting)]
    command = [home / "bin" / "spark-submit", "--master", master, *options, *words]
    ours = {
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONSAFEPATH": "1",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, **ours, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
