"""The offsets and members of groups on this root, followed in its tables: no gateway is asked."""

from collections.abc import Callable, Collection
from typing import NamedTuple

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import (
    ClassicKey,
    ClassicValue,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
)
from log_tables.cluster.group_log import decode as decode_group
from log_tables.cluster.keyed_log import FollowedLog
from log_tables.key_hash import MURMUR3, partition_for_key
from log_tables.layout import CONSUMER_OFFSETS
from log_tables.partition.reader import PartitionReader
from log_tables.record import Record
from log_tables.topic_partition import TopicPartition


class Committed(NamedTuple):
    """An offset that a group has here, of the topic with this id, and the member that has committed it."""

    offset: int
    metadata: str
    topic_id: str
    member: str


class _Shard(FollowedLog):
    """The groups of a partition of `__consumer_offsets`. Of one thread."""

    def __init__(self, partition: PartitionReader, wanted: Callable[[str, str], bool]) -> None:
        super().__init__(partition)
        self._wanted = wanted
        self._begin()

    def _begin(self) -> None:
        self.offsets: dict[str, dict[TopicPartition, Committed]] = {}
        self.members: dict[str, set[str]] = {}
        self.classic: set[str] = set()

    def _read(self, record: Record) -> None:
        match decode_group(record, self.partition.directory):
            case OffsetKey() as key, value:
                at, offsets = TopicPartition(key.topic, key.partition), self.offsets.setdefault(key.group, {})
                offsets.pop(at, None)
                if isinstance(value, OffsetValue) and self._wanted(key.topic, value.topic_id):
                    offsets[at] = Committed(value.offset, value.metadata, value.topic_id, value.member)
                if not offsets:
                    del self.offsets[key.group]
            case MemberKey() as key, value:
                members = self.members.setdefault(key.group, set())
                members.discard(key.member)
                if isinstance(value, MemberValue) and (value.kafka or value.topics or value.pattern):
                    members.add(key.member)
                if not members:
                    del self.members[key.group]
            case ClassicKey() as key, value:
                self.classic.discard(key.group)
                if isinstance(value, ClassicValue) and value.members:
                    self.classic.add(key.group)
            case _:
                pass

    def _publish(self) -> None:
        """Its thread reads it as it is."""


class GroupsHere:
    """The groups of this root as last refreshed, with their offsets in copies. Of one thread; blocking."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._shards: dict[int, _Shard] = {}

    def refresh(self, groups: Collection[str] | None = None) -> None:
        """Follow the logs of these groups, or of all. Raises as `FollowedLog.refresh`."""
        topic = self._cluster.cached_topic(CONSUMER_OFFSETS)
        if topic is None:
            return
        every = range(topic.partition_count)
        for number in every if groups is None else sorted({self._number(each) for each in groups}):
            if number not in self._shards:
                self._shards[number] = _Shard(topic.partition(number), self._is_wanted)
            self._shards[number].refresh()

    def offsets(self, group: str) -> dict[TopicPartition, Committed]:
        """The offsets of a group in copies, also in those of earlier incarnations of their topics."""
        shard = self._shards.get(self._number(group))
        return {} if shard is None else shard.offsets.get(group, {})

    def has_members(self, group: str) -> bool:
        """Whether a group has members, which alone change its offsets."""
        shard = self._shards.get(self._number(group))
        return shard is not None and (group in shard.members or group in shard.classic)

    def _number(self, group: str) -> int:
        topic = self._cluster.cached_topic(CONSUMER_OFFSETS)
        return 0 if topic is None else partition_for_key(group.encode(), topic.partition_count, MURMUR3)

    def _is_wanted(self, name: str, topic_id: str) -> bool:
        """Not where the topic is known, and is no copy: it will never be one under this id."""
        topic = self._cluster.cached_topic(name)
        return topic is None or topic.topic_id != topic_id or bool(topic.mirror)
