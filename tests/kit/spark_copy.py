"""A driver in a process of its own: copies the topic `t` to a Delta table, in small batches, to its end.

python -m tests.kit.spark_copy ROOT TARGET
"""

import sys

from lakelog.spark import session

OFFSETS_PER_TRIGGER = 30


def main(root: str, target: str) -> None:
    spark = session(
        "copy",
        **{
            "spark.master": "local[2,4]",  # four attempts for a task
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.ui.showConsoleProgress": "false",
        },
    )
    records = (
        spark.readStream.format("lakelog")
        .option("subscribe", "t")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", OFFSETS_PER_TRIGGER)
        .load(root)
    )
    query = (
        records.writeStream.format("delta")
        .option("checkpointLocation", f"{target}/_checkpoint")
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:3])
