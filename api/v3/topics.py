"""v3: clusters, topics and their partitions (Confluent REST API v3)."""

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from api.errors import error_responses
from api.gateway import Gateway, Here
from api.requests.client_topics import Description, describe, descriptions
from api.requests.envelope import Collection, Link, ListMetadata, ResourceMetadata, resource, url
from api.requests.strict import StrictRoute
from api.requests.strict_body import Listed, StrictBody
from api.v3.paths import ClusterId, TopicName
from ingest.buffer import RETRY_AFTER_S
from log_tables.cluster.topic import Topic, is_internal
from log_tables.errors import QuotaReached
from log_tables.limits import PARTITIONS_MAX

REPLICATION_FACTOR = 1
"""What answers say, whatever was asked for: lakelog keeps one copy and the storage replicates."""


NO_AUTHORIZATION = "Accepted and without effect: everybody may do everything."


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
    replication_factor: int = Field(description="Always 1: the storage replicates.")
    partitions_count: int
    partitions: Link
    configs: Link


class PartitionView(BaseModel):
    kind: str = "KafkaPartition"
    metadata: ResourceMetadata
    cluster_id: str
    topic_name: str
    partition_id: int


class ConfigEntry(StrictBody):
    name: str = Field(examples=["compression.type"])
    value: str = Field(examples=["zstd"])


class NewTopic(StrictBody):
    topic_name: str = Field(examples=["flights"])
    partitions_count: int | None = Field(
        None, description="The gateway's num_partitions when absent.", examples=[4]
    )
    replication_factor: int | None = Field(
        None, ge=1, description="Accepted and without effect: the storage replicates."
    )
    configs: Listed[ConfigEntry] = Field(default_factory=list)


class PartitionsCount(StrictBody):
    partitions_count: int = Field(description="The new total; it can only grow.", examples=[8])


@router.get("", summary="The cluster, as a list of one", tags=["v3 clusters"])
def list_clusters(here: Here, request: Request) -> Collection[ClusterView]:
    return Collection(
        kind="KafkaClusterList",
        metadata=ListMetadata(self=url(request)),
        data=[_cluster_view(request, here.cluster.cluster_id)],
    )


@router.get("/{cluster_id}", summary="The cluster", tags=["v3 clusters"], responses=error_responses(404))
def get_cluster(request: Request, cluster: ClusterId) -> ClusterView:
    return _cluster_view(request, cluster)


@router.get(
    "/{cluster_id}/topics",
    summary="All topics",
    tags=["v3 topics"],
    responses=error_responses(404, 503),
)
def list_topics(
    here: Here,
    request: Request,
    cluster: ClusterId,
    include_authorized_operations: Annotated[
        str, Query(alias="includeAuthorizedOperations", description=NO_AUTHORIZATION)
    ] = "false",
) -> Collection[TopicView]:
    return Collection(
        kind="KafkaTopicList",
        metadata=ListMetadata(self=url(request, cluster, "topics")),
        data=[_topic_view(request, cluster, topic) for topic in descriptions(here)],
    )


@router.post(
    "/{cluster_id}/topics",
    status_code=201,
    summary="Create a topic",
    tags=["v3 topics"],
    responses=error_responses(400, 404, 422, 429, 503),
)
def create_topic(here: Here, request: Request, cluster: ClusterId, new: NewTopic) -> TopicView:
    """400 with 40002 when there is such a topic, or when its name or a setting is not possible."""
    count = here.settings.num_partitions if new.partitions_count is None else new.partitions_count
    configs = {entry.name: entry.value for entry in new.configs}
    _check_quota(here, count)
    return _topic_view(request, cluster, here.cluster.create_topic(new.topic_name, count, configs))


@router.get(
    "/{cluster_id}/topics/{topic}",
    summary="One topic",
    tags=["v3 topics"],
    responses=error_responses(404),
)
def get_topic(
    here: Here,
    request: Request,
    cluster: ClusterId,
    topic: TopicName,
    include_authorized_operations: Annotated[str, Query(description=NO_AUTHORIZATION)] = "false",
) -> TopicView:
    return _topic_view(request, cluster, describe(here, topic))


@router.patch(
    "/{cluster_id}/topics/{topic}",
    summary="Add partitions",
    tags=["v3 topics"],
    responses=error_responses(400, 404, 422, 429, 503),
)
def add_partitions(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName, wanted: PartitionsCount
) -> TopicView:
    """Records stay where they are; from here on, keys may belong to other partitions."""
    _check_quota(here, wanted.partitions_count - describe(here, topic).partition_count)
    grown = here.cluster.add_partitions(topic, wanted.partitions_count)
    return _topic_view(request, cluster, grown)


def _check_quota(here: Gateway, more: int) -> None:
    """Raise QuotaReached when there may not be so many `more` partitions, though a topic may have them."""
    there, most = sum(topic.partition_count for topic in descriptions(here)), here.settings.partitions_max
    if more <= PARTITIONS_MAX and there + more > most:
        raise QuotaReached(
            f"there are {there} partitions, and {more} more are more than partitions_max allows, {most}; "
            "delete topics first",
            retry_after_s=RETRY_AFTER_S,
        )


@router.delete(
    "/{cluster_id}/topics/{topic}",
    status_code=204,
    summary="Delete a topic",
    tags=["v3 topics"],
    responses=error_responses(404, 503),
)
def delete_topic(here: Here, cluster: ClusterId, topic: TopicName) -> None:
    """It is gone at once; its files go after the topic's `file.delete.delay.ms`."""
    here.cluster.delete_topic(topic)


@router.get(
    "/{cluster_id}/topics/{topic}/partitions",
    summary="Its partitions",
    tags=["v3 topics"],
    responses=error_responses(404),
)
def list_partitions(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName
) -> Collection[PartitionView]:
    found = describe(here, topic)
    return Collection(
        kind="KafkaPartitionList",
        metadata=ListMetadata(self=url(request, cluster, "topics", topic, "partitions")),
        data=[_partition_view(request, cluster, topic, index) for index in range(found.partition_count)],
    )


@router.get(
    "/{cluster_id}/topics/{topic}/partitions/{partition}",
    summary="One partition",
    tags=["v3 topics"],
    responses=error_responses(400, 404),
)
def get_partition(
    here: Here, request: Request, cluster: ClusterId, topic: TopicName, partition: int
) -> PartitionView:
    describe(here, topic).check(partition)
    return _partition_view(request, cluster, topic, partition)


def _cluster_view(request: Request, cluster: str) -> ClusterView:
    return ClusterView(
        metadata=resource(request, cluster, name=f"kafka={cluster}"),
        cluster_id=cluster,
        topics=Link(related=url(request, cluster, "topics")),
    )


def _topic_view(request: Request, cluster: str, topic: Topic | Description) -> TopicView:
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
    )


def _partition_view(request: Request, cluster: str, topic: str, partition: int) -> PartitionView:
    path = (cluster, "topics", topic, "partitions", str(partition))
    name = f"kafka={cluster}/topic={topic}/partition={partition}"
    return PartitionView(
        metadata=resource(request, *path, name=name),
        cluster_id=cluster,
        topic_name=topic,
        partition_id=partition,
    )
