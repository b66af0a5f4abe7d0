"""Versions of a topic's settings and of the rules of access, and the way back, shown before it is taken."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api import access_changes, topic_changes
from api.console.page import moment, render
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.pages.topic import SETTINGS, head_of, lacking
from api.requests.access import Asked
from api.requests.route_gateway import Here
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.metadata_history import AccessVersion, Difference, TopicVersion
from log_tables.errors import LakelogError

topics = APIRouter(prefix="/console/topics/{topic}", include_in_schema=False, route_class=PageRoute)
access = APIRouter(prefix="/console/access", include_in_schema=False, route_class=PageRoute)

VERSIONS_SHOWN = 50

CHANGES_SHOWN = 20
"""Changes of one version that a list shows."""


class VersionRow(NamedTuple):
    """A version in a list: `more` changes are not shown."""

    version: int
    at_ms: int
    event: str
    principal: str
    changes: Sequence[ChangedValue]
    more: int


@topics.get("/history")
async def topic_history(request: Request, here: Here, asked: Asked, topic: str) -> Response:
    """The versions, the newest first."""
    head = await head_of(request, asked, topic)

    def found() -> tuple[list[VersionRow], int]:
        history = topic_changes.topic_history(here, topic)
        shown = history.versions[: -VERSIONS_SHOWN - 1 : -1]
        by = access_changes.topic_changed_by(here, asked, topic, [each.at_ms for each in shown])
        newest = history.versions[-1].record.topic_id
        return [_row(each, by) for each in shown if each.record.topic_id == newest], history.since_ms

    rows, since_ms = await run_in_threadpool(found)
    values = {"topic": head, "tab": SETTINGS, "versions": rows, "since_ms": since_ms}
    return render(request, "topic_history.html", values, asked)


@topics.get("/revert")
async def revert_topic(
    request: Request, here: Here, asked: Asked, topic: str, to: Annotated[int, Query()]
) -> Response:
    """The dry run of going back to earlier settings."""
    head, facts = await head_of(request, asked, topic), list[ChangedValue]()
    refused = lacking(asked, Operation.ALTER_CONFIGS, topic)
    try:
        found, _ = await run_in_threadpool(topic_changes.plan_revert, here, asked, topic, to, None)
        facts = _values(found.changes)
        head.description.check_own()
        title = f"Settings of {topic} as of {moment(found.version.at_ms)}"
    except LakelogError as error:
        title, refused = f"Earlier settings of {topic}", refused or error.message
    change = Change(
        title,
        "POST",
        f"/v3/clusters/{here.cluster.cluster_id}/topics/{topic}/configs:revert",
        {"to_version": to},
        facts,
        f"{head.path}/settings",
        f"{head.path}/history",
        "Go back to these settings",
        refused=refused,
    )
    return planned(request, asked, change)


@access.get("/history")
def access_history(request: Request, here: Here, asked: Asked) -> Response:
    """The versions, the newest first."""
    history = access_changes.access_history(here, asked)
    shown = history.versions[: -VERSIONS_SHOWN - 1 : -1]
    by = access_changes.access_changed_by(here, asked, [each.at_ms for each in shown])
    values = {
        "versions": [_row(each, by) for each in shown],
        "since_ms": history.since_ms,
        "is_open": here.access.is_open,
        "methods": here.settings.authentication_methods,
    }
    return render(request, "access_history.html", values, asked)


@access.get("/revert")
def revert_acls(request: Request, here: Here, asked: Asked, to: Annotated[int, Query()]) -> Response:
    """The dry run of going back to earlier ACLs."""
    facts, lost, refused, title = list[ChangedValue](), "", "", "Earlier ACLs"
    try:
        found = access_changes.plan_acl_revert(here, asked, to, None)
        facts, title = _values(found.changes), f"ACLs as of {moment(found.version.at_ms)}"
        lost = ", ".join(found.lost)
    except LakelogError as error:
        refused = error.message
    if not asked.allows(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        refused = "it needs ALTER on the cluster, which you do not have"
    change = Change(
        title,
        "POST",
        f"/v3/clusters/{here.cluster.cluster_id}/acls:revert",
        {"to_version": to, **({"force": True} if lost else {})},
        facts,
        "/console/access/acls",
        "/console/access/history",
        "Go back to these ACLs",
        f"You lose: {lost}." if lost else "",
        refused,
    )
    return planned(request, asked, change)


def _row(version: TopicVersion | AccessVersion, by: Mapping[int, str]) -> VersionRow:
    changes = _values(version.changes[:CHANGES_SHOWN])
    event = version.event if isinstance(version, TopicVersion) else "altered" if changes else "kept"
    if isinstance(version, TopicVersion) and event in ("created", "grown"):
        changes = [ChangedValue("partitions", "", str(version.record.partitions)), *changes]
    more = len(version.changes) - CHANGES_SHOWN
    return VersionRow(version.version, version.at_ms, event, by.get(version.at_ms, ""), changes, max(more, 0))


def _values(changes: Sequence[Difference]) -> list[ChangedValue]:
    """A dash stands for a default, and for a rule that is not there."""
    return [
        ChangedValue(each.name, "–" if each.old is None else each.old, "–" if each.new is None else each.new)
        for each in changes
    ]
