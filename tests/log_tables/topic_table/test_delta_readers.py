"""Other programs on the table over a topic: they read it as any Delta table, and cannot write to it."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from log_tables.clock import SystemClock
from log_tables.store.store import open_store
from tests.kit.folds import FoldedTopic, merge_folded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS = 3


@pytest.fixture
def world(store_root: Path) -> FoldedTopic:
    """Two records in each partition; those of the first partition are merged."""
    world = FoldedTopic(open_store(store_root), SystemClock(), PARTITIONS)
    for number in range(PARTITIONS):
        world.append(number, 2)
    world.fold()
    merge_folded(world, 0)
    world.fold()
    return world


def location(world: FoldedTopic) -> str:
    return world.cluster.store.delta_location(world.topic.directory)[0]


def rows(world: FoldedTopic) -> list[tuple[int, int]]:
    """(partition, offset) of all records, in order."""
    return [
        (number, offset)
        for number in world.numbers
        for offset in range(
            world.topic.partition(number).log_start, world.topic.partition(number).high_watermark
        )
    ]


def test_polars_and_delta_rs_read_a_topic_as_one_table(world: FoldedTopic) -> None:
    world.append(2, 3)
    world.fold()
    frame = pl.read_delta(location(world)).select("partition", "offset").sort("partition", "offset")
    assert frame.rows() == rows(world)
    dataset = DeltaTable(location(world)).to_pyarrow_dataset()
    found = dataset.to_table(columns=["partition", "offset"]).to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in found) == rows(world)


def test_a_filter_on_the_partition_is_a_filter(world: FoldedTopic) -> None:
    dataset = DeltaTable(location(world)).to_pyarrow_dataset()
    assert dataset.count_rows(filter=pc.field("partition") == 1) == 2
    frame = pl.scan_delta(location(world)).filter(pl.col("partition") == 1).collect()
    assert frame["offset"].sort().to_list() == [0, 1]


def test_delta_rs_writes_nothing_there(world: FoldedTopic) -> None:
    table, version = DeltaTable(location(world)), world.table.snapshot.version
    frame = pl.read_delta(location(world)).to_arrow()
    with pytest.raises(DeltaError):
        write_deltalake(table, frame, mode="append")
    with pytest.raises(DeltaError):
        table.optimize.compact()
    with pytest.raises(DeltaError):
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 1 hours"})
    assert table.vacuum(dry_run=True) == []
    assert world.table.refresh(wait=True).version == version


class TestSpark:
    def read(self, spark: "SparkSession", world: FoldedTopic) -> "DataFrame":
        return spark.read.format("delta").load(location(world))

    def test_it_reads_a_topic_as_one_table_and_knows_partitions(
        self, spark: "SparkSession", world: FoldedTopic
    ) -> None:
        found = self.read(spark, world).select("partition", "offset").collect()
        assert sorted((row.partition, row.offset) for row in found) == rows(world)
        some = self.read(spark, world).where("partition = 1 and offset >= 1").select("offset").collect()
        assert [row.offset for row in some] == [1]

    def test_it_writes_nothing_there(self, spark: "SparkSession", world: FoldedTopic) -> None:
        version = world.table.snapshot.version
        table = f"delta.`{location(world)}`"
        for statement in (
            f"insert into {table} select * from {table}",
            f"optimize {table}",
            f"delete from {table} where offset = 0",
            f"alter table {table} set tblproperties ('delta.appendOnly' = 'true')",
            f"vacuum {table} dry run",
        ):
            with pytest.raises(Exception, match=r"lakelogTopic|UNSUPPORTED"):
                spark.sql(statement)
        assert world.table.refresh(wait=True).version == version

    @pytest.mark.parametrize("option", ["", "skipChangeCommits", "ignoreDeletes"])
    def test_its_stream_has_each_record_once(
        self, spark: "SparkSession", world: FoldedTopic, tmp_path: Path, option: str
    ) -> None:
        """Beside appends and merges; and beside deletions if the stream is told to stand them."""
        sink = str(tmp_path / "sink")

        def go_on() -> None:
            reader = spark.readStream.format("delta")
            if option:
                reader = reader.option(option, "true")
            stream = (
                reader.load(location(world))
                .select("partition", "offset")
                .writeStream.format("parquet")
                .option("checkpointLocation", str(tmp_path / "checkpoint"))
                .trigger(availableNow=True)
                .start(sink)
            )
            stream.awaitTermination()

        go_on()
        everything = rows(world)
        for number in range(PARTITIONS):
            world.append(number, 3)
        world.fold(most=2)
        merge_folded(world, 1)
        if option:
            world.topic.partition(0).truncate(2)
        world.append(2, 1)
        world.fold()
        everything += rows(world)
        go_on()
        found = sorted((row.partition, row.offset) for row in spark.read.parquet(sink).collect())
        assert found == sorted({*everything})
