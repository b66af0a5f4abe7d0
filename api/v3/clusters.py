"""Version 3: the cluster, and the gateways on its root as brokers (Confluent REST API v3)."""

from collections.abc import Mapping
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Path, Request
from pydantic import BaseModel, Field

from api.errors import error_responses
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.envelope import Collection, Link, ListMetadata, ResourceMetadata, resource, url
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.metadata_log import BrokerRecord
from log_tables.errors import NotFound

router = APIRouter(prefix="/v3/clusters", tags=["v3 clusters"], route_class=StrictRoute)


async def known_cluster(here: Here, cluster_id: Annotated[str, Path()]) -> str:
    """The id in the path. Raises NotFound if it is not that of this cluster."""
    if cluster_id != here.cluster.cluster_id:
        raise NotFound(f"there is no cluster {cluster_id[:100]!r} here; use {here.cluster.cluster_id}")
    return cluster_id


ClusterId = Annotated[str, Depends(known_cluster)]
TopicName = Annotated[str, Path(examples=["flights"])]


class ClusterView(BaseModel):
    kind: str = "KafkaCluster"
    metadata: ResourceMetadata
    cluster_id: str
    topics: Link
    location: str | None = Field(
        description="The root of the tables; null for a caller that may not DESCRIBE the cluster."
    )


class BrokerView(BaseModel):
    kind: str = "KafkaBroker"
    metadata: ResourceMetadata
    cluster_id: str
    broker_id: int
    host: str | None = Field(description="The host in `url`.")
    port: int | None = Field(description="The port in `url`; null where it names none.")
    rack: str | None = Field(description="Where it stands (`broker_rack`); null if nobody has said.")
    url: str = Field(description="The URL at which other gateways reach it.")
    since: int = Field(description="The time of its start, in milliseconds since 1970 UTC.")
    alive: bool = Field(description="Whether it is alive, as this gateway sees it.")
    leads: Mapping[str, list[int]] = Field(
        description="The partitions that it leads, by topic; a moment old at most."
    )


@router.get("", summary="List clusters")
def list_clusters(here: Here, asked: Asked, request: Request) -> Collection[ClusterView]:
    return Collection(
        kind="KafkaClusterList",
        metadata=ListMetadata(self=url(request)),
        data=[_cluster_view(here, asked, request)],
    )


@router.get("/{cluster_id}", summary="Describe the cluster", responses=error_responses(404))
def get_cluster(here: Here, asked: Asked, request: Request, cluster: ClusterId) -> ClusterView:
    return _cluster_view(here, asked, request)


@router.get("/{cluster_id}/brokers", summary="List brokers", responses=error_responses(404, 503))
def list_brokers(here: Here, request: Request, cluster: ClusterId) -> Collection[BrokerView]:
    """All gateways that are registered. A gateway that stops in order is removed. Every gateway answers for
    every partition: it forwards a request to the partition's leader.
    """
    here.cluster.refresh()
    listed = sorted(here.brokers.all().values(), key=lambda record: record.id)
    return Collection(
        kind="KafkaBrokerList",
        metadata=ListMetadata(self=url(request, cluster, "brokers")),
        data=[_view(here, request, cluster, record) for record in listed],
    )


@router.get(
    "/{cluster_id}/brokers/{broker}", summary="Describe a broker", responses=error_responses(400, 404, 503)
)
def get_broker(
    here: Here, request: Request, cluster: ClusterId, broker: Annotated[int, Path(examples=[1])]
) -> BrokerView:
    here.cluster.refresh()
    record = here.brokers.all().get(broker)
    if record is None:
        raise NotFound(f"there is no broker {broker}; list them at {url(request, cluster, 'brokers')}")
    return _view(here, request, cluster, record)


def _cluster_view(here: Gateway, asked: Caller, request: Request) -> ClusterView:
    cluster = here.cluster.cluster_id
    described = asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    return ClusterView(
        metadata=resource(request, cluster, name=f"kafka={cluster}"),
        cluster_id=cluster,
        topics=Link(related=url(request, cluster, "topics")),
        location=here.cluster.store.url if described else None,
    )


def _view(here: Gateway, request: Request, cluster: str, record: BrokerRecord) -> BrokerView:
    address = urlsplit(record.url)
    return BrokerView(
        metadata=resource(
            request, cluster, "brokers", str(record.id), name=f"kafka={cluster}/broker={record.id}"
        ),
        cluster_id=cluster,
        broker_id=record.id,
        host=address.hostname,
        port=address.port,
        rack=record.rack or None,
        url=record.url,
        since=record.since_ms,
        alive=record.id in here.brokers.living(),
        leads=record.leads,
    )
