"""Readers of old versions of the table over a topic, during merges, deletions, compactions and vacuums.

A version can be read whole for an hour after the next one came. Later a reader has its rows, or an error.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from jobs.maintenance import jobs_named
from log_tables.limits import REPLACED_FILE_RETENTION_MS
from log_tables.table.commit import read_commit
from log_tables.topic_table.topic_snapshot import TopicSnapshot
from tests.kit.clusters import another
from tests.kit.maintenance import errors, interrupted, run
from tests.kit.topic_in_use import PARTITIONS, TopicInUse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

(HOUSEKEEPING,) = jobs_named(["housekeeping"])
POLICIES = ("delete", "compact,delete")

Rows = list[tuple[int, int]]
"""(Partition, offset) of records, in order."""

REFUSALS = (DeltaError, OSError, pl.exceptions.PolarsError)
"""How delta-rs, Arrow and Polars say that a file or a version is gone."""


class Versions:
    """The rows of each version of a topic's table, and when the next version came, in milliseconds since
    1970.
    """

    def __init__(self, topic: TopicInUse) -> None:
        self.topic, self._state = topic, topic.table()
        self._offsets: dict[str, list[int]] = {}
        self.rows = {self._state.version: self._rows(self._state)}
        self.over_ms: dict[int, int] = {}
        self.opened = {self._state.version: DeltaTable(topic.location)}

    def follow(self) -> None:
        """Note the versions that came since the last call."""
        store, directory = self.topic.cluster.store, self.topic.topic.directory
        while (commit := read_commit(store, directory, self._state.version + 1)) is not None:
            self.over_ms[self._state.version] = self.topic.clock.now_ms()
            self._state = self._state.apply(commit)
            self.rows[self._state.version] = self._rows(self._state)
        self.opened.setdefault(self._state.version, DeltaTable(self.topic.location))

    def _rows(self, state: TopicSnapshot) -> Rows:
        return sorted(
            (number, offset)
            for number, segments in state.segments.items()
            for segment in segments
            for offset in self._read(f"{self.topic.location}/partition={number}/{segment.path}")
        )

    def _read(self, file: str) -> list[int]:
        if file not in self._offsets:
            table = pq.ParquetFile(file.removeprefix("file://")).read(["offset"])
            self._offsets[file] = table["offset"].to_pylist()
        return self._offsets[file]

    def is_promised(self, version: int) -> bool:
        over_ms = self.over_ms.get(version)
        return over_ms is None or self.topic.clock.now_ms() - over_ms < REPLACED_FILE_RETENTION_MS

    def check(self, read: Callable[[int], Rows], refusals: tuple[type[Exception], ...]) -> int:
        """Every version is read whole, or refused when it may be; returns how many were refused."""
        refused = 0
        for version, rows in self.rows.items():
            try:
                found = sorted(read(version))
            except refusals:
                assert not self.is_promised(version), version
                refused += 1
                continue
            assert found == rows, version
        return refused

    def by_delta_rs(self, version: int) -> Rows:
        return of_delta_rs(DeltaTable(self.topic.location, version=version))

    def by_who_opened(self, version: int) -> Rows:
        """The rows that a reader finds which opened the table at that version, if there was one."""
        table = self.opened.get(version)
        return self.rows[version] if table is None else of_delta_rs(table)

    def by_polars(self, version: int) -> Rows:
        return pl.read_delta(self.topic.location, version=version).select("partition", "offset").rows()


def of_delta_rs(table: DeltaTable) -> Rows:
    found = table.to_pyarrow_dataset().to_table(columns=["partition", "offset"])
    return [*zip(found["partition"].to_pylist(), found["offset"].to_pylist(), strict=True)]


def hour_by_hour(topic: TopicInUse, hours: int) -> Iterator[None]:
    """Hours in which records come, are merged, compacted, deleted, expire, and are vacuumed."""
    for hour in range(hours):
        for number in range(PARTITIONS):
            topic.append(number, 6)
        topic.fold()
        yield
        if hour % 5 == 1:
            topic.delete_records(hour % PARTITIONS, 5)
        topic.maintain()
        yield
        topic.hours_pass(1, asleep=hour % 7 == 3)
        yield


def check_for(hours: int, directory: Path, seed: int, policy: str) -> None:
    topic = TopicInUse(directory, seed, policy)
    versions, refused = Versions(topic), 0
    for at, _ in enumerate(hour_by_hour(topic, hours)):
        versions.follow()
        if at % 4 == 0:
            for read in (versions.by_delta_rs, versions.by_who_opened, versions.by_polars):
                refused += versions.check(read, REFUSALS)
    assert refused > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_an_old_version_is_read_whole_for_an_hour_and_never_in_part(
    tmp_path: Path, seed: int, policy: str
) -> None:
    check_for(6, tmp_path / "root", seed, policy)


def test_a_vacuum_marks_nothing_that_the_table_still_names(tmp_path: Path, seed: int) -> None:
    """Records are deleted after a run of the jobs has folded, and for a day nobody folds."""
    topic = TopicInUse(tmp_path / "root", seed)
    topic.append(0, 8)
    topic.fold()
    versions = Versions(topic)
    deleting = interrupted(HOUSEKEEPING, partial(topic.delete_records, 0, 10))
    assert errors(run(another(topic.cluster), jobs=[deleting])) == {}
    topic.hours_pass(25)
    assert errors(run(another(topic.cluster), jobs=[HOUSEKEEPING])) == {}
    versions.follow()
    assert len(versions.rows) == 2
    for read in (versions.by_delta_rs, versions.by_who_opened, versions.by_polars):
        assert versions.check(read, REFUSALS) == 0


@pytest.mark.torture
@pytest.mark.parametrize("policy", POLICIES)
def test_old_versions_are_read_whole_for_an_hour_for_long(tmp_path: Path, seed: int, policy: str) -> None:
    check_for(50, tmp_path / "root", seed, policy)


@pytest.mark.spark
@pytest.mark.torture
def test_spark_reads_an_old_version_whole_for_an_hour_and_never_in_part(
    spark: "SparkSession", tmp_path: Path, seed: int
) -> None:
    topic = TopicInUse(tmp_path / "root", seed)
    versions = Versions(topic)

    def by_spark(version: int) -> Rows:
        table = spark.read.format("delta").option("versionAsOf", version).load(topic.location)
        return [(row.partition, row.offset) for row in table.select("partition", "offset").collect()]

    for _ in hour_by_hour(topic, 3):
        versions.follow()
    assert versions.check(by_spark, (PySparkException, Py4JJavaError)) > 0
