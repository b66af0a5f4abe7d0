"""A request of each API of Kafka's protocol that names a topic and a group, filled by the names of fields."""

from typing import Any

from api.kafka.protocol.apis import FETCH, METADATA, OFFSET_COMMIT, OFFSET_FETCH, PRODUCE
from api.kafka.protocol.messages.access import OpData
from api.kafka.protocol.notation import Field, Message, Struct, fields_of
from tests.kit.record_batches import Sent, kafka_python_batch

TOPIC_FIELDS = frozenset(
    ("name", "topic", "topic_name", "resource_name", "topic_names", "subscribed_topic_names")
)
GROUP_FIELDS = frozenset(("group_id", "key", "coordinator_keys", "groups", "group_ids", "groups_names"))
TRANSACTIONAL_ID = "hidden-id-1"
"""In requests that are about a transaction; others are without one."""

TOPIC_RESOURCE = 2
"""The type of a resource that is a topic, in requests about settings."""

_VALUES: dict[str, Any] = {
    "acks": -1,
    "timeout_ms": 10_000,
    "resource_type": TOPIC_RESOURCE,
    "num_partitions": 1,
    "replication_factor": -1,
    "count": 9,
    "max_bytes": 1_000,
    "partition_max_bytes": 1_000,
    "producer_id": -1,
    "producer_epoch": -1,
    "timestamp": -2,
    "offset": 0,
    "committed_offset": 0,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 10_000,
    "protocol_type": "consumer",
    "protocol_name": "range",
    "response_partition_limit": 10,
    "resource_type_filter": TOPIC_RESOURCE,
    "operation": 3,
    "permission_type": 3,
    "principal": "User:named",
    "host": "*",
    "entity_type": "user",
    "entity_name": "named",
    "iterations": 4_096,
    "salt": bytes(16),
    "salted_password": bytes(32),
    "mechanism": 1,
    "transactional_ids": TRANSACTIONAL_ID,
}
"""By the name of a field, unless its default does."""

_OMITTED = frozenset(
    (
        "assignments",
        "configs",
        "configuration_keys",
        "cursor",
        "forgotten_topics_data",
        "group_instance_id",
        "instance_id",
        "resource_types",
        "topic_id",
        "validate_only",
    )
)
"""Fields that are left at their defaults."""

VERSIONS = {PRODUCE: 12, FETCH: 12, METADATA: 12, OFFSET_COMMIT: 9, OFFSET_FETCH: 9}
"""The newest ones that name topics; others are asked in the newest that there is."""


def request_of(request: type[Message], topic: str, group: str) -> Message:
    """A request of this type about `topic` and `group`, as far as it has fields for them."""
    made: Message = _filled(request, topic, group)
    return made


def _filled(struct: type[Struct], topic: str, group: str) -> Any:
    values: dict[str, Any] = {}
    if issubclass(struct, OpData):
        return OpData(key="producer_byte_rate", value=1e6)
    for field in fields_of(struct):
        if field.name in _OMITTED:
            continue
        if field.name == "transactional_id":
            values[field.name] = None if field.nullable else TRANSACTIONAL_ID
            continue
        value = _value(struct.__name__, field, topic, group)
        if value is not None:
            values[field.name] = [value] if field.repeated else value
    return struct(**values)


def _value(struct: str, field: Field, topic: str, group: str) -> Any:
    if not isinstance(field.element, str):
        return _filled(field.element, topic, group)
    if field.element == "records":
        return kafka_python_batch([Sent(None, b"v", 1)])
    if field.element == "string":
        if field.name in TOPIC_FIELDS and "Protocol" not in struct:
            return _named(struct, field, topic, group)
        if field.name in GROUP_FIELDS:
            return group
    if field.name in ("partition_indexes", "partitions"):
        return 0
    value = _VALUES.get(field.name)
    is_of_its_kind = isinstance(value, str) == (field.element == "string")  # mechanisms have names or numbers
    return value if is_of_its_kind else None


def _named(struct: str, field: Field, topic: str, group: str) -> str:
    """The name of a topic, but in a setting, which has one, too."""
    if struct.endswith(("CreatableTopicConfig", "AlterableConfig")):
        return "retention.ms"
    return group if struct.startswith("DescribeGroups") else topic
