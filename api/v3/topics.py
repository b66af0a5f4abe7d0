"""Version 3: clusters, topics and their partitions (Confluent REST API v3)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from api import topic_changes
from api.client_topics import TopicDescription, describe_topic, describe_topics
from api.errors import error_responses
from api.requests import new_topic
from api.requests.access import Asked
from api.requests.envelope import Collection, Link, ListMetadata, ResourceMetadata, resource, url
from api.requests.new_topic import NewTopic
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.requests.strict_body import StrictBody
from api.v3.paths import ClusterId, TopicName
from coordinator.access.caller import Caller
from log_tables.cluster.acl import TOPIC_OPERATIONS, ResourceType
from log_tables.cluster.topic import is_internal

REPLICATION_FACTOR = 1
"""The value in all answers: lakelog keeps one copy, and the store replicates it."""


_AUTHORIZED = "Whether to list the operations that the caller may do on a topic."


router = APIRouter(prefix="/v3/clusters", route_class=StrictRoute)


class ClusterView(BaseModel):
    kind: str = "KafkaCluster"
    metadata: ResourceMetadata
    cluster_id: str
    topics: Link


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


@router.get("", summary="List clusters", tags=["v3 clusters"])
def list_clusters(here: Here, request: Request) -> Collection[ClusterView]:
    return Collection(
        kind="KafkaClusterList",
        metadata=ListMetadata(self=url(request)),
        data=[_cluster_view(request, here.cluster.cluster_id)],
    )


@router.get(
    "/{cluster_id}", summary="Describe the cluster", tags=["v3 clusters"], responses=error_responses(404)
)
def get_cluster(request: Request, cluster: ClusterId) -> ClusterView:
    return _cluster_view(request, cluster)


@router.get(
    "/{cluster_id}/topics",
    summary="List topics",
    tags=["v3 topics"],
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
    "/{cluster_id}/topics",
    status_code=201,
    summary="Create a topic",
    tags=["v3 topics"],
    responses=error_responses(400, 404, 422, 429, 503),
)
def create_topic(here: Here, asked: Asked, request: Request, cluster: ClusterId, new: NewTopic) -> TopicView:
    """400 with 40002 if the topic exists, or if its name or a setting is invalid."""
    return _topic_view(request, cluster, new_topic.create_topic(here, asked, new))


@router.get(
    "/{cluster_id}/topics/{topic}",
    summary="Describe a topic",
    tags=["v3 topics"],
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
    "/{cluster_id}/topics/{topic}",
    summary="Add partitions",
    tags=["v3 topics"],
    responses=error_responses(400, 404, 422, 429, 503),
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
    "/{cluster_id}/topics/{topic}",
    status_code=204,
    summary="Delete a topic",
    tags=["v3 topics"],
    responses=error_responses(404, 503),
)
def delete_topic(here: Here, asked: Asked, cluster: ClusterId, topic: TopicName) -> None:
    """The topic is gone at once. Its files are removed after the topic's `file.delete.delay.ms`."""
    topic_changes.delete_topic(here, asked, topic)


@router.get(
    "/{cluster_id}/topics/{topic}/partitions",
    summary="List partitions",
    tags=["v3 topics"],
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
    "/{cluster_id}/topics/{topic}/partitions/{partition}",
    summary="Describe a partition",
    tags=["v3 topics"],
    responses=error_responses(400, 404),
)
def get_partition(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName, partition: int
) -> PartitionView:
    describe_topic(here, topic).check(partition)
    return _partition_view(request, cluster, topic, partition)


def _cluster_view(request: Request, cluster: str) -> ClusterView:
    return ClusterView(
        metadata=resource(request, cluster, name=f"kafka={cluster}"),
        cluster_id=cluster,
        topics=Link(related=url(request, cluster, "topics")),
    )


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
