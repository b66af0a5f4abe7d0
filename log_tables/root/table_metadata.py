"""The check of a table's protocol, schema and properties: they are what lakelog gives to the table."""

import re
from collections.abc import Iterator, Mapping

from log_tables.columns.declaration import declaration_of_schema
from log_tables.layout import (
    PROPERTY_CLUSTER,
    PROPERTY_FILE_RETENTION,
    PROPERTY_FORMAT,
    PROPERTY_REMOTE_OWNER,
    PROPERTY_REMOTE_ROOT,
)
from log_tables.limits import CHECKPOINT_INTERVAL_COMMITS, LOG_RETENTION_MS
from log_tables.record import delta_schema
from log_tables.table.commit import Metadata, Protocol
from log_tables.table.snapshot import READER_VERSION, WRITER_VERSION

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
_FIXED = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL_COMMITS),
    "delta.logRetentionDuration": f"interval {LOG_RETENTION_MS // 3_600_000} hours",
    "delta.enableExpiredLogCleanup": "false",
}
_FREE = (PROPERTY_CLUSTER, PROPERTY_FORMAT, PROPERTY_REMOTE_OWNER, PROPERTY_REMOTE_ROOT)
_INTERVAL = re.compile(r"interval [1-9][0-9]{0,18} (seconds|hours)")


def check_metadata(protocol: Protocol, metadata: Metadata) -> Iterator[str]:
    """The problems of what a partition's table says of itself."""
    if protocol != Protocol(READER_VERSION, WRITER_VERSION):
        yield f"its protocol is ({protocol.minReaderVersion}, {protocol.minWriterVersion}), not (1, 2)"
    if metadata.partitionColumns or metadata.format.provider != "parquet" or metadata.format.options:
        yield "it has partition columns, or another format than Parquet"
    if metadata.createdTime is not None and metadata.createdTime < 0:
        yield f"its createdTime is {metadata.createdTime}"
    if not metadata.id:
        yield "it has no id"
    yield from check_schema(metadata.schemaString)
    yield from _properties(metadata)


def _properties(metadata: Metadata) -> Iterator[str]:
    for name, value in _FIXED.items():
        found = metadata.configuration.get(name)
        if found != value:
            yield f"the table property {name} is {found!r}, not {value!r}"
    for name, value in metadata.configuration.items():
        if name in (PROPERTY_FILE_RETENTION, TRANSACTION_RETENTION):
            if not _INTERVAL.fullmatch(value):
                yield f"the table property {name} is {value!r}, not an interval of seconds or hours"
        elif name not in _FIXED and name not in _FREE:
            yield f"it has the table property {name}, which lakelog does not set"


def check_schema(schema: str, partitioned: bool = False) -> Iterator[str]:
    """The schema is that of records, and declared columns."""
    try:
        due = delta_schema(partitioned, declaration_of_schema(schema).fields())
    except (KeyError, TypeError, ValueError):
        due = None
    if schema != due:
        yield "its schema is not that of records and declared columns"


def check_settings(metadata: Metadata, given: list[Mapping[str, str]]) -> Iterator[str]:
    """The properties that show the settings of a topic are some that `given`, its settings so far, gave."""
    for name in (PROPERTY_FILE_RETENTION, TRANSACTION_RETENTION):
        found = metadata.configuration.get(name)
        due = list(dict.fromkeys(properties.get(name) for properties in given))
        if found not in due:
            yield (
                f"the table property {name} is {found!r}, and the settings of its topic give {due[-1]!r}; "
                "set them again with `lakelog topic alter`"
            )
