"""Topics of a gateway as Spark's own source `kafka` reads them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from log_tables.store.store import open_store
from tests.kit.kafka import KafkaGateway
from tests.kit.spark import Collected, Offsets, Topics, loaded, run, start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class KafkaTopics(Topics):
    """The topics of a gateway's root, filled by another process than the gateway's.

    `options` are those of Spark's Kafka source, of the topic `t` unless they say otherwise.
    """

    def __init__(self, spark: "SparkSession", door: KafkaGateway) -> None:
        super().__init__(open_store(door.data))
        self.spark, self.door = spark, door

    def options(self, **options: object) -> dict[str, str]:
        found = super().options(**options)
        del found["path"]
        return {"kafka.bootstrap.servers": self.door.bootstrap, **found}

    def frame(self, **options: object) -> "DataFrame":
        """A batch query."""
        return loaded(self.spark, self.options(**options), "kafka")

    def batch(self, **options: object) -> Offsets:
        collected = Collected(lambda: None)
        collected.take(self.frame(**options), 0)
        return collected.offsets()

    def stream(
        self, checkpoint: Path, meanwhile: Callable[[], None] = lambda: None, **options: object
    ) -> Collected:
        """The micro-batches of a query with Trigger.AvailableNow, from the beginning unless the options name
        another start.
        """
        return self.progressed(checkpoint, meanwhile, **options)[1]

    def progressed(
        self, checkpoint: Path, meanwhile: Callable[[], None] = lambda: None, **options: object
    ) -> tuple["StreamingQuery", Collected]:
        """As `stream`, with the query."""
        given = self.options(**{"startingOffsets": "earliest", **options})
        return run(self.spark, given, checkpoint, meanwhile, "kafka")

    def started(self, checkpoint: Path, **options: Any) -> tuple["StreamingQuery", Collected]:
        """A query that runs until it is stopped."""
        return start(self.spark, self.options(**options), checkpoint, source="kafka")


ALL = {"t-0": [*range(10)], "t-1": [*range(20)]}
"""What the fixture `topics` has in `t`."""


def refused(query: Callable[[], object], said: str) -> None:
    """Java's exceptions come as they are, except those of a running query."""
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        query()
    assert said in str(caught.value)
