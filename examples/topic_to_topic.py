"""Topic to topic, each record exactly once: late flights go from one topic to another.

    lakelog serve --data ./lakelog-data
    python examples/topic_to_topic.py ./lakelog-data flights late_flights ./checkpoint

Run it again, after a crash too: it goes on from the checkpoint, and what it has written before is not written
again. The gateway makes each micro-batch visible as a whole; `path` is the root that it serves.
"""

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from lakelog.client import DEFAULT_URL
from lakelog.spark import session


def main(
    spark: SparkSession, root: str, source: str, target: str, checkpoint: str, gateway: str = DEFAULT_URL
) -> None:
    """Write the late flights that the topic `source` holds now, and that were not, to the topic `target`."""
    records = (
        spark.readStream.format("lakelog")
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .load(root)
    )
    delay = F.get_json_object(F.col("value").cast("string"), "$.dep_delay").cast("double")
    late = records.where(delay > 15).select("key", "value", "timestamp")
    query = (
        late.writeStream.format("lakelog")
        .option("path", root)
        .option("topic", target)
        .option("gateway", gateway)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(session("topic to topic"), *sys.argv[1:])
