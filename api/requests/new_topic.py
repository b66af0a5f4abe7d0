"""The body by which versions 2 and 3 create a topic."""

from pydantic import Field

from api import topic_changes
from api.client_topics import TopicDescription
from api.gateway import Gateway
from api.requests.strict import Listed, StrictBody
from coordinator.access.caller import Caller
from log_tables.units import plain


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
    """Create it; blocking. Raises as `topic_changes.create_topic`."""
    count = here.settings.num_partitions if new.partitions_count is None else new.partitions_count
    configs = {entry.name: plain(entry.name, entry.value) for entry in new.configs}
    return topic_changes.create_topic(here, asked, new.topic_name, count, configs)
