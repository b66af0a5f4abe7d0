"""foreachBatch into a Delta table: for each plane, the last flight that the topic has of it.

    python examples/latest_by_plane.py ./lakelog-data ./latest_by_plane

A batch that is repeated after a crash brings the same rows again: merging them by key and offset changes
nothing.
"""

import sys

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakelog.spark import session


def main(spark: SparkSession, root: str, target: str) -> None:
    """Bring the table `target` up to what the topic `flights` of `root` holds now."""
    planes = (
        DeltaTable.createIfNotExists(spark)
        .location(target)
        .addColumn("plane", "string")
        .addColumn("offset", "bigint")
        .addColumn("flight", "string")
        .execute()
    )

    def merge(batch: DataFrame, _batch_id: int) -> None:
        # The records of a key are in one partition, where the offset says which is the latest.
        latest = (
            batch.where("key is not null")
            .select(F.expr("string(key)").alias("plane"), "offset", F.expr("string(value)").alias("flight"))
            .groupBy("plane")
            .agg(F.max("offset").alias("offset"), F.max_by("flight", "offset").alias("flight"))
        )
        (
            planes.alias("old")
            .merge(latest.alias("new"), "old.plane = new.plane")
            .whenMatchedUpdateAll(condition="new.offset > old.offset")
            .whenNotMatchedInsertAll()
            .execute()
        )

    query = (
        spark.readStream.format("lakelog")
        .option("subscribe", "flights")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 100_000)
        .load(root)
        .writeStream.foreachBatch(merge)
        .option("checkpointLocation", f"{target}/_checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(session("latest by plane"), *sys.argv[1:3])
