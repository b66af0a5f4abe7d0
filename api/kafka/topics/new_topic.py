"""Making a topic for a client: one that it asks for by name, or by CreateTopics."""

from collections.abc import Mapping

from api.client_topics import TopicDescription, check_partitions, create_topic, topic_description
from api.kafka.clients.changes import in_thread
from api.kafka.clients.client import Client
from api.kafka.clients.door import Door
from api.kafka.clients.errors import ErrorCode, Refusal
from log_tables.cluster.acl import ResourceType
from log_tables.cluster.config import KAFKA_SETTINGS
from log_tables.errors import QuotaReached, TopicExists


def check_count(door: Door, more: int) -> None:
    """Raise Refusal when `more` partitions would exceed `partitions_max`; blocking. It is no quota, which
    Kafka's clients would wait for.
    """
    try:
        check_partitions(door.here, more)
    except QuotaReached as error:
        raise Refusal(ErrorCode.POLICY_VIOLATION, error.message) from None


def make_topic(
    door: Door, client: Client, name: str, partitions: int, configs: Mapping[str, str]
) -> TopicDescription:
    """A new topic, which `client` makes; blocking.

    Raises AuthorizationFailed, TopicExists, InvalidTopicName, InvalidConfig, InvalidArgument, QuotaReached,
    Refusal.
    """
    client.caller.check_create(name)
    facts = {"partitions": partitions, "configs": dict(configs)}
    with client.caller.changing("CreateTopics", ResourceType.TOPIC, name, **facts):
        check_count(door, partitions)
        client.caller.charge_changes(partitions)
        return create_topic(door.here, name, partitions, configs, KAFKA_SETTINGS)


async def asked_topic(door: Door, client: Client, name: str) -> TopicDescription:
    """The topic that a client has asked for by name, made with the settings of the gateway. Raises as
    `make_topic`.
    """
    count = door.here.settings.num_partitions
    try:
        return await in_thread(door, lambda: make_topic(door, client, name, count, {}))
    except TopicExists:  # somebody else has asked for it, too
        return await topic_description(door.here, name)
