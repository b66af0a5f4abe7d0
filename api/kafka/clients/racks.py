"""Racks: the gateway of its own rack from which a client reads a partition (KIP-392).

Any gateway answers any fetch, so there is one in each rack that has a gateway at all. Java's consumer goes
only to those that Metadata names as replicas of the partition. So these are named: the leader, and one
gateway of each other rack. All gateways that know the same ones choose the same.
"""

from collections.abc import Iterator, Sequence

from coordinator.brokers.leadership import preferred_leaders
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.cluster.topic import Topic


class ReadReplicas:
    """The gateways that Kafka's clients reach, by rack."""

    def __init__(self, reached: Sequence[BrokerRecord]) -> None:
        self._rack = {each.id: each.rack for each in reached}
        self._gateways: dict[str, tuple[int, ...]] = {}
        for each in reached:
            if each.rack:
                self._gateways[each.rack] = (*self._gateways.get(each.rack, ()), each.id)

    def __contains__(self, rack: object) -> bool:
        """Whether a gateway stands in `rack`."""
        return rack in self._gateways

    def each(self, topic_id: str, leaders: Sequence[int]) -> Iterator[list[int]]:
        """For each partition of a topic its leader, and one gateway of each other rack."""
        chosen = {
            rack: preferred_leaders(topic_id, len(leaders), there) for rack, there in self._gateways.items()
        }
        for partition, leader in enumerate(leaders):
            own = self._rack.get(leader)
            yield [leader, *(numbers[partition] for rack, numbers in chosen.items() if rack != own)]

    def of(self, rack: str, topic: Topic, partition: int, leader: int) -> int:
        """The one for clients in `rack`, in which a gateway stands. KeyError: there is none."""
        if self._rack.get(leader) == rack:
            return leader
        return preferred_leaders(topic.topic_id, topic.partition_count, self._gateways[rack])[partition]
