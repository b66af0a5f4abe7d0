"""Version 3: topics, their partitions and their settings (Confluent REST API v3)."""

from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, Field, model_validator

from api import topic_changes
from api.client_topics import TopicDescription, describe_topic, describe_topics
from api.errors import error_responses
from api.requests import new_topic
from api.requests.access import Asked
from api.requests.envelope import Collection, Link, ListMetadata, ResourceMetadata, resource, url
from api.requests.new_topic import NewTopic
from api.requests.route_gateway import Here
from api.requests.strict import Listed, StrictBody, StrictRoute
from api.v3.clusters import ClusterId, TopicName
from coordinator.access.caller import Caller
from log_tables.cluster.acl import TOPIC_OPERATIONS, ResourceType
from log_tables.cluster.admin.topic_admin import change_config
from log_tables.cluster.config import TopicConfig
from log_tables.cluster.topic import is_internal
from log_tables.cluster.topic_settings import SETTINGS
from log_tables.errors import NotFound
from log_tables.units import plain

REPLICATION_FACTOR = 1
"""The value in all answers: lakelog keeps one copy, and the store replicates it."""

_AUTHORIZED = "Whether to list the operations that the caller may do on a topic."

Source = Literal["DYNAMIC_TOPIC_CONFIG", "DEFAULT_CONFIG"]

router = APIRouter(prefix="/v3/clusters/{cluster_id}/topics", tags=["v3 topics"], route_class=StrictRoute)


class TopicView(BaseModel):
    kind: str = "KafkaTopic"
    metadata: ResourceMetadata
    cluster_id: str
    topic_name: str
    is_internal: bool
    replication_factor: int = Field(description="Always 1: the store replicates.")
    partitions_count: int
    partitions: Link
    configs: Link
    location: str | None = Field(
        description="Where other programs read the topic as one Delta table, about a second behind."
    )
    authorized_operations: list[str] | None = Field(
        None, description="The operations that the caller may do on it, if that was asked for."
    )


class PartitionView(BaseModel):
    kind: str = "KafkaPartition"
    metadata: ResourceMetadata
    cluster_id: str
    topic_name: str
    partition_id: int


class PartitionsCount(StrictBody):
    partitions_count: int = Field(description="The new number of partitions; it can only grow.", examples=[8])


class ConfigView(BaseModel):
    kind: str = "KafkaTopicConfig"
    metadata: ResourceMetadata
    cluster_id: str
    topic_name: str
    name: str
    value: str
    is_default: bool
    is_read_only: bool = False
    is_sensitive: bool = False
    source: Source


class Alteration(StrictBody):
    name: str = Field(examples=["compression.type"])
    operation: Literal["SET", "DELETE"] = Field(
        "SET", description="SET changes the value; DELETE resets it to its default."
    )
    value: str | None = Field(None, description="The new value; only with SET.", examples=["lz4"])

    def counted_by(self) -> object:
        return None  # all are settings of one topic

    @model_validator(mode="after")
    def _set_has_a_value(self) -> "Alteration":
        if (self.operation == "SET") != (self.value is not None):
            raise ValueError("SET needs a value, and DELETE takes none")
        return self


class Alterations(StrictBody):
    data: Listed[Alteration] = Field(min_length=1)


@router.get(
    "",
    summary="List topics",
    responses=error_responses(404, 503),
)
def list_topics(
    here: Here,
    request: Request,
    cluster: ClusterId,
    asked: Asked,
    include_authorized_operations: Annotated[
        bool, Query(alias="includeAuthorizedOperations", description=_AUTHORIZED)
    ] = False,
) -> Collection[TopicView]:
    return Collection(
        kind="KafkaTopicList",
        metadata=ListMetadata(self=url(request, cluster, "topics")),
        data=[
            _topic_view(request, cluster, topic, asked if include_authorized_operations else None)
            for topic in describe_topics(here)
            if asked.describes(topic.name)
        ],
    )


@router.post(
    "",
    status_code=201,
    summary="Create a topic",
    responses=error_responses(400, 404, 422, 429, 503),
)
def create_topic(here: Here, asked: Asked, request: Request, cluster: ClusterId, new: NewTopic) -> TopicView:
    """400 with 40002 if the topic exists, or if its name or a setting is invalid."""
    return _topic_view(request, cluster, new_topic.create_topic(here, asked, new))


@router.get(
    "/{topic}",
    summary="Describe a topic",
    responses=error_responses(404),
)
def get_topic(
    here: Here,
    request: Request,
    cluster: ClusterId,
    topic: TopicName,
    asked: Asked,
    include_authorized_operations: Annotated[bool, Query(description=_AUTHORIZED)] = False,
) -> TopicView:
    found = describe_topic(here, topic)
    return _topic_view(request, cluster, found, asked if include_authorized_operations else None)


@router.patch(
    "/{topic}",
    summary="Add partitions",
    responses=error_responses(400, 404, 409, 422, 429, 503),
)
def add_partitions(
    here: Here,
    asked: Asked,
    request: Request,
    cluster: ClusterId,
    topic: TopicName,
    wanted: PartitionsCount,
) -> TopicView:
    """Records stay in their partitions. From now on, a key may belong to another partition."""
    grown = topic_changes.add_partitions(here, asked, topic, wanted.partitions_count)
    return _topic_view(request, cluster, grown)


@router.delete(
    "/{topic}",
    status_code=204,
    summary="Delete a topic",
    responses=error_responses(404, 409, 503),
)
def delete_topic(here: Here, asked: Asked, cluster: ClusterId, topic: TopicName) -> None:
    """The topic is gone at once. Its files are removed after the topic's `file.delete.delay.ms`."""
    topic_changes.delete_topic(here, asked, topic)


@router.get(
    "/{topic}/partitions",
    summary="List partitions",
    responses=error_responses(404),
)
def list_partitions(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName
) -> Collection[PartitionView]:
    found = describe_topic(here, topic)
    return Collection(
        kind="KafkaPartitionList",
        metadata=ListMetadata(self=url(request, cluster, "topics", topic, "partitions")),
        data=[_partition_view(request, cluster, topic, number) for number in range(found.partition_count)],
    )


@router.get(
    "/{topic}/partitions/{partition}",
    summary="Describe a partition",
    responses=error_responses(400, 404),
)
def get_partition(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName, partition: int
) -> PartitionView:
    describe_topic(here, topic).check(partition)
    return _partition_view(request, cluster, topic, partition)


def _topic_view(
    request: Request, cluster: str, topic: TopicDescription, asked: Caller | None = None
) -> TopicView:
    """With `asked`, what it may do is listed."""
    path = (cluster, "topics", topic.name)
    return TopicView(
        metadata=resource(request, *path, name=f"kafka={cluster}/topic={topic.name}"),
        cluster_id=cluster,
        topic_name=topic.name,
        is_internal=is_internal(topic.name),
        replication_factor=REPLICATION_FACTOR,
        partitions_count=topic.partition_count,
        partitions=Link(related=url(request, *path, "partitions")),
        configs=Link(related=url(request, *path, "configs")),
        location=topic.location,
        authorized_operations=None if asked is None else _operations(asked, topic.name),
    )


def _operations(asked: Caller, topic: str) -> list[str]:
    return [each for each in TOPIC_OPERATIONS if asked.allows(each, ResourceType.TOPIC, topic)]


def _partition_view(request: Request, cluster: str, topic: str, partition: int) -> PartitionView:
    path = (cluster, "topics", topic, "partitions", str(partition))
    name = f"kafka={cluster}/topic={topic}/partition={partition}"
    return PartitionView(
        metadata=resource(request, *path, name=name),
        cluster_id=cluster,
        topic_name=topic,
        partition_id=partition,
    )


@router.get("/{topic}/configs", summary="List a topic's settings", responses=error_responses(404))
def list_configs(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName
) -> Collection[ConfigView]:
    found = describe_topic(here, topic)
    return Collection(
        kind="KafkaTopicConfigList",
        metadata=ListMetadata(self=url(request, cluster, "topics", topic, "configs")),
        data=[_config_view(request, cluster, found, name) for name in SETTINGS],
    )


@router.get("/{topic}/configs/{name}", summary="Get a setting", responses=error_responses(404))
def get_config(
    here: Here,
    request: Request,
    cluster: ClusterId,
    topic: TopicName,
    name: Annotated[str, Path(examples=["compression.type"])],
) -> ConfigView:
    found = describe_topic(here, topic)
    if name not in SETTINGS:
        raise NotFound(
            f"there is no setting {name[:100]!r}; the settings of a topic are {', '.join(SETTINGS)}"
        )
    return _config_view(request, cluster, found, name)


@router.post(
    "/{topic}/configs:alter",
    status_code=204,
    summary="Alter settings, all or none",
    responses=error_responses(400, 404, 409, 422, 503),
)
def alter_configs(
    here: Here, asked: Asked, cluster: ClusterId, topic: TopicName, alterations: Alterations
) -> None:
    configs = {change.name: change.value and plain(change.name, change.value) for change in alterations.data}
    with asked.changing("AlterConfigs", ResourceType.TOPIC, topic, configs=configs):
        change = topic_changes.with_readable_source(asked, partial(TopicConfig.altered, changes=configs))
        change_config(here.cluster, topic, change)


def _config_view(request: Request, cluster: str, topic: TopicDescription, name: str) -> ConfigView:
    overridden = name in topic.config.overrides
    resource_name = f"kafka={cluster}/topic={topic.name}/config={name}"
    path = (cluster, "topics", topic.name, "configs", name)
    return ConfigView(
        metadata=resource(request, *path, name=resource_name),
        cluster_id=cluster,
        topic_name=topic.name,
        name=name,
        value=topic.config[name],
        is_default=not overridden,
        source="DYNAMIC_TOPIC_CONFIG" if overridden else "DEFAULT_CONFIG",
    )
