"""Queries of Delta's streaming source over one table: one with each option that such a table may need."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from tests.kit.queries import WAIT_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

PLAIN, SKIP, IGNORE = "plain", "skipChangeCommits", "ignoreDeletes"
MODES = (PLAIN, SKIP, IGNORE)

DELETED, UPDATED = "DELTA_SOURCE_IGNORE_DELETE", "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
"""How Delta refuses a commit that removes records, and one that adds records, too."""

REFOLDED = "DIFFERENT_DELTA_TABLE_READ_BY_STREAMING_SOURCE"
"""How a stream ends when the table was begun again, under a new id."""

SCHEMA_CHANGED = "DELTA_SCHEMA_CHANGED"
"""How a stream that runs stops when the table gets a column. It goes on after a restart."""

FILE_GONE, LOG_GONE = "FAILED_READ_FILE.FILE_NOT_EXIST", "DELTA_LOG_FILE_NOT_FOUND_FOR_STREAMING_SOURCE"
"""How a stream ends that rested until what it was to read next was deleted."""

_CONDITION = re.compile(r"\[(DELTA_\w+|DIFFERENT_\w+|FAILED_READ_FILE\.\w+)")


class DeltaStreams:
    """The queries, each with a checkpoint and a sink of its own in `directory`. `refused` says which of them
    ended with which error of Delta's.
    """

    def __init__(self, spark: "SparkSession", location: str, directory: Path, files_max: int = 1_000) -> None:
        """A micro-batch reads at most `files_max` files; Delta's default is a thousand."""
        self._spark, self._location, self._directory = spark, location, directory
        self._files_max = files_max
        self.refused: dict[str, str] = {}

    def go_on(self) -> None:
        """Let each stream that was not refused read all commits until now, from where it stopped."""
        queries = {mode: self.started(mode) for mode in MODES if mode not in self.refused}
        for mode, query in queries.items():
            try:
                assert query.awaitTermination(WAIT_S)
            except StreamingQueryException as error:
                self.refused[mode] = _condition(error)

    def started(self, mode: str, every: str = "") -> "StreamingQuery":
        """The query with option `mode`: as far as there is something to read, or again after each `every`."""
        reader = self._spark.readStream.format("delta").option("maxFilesPerTrigger", self._files_max)
        if mode != PLAIN:
            reader = reader.option(mode, "true")
        writer = reader.load(self._location).select("partition", "offset").writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(self._directory / mode / "checkpoint"))
        writer = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
        return writer.start(str(self._directory / mode / "sink"))

    def rows(self, mode: str) -> list[tuple[int, int]]:
        """(Partition, offset) of all that one has given, in order."""
        sink = self._spark.read.schema("partition int, offset long").parquet(
            str(self._directory / mode / "sink")
        )
        return sorted((row.partition, row.offset) for row in sink.collect())


def _condition(error: StreamingQueryException) -> str:
    found = _CONDITION.search(str(error))
    return str(error) if found is None else found[1]
