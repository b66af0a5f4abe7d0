"""The form of a new topic, and the dry run of its creation."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api.console.drawing.page import NEW_TOPIC, number, render
from api.console.drawing.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.pages.topic_head import topic_path
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import gateway
from api.topic_changes import plan_creation
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.config import SETTINGS
from log_tables.errors import InvalidArgument, LakelogError
from log_tables.limits import PARTITIONS_MAX

router = APIRouter(prefix=NEW_TOPIC, include_in_schema=False, route_class=PageRoute)


class _Entry(NamedTuple):
    name: str
    value: str


@router.get("")
async def create(
    request: Request,
    asked: Asked,
    name: Annotated[str | None, Query()] = None,
    partitions: Annotated[int | None, Query()] = None,
    settings: Annotated[str, Query()] = "",
) -> Response:
    """The form of a new topic; with a name, the dry run of its creation."""
    here = gateway(request)
    count = here.settings.num_partitions if partitions is None else partitions
    if name is None:
        values = {"partitions": count, "settings": SETTINGS.values(), "most": PARTITIONS_MAX}
        return render(request, "topic_new.html", values, asked)
    entries = _entries(settings)
    refused = await run_in_threadpool(_refused_creation, here, asked, name, count, entries)
    facts = [ChangedValue("Topic", "–", name), ChangedValue("Partitions", "–", number(count))]
    facts += [ChangedValue(entry.name, _default(entry.name), entry.value) for entry in entries]
    change = Change(
        title=f"Create the topic {name}",
        method="POST",
        url=f"/v3/clusters/{here.cluster.cluster_id}/topics",
        body={
            "topic_name": name,
            "partitions_count": count,
            "configs": [entry._asdict() for entry in entries],
        },
        facts=facts,
        following=f"{topic_path(name)}/partitions",
        back="/console/topics",
        button="Create the topic",
        refused=refused,
    )
    return planned(request, asked, change)


def _refused_creation(here: Gateway, asked: Caller, name: str, count: int, entries: Sequence[_Entry]) -> str:
    """Why the topic would not be created; the empty text if it would be. Blocking."""
    in_all = asked.allows(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
    if not in_all and not asked.allows(Operation.CREATE, ResourceType.TOPIC, name):
        # Before the name is looked up: it is not said whether a topic has it.
        return f"it needs CREATE on the cluster or on the topic {name[:249]!r}, which you do not have"
    try:
        plan_creation(here, name, count, {entry.name: entry.value for entry in entries})
    except LakelogError as error:
        return error.message
    return ""


def _entries(text: str) -> list[_Entry]:
    """The settings of a form, a line for each. Raises InvalidArgument."""
    entries = []
    for line in filter(str.strip, text.splitlines()):
        name, equals, value = line.partition("=")
        if not equals:
            raise InvalidArgument(f"{line[:60]!r} sets nothing; write name=value, as cleanup.policy=compact")
        entries.append(_Entry(name.strip(), value.strip()))
    return entries


def _default(name: str) -> str:
    return SETTINGS[name].default or "–" if name in SETTINGS else "–"
