"""Topics as SQL views: over Delta tables that Spark scans natively; and the tables of consumer groups."""

import json as jsons
import os
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone calls it)
from pyspark.sql.types import StructType

from lakelog.spark.connect import SOURCE, SPARK_ERRORS, analyze, missing_delta, missing_module
from lakelog.spark.data_source import register
from lakelog.spark.decoding import decoder_of
from lakelog.spark.options import TABLE, RootLocation, root_location, storage_options
from lakelog.spark.sql.json_fields import (
    SUFFIX,
    Fold,
    Schema,
    given_schema,
    inferred_schema,
    spark_message,
    text,
    with_json_fields,
)
from lakelog.spark.sql.topic_scan import Partitions, location_of, topic_scan, union_of_scans, usable_table
from log_tables.cluster.cluster import Cluster
from log_tables.columns.column_type import without_case
from log_tables.columns.declaration import NOTHING, Declaration, parse
from log_tables.errors import InvalidArgument, UnknownTopic
from log_tables.layout import CLUSTER_METADATA, KEY, KEY_TEXT, VALUE, VALUE_TEXT
from log_tables.schemas.decoded import JSON
from log_tables.schemas.schema import NO_SCHEMAS
from log_tables.sql.system_tables import SYSTEM_TABLES
from log_tables.store.store import open_store

_REGISTERED = "lakelog.views"  # a setting of the session: what this module registered, by root
_OPENED_AT_ONCE = 32


def topics(
    spark: SparkSession,
    root: str | os.PathLike[str],
    *,
    names: str | Iterable[str] | None = None,
    json: Schema | Mapping[str, Schema] = False,
    sample_records: int = 1_000,
    store_options: Mapping[str, str] | None = None,
) -> list[str]:
    """Register a temporary view for each topic of `root`, of the topic's name; returns the views' names.

    A view has the columns topic, partition, offset, timestamp, key, value, headers, those that the topic has
    declared, and value and key once more as text, which is null where they are not UTF-8: value_text,
    key_text. A column that is declared later comes with a second call. A query shows all records that
    were acknowledged before it: later ones need no second call. Later topics do. So do, in views of few
    partitions (`usable_table`), later partitions, and a log start that came to lie inside a segment
    (delete-records). A second call also drops the views of topics that are gone. `names` are the topics to
    register; without it all are, internal ones too.

    Beside them `consumer_offsets` and `consumer_lag` say where the consumer groups are at the time of each
    query. `names` may name them, too; a topic of such a name comes first.

    `json` adds `<topic>_json`: the fields of JSON values as columns. It is a schema, as DDL or StructType, or
    True to infer one from about `sample_records` of the newest records; for all these topics, or for some of
    them by name (`{"orders": "id long, total double", "clicks": True}`). A field that has the name of
    another column gets the suffix `_json`. The column `_raw` holds the value, in bytes, where it is not one
    JSON object, or has a field of another type than the schema's, which is null then. A tombstone is null in
    all of them. Where `value.columns.format` is not json, values are decoded by their schemas first, and
    `_error` says why one cannot be; a format that is set later comes with a second call.

    `store_options` are those of `open_store`, with which the logs are looked at; Spark reads the tables with
    its own (`spark.hadoop.fs.s3a.…`), an `s3://` root through `s3a`. Raises InvalidArgument for a root, a
    schema or names that cannot be used, UnknownTopic, CorruptLog, StoreUnavailable; the views that there were
    are still there then.
    """
    if sample_records < 1:
        raise InvalidArgument(f"sample_records={sample_records} samples nothing; make it 1 or more")
    store = open_store(root, store_options, create=False)
    cluster = Cluster.open(store, create=False)
    existing = _existing(cluster)
    chosen = existing if names is None else dict.fromkeys([names] if isinstance(names, str) else names)
    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="lakelog-views") as pool:
        tables = _tables(cluster, chosen, pool)
        schemas = _schemas(cluster, json, tables, sample_records, pool)
    fold = _fold(spark)
    topic_of = _named(tables, schemas, fold)
    location = root_location({"path": store.url, **storage_options(store_options or {})})
    frames = {
        name: _records(spark, cluster, location, name, partitions) for name, partitions in tables.items()
    }
    typed = {
        name + SUFFIX: with_json_fields(name, frames[name], schema, fold, decoder_of(cluster, name))
        for name, schema in schemas.items()
    }
    taken = {fold(view) for view in topic_of}
    groups = [name for name in SYSTEM_TABLES if name in chosen and fold(name) not in taken]
    of_groups = {name: _groups(spark, store.url, store_options or {}, name) for name in groups}
    for view, frame in {**frames, **typed, **of_groups}.items():
        frame.createOrReplaceTempView(f"`{view}`")
    topic_of |= {name: name for name in groups}
    _drop_others(spark, store.url, topic_of, existing)
    return list(topic_of)


def _existing(cluster: Cluster) -> Collection[str]:
    """The names of all that there is, in order: of topics, then of the tables of consumer groups."""
    topics = [topic.name for topic in cluster.topics(include_internal=True)]
    return dict.fromkeys([CLUSTER_METADATA, *topics, *SYSTEM_TABLES])


def _tables(cluster: Cluster, names: Iterable[str], pool: ThreadPoolExecutor) -> dict[str, Partitions]:
    """The partitions of the topics among `names`, opened side by side."""

    def opened(name: str) -> Partitions:
        if name == CLUSTER_METADATA:
            return [cluster.metadata_log.partition]
        topic = cluster.topic(name)
        return [*pool.map(topic.partition, range(topic.partition_count))]

    return {
        name: opened(name)
        for name in names
        if name not in SYSTEM_TABLES or cluster.cached_topic(name) is not None
    }


def _fold(spark: SparkSession) -> Fold:
    """Folds names, so that two are equal if they are one name to Spark."""
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else without_case


def _named(tables: Mapping[str, Partitions], schemas: Mapping[str, StructType], fold: Fold) -> dict[str, str]:
    """The topic of each view, by the view's name. Raises InvalidArgument when two are one to Spark."""
    topic_of: dict[str, str] = {}
    taken: dict[str, str] = {}
    for topic in tables:
        for view in (topic, topic + SUFFIX) if topic in schemas else (topic,):
            other = taken.setdefault(fold(view), view)
            if view in topic_of or other != view:
                raise InvalidArgument(
                    f"the views {other!r} and {view!r} would have one name in Spark; choose the topics by "
                    "names, and those with JSON columns by json"
                )
            topic_of[view] = topic
    return topic_of


def _records(
    spark: SparkSession, cluster: Cluster, location: RootLocation, name: str, partitions: Partitions
) -> DataFrame:
    """The rows of a topic, which every query looks for again."""
    declared = _declared(cluster, name, partitions).schema
    folded = usable_table(cluster, name, partitions, declared)
    try:
        if folded is not None:
            records = topic_scan(spark, cluster, location, cluster.topic(name), folded, declared)
        else:
            records = union_of_scans(spark, cluster, name, partitions, declared)
        return analyze(
            records.select("*", text(F.col(VALUE)).alias(VALUE_TEXT), text(F.col(KEY)).alias(KEY_TEXT))
        )
    except SPARK_ERRORS as error:
        where = location_of(cluster.store, partitions[0].directory.rsplit("/", 1)[0])
        raise InvalidArgument(
            f"Spark cannot read the tables of topic {name} at {where}: {spark_message(error)}; "
            f"{missing_delta(spark)}; for an object store add its package (org.apache.hadoop:hadoop-aws) and "
            "settings (spark.hadoop.fs.s3a.…)"
        ) from None


def _declared(cluster: Cluster, name: str, partitions: Partitions) -> Declaration:
    """All columns that the topic has ever declared."""
    record, declared = cluster.metadata_log.topic(name), NOTHING
    for partition in partitions:
        declared = declared.joined(partition.snapshot.declared)
    return declared if record is None else parse(record.columns).joined(declared)


def _groups(spark: SparkSession, url: str, store_options: Mapping[str, str], table: str) -> DataFrame:
    """The rows of one of TABLES: its task looks for them again in every query."""
    given = {**storage_options(store_options), TABLE: table}

    def loaded() -> DataFrame:
        return analyze(spark.read.format(SOURCE).options(**given).load(url))

    try:
        return loaded()
    except SPARK_ERRORS as error:
        if missing_module(error) is None:
            raise
    register(spark)
    return loaded()


def _schemas(
    cluster: Cluster,
    json: Schema | Mapping[str, Schema],
    tables: Mapping[str, Partitions],
    sample_records: int,
    pool: ThreadPoolExecutor,
) -> dict[str, StructType]:
    """The fields of each topic that gets JSON columns."""
    if json is False:
        return {}
    if not isinstance(json, Mapping):
        json = dict.fromkeys(tables, json)
    found = {}
    for name, schema in json.items():
        if name not in tables:
            raise UnknownTopic(f"json names {name!r}, which is none of the topics; there are {_list(tables)}")
        if schema is True:
            topic = cluster.cached_topic(name)
            encoding, schemas = (
                (JSON, NO_SCHEMAS) if topic is None else (topic.config.encoding, topic.schemas)
            )
            found[name] = inferred_schema(tables[name], sample_records, pool, encoding, schemas)
        else:
            found[name] = given_schema(name, schema)
    return found


def _list(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def _drop_others(
    spark: SparkSession, url: str, topic_of: Mapping[str, str], existing: Collection[str]
) -> None:
    """Drop what an earlier call registered for topics that are gone, or as JSON that is no longer asked for.

    The list of registered views lives as long as the views do: with the session. A view that another root has
    replaced belongs to that root.
    """
    registered: dict[str, dict[str, str]] = jsons.loads(spark.conf.get(_REGISTERED, "{}") or "{}")
    kept = dict(topic_of)
    for view, topic in registered.pop(url, {}).items():
        if topic in existing and topic not in topic_of:
            kept[view] = topic
        elif view not in topic_of:
            spark.catalog.dropTempView(view)
    others = {
        root: {view: topic for view, topic in views.items() if view not in topic_of}
        for root, views in registered.items()
    }
    spark.conf.set(_REGISTERED, jsons.dumps({**others, url: kept}))
