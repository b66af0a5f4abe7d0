"""The operations that a client may do on a resource, as the bits of a number (KIP-430)."""

from collections.abc import Mapping

from api.kafka.clients.client import Client
from log_tables.cluster.acl import CLUSTER_NAME, TOPIC_OPERATIONS, Operation, ResourceType

NOT_ASKED = -(2**31)
"""Nobody has asked for them."""

_BITS: Mapping[Operation, int] = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
"""By Kafka's codes (org.apache.kafka.common.acl.AclOperation)."""

_OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}


def authorized_operations(
    client: Client, kind: ResourceType, name: str = CLUSTER_NAME, *, asked: bool = True
) -> int:
    """The operations that `client` may do, as bits, or NOT_ASKED."""
    if not asked:
        return NOT_ASKED
    return sum(1 << _BITS[each] for each in _OPERATIONS[kind] if client.caller.allows(each, kind, name))
