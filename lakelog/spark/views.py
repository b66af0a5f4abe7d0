"""Topics as SQL views over their Delta tables, which Spark scans natively."""

import json as jsons
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (as everyone calls it)
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from lakelog.spark.rows import PARTITION, TOPIC
from log_tables.cluster import Cluster
from log_tables.errors import InvalidArgument, UnknownTopic
from log_tables.json_columns import typed_columns
from log_tables.layout import CLUSTER_METADATA, KEY, OFFSET, TIMESTAMP, VALUE
from log_tables.limits import MIB
from log_tables.partition import Partition
from log_tables.record import RECORD_SCHEMA
from log_tables.store import Store, open_store

RAW = "_raw"
"""The column of `<topic>_json` that holds a value which does not fit its columns."""

_SUFFIX = "_json"
_KEPT = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY)
_REGISTERED = "lakelog.views"  # a setting of the session: what this module registered, by root
_OPENED_AT_ONCE = 32
_SAMPLE_MAX_BYTES = 16 * MIB
_SAID_MAX_CHARS = 500

# JSON as RFC 8259 has it: what else Spark would take, `lakelog sql` does not.
_JSON_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}

Schema = str | StructType | bool
Partitions = Sequence[Partition]


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

    A view has the columns topic, partition, offset, timestamp, key, value, headers, and shows what its
    Delta tables hold when a query is planned: later records need no second call. Later topics and partitions
    do, and so does a log start that came to lie inside a segment (delete-records), because the log
    start is taken here. A second call also drops the views of topics that are gone. `names` are the topics
    to register; without it all are, internal ones too.

    `json` adds `<topic>_json`: the fields of JSON values as columns. It is a schema, as DDL or StructType, or
    True to infer one from about `sample_records` of the newest records; for all these topics, or for some of
    them by name (`{"orders": "id long, total double", "clicks": True}`). A field that has the name of
    another column gets the suffix `_json`. The column `_raw` holds the value, in bytes, where it is not one
    JSON object, or has a field of another type than the schema's, which is null then. A tombstone is null in
    all of them.

    `store_options` are those of `open_store`, with which the logs are looked at; Spark reads the tables with
    its own (`spark.hadoop.fs.s3a.…`), an `s3://` root through `s3a`. Raises InvalidArgument for a root, a
    schema or names that cannot be used, UnknownTopic, CorruptLog, StoreUnavailable; the views that there were
    are still there then.
    """
    if sample_records < 1:
        raise InvalidArgument(f"sample_records={sample_records} samples nothing; make it 1 or more")
    store = open_store(root, store_options, create=False)
    cluster = Cluster.open(store, create=False)
    with ThreadPoolExecutor(_OPENED_AT_ONCE, thread_name_prefix="lakelog-views") as pool:
        tables = _tables(cluster, names, pool)
        schemas = _schemas(json, tables, sample_records, pool)
    fold = _fold(spark)
    topic_of = _named(tables, schemas, fold)
    frames = {name: _records(spark, store, name, partitions) for name, partitions in tables.items()}
    typed = {name + _SUFFIX: _typed(name, frames[name], schema, fold) for name, schema in schemas.items()}
    for view, frame in {**frames, **typed}.items():
        frame.createOrReplaceTempView(f"`{view}`")
    _drop_others(spark, store.url, topic_of, {*_known(cluster)})
    return list(topic_of)


def _known(cluster: Cluster) -> list[str]:
    return [CLUSTER_METADATA, *(topic.name for topic in cluster.topics(include_internal=True))]


def _tables(cluster: Cluster, names: Iterable[str] | None, pool: ThreadPoolExecutor) -> dict[str, Partitions]:
    """The partitions of the topics asked for, opened side by side."""

    def opened(name: str) -> Partitions:
        if name == CLUSTER_METADATA:
            return [cluster.metadata_log]
        topic = cluster.topic(name)
        return [*pool.map(topic.partition, range(topic.partition_count))]

    if names is None:
        names = _known(cluster)
    return {name: opened(name) for name in dict.fromkeys([names] if isinstance(names, str) else names)}


def _fold(spark: SparkSession) -> Callable[[str], str]:
    """What makes two names equal that are one to Spark."""
    return str if spark.conf.get("spark.sql.caseSensitive") == "true" else str.lower


def _named(
    tables: Mapping[str, Partitions], schemas: Mapping[str, StructType], fold: Callable[[str], str]
) -> dict[str, str]:
    """The topic of each view, by the view's name. Raises InvalidArgument when two are one to Spark."""
    topic_of: dict[str, str] = {}
    taken: dict[str, str] = {}
    for topic in tables:
        for view in (topic, topic + _SUFFIX) if topic in schemas else (topic,):
            other = taken.setdefault(fold(view), view)
            if view in topic_of or other != view:
                raise InvalidArgument(
                    f"the views {other!r} and {view!r} would have one name in Spark; choose the topics by "
                    "names, and those with JSON columns by json"
                )
            topic_of[view] = topic
    return topic_of


def _records(spark: SparkSession, store: Store, name: str, partitions: Partitions) -> DataFrame:
    """The rows of a topic. Delta looks for new commits of its tables at every query."""
    columns = ", ".join(f"`{column}`" for column in RECORD_SCHEMA.names)
    selects = []
    for index, partition in enumerate(partitions):
        table = _location(store, partition.directory).replace("`", "``")
        start = f" where `{OFFSET}` >= {partition.log_start}" if partition.log_start else ""
        selects.append(
            f"select '{name}' as `{TOPIC}`, {index} as `{PARTITION}`, {columns} from delta.`{table}`{start}"  # noqa: S608
        )
    try:
        return spark.sql(" union all ".join(selects))
    except (PySparkException, Py4JError) as error:
        where = _location(store, partitions[0].directory.rsplit("/", 1)[0])
        raise InvalidArgument(
            f"Spark cannot read the tables of topic {name} at {where}: {_said(error)}; make the session with "
            "lakelog.spark.session, for an object store with its package (org.apache.hadoop:hadoop-aws) and "
            "settings (spark.hadoop.fs.s3a.…)"
        ) from None


def _location(store: Store, path: str) -> str:
    """Where Spark finds `path`: Hadoop's client of S3 calls itself s3a."""
    location, _ = store.delta_location(path)
    return location.replace("s3://", "s3a://", 1) if location.startswith("s3://") else location


def _said(error: Exception) -> str:
    """What Spark says, without the plan and the Java stack."""
    lines = [line.removeprefix(": ").strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (told[0] if told else type(error).__name__).rstrip(";")[:_SAID_MAX_CHARS]


def _schemas(
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
        found[name] = (
            _inferred(tables[name], sample_records, pool) if schema is True else _given(name, schema)
        )
    return found


def _list(names: Iterable[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:20]) + (f" and {len(listed) - 20} more" if len(listed) > 20 else "")


def _given(name: str, schema: Schema) -> StructType:
    """A schema as the caller wrote it. Raises InvalidArgument."""
    wanted = "give a DDL string such as 'id long, total double', a StructType, or True to infer one"
    try:
        parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise InvalidArgument(
            f"the JSON schema {schema!r} of topic {name} is no DDL: {_said(error)}; {wanted}"
        ) from None
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise InvalidArgument(f"the JSON schema {schema!r} of topic {name} has no fields; {wanted}")
    twice = [field for field in parsed.names if parsed.names.count(field) > 1]
    if twice:
        raise InvalidArgument(f"the JSON schema of topic {name} has {twice[0]!r} twice; name it once")
    return parsed


def _inferred(partitions: Partitions, sample_records: int, pool: ThreadPoolExecutor) -> StructType:
    """The fields of a sample: the newest records of every partition, more of the long ones."""
    wanted: list[tuple[Partition, int]] = []
    left = sample_records
    by_length = sorted(partitions, key=lambda p: p.high_watermark - p.log_start)
    for others, partition in zip(reversed(range(len(partitions))), by_length, strict=True):
        start = max(partition.log_start, partition.high_watermark - -(-left // (others + 1)))
        wanted.append((partition, start))
        left -= partition.high_watermark - start

    def values(chosen: tuple[Partition, int]) -> list[pa.Array]:
        partition, start = chosen
        plan = partition.plan_read(start, _SAMPLE_MAX_BYTES // len(partitions))
        return [batch.column(VALUE) for batch in partition.read(plan, [VALUE])]

    sample = [array for arrays in pool.map(values, wanted) for array in arrays]
    columns, _ = typed_columns(pa.chunked_array(sample, pa.binary()))
    return StructType([StructField(field.name, _spark_type(field.type)) for field in columns.schema])


def _spark_type(kind: pa.DataType) -> DataType:
    """The type of a field of which the sample has `kind`. What is unsure is a string, which takes anything:
    text that happens to be dates, a field that was always null.
    """
    simple = {pa.int64(): LongType(), pa.float64(): DoubleType(), pa.bool_(): BooleanType()}
    if kind in simple:
        return simple[kind]
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        names = {field.name.lower() for field in kind.fields}
        if names and len(names) == kind.num_fields:
            return StructType([StructField(field.name, _spark_type(field.type)) for field in kind.fields])
    return StringType()


def _typed(topic: str, records: DataFrame, schema: StructType, fold: Callable[[str], str]) -> DataFrame:
    """The records with the fields of their JSON values as columns, and `_raw`.

    Spark's parser stops after the first object of a text: set into an array that an end follows, a value
    that is anything but one object shows.
    """
    names = [*_KEPT]
    for field in (*schema.names, RAW):
        names.append(_free_name(field, names, fold))
    envelope = StructType(
        [
            StructField("values", ArrayType(schema)),
            StructField("end", IntegerType()),
            StructField("corrupt", StringType()),
        ]
    )
    text = F.col(VALUE).cast("string")
    enclosed = F.concat(F.lit('{"values":['), text, F.lit('],"end":0}'))
    value = F.get("json.values", 0)
    one_object = (
        (F.col("json.end") == 0)
        & (F.size("json.values") == 1)
        & value.isNotNull()
        & F.is_valid_utf8(text)  # the parser would put U+FFFD for what is not
    )
    fits = one_object & F.col("json.corrupt").isNull()
    try:
        return (
            records.withColumn("json", F.from_json(enclosed, envelope, _JSON_OPTIONS))
            .withColumn("fields", F.when(one_object, value))
            .withColumn("raw", F.when(fits, None).otherwise(F.col(VALUE)))
            .select(*_KEPT, *(["fields.*"] if schema.fields else []), "raw")
            .toDF(*names)
        )
    except PySparkException as error:
        raise InvalidArgument(
            f"Spark cannot decode JSON of topic {topic} to {schema.simpleString()}: {_said(error)}; change "
            "the schema"
        ) from None


def _free_name(name: str, taken: Sequence[str], fold: Callable[[str], str]) -> str:
    """`name`, with as many suffixes as it takes to differ from those `taken`."""
    while fold(name) in map(fold, taken):
        name += _SUFFIX
    return name


def _drop_others(spark: SparkSession, url: str, topic_of: Mapping[str, str], known: set[str]) -> None:
    """Drop what an earlier call registered for topics that are gone, or as JSON that is no longer asked for.

    What was registered lives as long as the views do: with the session.
    """
    registered: dict[str, dict[str, str]] = jsons.loads(spark.conf.get(_REGISTERED, "{}") or "{}")
    kept = dict(topic_of)
    for view, topic in registered.get(url, {}).items():
        if topic in known and topic not in topic_of:
            kept[view] = topic
        elif view not in topic_of:
            spark.catalog.dropTempView(view)
    spark.conf.set(_REGISTERED, jsons.dumps({**registered, url: kept}))
