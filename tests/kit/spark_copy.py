"""A driver in a process of its own: copies the topic `t` to a Delta table, in small batches, to its end.

python -m tests.kit.spark_copy ROOT TARGET

When its query fails, it says so, and starts the query again, once.
"""

import sys

from pyspark.errors import StreamingQueryException

from lakelog.spark import session
from tests.kit.queries import run_to_end

OFFSETS_PER_TRIGGER = 30
HAS_FAILED = "the query has failed:"


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
    copy = (
        records.writeStream.format("delta")
        .option("path", target)
        .option("checkpointLocation", f"{target}/_checkpoint")
        .trigger(availableNow=True)
    )
    try:
        run_to_end(copy)
    except StreamingQueryException as error:
        print(HAS_FAILED, error, flush=True)  # noqa: T201
        run_to_end(copy)


if __name__ == "__main__":
    main(*sys.argv[1:3])
