"""The source `lakelog` on a real S3 server."""

from typing import TYPE_CHECKING

import pytest

from lakelog.spark.batch import BatchReader
from log_tables.errors import InvalidArgument, StoreUnavailable
from log_tables.store import open_store
from tests.spark import Topics, loaded, read
from tests.support import S3Server

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
    assert read(reader, slices) == {"u/0": [1, 2, 3, 4, 5]}
