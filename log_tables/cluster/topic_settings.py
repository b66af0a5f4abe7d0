"""The settings of a topic, by Kafka's names."""

from log_tables.cluster.setting import (
    WITHOUT_EFFECT,
    Columns,
    FreeText,
    ListSetting,
    Ratio,
    SchemaSource,
    Setting,
)
from log_tables.key_hash import KEY_HASHES, MURMUR3
from log_tables.limits import (
    DELETE_RETENTION_MS,
    MIB,
    RECORD_HARD_MAX_BYTES,
    RECORD_MAX_BYTES,
    REPLACED_FILE_RETENTION_MS,
)
from log_tables.schemas.decoded import Format
from log_tables.segments.segment import COMPRESSIONS

PRODUCER = "producer"
"""As compression.type Kafka's default, here another word for lakelog's: segments have one of their own."""

COMPACT, DELETE = "compact", "delete"
KEEP, REFUSE = "keep", "refuse"

VALUE_FORMAT, VALUE_SCHEMAS, VALUE_SCHEMA = (
    "value.columns.format",
    "value.columns.schemas",
    "value.columns.schema",
)

BEFORE_MAX_MS, AFTER_MAX_MS = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"

_ANY_TIME = 2**63 - 1
_DAY_MS = 24 * 60 * 60 * 1000
FOR_EVER = -1
AS_RETENTION = -2


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "compression.type", "zstd", "How segments are compressed.", choices=(*COMPRESSIONS, PRODUCER)
        ),
        Setting(
            "max.message.bytes",
            str(RECORD_MAX_BYTES),
            "The largest record (key and value), in bytes.",
            low=1,
            high=RECORD_HARD_MAX_BYTES,
        ),
        Setting(
            "message.timestamp.type",
            "CreateTime",
            "Whether a record's timestamp is the producer's or the time of the append.",
            choices=("CreateTime", "LogAppendTime"),
        ),
        Setting(
            BEFORE_MAX_MS,
            str(_ANY_TIME),
            "How much older than its arrival a record may say to be, in milliseconds.",
        ),
        Setting(
            AFTER_MAX_MS,
            str(_ANY_TIME),
            "How far after its arrival the time of a record may be, in milliseconds.",
        ),
        Setting(
            "partitioner.hash",
            MURMUR3,
            "The hash of a key that chooses its partition; murmur2 is that of Java's Kafka clients.",
            choices=KEY_HASHES,
        ),
        Columns("value.columns", "", "The typed columns that are made of the values, in Spark's DDL."),
        Setting(
            VALUE_FORMAT,
            Format.JSON,
            "How the values are encoded of which columns are made; auto is by schema id, else JSON.",
            choices=(*Format,),
        ),
        SchemaSource(
            VALUE_SCHEMAS,
            "",
            "Where the schemas are that values name by id: topic:NAME, the URL of a registry, or files.",
        ),
        FreeText(VALUE_SCHEMA, "", "The one schema of values that name none."),
        Setting(
            "value.columns.mode",
            KEEP,
            "Whether a record that does not fit its columns is kept, without them, or refused.",
            choices=(KEEP, REFUSE),
        ),
        Setting(
            "file.delete.delay.ms",
            "60000",
            "How long the files of a deleted topic are kept at least, in milliseconds.",
        ),
        Setting(
            "topic.delete.delay.ms",
            str(_DAY_MS),
            "How long a deleted topic can be brought back, in milliseconds; its files are kept so long.",
        ),
        Setting(
            "producer.id.expiration.ms",
            str(_DAY_MS),
            "How long the sequences of an idle idempotent producer are remembered, in milliseconds.",
            low=1,
        ),
        Setting(
            "segment.bytes",
            str(128 * MIB),
            "The size up to which small segments are merged into one, in compressed bytes.",
            low=1024,
            high=1024 * MIB,
        ),
        Setting(
            "segment.ms",
            str(7 * _DAY_MS),
            "The longest span of append times that a merge puts into one segment, in milliseconds.",
            low=1,
        ),
        Setting(
            "merge.min.age.ms",
            "60000",
            "The age from which a segment may be merged or moved, in milliseconds. One with "
            "250 newer ones is merged at any age.",
        ),
        Setting(
            "compaction.file.delete.delay.ms",
            str(REPLACED_FILE_RETENTION_MS),
            "How long a file stays that a merge or a compaction by key has replaced, in milliseconds.",
            low=REPLACED_FILE_RETENTION_MS,
            high=3650 * _DAY_MS,
        ),
        ListSetting(
            "cleanup.policy",
            DELETE,
            "Whether retention deletes old records, or compaction by key keeps only the newest, or both; "
            "empty: neither.",
            choices=(DELETE, COMPACT, f"{COMPACT},{DELETE}", f"{DELETE},{COMPACT}", ""),
        ),
        Setting(
            "retention.ms",
            str(FOR_EVER),
            "How long records are kept, in milliseconds; -1 is for ever.",
            low=FOR_EVER,
        ),
        Setting(
            "retention.bytes",
            str(FOR_EVER),
            "The size above which the oldest segments of a partition go, in compressed bytes; -1 is none.",
            low=FOR_EVER,
        ),
        Setting(
            "delete.retention.ms",
            str(DELETE_RETENTION_MS),
            "How long compaction by key keeps a tombstone after it first met it, in milliseconds.",
        ),
        Setting(
            "min.compaction.lag.ms",
            "0",
            "The age below which compaction by key leaves a record alone, in milliseconds.",
        ),
        Setting(
            "max.compaction.lag.ms",
            str(_ANY_TIME),
            "The age at which compaction by key is due for a record, however little is new, in milliseconds.",
            low=1,
        ),
        Ratio(
            "min.cleanable.dirty.ratio",
            "0.5",
            "The fraction of the log that has to be new before it is compacted by key.",
        ),
        Setting(
            "remote.storage.enable",
            "false",
            "Whether old segments move to the remote root.",
            choices=("false", "true"),
        ),
        Setting(
            "local.retention.ms",
            str(AS_RETENTION),
            "How long records stay in the local root, in milliseconds; -2 is retention.ms, -1 for ever.",
            low=AS_RETENTION,
        ),
        Setting(
            "local.retention.bytes",
            str(AS_RETENTION),
            "How much of a partition stays in the local root, in bytes; -2 is retention.bytes, -1 all.",
            low=AS_RETENTION,
        ),
    )
}
"""The settings that do something."""

KAFKA_SETTINGS = {**SETTINGS, **WITHOUT_EFFECT}
"""Those that a topic can have: Kafka's clients also set some that do nothing."""
