"""The view `<topic>_json` of values that are not JSON: Spark's tasks decode them by their schema."""

import json
from typing import TYPE_CHECKING

import pytest

from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.layout import SCHEMA_FILES
from log_tables.limits import TYPED_AT_ONCE
from log_tables.schemas.framing import prefixed
from tests.kit.avro_values import written
from tests.kit.views import append, files_read, register, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FLIGHT = {
    "type": "record",
    "name": "flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "delay", "type": ["null", "long"]}],
}
AVRO = {"value.columns.format": "avro", "value.columns.schema": json.dumps(FLIGHT)}
COUNT = 2 * TYPED_AT_ONCE + 7


def flight(carrier: str, delay: int | None) -> bytes:
    return written(FLIGHT, {"carrier": carrier, "delay": delay})


def test_fields_are_those_of_the_decoded_values(spark: "SparkSession", cluster: Cluster) -> None:
    first, second = create_topic(cluster, "flights", 2, AVRO).partitions()
    append(first, *(flight(f"c{number}", number) for number in range(COUNT)))
    append(second, flight("UA", None), b"\x08UA", None, key=b"k")
    register(spark, cluster, names="flights", json=True)
    assert rows(spark, "SELECT * FROM flights_json WHERE partition = 1 ORDER BY offset")[0][5:] == (
        *("k", "UA", None, None, None),
    )
    found = rows(spark, "SELECT carrier, _raw, _error FROM flights_json WHERE partition = 1 ORDER BY offset")
    wrong = "/carrier has a length of 4, and 2 bytes are left"
    assert found == [("UA", None, None), (None, b"\x08UA", wrong), (None, None, None)]
    paired = "SELECT sum(delay), count(CASE WHEN carrier = 'c' || offset THEN 1 END) FROM flights_json"
    assert rows(spark, f"{paired} WHERE partition = 0") == [(COUNT * (COUNT - 1) // 2, COUNT)]
    one = spark.sql("SELECT carrier FROM flights_json WHERE partition = 1 AND offset = 0")
    assert files_read(one) == [1]


def test_a_schema_of_the_caller_and_records_behind_the_table_over_the_topic(
    spark: "SparkSession", cluster: Cluster
) -> None:
    cluster.store.put(f"{SCHEMA_FILES}/17.avsc", json.dumps(FLIGHT).encode())
    named = {"value.columns.format": "avro", "value.columns.schemas": "files"}
    topic = create_topic(cluster, "t", 4, named)
    register(spark, cluster, names="t", json={"t": "delay string, carrier long"})
    value = prefixed(17, flight("UA", 7))
    append(topic.partition(3), value)
    found = rows(spark, "SELECT delay, carrier, _raw, _error FROM t_json")
    assert found == [("7", None, value, None)]
