"""Version 3: access control lists (Confluent REST API v3)."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, Field

from api import access_changes
from api.errors import error_responses
from api.requests.access import Asked
from api.requests.envelope import Collection, ListMetadata, url
from api.requests.route_gateway import Here
from api.requests.strict import Listed, StrictBody, StrictRoute
from api.v3.clusters import ClusterId
from coordinator.access.acl_argument import acl_from, filter_from
from log_tables.cluster.acl import Acl
from log_tables.errors import InvalidArgument

router = APIRouter(prefix="/v3/clusters/{cluster_id}", tags=["v3 acls"], route_class=StrictRoute)

BATCH_MAX_ACLS = 1_000
"""ACLs that one request creates: they are one record batch of the metadata log."""

_SAID_TO_DELETE = ("resource_type", "pattern_type", "operation", "permission")


class AclView(BaseModel):
    kind: str = "KafkaAcl"
    metadata: ListMetadata
    cluster_id: str
    resource_type: str
    resource_name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str


class DeletedAcls(BaseModel):
    data: list[AclView]


class NewAcl(StrictBody):
    """An ACL to create."""

    resource_type: str = Field(description="TOPIC, GROUP, CLUSTER or TRANSACTIONAL_ID.", examples=["TOPIC"])
    resource_name: str = Field(
        description="A name, a prefix, or `*`; the cluster is `kafka-cluster`.", examples=["flights"]
    )
    pattern_type: str = Field("LITERAL", description="LITERAL or PREFIXED.")
    principal: str = Field(description="User:NAME, Group:NAME, or `User:*`.", examples=["User:ann"])
    host: str = Field("*", description="An IP address, a network such as 10.0.0.0/8, or `*` for any.")
    operation: str = Field(description="Of Kafka's, such as READ; ALL is all of them.", examples=["READ"])
    permission: str = Field(description="ALLOW or DENY, which beats ALLOW.", examples=["ALLOW"])


class NewAcls(StrictBody):
    data: Listed[NewAcl] = Field(min_length=1, max_length=BATCH_MAX_ACLS)


@dataclass(frozen=True, slots=True)
class _Filter:
    resource_type: Annotated[str | None, Query(description="By default ANY.")] = None
    resource_name: str | None = None
    pattern_type: Annotated[
        str | None,
        Query(description="ANY by default; MATCH is every pattern that matches the name of a resource."),
    ] = None
    principal: str | None = None
    host: str | None = None
    operation: Annotated[str | None, Query(description="By default ANY.")] = None
    permission: Annotated[str | None, Query(description="By default ANY.")] = None


async def _named(fields: Annotated[_Filter, Depends()]) -> Mapping[str, str | None]:
    return asdict(fields)


Named = Annotated[Mapping[str, str | None], Depends(_named)]
"""The fields of a filter, in the query."""


@router.get("/acls", summary="List ACLs", responses=error_responses(400, 404, 503))
def list_acls(
    here: Here, asked: Asked, request: Request, cluster: ClusterId, named: Named
) -> Collection[AclView]:
    """List the ACLs that match all parameters; one that is left out matches any."""
    return Collection(
        kind="KafkaAclList",
        metadata=ListMetadata(self=url(request, cluster, "acls")),
        data=_views(request, cluster, access_changes.find_acls(here, asked, filter_from(named).matches)),
    )


@router.post(
    "/acls",
    status_code=201,
    summary="Create an ACL",
    response_class=Response,
    responses=error_responses(400, 404, 422, 503),
)
def create_acl(here: Here, asked: Asked, cluster: ClusterId, new: NewAcl) -> None:
    """There is one of each: to create it again changes nothing. Every gateway goes by it within 2 s."""
    access_changes.create_acls(here, asked, [acl_from(new.model_dump())])


@router.post(
    "/acls:batch",
    status_code=201,
    summary="Create ACLs, all or none",
    response_class=Response,
    responses=error_responses(400, 404, 422, 503),
)
def create_acls(here: Here, asked: Asked, cluster: ClusterId, new: NewAcls) -> None:
    """In one commit."""
    access_changes.create_acls(here, asked, [acl_from(each.model_dump()) for each in new.data])


@router.delete("/acls", summary="Delete ACLs", responses=error_responses(400, 404, 503))
def delete_acls(here: Here, asked: Asked, request: Request, cluster: ClusterId, named: Named) -> DeletedAcls:
    """Delete the ACLs that match all parameters, in one commit. The type of the resource, of the pattern, the
    operation and the permission have to be said, though each may be ANY.
    """
    for name in _SAID_TO_DELETE:
        if named[name] is None:
            raise InvalidArgument(f"say of which {name} the ACLs to delete are; ANY is any")
    gone = access_changes.delete_acls(here, asked, filter_from(named).matches)
    return DeletedAcls(data=_views(request, cluster, gone))


def _views(request: Request, cluster: str, acls: Iterable[Acl]) -> list[AclView]:
    metadata = ListMetadata(self=url(request, cluster, "acls"))
    return [AclView(metadata=metadata, cluster_id=cluster, **msgspec.structs.asdict(acl)) for acl in acls]
