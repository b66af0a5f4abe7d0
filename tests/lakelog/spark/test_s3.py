"""The source and the sink `lakelog` on a real S3 server."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakelog.client.client import Client
from lakelog.spark.source.plan import BatchReader
from log_tables.errors import InvalidArgument, StoreUnavailable
from log_tables.layout import STAGING
from log_tables.store.store import open_store
from tests.kit.gateway import running_gateway
from tests.kit.queries import run_to_end
from tests.kit.spark import Topics, loaded, read
from tests.kit.support import S3Server, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def on_s3(s3: S3Server) -> Topics:
    """A topic in a bucket."""
    store = open_store(s3.bucket("spark-batch") + "/log", s3.options)
    topics = Topics(store, s3.options)
    topics.create("t", 2)
    topics.append("t", 1, 10)
    return topics


@pytest.mark.spark
def test_spark_reads_a_topic_on_s3(spark: "SparkSession", on_s3: Topics) -> None:
    from pyspark.errors import PySparkException

    assert loaded(spark, on_s3.options()).select("offset").count() == 10
    with pytest.raises(PySparkException) as caught:
        loaded(spark, on_s3.options(**{"storage.aws_secret_access_key": "a-wrong-one"})).count()
    assert "StoreUnavailable" in str(caught.value)
    assert "SignatureDoesNotMatch" in str(caught.value)
    assert "a-wrong-one" not in str(caught.value)


@pytest.mark.spark
def test_spark_writes_topics_on_s3(spark: "SparkSession", s3: S3Server, tmp_path: Path) -> None:
    root = s3.bucket("spark-sink")
    source_options = {"path": root, **{f"storage.{name}": value for name, value in s3.options.items()}}
    with (
        running_gateway(root, linger_ms=0, store_options=json.dumps(s3.options)) as gateway,
        Client(gateway.url) as client,
    ):
        source, target = (gateway.create_topic(name) for name in ("source", "target"))
        into = {**source_options, "gateway": gateway.url}
        rows = spark.range(10).selectExpr("CAST(id AS STRING) AS value")
        rows.write.format("lakelog").mode("append").options(**into, topic=source).save()
        run_to_end(
            spark.readStream.format("lakelog")
            .options(**source_options, subscribe=source, startingOffsets="earliest")
            .load()
            .select("value")
            .writeStream.format("lakelog")
            .options(**into, topic=target, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )
        found = sorted(record.value or b"" for record in client.read(target, 0))
        assert found == [b"%d" % number for number in range(10)]
        store = open_store(root, s3.options)
        wait_until(lambda: not [*store.list(f"{STAGING}/")], "the staged files are gone")


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("storage.aws_secret_access_key", "a-wrong-one", "SignatureDoesNotMatch"),
        ("storage.aws_access_key_id", "nobody", "check that it runs, its options and its permissions"),
        ("path", "s3://no-such-bucket/log", "NoSuchBucket"),
    ],
)
def test_what_is_wrong_with_a_bucket_is_said(on_s3: Topics, option: str, value: str, said: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        on_s3.batch(**{option: value})
    assert said in caught.value.message
    assert "a-wrong-one" not in caught.value.message


def test_a_wrong_root_or_storage_option_is_said(on_s3: Topics) -> None:
    with pytest.raises(InvalidArgument, match="no lakelog data at s3://spark-batch/elsewhere"):
        on_s3.batch(path="s3://spark-batch/elsewhere")
    with pytest.raises(InvalidArgument, match="aws_nonsense"):
        on_s3.batch(**{"storage.aws_nonsense": "x"})


def test_segments_on_s3_merged_and_removed_after_planning_change_nothing(on_s3: Topics) -> None:
    on_s3.create("u")
    for _ in range(3):
        on_s3.append("u", 0, 2)
    reader = BatchReader(on_s3.options(subscribe="u", startingOffsets={"u": {"0": 1}}))
    slices = reader.partitions()
    on_s3.merge("u")
    assert read(reader, slices) == {"u-0": [1, 2, 3, 4, 5]}
