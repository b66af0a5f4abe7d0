"""A Delta table in the form that Hive's metastore and Glue share, as Spark, Trino and Athena look for it."""

from jobs.catalog.entry import Entry

INPUT_FORMAT = "org.apache.hadoop.mapred.SequenceFileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""Formats in which Hive itself reads nothing: that needs the connector of Delta for Hive."""


def parameters_of(entry: Entry) -> dict[str, str]:
    """The properties of the table. EXTERNAL: to drop it removes no file."""
    return {
        "EXTERNAL": "TRUE",
        "spark.sql.sources.provider": "delta",
        "table_type": "DELTA",
        "classification": "delta",
        "comment": entry.comment,
        **entry.properties,
    }
