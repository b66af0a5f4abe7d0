"""The open transactions of Kafka's clients, the oldest first."""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from api.console.page import ItemPage, paged, render
from api.console.page_route import PageRoute
from api.requests.access import Asked
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from coordinator.groups.producers.producer_wire import ProducerDescription
from log_tables.cluster.acl import Operation, ResourceType
from log_tables.limits import TOPIC_NAME_MAX_CHARS
from log_tables.topic_partition import TopicPartition

router = APIRouter(prefix="/console/transactions", include_in_schema=False, route_class=PageRoute)

SHOWN_MAX = 5
"""Partitions and groups that one line names."""


class TransactionView(NamedTuple):
    """A transaction with the partitions and the groups that the reader may know of."""

    of: ProducerDescription
    age_s: float
    partitions: list[TopicPartition]
    groups: list[str]


@router.get("")
async def transactions(
    request: Request,
    here: Here,
    asked: Asked,
    search: Annotated[str, Query(max_length=TOPIC_NAME_MAX_CHARS)] = "",
    page: Annotated[int, Query(ge=1)] = 1,
) -> Response:
    """The list, of the ids that the reader may describe."""
    now_ms = here.clock.now_ms()
    found = [
        each
        async for each in here.loop_share.each(await here.producers.open_transactions())
        if search.lower() in each.id.lower()
        and asked.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.id)
    ]
    shown = paged(found, page)
    views = [_view(each, now_ms, asked) for each in shown.items]
    rows = ItemPage(views, shown.page, shown.pages, shown.total)
    values = {"rows": rows, "search": search, "shown_max": SHOWN_MAX}
    return render(request, "transactions.html", values, asked)


def _view(found: ProducerDescription, now_ms: int, asked: Caller) -> TransactionView:
    return TransactionView(
        found,
        max(0, now_ms - found.began_ms) / 1_000,
        [at for at in found.partitions if asked.describes(at.topic)],
        [name for name in found.groups if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, name)],
    )
