"""The sink `lakelog` in Spark, through a real gateway: batches, streams, and each micro-batch once.

tests/lakelog/spark/sink/test_rows.py has what a row becomes, tests/lakelog/spark/sink/test_sink_death.py what
is killed.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from lakelog.client.client import Client
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import STAGING
from log_tables.record import Record
from log_tables.store.store import open_store
from tests.kit.gateway import RunningGateway
from tests.kit.queries import run_to_end
from tests.kit.support import wait_until

pytestmark = pytest.mark.spark

PARTITIONS = 2
"""Of every topic here."""

Transform = Callable[[DataFrame], DataFrame]


@pytest.fixture
def client(gateway: RunningGateway) -> Iterator[Client]:
    with Client(gateway.url) as connected:
        yield connected


def written(client: Client, topic: str) -> list[list[Record]]:
    """The records of each partition."""
    return [list(client.read(topic, index)) for index in range(PARTITIONS)]


def values(client: Client, topic: str) -> list[str]:
    """The values of all partitions, sorted."""
    return sorted((record.value or b"").decode() for records in written(client, topic) for record in records)


def staged(gateway: RunningGateway) -> list[str]:
    return [item.path for item in open_store(gateway.data).list(f"{STAGING}/")]


def options(gateway: RunningGateway, topic: str | None = None) -> dict[str, str]:
    return {"path": gateway.data, "gateway": gateway.url, **({"topic": topic} if topic else {})}


def save(rows: DataFrame, gateway: RunningGateway, topic: str | None = None, mode: str = "append") -> None:
    rows.write.format("lakelog").mode(mode).options(**options(gateway, topic)).save()


class Copying:
    """A query from one topic to another, which is run to the end of its input, again and again."""

    def __init__(
        self, spark: SparkSession, gateway: RunningGateway, source: str, target: str, checkpoint: Path
    ) -> None:
        self._spark, self._gateway, self._source, self._target = spark, gateway, source, target
        self.checkpoint = checkpoint

    def alter(self, **configs: str) -> None:
        """Set settings of the target."""
        self._gateway.alter_topic(self._target, **configs)

    def run(self, transform: Transform, per_trigger: int = 4) -> StreamingQuery:
        """Run the query to its end, in micro-batches of `per_trigger` records. Raises the error that fails
        it.
        """
        records = (
            self._spark.readStream.format("lakelog")
            .option("subscribe", self._source)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", per_trigger)
            .load(self._gateway.data)
        )
        return run_to_end(
            transform(records)
            .writeStream.format("lakelog")
            .options(**options(self._gateway, self._target))
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
        )

    def done(self) -> list[int]:
        """The micro-batches that Spark holds for done."""
        return sorted(int(file.name) for file in (self.checkpoint / "commits").glob("[0-9]*"))

    def forget_the_last(self) -> None:
        """Change the checkpoint as if Spark had died after it published the last micro-batch, and before it
        noted that.
        """
        last = self.done()[-1]
        (self.checkpoint / "commits" / str(last)).unlink()
        (self.checkpoint / "commits" / f".{last}.crc").unlink()


@pytest.fixture
def copying(
    spark: SparkSession, gateway: RunningGateway, topic: str, client: Client, tmp_path: Path
) -> Copying:
    """A query that copies a topic `…-in`, with ten records in two partitions, to `topic`."""
    source = gateway.create_topic(f"{topic}-in", PARTITIONS)
    for partition in range(PARTITIONS):
        gateway.produce(source, *range(partition * 5, partition * 5 + 5), partition=partition)
    return Copying(spark, gateway, source, topic, tmp_path / "checkpoint")


def as_text(records: DataFrame) -> DataFrame:
    return records.select(F.col("value").cast("string").alias("value"))


def unrepeatable(records: DataFrame) -> DataFrame:
    """Other rows, of other partitions, at each run."""
    which = F.concat_ws(" ", F.col("value").cast("string"), F.rand().cast("string"))
    return records.select(which.alias("value"), (F.rand() * PARTITIONS).cast("int").alias("partition"))


def test_a_batch_writes_every_column(
    spark: SparkSession, gateway: RunningGateway, topic: str, client: Client
) -> None:
    rows = spark.sql(
        "SELECT 'k' AS key, CAST('v' AS BINARY) AS value, 1 AS partition, "
        "TIMESTAMP '2013-01-01 12:00:00 UTC' AS timestamp, "
        "array(struct('a' AS key, CAST('1' AS BINARY) AS value)) AS headers "
        "UNION ALL SELECT NULL, NULL, 1, NULL, NULL"
    ).coalesce(1)
    save(rows, gateway, topic)
    nothing, (first, second) = written(client, topic)
    assert nothing == []
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("a", b"1"),))
    assert first.timestamp_us == 1_357_041_600_000_000
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert second.timestamp_us is not None
    assert second.timestamp_us > first.timestamp_us


def test_batches_append_and_keys_choose_the_partition(
    spark: SparkSession, gateway: RunningGateway, topic: str, client: Client
) -> None:
    rows = spark.range(100).select(F.col("id").cast("string").alias("key"), F.lit("v").alias("value"))
    for times in (1, 2):
        save(rows.repartition(3), gateway, topic)
        found = written(client, topic)
        for index, records in enumerate(found):
            keys = [record.key or b"" for record in records]
            assert {partition_for_key(key, PARTITIONS, MURMUR3) for key in keys} == {index}
        assert sorted(int(r.key or b"") for records in found for r in records) == sorted(
            [*range(100)] * times
        )


def test_rows_name_their_topics(
    spark: SparkSession, gateway: RunningGateway, topic: str, client: Client
) -> None:
    other = gateway.create_topic(f"{topic}-other", PARTITIONS)
    rows = spark.range(10).selectExpr(
        "CAST(id AS STRING) AS value", f"IF(id % 2 = 0, '{topic}', '{other}') AS topic"
    )
    save(rows, gateway)
    assert values(client, topic) == ["0", "2", "4", "6", "8"]
    assert values(client, other) == ["1", "3", "5", "7", "9"]


@pytest.mark.parametrize(
    ("sql", "mode", "said"),
    [
        ("SELECT 1 AS value", "append", "the column 'value' is int; cast it to string or binary"),
        ("SELECT 'k' AS key", "append", "no column 'value' among key"),
        ("SELECT 'v' AS value, 1 AS colour", "append", "the column 'colour' is not a column of a record"),
        ("SELECT 'v' AS value", "overwrite", "use mode('append')"),
        ("SELECT 'v' AS value", "error", 'cannot be written in the "ErrorIfExists" mode'),
        ("SELECT 'v' AS value, 2 AS partition", "append", "has no partition 2; use 0 to 1"),
        ("SELECT 'v' AS value, NULL AS partition", "append", "the column 'partition' is void"),
    ],
)
def test_a_batch_that_is_wrong_says_so_and_writes_nothing(
    sql: str, mode: str, said: str, spark: SparkSession, gateway: RunningGateway, topic: str, client: Client
) -> None:
    with pytest.raises(PySparkException) as caught:
        save(spark.sql(sql), gateway, topic, mode)
    assert said.lower() in str(caught.value).lower()
    assert written(client, topic) == [[], []]


def test_a_topic_that_is_not_there_is_told(spark: SparkSession, gateway: RunningGateway) -> None:
    with pytest.raises(PySparkException, match="UnknownTopic: there is no topic 'nowhere' to write to"):
        save(spark.sql("SELECT 'v' AS value"), gateway, "nowhere")


def test_a_stream_writes_each_record_once(copying: Copying, client: Client, topic: str) -> None:
    query = copying.run(as_text)
    assert values(client, topic) == [str(number) for number in range(10)]
    assert copying.done() == [0, 1, 2]
    groups = [found["group"] for found in client.groups()]
    assert f"spark-sink-{query.id}" in groups


def test_a_stream_that_is_started_again_goes_on_from_its_checkpoint(
    copying: Copying, gateway: RunningGateway, client: Client, topic: str
) -> None:
    copying.run(as_text)
    copying.run(as_text)
    assert len(values(client, topic)) == 10
    gateway.produce(f"{topic}-in", 10, partition=1)
    copying.run(as_text)
    assert values(client, topic) == sorted(str(number) for number in range(11))


def test_a_micro_batch_that_is_run_again_is_there_once_though_its_rows_are_others(
    copying: Copying, gateway: RunningGateway, client: Client, topic: str
) -> None:
    """Killed between the transaction and Spark's note of it. The files staged again are deleted at once."""
    others = {*staged(gateway)}
    copying.run(unrepeatable)
    before = written(client, topic)
    assert len(values(client, topic)) == 10
    for _ in range(2):
        copying.forget_the_last()
        copying.run(unrepeatable)
        assert written(client, topic) == before
        assert copying.done() == [0, 1, 2]
    wait_until(lambda: {*staged(gateway)} <= others, "nothing is staged")


def test_a_micro_batch_without_rows_publishes_nothing(copying: Copying, client: Client, topic: str) -> None:
    query = copying.run(lambda records: as_text(records).where("value > 'x'"))
    assert copying.done() == [0, 1, 2]
    assert written(client, topic) == [[], []]
    assert f"spark-sink-{query.id}" not in [found["group"] for found in client.groups()]


def test_a_task_that_fails_writes_nothing_and_the_next_run_does_it_whole(
    copying: Copying, client: Client, topic: str
) -> None:
    def failing(records: DataFrame) -> DataFrame:
        return as_text(records).withColumn("partition", F.when(F.col("value") == "7", 9).cast("int"))

    with pytest.raises(PySparkException, match=r"InvalidRecord.*no partition 9"):
        copying.run(failing, per_trigger=10)
    # The files of the other task may stay for a vacuum: Spark does not always wait for its message.
    assert written(client, topic) == [[], []]
    copying.run(as_text, per_trigger=10)
    assert values(client, topic) == [str(number) for number in range(10)]


def test_the_whole_result_of_an_aggregation_is_appended_by_each_micro_batch(
    spark: SparkSession, gateway: RunningGateway, topic: str, client: Client, tmp_path: Path
) -> None:
    """With outputMode complete, as with Spark's Kafka sink."""
    source = gateway.create_topic(f"{topic}-in", 1)
    gateway.produce(source, 1, 2, 3)
    records = (
        spark.readStream.format("lakelog")
        .options(subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="2")
        .load(gateway.data)
    )
    counts = records.groupBy().count().selectExpr("CAST(count AS STRING) AS value")
    run_to_end(
        counts.writeStream.format("lakelog")
        .outputMode("complete")
        .options(**options(gateway, topic), checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
    )
    assert values(client, topic) == ["2", "3"]


def test_a_stream_that_is_wrong_says_so_before_a_task_runs(
    copying: Copying, client: Client, topic: str
) -> None:
    with pytest.raises(PySparkException, match="the column 'offset' is not a column of a record"):
        copying.run(lambda records: records.select("value", "offset"))
    assert written(client, topic) == [[], []]


def test_a_stream_into_a_topic_that_refuses_goes_on_once_its_declaration_is_right(
    copying: Copying, client: Client, topic: str
) -> None:
    def numbers(records: DataFrame) -> DataFrame:
        value = F.concat(F.lit('{"s":'), F.col("value").cast("string"), F.lit("}"))
        return records.select(value.alias("value"))

    copying.alter(value_columns="s string", value_columns_mode="refuse")
    with pytest.raises(PySparkException, match="/s is a whole number, not string"):
        copying.run(numbers)
    assert written(client, topic) == [[], []]
    copying.alter(value_columns="s_number bigint FROM '/s'")
    copying.run(numbers)
    assert values(client, topic) == [f'{{"s":{number}}}' for number in range(10)]
    assert copying.done() == [0, 1, 2]
