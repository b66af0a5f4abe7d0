"""Where clients want the replicas of partitions. It is checked as Kafka does, and has no effect: the store
keeps the copies, and the gateways share the partitions among them.
"""

from collections.abc import Sequence

from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, Refusal
from api.kafka.protocol.messages.topics import CreatableReplicaAssignment


def assigned_count(door: Door, assignments: Sequence[CreatableReplicaAssignment]) -> int:
    """The number of partitions of a new topic whose replicas are assigned so. Raises Refusal."""
    numbers = sorted(each.partition_index for each in assignments)
    if numbers != [*range(len(numbers))]:
        raise _refusal("the partitions are not numbered from 0 on, each once")
    check_replicas(door, [each.broker_ids for each in assignments])
    return len(numbers)


def check_replicas(door: Door, partitions: Sequence[Sequence[int]]) -> None:
    """Raise Refusal unless each partition has replicas at different gateways, as many as the others."""
    known = door.here.brokers.all()
    for brokers in partitions:
        if not brokers or len(set(brokers)) != len(brokers):
            raise _refusal("a partition has no replica, or two at one gateway")
        if len(brokers) != len(partitions[0]):
            raise _refusal("the partitions do not have the same number of replicas")
        strange = next((each for each in brokers if each not in known), None)
        if strange is not None:
            raise _refusal(f"there is no gateway {strange}; ask for the metadata")


def _refusal(message: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
