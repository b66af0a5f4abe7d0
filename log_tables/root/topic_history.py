"""The check of the metadata log: what its records say of topics, one after the other."""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from msgspec.structs import replace

from log_tables.cluster.config import TopicConfig
from log_tables.cluster.metadata_log import (
    BrokerLeft,
    BrokerRecord,
    DeletedTopic,
    MirroredFrom,
    MirrorRecord,
    MirrorRemoved,
    TopicRecord,
)
from log_tables.cluster.metadata_log import decode as decode_record
from log_tables.cluster.topic_settings import KAFKA_SETTINGS
from log_tables.columns.declaration import Column, parse
from log_tables.counts import counted
from log_tables.errors import LakelogError
from log_tables.limits import PARTITIONS_MAX
from log_tables.record import Record
from log_tables.root.access_history import AccessHistory

_KAFKA = re.compile(r"\S+:[1-9][0-9]{0,4}")
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
    brokers: dict[int, BrokerRecord] = field(default_factory=dict)
    mirrors: dict[str, MirrorRecord] = field(default_factory=dict)
    access: AccessHistory = field(default_factory=AccessHistory)
    properties: dict[tuple[str, int], list[Mapping[str, str]]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    _owners: dict[str, str] = field(default_factory=dict)
    """The name of the topic that had an id first."""

    def take(self, record: Record) -> None:
        """Check the next record. Raises CorruptLog for one that cannot be read."""
        found, key = decode_record(record), record.key or b""
        if isinstance(found, TopicRecord):
            said = [*self._topic(found, key)]
            self.latest[found.name] = found
            self.ids.setdefault(found.name, set()).add(found.topic_id)
        elif isinstance(found, BrokerRecord):
            said = [*_broker(found, key), *self._registered(found)]
            self.brokers[found.id] = found
        elif isinstance(found, BrokerLeft):
            said = [*self._left(found, key)]
            self.brokers.pop(found.id, None)
        elif isinstance(found, MirrorRecord):
            said = [*self._mirror(found, key)]
            self.mirrors[found.name] = found
        elif isinstance(found, MirrorRemoved):
            said = [*self._removed(found)]
            self.mirrors.pop(found.name, None)
        else:
            said = [*self.access.take(found)]
        self.problems += [
            f"the record at offset {record.offset} of the metadata log {each}; {_REMEDY}" for each in said
        ]

    def declared(self, topic: TopicRecord) -> set[Column]:
        """All columns that `topic` ever declared, as far as they can be read."""
        with suppress(LakelogError):
            return {*parse(topic.columns).columns}
        return set()

    def _topic(self, topic: TopicRecord, key: bytes) -> Iterator[str]:
        name = topic.name
        if key != name.encode():
            yield f"has the key {key[:100]!r}, and is of topic {name}"
        yield from self._settings(topic)
        if not _is_id(topic.topic_id):
            yield f"gives topic {name} the id {topic.topic_id[:40]!r}, not 32 hexadecimal digits"
        if topic.mirrored is not None:
            yield from self._mirrored(name, topic.mirrored)
        yield from self._owned(topic)
        if not 1 <= topic.partitions <= PARTITIONS_MAX:
            yield f"gives topic {name} {counted(topic.partitions, 'partition')}"
        times = topic.deleted.values()
        if max([0, *topic.deleted]) > topic.incarnation or min([0, *times]) < 0:
            yield f"says of topic {name} that incarnations {topic.deleted} were deleted"
        if topic.live and topic.incarnation in topic.deleted:
            yield f"says that topic {name} lives, and that it was deleted"
        yield from self._kept(topic)
        before = self.latest.get(name)
        if before is not None:
            yield from _step(before, topic)
        elif not topic.live and self.whole:
            yield f"says that topic {name} is deleted, and no record says that it was created"

    def _kept(self, topic: TopicRecord) -> Iterator[str]:
        """Only deleted incarnations are kept, and as what they were."""
        name = topic.name
        if not topic.kept.keys() <= topic.deleted.keys():
            yield f"keeps incarnations {[*topic.kept]} of topic {name}, and {[*topic.deleted]} were deleted"
        if topic.revived < 0 or max([0, *topic.homes]) > topic.incarnation:
            yield f"says that topic {name} came back {topic.revived} times, to {topic.homes}"
        before = self.latest.get(name)
        for number, kept in topic.kept.items():
            was = None if before is None else before.kept.get(number)
            if was is None and before is not None and before.live and before.incarnation == number:
                was = _kept_of(before, kept)
            if (was is None and self.whole) or was not in (None, kept):
                yield f"keeps incarnation {number} of topic {name} as another than it was"
            if not _is_id(kept.topic_id) or min(kept.revived, kept.records, kept.bytes) < 0:
                yield f"keeps incarnation {number} of topic {name} with the id {kept.topic_id[:40]!r}"

    def _owned(self, topic: TopicRecord) -> Iterator[str]:
        """An id is that of one topic, also when it comes back under another name."""
        name = topic.name
        owner = self._owners.setdefault(topic.topic_id, name)
        if owner != name and self._was_kept(owner, topic):
            self._owners[topic.topic_id] = name
        elif owner != name and (topic.live or topic.topic_id not in self.ids.get(name, ())):
            yield f"gives topic {name} the id of topic {owner}"

    def _was_kept(self, name: str, topic: TopicRecord) -> bool:
        """Whether `topic` is the deleted topic `name`, which came back as that."""
        before = self.latest.get(name)
        if before is None:
            return not self.whole
        home = topic.homes.get(topic.incarnation)
        return any(
            kept.topic_id == topic.topic_id and before.directory_of(number) == home
            for number, kept in before.kept.items()
        )

    def _mirrored(self, name: str, mirrored: MirroredFrom) -> Iterator[str]:
        """A copy has the name of its source, and a mirror that makes it."""
        if mirrored.topic != name:
            yield f"says that topic {name} is a copy of {mirrored.topic[:100]!r}, which has another name"
        if mirrored.topic_id and not _is_id(mirrored.topic_id):
            yield f"gives the source of topic {name} the id {mirrored.topic_id[:40]!r}, not 32 digits"
        if self.whole and mirrored.mirror not in self.mirrors:
            yield f"says that a mirror {mirrored.mirror[:100]!r} makes topic {name}, which is not on the list"

    def _mirror(self, mirror: MirrorRecord, key: bytes) -> Iterator[str]:
        """A mirror stays what it was created as, but for whether it is paused."""
        if key != b"@" + mirror.name.encode():
            yield f"has the key {key[:100]!r}, and is of the mirror {mirror.name[:100]!r}"
        texts = (mirror.source, mirror.config, mirror.cluster_id, *mirror.topics, *mirror.groups)
        if not mirror.source or not mirror.topics or not all(each.isprintable() for each in texts):
            yield f"says nothing of the source or the topics of the mirror {mirror.name[:100]!r}"
        before = self.mirrors.get(mirror.name)
        if before is not None and replace(before, paused=False) != replace(mirror, paused=False):
            yield f"changes what the mirror {mirror.name[:100]} was created as"

    def _removed(self, mirror: MirrorRemoved) -> Iterator[str]:
        if self.whole and mirror.name not in self.mirrors:
            yield f"says that the mirror {mirror.name[:100]!r} is deleted, which is not on the list"
        for topic in self.latest.values():
            if topic.live and topic.mirrored is not None and topic.mirrored.mirror == mirror.name:
                yield f"says that the mirror {mirror.name} is deleted, which makes topic {topic.name}"

    def _registered(self, broker: BrokerRecord) -> Iterator[str]:
        """A gateway keeps its id and its URL, and what it said at its start."""
        before = self.brokers.get(broker.id)
        if before is not None and before.url != broker.url:
            yield f"gives the id {broker.id} of the gateway at {before.url} to the one at {broker.url}"
        for other in self.brokers.values():
            if other.url == broker.url and other.id != broker.id:
                yield f"gives the gateway at {broker.url} the id {broker.id}, and it has {other.id}"
        if before is not None and before.incarnation == broker.incarnation:
            was, now = (replace(each, leads={}, leaving=False) for each in (before, broker))
            if was != now or before.leaving > broker.leaving:
                yield f"changes what gateway {broker.id} said when it started"

    def _left(self, broker: BrokerLeft, key: bytes) -> Iterator[str]:
        if key != b"~%d" % broker.id or (self.whole and broker.id not in self.brokers):
            yield f"says that gateway {broker.id} left, which is not on the list"

    def _settings(self, topic: TopicRecord) -> Iterator[str]:
        try:
            config, columns = TopicConfig.parse(topic.configs, KAFKA_SETTINGS), parse(topic.columns).columns
            if not {*config.columns.columns} <= {*columns}:
                yield f"gives topic {topic.name} value.columns that are not among all of its columns"
            given = self.properties.setdefault((topic.name, topic.incarnation), [])
            given.append(config.table_properties())
        except LakelogError as error:
            yield f"gives topic {topic.name} settings that it cannot have ({error.message})"


def _step(before: TopicRecord, topic: TopicRecord) -> Iterator[str]:
    """The problems of a record of a topic after the one before."""
    name = topic.name
    if topic.incarnation != before.incarnation:
        if topic.incarnation < before.incarnation or before.live:
            yield f"begins incarnation {topic.incarnation} of topic {name}, whose {before.incarnation} lives"
        if topic.topic_id == before.topic_id and topic.incarnation not in topic.homes:  # it is not back
            yield f"gives incarnation {topic.incarnation} of topic {name} the id of the one before"
        return
    if topic.topic_id != before.topic_id:
        yield f"gives topic {name} the id {topic.topic_id}, and it had {before.topic_id}"
    if not topic.columns.startswith(before.columns):
        yield f"gives topic {name} other columns than the record before, which only grow"
    if topic.mirrored is not None and not _is_same_source(before.mirrored, topic.mirrored):
        yield f"gives topic {name} another source than it had"
    if topic.partitions < before.partitions:
        yield f"gives topic {name} {counted(topic.partitions, 'partition')}, and it had {before.partitions}"
    if before.live and not topic.live and topic.incarnation not in topic.deleted:
        yield f"says that topic {name} is deleted, and not when"
    yield from _lives(before, topic)


def _lives(before: TopicRecord, topic: TopicRecord) -> Iterator[str]:
    """A deleted topic lives again only if it was kept, and that is counted."""
    name, kept = topic.name, before.kept.get(topic.incarnation)
    if topic.live and not before.live:
        if kept is None or topic.revived != kept.revived + 1:
            yield f"says that topic {name} lives, which was deleted before"
        elif _kept_of(topic, kept) != replace(kept, revived=topic.revived):
            yield f"brings topic {name} back as another than it was"
    elif topic.revived != before.revived:
        yield f"says that topic {name} came back {topic.revived} times, and it was {before.revived}"


def _kept_of(live: TopicRecord, kept: DeletedTopic) -> DeletedTopic:
    """`live` as its deletion keeps it, with the sizes of `kept`."""
    configs, columns, revived = live.configs, live.columns, live.revived
    return DeletedTopic(live.topic_id, live.partitions, configs, columns, revived, kept.records, kept.bytes)


def _is_same_source(before: MirroredFrom | None, now: MirroredFrom) -> bool:
    """Whether a copy has the mirror and the source that it had; its id may have been unknown."""
    return before is not None and before.mirror == now.mirror and before.topic_id in ("", now.topic_id)


def _broker(broker: BrokerRecord, key: bytes) -> Iterator[str]:
    if key != b"~%d" % broker.id or broker.id < 1:
        yield f"has the key {key[:100]!r}, and is of gateway {broker.id}"
    if not _is_id(broker.incarnation) or broker.since_ms < 0:
        yield f"says of gateway {broker.id} the incarnation {broker.incarnation!r}, since {broker.since_ms}"
    if not broker.url or not broker.url.isprintable():
        yield f"has the URL {broker.url[:100]!r} for gateway {broker.id}"
    if broker.kafka and not _KAFKA.fullmatch(broker.kafka):
        yield f"says that gateway {broker.id} has the Kafka listener {broker.kafka[:100]!r}, not HOST:PORT"
    if not broker.rack.isprintable():
        yield f"says that gateway {broker.id} stands in the rack {broker.rack[:100]!r}"
    if not all(_is_id(each) for each in broker.peer_keys):
        yield f"has a fingerprint of gateway {broker.id} that is not 32 hexadecimal digits"
    if any(number < 0 for numbers in broker.leads.values() for number in numbers):
        yield f"says that gateway {broker.id} leads a partition below 0"


def _is_id(text: str) -> bool:
    return len(text) == 32 and set(text) <= _HEX
