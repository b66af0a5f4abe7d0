"""The list of topics, with the groups that read each and how far behind they are."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api.console.cluster_index import ClusterState, GroupLag, TopicState
from api.console.drawing.page import ItemPage, paged, render
from api.console.drawing.page_route import PageRoute
from api.console.state import console
from api.requests.access import Asked
from coordinator.access.caller import Caller
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.limits import TOPIC_NAME_MAX_CHARS

router = APIRouter(prefix="/console/topics", include_in_schema=False, route_class=PageRoute)

GROUPS_SHOWN = 3
"""Groups of a topic that the list names: those that are furthest behind."""


class _Row(NamedTuple):
    topic: TopicState
    groups: Sequence[GroupLag]
    lag: int
    lag_seconds: float


_ORDERS = {
    "name": lambda row: row.topic.name,
    "records": lambda row: -row.topic.records,
    "bytes": lambda row: -row.topic.size_bytes,
    "rate": lambda row: -row.topic.rate,
    "partitions": lambda row: -row.topic.partition_count,
    "lag": lambda row: -row.lag,
    "newest": lambda row: -row.topic.newest_ms,
}


@router.get("")
async def topics(
    request: Request,
    asked: Asked,
    search: Annotated[str, Query(max_length=TOPIC_NAME_MAX_CHARS)] = "",
    order: Annotated[
        Literal["name", "records", "bytes", "rate", "partitions", "lag", "newest"], Query()
    ] = "name",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The page."""
    look = await console(request).index.look()
    rows = _rows(look, asked, search.lower())
    rows.sort(key=_ORDERS[order])
    shown: ItemPage[_Row] = paged(rows, page)
    values = {"rows": shown, "search": search, "order": order, "look": look, "groups_shown": GROUPS_SHOWN}
    return render(request, "topics.html", values, asked)


def _rows(look: ClusterState, asked: Caller, search: str) -> list[_Row]:
    visible = {group for group in look.groups if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, group)}
    rows = []
    for name, topic in look.topics.items():
        if search in name.lower() and asked.describes(name):
            groups = [each for each in look.of_topic.get(name, ()) if each.group in visible]
            groups.sort(key=lambda each: -each.lag.records)
            lag = sum(each.lag.records for each in groups)
            rows.append(_Row(topic, groups, lag, max((each.lag.seconds for each in groups), default=0.0)))
    return rows
