"""JSON values as typed columns of a DataFrame, in which no row is lost."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
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

from lakelog.spark.connect import analyze
from lakelog.spark.decoding import ValueDecoder
from lakelog.spark.rows import ERROR, PARTITION, TOPIC
from log_tables.columns.column_type import without_case
from log_tables.errors import InvalidArgument
from log_tables.layout import HEADERS, KEY, KEY_TEXT, OFFSET, TIMESTAMP, VALUE
from log_tables.limits import MIB
from log_tables.partition.reader import PartitionReader
from log_tables.schemas.decoded import Encoding
from log_tables.schemas.decoding import Decoding
from log_tables.schemas.schema import Schemas
from log_tables.sql.json_columns import typed_columns

RAW = "_raw"
"""The column that holds a value which does not fit its columns."""

SUFFIX = "_json"
"""The suffix of the view with the fields, and of a field whose name is taken."""

Schema = str | StructType | bool
"""DDL, a StructType, or True: to be inferred."""

Fold = Callable[[str], str]
"""Folds names, so that two are equal if they are one name to Spark."""

_KEPT = (TOPIC, PARTITION, OFFSET, TIMESTAMP, KEY, KEY_TEXT)
_SAMPLE_MAX_BYTES = 16 * MIB
_SAID_MAX_CHARS = 500

# JSON as RFC 8259 has it: what else Spark would take, `lakelog sql` does not. A time without a zone is UTC.
_STRICT_JSON = {
    "mode": "PERMISSIVE",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "timeZone": "UTC",
}
_JSON_OPTIONS = {**_STRICT_JSON, "columnNameOfCorruptRecord": "corrupt"}


def spark_message(error: Exception) -> str:
    """Spark's message, without the plan and the Java stack."""
    lines = [line.removeprefix(": ").strip() for line in str(error).splitlines()]
    messages = [line for line in lines if line and not line.startswith("An error occurred while calling")]
    return (messages[0] if messages else type(error).__name__).rstrip(";")[:_SAID_MAX_CHARS]


def text(content: Column) -> Column:
    """Bytes as text, null where they are not UTF-8."""
    cast = content.cast("string")
    return F.when(F.is_valid_utf8(cast), cast)


def given_schema(name: str, schema: Schema) -> StructType:
    """A schema as the caller wrote it. Raises InvalidArgument."""
    wanted = "give a DDL string such as 'id long, total double', a StructType, or True to infer one"
    try:
        parsed = StructType.fromDDL(schema) if isinstance(schema, str) else schema
    except PySparkException as error:
        raise InvalidArgument(
            f"the JSON schema {schema!r} of topic {name} is not a DDL string: {spark_message(error)}; "
            f"{wanted}"
        ) from None
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise InvalidArgument(f"the JSON schema {schema!r} of topic {name} has no fields; {wanted}")
    twice = [field for field in parsed.names if parsed.names.count(field) > 1]
    if twice:
        raise InvalidArgument(f"the JSON schema of topic {name} has {twice[0]!r} twice; name it once")
    return parsed


def inferred_schema(
    partitions: Sequence[PartitionReader],
    sample_records: int,
    pool: ThreadPoolExecutor,
    encoding: Encoding,
    schemas: Schemas,
) -> StructType:
    """The fields of a sample: the newest records of every partition, more of the long ones."""
    wanted: list[tuple[PartitionReader, int]] = []
    left = sample_records
    by_length = sorted(partitions, key=lambda p: p.high_watermark - p.log_start)
    for others, partition in zip(reversed(range(len(partitions))), by_length, strict=True):
        start, count = partition.newest(-(-left // (others + 1)))
        wanted.append((partition, start))
        left -= count

    def values(chosen: tuple[PartitionReader, int]) -> list[pa.Array]:
        partition, start = chosen
        plan = partition.plan_read(start, _SAMPLE_MAX_BYTES // len(partitions))
        if encoding.is_json:
            return [batch.column(VALUE) for batch in partition.read(plan, [VALUE])]
        decoding = Decoding(encoding, schemas)
        batches = partition.read(plan, [VALUE, HEADERS])
        return [json for batch in batches for _, json, _ in decoding.slices(batch, VALUE)]

    sample = [array for arrays in pool.map(values, wanted) for array in arrays]
    columns, _ = typed_columns(pa.chunked_array(sample, pa.binary()))
    return StructType([StructField(field.name, _spark_type(field.type)) for field in columns.schema])


def _spark_type(kind: pa.DataType) -> DataType:
    """The type of a field of which the sample has `kind`. A string, which takes anything, where the type is
    uncertain: text that happens to be dates, a field that was always null.
    """
    simple = {pa.int64(): LongType(), pa.float64(): DoubleType(), pa.bool_(): BooleanType()}
    if kind in simple:
        return simple[kind]
    if pa.types.is_list(kind):
        return ArrayType(_spark_type(kind.value_type))
    if pa.types.is_struct(kind):
        names = {without_case(field.name) for field in kind.fields}
        if names and len(names) == kind.num_fields:
            return StructType([StructField(field.name, _spark_type(field.type)) for field in kind.fields])
    return StringType()


def with_json_fields(
    topic: str, records: DataFrame, schema: StructType, fold: Fold, decoder: ValueDecoder
) -> DataFrame:
    """The records with the fields of their JSON values as columns, and `_raw`; where `decoder` makes the JSON
    also `_error`, why a value has none.

    Spark's parser stops after the first object of a text. So the text is set into an array and, for itself,
    behind a name: what is more than one value, or closes the one from inside, breaks the other, because it
    begins with a bracket that does not belong there.
    """
    is_json = decoder.encoding.is_json
    made = {"raw": RAW} if is_json else {"raw": RAW, "decoded.error": ERROR}
    names = [*_KEPT]
    for field in (*schema.names, *made.values()):
        names.append(_free_name(field, names, fold))
    envelope = StructType(
        [
            StructField("values", ArrayType(schema)),
            StructField("end", IntegerType()),
            StructField("corrupt", StringType()),
        ]
    )
    content = (F.col(VALUE) if is_json else F.col("decoded.json")).cast("string")
    enclosed = F.concat(F.lit('{"values":['), content, F.lit('],"end":0}'))
    named = F.from_json(F.concat(F.lit('{"value":'), content, F.lit(',"end":0}')), "end int", _STRICT_JSON)
    value = F.get("json.values", 0)
    one_object = (
        (F.col("json.end") == 0)
        & (F.col("named.end") == 0)
        & (F.size("json.values") == 1)
        & value.isNotNull()
        & F.is_valid_utf8(content)  # the parser would put U+FFFD for what is not
    )
    fits = one_object & F.col("json.corrupt").isNull()
    try:
        return analyze(
            (records if is_json else _decoded(records, decoder))
            .withColumn("json", F.from_json(enclosed, envelope, _JSON_OPTIONS))
            .withColumn("named", named)
            .withColumn("fields", F.when(one_object, value))
            .withColumn("raw", F.when(fits, None).otherwise(F.col(VALUE)))
            .select(*_KEPT, *(["fields.*"] if schema.fields else []), *made)
            .toDF(*names)
        )
    except PySparkException as error:
        raise InvalidArgument(
            f"Spark cannot decode JSON of topic {topic} to {schema.simpleString()}: {spark_message(error)}; "
            "change the schema"
        ) from None


def _decoded(records: DataFrame, decoder: ValueDecoder) -> DataFrame:
    """The records with what their values are as JSON, and their keys as text."""
    keys, headers = decoder.key_column(F.col(KEY), F.col(HEADERS)), F.col(HEADERS)
    return records.withColumn("decoded", decoder.value_column(F.col(VALUE), headers)).withColumn(
        KEY_TEXT, text(keys)
    )


def _free_name(name: str, taken: Sequence[str], fold: Fold) -> str:
    """`name`, with as many suffixes as it takes to differ from those `taken`."""
    while fold(name) in map(fold, taken):
        name += SUFFIX
    return name
