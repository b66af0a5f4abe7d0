"""The entry of a topic's table in a catalog: its columns, where it is, and whose it is."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobs.catalog.names import table_name
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.topic import Topic
from log_tables.columns.declaration import PATH
from log_tables.counts import counted
from log_tables.layout import HEADERS, KEY, OFFSET, PARTITION, PROPERTY_CLUSTER, TIMESTAMP, VALUE
from log_tables.units import MILLISECONDS, with_unit

TOPIC, TOPIC_ID, DIGEST = "lakelog.topic", "lakelog.topicId", "lakelog.digest"
"""Properties of an entry, beside PROPERTY_CLUSTER: which topic it is of, and all that it was made of."""

COMMENT_MAX_CHARS = 255
"""Glue takes no longer comment of a column, and Hive none that is one longer."""

_FORM = "1"
"""Of what the clients of catalogs write: another one replaces all entries."""

_COMMENTS = {
    PARTITION: "The partition of the record.",
    OFFSET: "The place of the record in its partition.",
    TIMESTAMP: "The time of the record: its producer's, or that of its append.",
    KEY: "The key, as bytes; null if there is none.",
    VALUE: "The value, as bytes; null for a tombstone.",
    HEADERS: "The headers, in order; null if there are none.",
}

_NO_NAME = re.compile(r"\W")

_SQL = {"integer": "int", "long": "bigint", "short": "smallint", "byte": "tinyint"}
"""The types whose name in SQL is another than in Delta's log."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column. `kind` is its type as Delta's log has it: a name, or an object for a nested one."""

    name: str
    kind: Any
    nullable: bool
    comment: str

    @property
    def sql(self) -> str:
        """The type in SQL: `array<struct<key:string,value:binary>>`."""
        return sql_type(self.kind)


@dataclass(frozen=True, slots=True)
class Entry:
    """The entry `name` that the table over `topic` should have. `location` is a URL."""

    name: str
    topic: str
    location: str
    comment: str
    columns: tuple[Column, ...]
    properties: Mapping[str, str]

    @property
    def digest(self) -> str:
        """Stands for all that the entry says."""
        return self.properties[DIGEST]


def entry_of(cluster: Cluster, topic: Topic, root: str) -> Entry:
    """The entry of `topic`, of a root that readers find at the URL `root`.

    Looks at the table over the topic. Raises TopicDeleted, Damaged, StoreUnavailable.
    """
    schema = topic.table().refresh(wait=True).metadata.schemaString
    return made_entry(
        topic.name,
        topic.topic_id,
        f"{root.rstrip('/')}/{topic.directory}",
        schema,
        cluster.cluster_id,
        f"{counted(topic.partition_count, 'partition')}, {_retention(topic.config['retention.ms'])}",
    )


def made_entry(topic: str, topic_id: str, location: str, schema: str, cluster_id: str, facts: str) -> Entry:
    """The entry of the topic `topic` whose table at `location` has Delta's `schema`."""
    columns = tuple(_column(field) for field in json.loads(schema)["fields"])
    comment = (
        f"Topic {topic} (id {topic_id}) of the lakelog cluster {cluster_id}: {facts}. Read-only: records "
        "come by lakelog."
    )
    said = json.dumps(
        [
            _FORM,
            topic,
            topic_id,
            location,
            comment,
            [(each.name, each.kind, each.comment) for each in columns],
        ]
    )
    properties = {
        PROPERTY_CLUSTER: cluster_id,
        TOPIC: topic,
        TOPIC_ID: topic_id,
        DIGEST: hashlib.sha256(said.encode()).hexdigest(),
    }
    return Entry(table_name(topic), topic, location, comment, columns, properties)


def _retention(milliseconds: str) -> str:
    if int(milliseconds) < 0:
        return "kept for ever"
    return f"kept for {with_unit(milliseconds, MILLISECONDS) or f'{milliseconds} ms'}"


def _column(field: Mapping[str, Any]) -> Column:
    name, metadata = str(field["name"]), field.get("metadata") or {}
    comment = _COMMENTS.get(name, "")
    if PATH in metadata:
        comment = f"The field {metadata[PATH]} of the value."
    elif not comment:
        comment = "A declared column of the value."
    return Column(name, field["type"], bool(field["nullable"]), comment[:COMMENT_MAX_CHARS])


def sql_type(kind: Any) -> str:
    """A type of Delta's log as SQL writes it. Names of fields have `_` where a catalog would take none."""
    if isinstance(kind, str):
        return _SQL.get(kind, kind)
    if kind["type"] == "array":
        return f"array<{sql_type(kind['elementType'])}>"
    if kind["type"] == "map":
        return f"map<{sql_type(kind['keyType'])},{sql_type(kind['valueType'])}>"
    names = [_NO_NAME.sub("_", field["name"]) for field in kind["fields"]]
    types = [sql_type(field["type"]) for field in kind["fields"]]
    return f"struct<{','.join(map('{}:{}'.format, names, types))}>"
