"""The media types and JSON envelopes of v2 and v3."""

from typing import Any, Generic, TypeVar

import msgspec
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from api.requests.route_gateway import gateway

V2_MEDIA_TYPE = "application/vnd.kafka.v2+json"

Item = TypeVar("Item")


class V2Response(Response):
    """JSON in the envelope of the REST Proxy's v2."""

    media_type = V2_MEDIA_TYPE

    def render(self, content: Any) -> bytes:
        return msgspec.json.encode(content)


class Link(BaseModel):
    """The URL of a related resource."""

    related: str


class ResourceMetadata(BaseModel):
    """The URL of a v3 resource, and its name."""

    self_: str = Field(alias="self", serialization_alias="self")
    resource_name: str


class ListMetadata(BaseModel):
    """The URL of a v3 collection. `next` is null: every collection comes in one page."""

    self_: str = Field(alias="self", serialization_alias="self")
    next: str | None = None


class Collection(BaseModel, Generic[Item]):
    """A v3 collection."""

    kind: str
    metadata: ListMetadata
    data: list[Item]


def url(request: Request, *path: str) -> str:
    """The URL of a v3 resource, under the advertised URL."""
    base = gateway(request).settings.advertised_url.rstrip("/")
    return "/".join((base, "v3", "clusters", *path))


def resource(request: Request, *path: str, name: str) -> ResourceMetadata:
    """The metadata of the v3 resource at `path`, whose `crn` is `name`."""
    return ResourceMetadata(self=url(request, *path), resource_name=f"crn:///{name}")
