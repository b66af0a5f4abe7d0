"""The deleted topics that can be brought back; and their undelete and purge, shown before they are made."""

from typing import Annotated

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.client_topics import known_description
from api.console.page import moment, number, paged, render, size
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.pages.topic import lacking, topic_path
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.topic_changes import deletions
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.admin.undelete import Deletion
from log_tables.cluster.topic import check_writable
from log_tables.errors import LakelogError, UnknownTopic

DELETED_TOPICS = "/console/deleted-topics"

router = APIRouter(prefix=DELETED_TOPICS, include_in_schema=False, route_class=PageRoute)

_Id = Annotated[str, Query()]


@router.get("")
async def deleted(
    request: Request, here: Here, asked: Asked, page: Annotated[int, Query(ge=1)] = 1
) -> Response:
    """The list."""
    found = await run_in_threadpool(deletions, here, asked)
    values = {"rows": paged(found, page), "bytes": sum(each.bytes for each in found)}
    return render(request, "deleted_topics.html", values, asked)


@router.get("/{topic}/undelete")
async def undelete(
    request: Request,
    here: Here,
    asked: Asked,
    topic: str,
    topic_id: Annotated[str, Query(alias="id")],
    name: Annotated[str, Query()] = "",
) -> Response:
    """The dry run of an undelete, under `name` if that is given."""
    found = await run_in_threadpool(_found, here, asked, topic, topic_id)
    wanted = name or topic
    refused = lacking(asked, Operation.DELETE, topic) or _refused(here, asked, wanted)
    if wanted != topic:
        refused = refused or lacking(asked, Operation.READ, topic)
    change = Change(
        title=f"Bring back the deleted topic {topic}",
        method="POST",
        url=f"/deleted-topics/{topic}/undelete",
        body={"id": found.topic_id, "topic_name": wanted},
        facts=[
            ChangedValue("Topic", "deleted", wanted),
            ChangedValue("Records", "none", number(found.records)),
            ChangedValue("Partitions", "none", number(found.partitions)),
            ChangedValue("Its id and settings, offsets of groups", "none", "as they were"),
        ],
        following=topic_path(wanted),
        back=DELETED_TOPICS,
        button=f"Bring back {topic}",
        refused=refused,
    )
    return planned(request, asked, change)


@router.get("/{topic}/purge")
async def purge(
    request: Request, here: Here, asked: Asked, topic: str, topic_id: Annotated[str, Query(alias="id")]
) -> Response:
    """The dry run of a purge."""
    found = await run_in_threadpool(_found, here, asked, topic, topic_id)
    change = Change(
        title=f"Free the space of the deleted topic {topic}",
        method="DELETE",
        url=f"/deleted-topics/{topic}?id={found.topic_id}",
        body=None,
        facts=[
            ChangedValue("Bytes", size(found.bytes), "none"),
            ChangedValue("It can be brought back", f"until {moment(found.until_ms)}", "no more"),
        ],
        following=DELETED_TOPICS,
        back=DELETED_TOPICS,
        button=f"Free the space of {topic}",
        danger="Its records are gone for good.",
        refused=lacking(asked, Operation.DELETE, topic),
    )
    return planned(request, asked, change)


def _found(here: Gateway, asked: Caller, topic: str, topic_id: str) -> Deletion:
    for each in deletions(here, asked):
        if (each.name, each.topic_id) == (topic, topic_id):
            return each
    raise UnknownTopic(f"there is no deleted topic {topic[:249]!r} with this id that can be brought back")


def _refused(here: Gateway, asked: Caller, wanted: str) -> str:
    """Why no topic of the name `wanted` could come back; the empty text if one could."""
    in_all = asked.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    if not in_all and not asked.allows(Operation.CREATE, ResourceType.TOPIC, wanted):
        return f"it needs CREATE on the cluster or on the topic {wanted[:249]!r}, which you do not have"
    try:
        check_writable(wanted)
    except LakelogError as error:
        return error.message
    taken = known_description(here, wanted) is not None
    return f"a topic {wanted} exists; bring it back under another name" if taken else ""
