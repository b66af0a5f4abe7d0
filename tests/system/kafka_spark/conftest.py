"""A gateway for Spark's own source and sink of Kafka, which the tests of a module share, and its topics."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from log_tables.cluster.admin.topic_admin import delete_topic
from log_tables.cluster.topic import is_internal
from tests.kit.kafka import KafkaGateway, kafka_gateway
from tests.kit.kafka_spark import KafkaTopics
from tests.kit.spark import NOW_MS
from tests.kit.support import KAFKA_SPARK_JARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaGateway]:
    if not KAFKA_SPARK_JARS.exists():
        pytest.skip("no jars of Kafka for Spark: `make setup` fetches them")
    with kafka_gateway(tmp_path_factory.mktemp("root")) as gateway:
        yield gateway


@pytest.fixture
def empty(spark: "SparkSession", door: KafkaGateway) -> KafkaTopics:
    """A cluster without topics: those of earlier tests are deleted, and their names are free."""
    found = KafkaTopics(spark, door)
    for topic in found.cluster.topics():
        if not is_internal(topic.name):
            delete_topic(found.cluster, topic.name)
    return found


@pytest.fixture
def topics(empty: KafkaTopics) -> KafkaTopics:
    """Three partitions of `t` with 10, 20 and no records, ten in a commit, a second apart."""
    empty.create("t", 3)
    empty.append("t", 0, 10)
    empty.append("t", 1, 10)
    empty.append("t", 1, 10, at_ms=NOW_MS + 1000)
    return empty


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return tmp_path / "checkpoint"
