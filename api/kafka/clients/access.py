"""The rules of access: for each API the operations that its principal needs, each on resources of a type.

The handlers ask for them (`Client.check`), for each resource that a request names. `LISTED` says that an
answer leaves out what its principal may not describe. An API that is not in the table cannot be offered.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from api.kafka.protocol import apis
from log_tables.cluster.acl import Operation, ResourceType


class Rule(NamedTuple):
    """One of `needs` refuses a request, or what it is about. `listed` are resources that are left out."""

    needs: tuple[tuple[Operation, ResourceType], ...] = ()
    listed: tuple[ResourceType, ...] = ()
    is_public: bool = False
    """Whether it is answered before anybody is authenticated."""

    is_counted: bool = True
    """Whether it counts as under way for `principal_requests_max`. Members of a group wait for one another,
    so none of their requests may wait for a place of those."""


def _topic(*operations: Operation) -> tuple[tuple[Operation, ResourceType], ...]:
    return tuple((operation, ResourceType.TOPIC) for operation in operations)


def _group(operation: Operation) -> tuple[tuple[Operation, ResourceType], ...]:
    return ((operation, ResourceType.GROUP),)


def _cluster(operation: Operation) -> tuple[tuple[Operation, ResourceType], ...]:
    return ((operation, ResourceType.CLUSTER),)


_PUBLIC = Rule(is_public=True, is_counted=False)
_MEMBERSHIP = Rule(_group(Operation.READ), is_counted=False)

RULES: Final[Mapping[int, Rule]] = {
    apis.PRODUCE: Rule(_topic(Operation.WRITE)),
    apis.FETCH: Rule(_topic(Operation.READ)),
    apis.LIST_OFFSETS: Rule(_topic(Operation.DESCRIBE)),
    # CREATE, on the cluster or the topic, where the request makes one.
    apis.METADATA: Rule(_topic(Operation.DESCRIBE, Operation.CREATE), (ResourceType.TOPIC,)),
    apis.OFFSET_COMMIT: Rule((*_group(Operation.READ), *_topic(Operation.READ))),
    apis.OFFSET_FETCH: Rule(
        (*_group(Operation.DESCRIBE), *_topic(Operation.DESCRIBE)), (ResourceType.TOPIC,)
    ),
    apis.FIND_COORDINATOR: Rule(_group(Operation.DESCRIBE)),
    apis.JOIN_GROUP: _MEMBERSHIP,
    apis.HEARTBEAT: _MEMBERSHIP,
    apis.LEAVE_GROUP: _MEMBERSHIP,
    apis.SYNC_GROUP: _MEMBERSHIP,
    apis.DESCRIBE_GROUPS: Rule(_group(Operation.DESCRIBE)),
    apis.LIST_GROUPS: Rule(listed=(ResourceType.GROUP,)),
    apis.SASL_HANDSHAKE: _PUBLIC,
    apis.API_VERSIONS: _PUBLIC,
    apis.CREATE_TOPICS: Rule(_topic(Operation.CREATE)),  # or on the cluster
    apis.DELETE_TOPICS: Rule(_topic(Operation.DELETE)),
    apis.DELETE_RECORDS: Rule(_topic(Operation.DELETE)),
    # Or WRITE on any topic (KIP-679).
    apis.INIT_PRODUCER_ID: Rule(_cluster(Operation.IDEMPOTENT_WRITE)),
    apis.DESCRIBE_CONFIGS: Rule((*_topic(Operation.DESCRIBE_CONFIGS), *_cluster(Operation.DESCRIBE_CONFIGS))),
    apis.ALTER_CONFIGS: Rule((*_topic(Operation.ALTER_CONFIGS), *_cluster(Operation.ALTER_CONFIGS))),
    apis.DESCRIBE_LOG_DIRS: Rule(_cluster(Operation.DESCRIBE)),
    apis.SASL_AUTHENTICATE: _PUBLIC,
    apis.CREATE_PARTITIONS: Rule(_topic(Operation.ALTER)),
    apis.DELETE_GROUPS: Rule(_group(Operation.DELETE)),
    apis.INCREMENTAL_ALTER_CONFIGS: Rule(
        (*_topic(Operation.ALTER_CONFIGS), *_cluster(Operation.ALTER_CONFIGS))
    ),
    apis.LIST_PARTITION_REASSIGNMENTS: Rule(_cluster(Operation.DESCRIBE)),
    apis.OFFSET_DELETE: Rule((*_group(Operation.DELETE), *_topic(Operation.READ))),
    apis.DESCRIBE_CLUSTER: Rule(),  # the gateways, which Metadata has, too
    apis.CONSUMER_GROUP_HEARTBEAT: _MEMBERSHIP,
    apis.LIST_CONFIG_RESOURCES: Rule(_cluster(Operation.DESCRIBE_CONFIGS)),
    apis.DESCRIBE_TOPIC_PARTITIONS: Rule(_topic(Operation.DESCRIBE), (ResourceType.TOPIC,)),
}
"""By the key of the API, as Kafka's brokers ask (`kafka.server.KafkaApis`)."""


def rule_of(api_key: int) -> Rule:
    """The rule of an API. Raises LookupError for one that has none."""
    return RULES[api_key]
