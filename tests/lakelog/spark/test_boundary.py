"""Errors of the source and the sink as users see them: one sentence, and no frames of this package."""

import importlib
import pkgutil
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)

import lakelog.spark
from lakelog.spark.data_source import LakelogSource
from lakelog.spark.worker import short_errors
from log_tables.errors import InvalidArgument
from log_tables.store.store import open_store
from tests.kit.spark import Topics, loaded, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CALLED_BY_SPARK = (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    DataSourceStreamWriter,
)


@pytest.fixture
def topics(store_root: Path) -> Topics:
    """A root with the topic `t`."""
    topics = Topics(open_store(store_root))
    topics.create("t")
    return topics


def called_by_spark() -> list[type]:
    """The classes of lakelog.spark whose methods Spark calls."""
    modules = pkgutil.walk_packages(lakelog.spark.__path__, "lakelog.spark.")
    items = [item for module in modules for item in vars(importlib.import_module(module.name)).values()]
    classes = {item for item in items if isinstance(item, type) and issubclass(item, CALLED_BY_SPARK)}
    return [item for item in classes if item.__module__.startswith("lakelog.")]


def test_every_method_that_spark_calls_has_short_errors() -> None:
    classes = called_by_spark()
    assert len(classes) == 7
    for item in classes:
        for name, method in vars(item).items():
            if isinstance(method, FunctionType) and not name.startswith("_"):
                assert hasattr(method, "__wrapped__"), f"{item.__name__}.{name}"


def test_an_error_keeps_its_sentence_and_loses_its_frames(topics: Topics) -> None:
    source = LakelogSource(topics.options(startingOffset="latest"))
    with pytest.raises(InvalidArgument, match="did you mean startingOffsets") as caught:
        source.reader(source.schema())
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [Path(frame.filename).name for frame in frames] == ["test_boundary.py", "worker.py"]


def test_an_error_while_rows_are_read_is_short_too() -> None:
    @short_errors
    class Rows:
        def read(self) -> Iterator[int]:
            yield 1
            raise InvalidArgument("no second row")

        def fail(self) -> None:
            raise ZeroDivisionError

    rows = Rows().read()
    assert next(rows) == 1
    with pytest.raises(InvalidArgument) as caught:
        next(rows)
    assert len(traceback.extract_tb(caught.value.__traceback__)) == 2
    with pytest.raises(ZeroDivisionError) as bug:
        Rows().fail()
    assert len(traceback.extract_tb(bug.value.__traceback__)) == 3


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets?"),
        ({"kafka.bootstrap.servers": "localhost:9092"}, "about a Kafka broker"),
        ({"columns": "no_such"}, "columns names 'no_such'"),
        ({"subscribe": "no_such"}, "there is no topic 'no_such' to read"),
    ],
)
def test_spark_shows_the_sentence_of_an_error(
    options: dict[str, str], sentence: str, spark: "SparkSession", topics: Topics
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        loaded(spark, topics.options(**options)).collect()
    message = str(caught.value)
    assert sentence in message
    assert message.count('File "') == 1
    assert len(message) < 600


@pytest.mark.spark
def test_a_misspelt_option_of_a_stream_fails_at_load(spark: "SparkSession", topics: Topics) -> None:
    from pyspark.errors import AnalysisException

    stream = spark.readStream.format("lakelog")
    with pytest.raises(AnalysisException) as caught:
        stream.options(**topics.options(maxOffsetPerTrigger="1")).load()
    message = str(caught.value)
    assert message.count('File "') == 1
    assert 0 < message.find("did you mean maxOffsetsPerTrigger?") < 500


@pytest.mark.spark
def test_a_stream_shows_the_sentence_of_an_error(
    spark: "SparkSession", topics: Topics, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException) as caught:
        run(spark, topics.options(endingOffsets="latest"), tmp_path)
    message = str(caught.value)
    assert message.count('File "') == 1
    assert 0 < message.find("the option endingOffsets is for batch queries") < 700


@pytest.mark.spark
def test_the_sink_shows_the_sentence_of_an_error(spark: "SparkSession", topics: Topics) -> None:
    from pyspark.errors import PySparkException

    for option, sentence in {"topics": "did you mean topic?", "topic": "there is no topic 'no_such'"}.items():
        writer = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("lakelog")
        with pytest.raises(PySparkException) as caught:
            writer.mode("append").option("path", topics.store.url).option(option, "no_such").save()
        message = str(caught.value)
        assert sentence in message
        assert message.count('File "') == 1
