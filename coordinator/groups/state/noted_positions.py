"""The positions that a group notes. The records before them are made durable first.

A position that survives a power cut must not be beyond a record that does not: another record would get that
offset, and the group would never be given it (docs/decisions/0038-a-position-rests-on-durable-records.md).
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from coordinator.groups.state.group import Group
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.group_log import MemberKey, MemberValue, OffsetKey, OffsetValue, Records
from log_tables.cluster.topic import Topic
from log_tables.errors import Damaged, NotFound
from log_tables.layout import partition_directory
from log_tables.table.commit import make_table_durable
from log_tables.topic_partition import TopicPartition


class NotedPosition(NamedTuple):
    """The offset of the next record to read in a partition of the topic's incarnation `topic_id`."""

    topic: str
    topic_id: str
    partition: int
    offset: int


def new_positions(before: Group, records: Records) -> list[NotedPosition]:
    """The offsets and positions that `records` note and the group `before` them did not have."""
    found = []
    for key, value in records:
        # Half the time of a match, and a request may have ten thousand offsets.
        if type(value) is OffsetValue and type(key) is OffsetKey:
            earlier = before.offsets.get(TopicPartition(key.topic, key.partition))
            if earlier is None or earlier.offset != value.offset or earlier.topic_id != value.topic_id:
                found.append(NotedPosition(key.topic, value.topic_id, key.partition, value.offset))
        elif type(value) is MemberValue and type(key) is MemberKey:
            found += _new_member_positions(before, key.member, value)
    return [position for position in found if position.offset]  # before 0 there is nothing


def _new_member_positions(before: Group, member_id: str, value: MemberValue) -> Iterator[NotedPosition]:
    member = before.members.get(member_id)
    earlier = {} if member is None else member.positions
    for topic, positions in value.positions.items():
        for partition, offset in positions.items():
            if earlier.get(TopicPartition(topic, partition)) != offset:
                yield NotedPosition(topic, value.topic_ids.get(topic, ""), partition, offset)


def make_durable(cluster: Cluster, positions: Iterable[NotedPosition]) -> None:
    """Make durable the records before `positions`, as far as there are any. Blocking. Raises
    StoreUnavailable.

    Positions in deleted topics are ignored: they go with their topic.
    """
    for position in positions:
        topic = cluster.cached_topic(position.topic)
        if topic is not None and topic.topic_id == position.topic_id:
            _make_durable(cluster, topic, position)


def _make_durable(cluster: Cluster, topic: Topic, position: NotedPosition) -> None:
    try:
        topic.partition(position.partition).table.make_durable_below(position.offset)
    except (Damaged, NotFound):  # it cannot be followed (any more): then all that anybody can see of it
        directory = partition_directory(topic.directory, position.partition)
        make_table_durable(cluster.store, directory)
