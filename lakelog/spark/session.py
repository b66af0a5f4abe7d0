"""A Spark session that reads and writes Delta tables."""

import os
import sys

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lakelog.spark.jre import java_home

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The jar that belongs to the extra `spark`: PySpark 4.2.0 and delta-spark 4.4.0."""

_PACKAGES = "spark.jars.packages"
_EXCLUDES = "spark.jars.excludes"
_EXTENSIONS = "spark.sql.extensions"

# What Spark ships already: left out, 85 MB become 14, and a half-filled local Maven cache does no harm.
_SHIPPED_WITH_SPARK = (
    "com.fasterxml.jackson.core:*",
    "com.fasterxml.jackson.datatype:*",
    "com.fasterxml.jackson.module:*",
    "com.github.luben:zstd-jni",
    "com.google.code.findbugs:jsr305",
    "commons-*:*",
    "org.apache.commons:*",
    "org.apache.hadoop:hadoop-client-*",
    "org.apache.logging.log4j:*",
    "org.apache.parquet:*",
    "org.roaringbitmap:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)

_SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # A partition's log is small: Delta's 50 and Spark's 200 tasks would only wait for each other.
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
}

# Lists to which both the caller and Delta add.
_LISTS = {
    _PACKAGES: (DELTA_PACKAGE,),
    _EXCLUDES: _SHIPPED_WITH_SPARK,
    _EXTENSIONS: ("io.delta.sql.DeltaSparkSessionExtension",),
}


def session(app_name: str = "lakelog", **config: str) -> SparkSession:
    """The Spark session of this process, made with Delta's settings when there is none yet.

    `config` holds Spark's settings by their names (`**{"spark.master": "local[2]"}`) and wins over those made
    here; packages, excludes and extensions are added to. A session that exists already keeps its
    settings: only `config` is applied to it, and it must have been made with Delta itself. Raises JavaMissing
    when no Java 17 or newer is found. Sets JAVA_HOME, and PYSPARK_PYTHON where it is missing.
    """
    builder = SparkSession.builder.appName(app_name)
    if not _running():
        os.environ["JAVA_HOME"] = str(java_home())
        # Spark's own default is the first python3 of PATH, which lacks this environment's packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        config = session_config(config)
    for name, value in config.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _running() -> bool:
    try:
        SparkSession.active()
    except PySparkRuntimeError:
        return False
    return True


def session_config(config: dict[str, str]) -> dict[str, str]:
    """The settings of a new session: the caller's, and Delta's where the caller says nothing."""
    lists = {name: _joined(config.get(name, ""), ours) for name, ours in _LISTS.items()}
    return {**_SETTINGS, **config, **lists}


def _joined(theirs: str, ours: tuple[str, ...]) -> str:
    parts = [part.strip() for part in theirs.split(",") if part.strip()]
    return ",".join([*parts, *(part for part in ours if part not in parts)])
