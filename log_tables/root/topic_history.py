"""The check of the metadata log: what its records say of topics, one after the other."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from log_tables.cluster.config import KAFKA_SETTINGS, TopicConfig
from log_tables.cluster.metadata_log import BrokerRecord, TopicRecord
from log_tables.cluster.metadata_log import decode as decode_record
from log_tables.columns.declaration import parse
from log_tables.counts import counted
from log_tables.errors import LakelogError
from log_tables.limits import PARTITIONS_MAX
from log_tables.record import Record

_HEX = frozenset("0123456789abcdef")
_REMEDY = "restore the metadata log from a backup"


@dataclass(slots=True)
class TopicHistory:
    """The topics of a root by its metadata log; `whole` if no record was compacted away.

    `ids` are those that a topic of each name ever had, `properties` the table properties that the settings of
    each incarnation gave, the newest last.
    """

    whole: bool = True
    latest: dict[str, TopicRecord] = field(default_factory=dict)
    ids: dict[str, set[str]] = field(default_factory=dict)
    properties: dict[tuple[str, int], list[Mapping[str, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def take(self, record: Record) -> None:
        """Check the next record. Raises CorruptLog for one that cannot be read."""
        found = decode_record(record)
        said: list[str] = []
        if isinstance(found, TopicRecord):
            said = [*self._topic(found, record.key or b"")]
            self.latest[found.name] = found
            self.ids.setdefault(found.name, set()).add(found.topic_id)
        elif isinstance(found, BrokerRecord):
            said = [*_broker(found, record.key or b"")]
        self.problems += [
            f"the record at offset {record.offset} of the metadata log {each}; {_REMEDY}" for each in said
        ]

    def _topic(self, topic: TopicRecord, key: bytes) -> Iterator[str]:
        name = topic.name
        if key != name.encode():
            yield f"has the key {key[:100]!r}, and is of topic {name}"
        try:
            config = TopicConfig.parse(topic.configs, KAFKA_SETTINGS)
            parse(topic.columns)
            given = self.properties.setdefault((name, topic.incarnation), [])
            given.append(config.table_properties())
        except LakelogError as error:
            yield f"gives topic {name} settings that it cannot have ({error.message})"
        if not _is_id(topic.topic_id):
            yield f"gives topic {name} the id {topic.topic_id[:40]!r}, not 32 hexadecimal digits"
        owners = [other for other, ids in self.ids.items() if other != name and topic.topic_id in ids]
        if owners:
            yield f"gives topic {name} the id of topic {owners[0]}"
        if not 1 <= topic.partitions <= PARTITIONS_MAX:
            yield f"gives topic {name} {counted(topic.partitions, 'partition')}"
        times = topic.deleted.values()
        if max([0, *topic.deleted]) > topic.incarnation or min([0, *times]) < 0:
            yield f"says of topic {name} that incarnations {topic.deleted} were deleted"
        if topic.live and topic.incarnation in topic.deleted:
            yield f"says that topic {name} lives, and that it was deleted"
        before = self.latest.get(name)
        if before is not None:
            yield from _step(before, topic)
        elif not topic.live and self.whole:
            yield f"says that topic {name} is deleted, and no record says that it was created"


def _step(before: TopicRecord, topic: TopicRecord) -> Iterator[str]:
    """The problems of a record of a topic after the one before."""
    name = topic.name
    if topic.incarnation != before.incarnation:
        if topic.incarnation < before.incarnation or before.live:
            yield f"begins incarnation {topic.incarnation} of topic {name}, whose {before.incarnation} lives"
        if topic.topic_id == before.topic_id:
            yield f"gives incarnation {topic.incarnation} of topic {name} the id of the one before"
        return
    if topic.topic_id != before.topic_id:
        yield f"gives topic {name} the id {topic.topic_id}, and it had {before.topic_id}"
    if topic.partitions < before.partitions:
        yield f"gives topic {name} {counted(topic.partitions, 'partition')}, and it had {before.partitions}"
    if topic.live and not before.live:
        yield f"says that topic {name} lives, which was deleted before"
    if before.live and not topic.live and topic.incarnation not in topic.deleted:
        yield f"says that topic {name} is deleted, and not when"


def _broker(broker: BrokerRecord, key: bytes) -> Iterator[str]:
    if key != b"~%d" % broker.id or broker.id < 1:
        yield f"has the key {key[:100]!r}, and is of gateway {broker.id}"
    if not _is_id(broker.incarnation) or broker.since_ms < 0:
        yield f"says of gateway {broker.id} the incarnation {broker.incarnation!r}, since {broker.since_ms}"
    if any(number < 0 for numbers in broker.leads.values() for number in numbers):
        yield f"says that gateway {broker.id} leads a partition below 0"


def _is_id(text: str) -> bool:
    return len(text) == 32 and set(text) <= _HEX
