"""Path parameters of version 3."""

from typing import Annotated

from fastapi import Depends, Path

from api.requests.route_gateway import Here
from log_tables.errors import NotFound


async def known_cluster(here: Here, cluster_id: Annotated[str, Path()]) -> str:
    """The id in the path. Raises NotFound if it is not that of this cluster."""
    if cluster_id != here.cluster.cluster_id:
        raise NotFound(f"there is no cluster {cluster_id[:100]!r} here; use {here.cluster.cluster_id}")
    return cluster_id


ClusterId = Annotated[str, Depends(known_cluster)]
TopicName = Annotated[str, Path(examples=["flights"])]
GroupId = Annotated[str, Path(examples=["readers"])]
ConsumerId = Annotated[str, Path(examples=["reader-1"])]
