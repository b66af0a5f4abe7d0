"""A view of a topic with a remote root has declared columns wherever the records are."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from log_tables.cluster.admin.remote_admin import set_remote_root
from log_tables.cluster.admin.topic_admin import alter_topic, create_topic
from log_tables.cluster.cluster import Cluster
from tests.kit.tiers import move_topic
from tests.kit.views import append, register, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_a_declared_column_keeps_its_values_when_they_move_after_the_view_was_registered(
    spark: "SparkSession", cluster: Cluster, tmp_path: Path
) -> None:
    set_remote_root(cluster, tmp_path / "away")
    topic = create_topic(cluster, "t", 1, {"remote.storage.enable": "true"})
    for number in range(2):
        append(topic.partition(0), b'{"a":%d}' % number)
    move_topic(cluster, "t", [1])
    alter_topic(cluster, "t", {"value.columns": "a bigint"})
    for number in range(2, 4):
        append(topic.partition(0), b'{"a":%d}' % number)
    register(spark, cluster, names="t")
    expected = [(0, None), (1, None), (2, 2), (3, 3)]
    assert rows(spark, "select offset, a from t order by 1") == expected
    move_topic(cluster, "t", [3])
    assert rows(spark, "select offset, a from t order by 1") == expected
