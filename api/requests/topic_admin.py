"""Creating topics and adding partitions, as versions 2 and 3 do it."""

from pydantic import Field

from api import client_topics
from api.client_topics import TopicDescription, check_partitions, describe_topic
from api.gateway import Gateway
from api.requests.strict_body import Listed, StrictBody
from coordinator.access.caller import Caller
from log_tables.cluster.acl import ResourceType
from log_tables.cluster.admin import topic_admin
from log_tables.cluster.topic import check_writable


class ConfigEntry(StrictBody):
    """A setting of a topic and its value."""

    name: str = Field(examples=["compression.type"])
    value: str = Field(examples=["zstd"])

    def counted_by(self) -> object:
        return None  # all are settings of one topic


class NewTopic(StrictBody):
    """A topic to create."""

    topic_name: str = Field(
        description="1 to 249 letters, digits, dots, underscores and hyphens.", examples=["flights"]
    )
    partitions_count: int | None = Field(
        None, description="How many partitions; by default the gateway's num_partitions.", examples=[4]
    )
    replication_factor: int | None = Field(
        None, ge=1, description="Accepted and without effect: the store keeps the copies."
    )
    configs: Listed[ConfigEntry] = Field(
        default_factory=list, description="Settings that differ from their defaults."
    )


def create_topic(here: Gateway, asked: Caller, new: NewTopic) -> TopicDescription:
    """Create a topic; blocking.

    Raises AuthorizationFailed, TopicExists, InvalidTopicName, InvalidConfig, InvalidArgument, QuotaReached.
    """
    asked.check_create(new.topic_name)
    count = here.settings.num_partitions if new.partitions_count is None else new.partitions_count
    configs = {entry.name: entry.value for entry in new.configs}
    facts = {"partitions": count, "configs": configs}
    with asked.changing("CreateTopics", ResourceType.TOPIC, new.topic_name, **facts):
        check_partitions(here, count)
        asked.charge_changes(count)
        return client_topics.create_topic(here, new.topic_name, count, configs)


def add_partitions(here: Gateway, asked: Caller, topic_name: str, count: int) -> TopicDescription:
    """Grow a topic to `count` partitions; blocking. Raises UnknownTopic, InvalidArgument, QuotaReached."""
    with asked.changing("CreatePartitions", ResourceType.TOPIC, topic_name, partitions=count):
        more = count - describe_topic(here, topic_name).partition_count
        check_partitions(here, more)
        asked.charge_changes(more)
        return client_topics.add_partitions(here, topic_name, count)


def delete_topic(here: Gateway, asked: Caller, name: str) -> None:
    """Delete a topic; blocking. Raises UnknownTopic, InvalidTopicName, QuotaReached."""
    check_writable(name)
    asked.charge_changes(describe_topic(here, name).partition_count)
    topic_admin.delete_topic(here.cluster, name)
