"""Changes of mirrors, shown before they are made: a new one, a pause, going on, promotion, deletion."""

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from api import mirror_changes
from api.console.page import NEW_MIRROR, number, render
from api.console.page_route import PageRoute
from api.console.pages.change import Change, ChangedValue, planned
from api.console.pages.mirrors import may_change, mirror_path
from api.gateway import Gateway
from api.mirror_changes import SourceTopic, seen_mirror, shown_mirror
from api.requests.access import Asked
from api.requests.child_process import commands
from api.requests.route_gateway import Here
from coordinator.access.caller import Caller
from log_tables.cluster.admin import mirror_admin
from log_tables.cluster.admin.mirror_view import MirrorView, state_of, stopped
from log_tables.errors import LakelogError
from log_tables.limits import TOPIC_NAME_MAX_CHARS

router = APIRouter(prefix="/console/mirrors/{mirror}", include_in_schema=False, route_class=PageRoute)

new_mirrors = APIRouter(prefix=NEW_MIRROR, include_in_schema=False, route_class=PageRoute)

SOURCE_LIMIT_S = 60.0
TOPICS_SHOWN = 200
"""Topics of a new mirror that its dry run names."""

_LACKING = "it needs ALTER on the cluster, which you do not have; ask an administrator for it"


@router.get("/pause")
async def pause(request: Request, here: Here, asked: Asked, mirror: str) -> Response:
    """The dry run of a pause."""
    seen = await run_in_threadpool(seen_mirror, here, asked, mirror)
    facts = [] if seen.record.paused else [ChangedValue("The mirror", "active", "paused: it copies nothing")]
    return planned(request, asked, _change(asked, mirror, "pause", "Pause", facts))


@router.get("/resume")
async def resume(request: Request, here: Here, asked: Asked, mirror: str) -> Response:
    """The dry run of going on."""
    seen = await run_in_threadpool(seen_mirror, here, asked, mirror)
    facts = [ChangedValue("The mirror", "paused", "active")] if seen.record.paused else []
    facts += [ChangedValue(topic, f"stopped: {why}", "active") for topic, why in stopped(seen.copies).items()]
    return planned(request, asked, _change(asked, mirror, "resume", "Resume", facts))


@router.get("/promote")
async def promote(
    request: Request,
    here: Here,
    asked: Asked,
    mirror: str,
    topic: Annotated[str, Query()] = "",
    now: Annotated[bool, Query()] = False,
) -> Response:
    """The dry run of a promotion. The source is not asked for it: the button does that."""
    seen = await run_in_threadpool(seen_mirror, here, asked, mirror)
    topics = [topic] if topic else []
    refused = await run_in_threadpool(
        _refusal, lambda: mirror_changes.check_copies(here, mirror, topics, unstopped=not now)
    )
    view = await run_in_threadpool(shown_mirror, here, asked, seen)
    facts = [
        ChangedValue(each, f"a copy, {_lag(view, each)}", "a topic of this root, which is written here")
        for each in (copy.name for copy in seen.copies)
        if each == topic or not topic
    ]
    if not now:
        facts.append(
            ChangedValue(
                "Before",
                "–",
                "it is waited for the source's end, 30 s at most, and offsets of groups are brought over",
            )
        )
    title = f"Promote {topic or 'all topics'} of the mirror {mirror}"
    body = {"topics": topics, "now": now}
    danger = "What is promoted is not copied any more. Stop the producers of the source first."
    if now:
        danger = "What is not copied yet is lost here. " + danger
    change = _change(asked, mirror, "promote", "Promote", facts, body=body, refused=refused, danger=danger)
    return planned(request, asked, change._replace(title=title))


def _lag(view: MirrorView, topic: str) -> str:
    of_topic = [each for each in view.partitions if each.topic == topic]
    if any(each.source is None for each in of_topic):
        return "whose lag is not known"
    return f"{number(sum(each.lag or 0 for each in of_topic))} records behind"


@router.get("/delete")
async def delete(request: Request, here: Here, asked: Asked, mirror: str) -> Response:
    """The dry run of a deletion."""
    seen = await run_in_threadpool(seen_mirror, here, asked, mirror)
    refused = await run_in_threadpool(_refusal, lambda: mirror_admin.check_deletable(here.cluster, mirror))
    state = state_of("", seen.record.paused)
    facts = [ChangedValue("The mirror", state, "gone; topics that it made stay as they are")]
    change = _change(asked, mirror, "", "Delete", facts, refused=refused)
    return planned(
        request,
        asked,
        change._replace(method="DELETE", url=f"/mirrors/{mirror}", following="/console/mirrors"),
    )


def _change(
    asked: Caller,
    mirror: str,
    action: str,
    verb: str,
    facts: Sequence[ChangedValue],
    body: Any = None,
    refused: str = "",
    danger: str = "",
) -> Change:
    return Change(
        title=f"{verb} the mirror {mirror}",
        method="POST",
        url=f"/mirrors/{mirror}/{action}",
        body=body,
        facts=facts,
        following=mirror_path(mirror),
        back=mirror_path(mirror),
        button=verb,
        danger=danger,
        refused=refused if may_change(asked) else _LACKING,
    )


def _refusal(check: Callable[[], object]) -> str:
    """Why something would be refused; the empty text if it would not be. Blocking."""
    try:
        check()
    except LakelogError as error:
        return error.message
    return ""


@new_mirrors.get("")
async def create(
    request: Request,
    here: Here,
    asked: Asked,
    name: Annotated[str | None, Query()] = None,
    source: Annotated[str, Query()] = "",
    topics: Annotated[str, Query()] = "",
    gaps: Annotated[bool, Query()] = False,
) -> Response:
    """The form of a new mirror; with name, source and topics the dry run, for which the source is asked."""
    chosen = topics.split()
    if name is None or not source or not chosen:
        return render(request, "mirror_new.html", {"most": TOPIC_NAME_MAX_CHARS}, asked)
    on_gap = "record" if gaps else "stop"
    facts: Sequence[ChangedValue] = ()
    refused = "" if may_change(asked) else _LACKING
    if not refused:
        facts, refused = await _found(request, here, (name, source, chosen, on_gap))
    change = Change(
        title=f"Create the mirror {name[:TOPIC_NAME_MAX_CHARS]}",
        method="POST",
        url="/mirrors",
        body={"mirror": name, "source": source, "topics": chosen, "on_gap": on_gap},
        facts=facts,
        following=mirror_path(name),
        back="/console/mirrors",
        button="Create the mirror",
        refused=refused,
    )
    return planned(request, asked, change)


async def _found(
    request: Request, here: Gateway, wanted: tuple[str, str, list[str], str]
) -> tuple[Sequence[ChangedValue], str]:
    """The topics that would be copied, and why the mirror would be refused."""
    try:
        made = await run_in_threadpool(mirror_changes.new_mirror, here, *wanted)
        words = mirror_changes.asked_source(made)
        output = (await commands(request).run(request, words, SOURCE_LIMIT_S)).checked()
        found = mirror_changes.found_source(output)
        await run_in_threadpool(mirror_changes.create, here, made, found, dry_run=True)
    except LakelogError as error:
        return (), error.message
    facts = [ChangedValue("Source", "–", f"{made.source}, cluster {found.cluster_id}")]
    facts.append(ChangedValue("Groups", "–", "the offsets of all, once the records are here"))
    facts += [ChangedValue(each.topic, "–", _copied(each)) for each in found.topics[:TOPICS_SHOWN]]
    if len(found.topics) > TOPICS_SHOWN:
        facts.append(ChangedValue("And", "–", f"{number(len(found.topics) - TOPICS_SHOWN)} more topics"))
    facts += [ChangedValue(each, "–", "copied from when it is there") for each in found.missing]
    return facts, ""


def _copied(topic: SourceTopic) -> str:
    made = mirror_changes.settings_of(topic)
    return f"a copy of {number(topic.partitions)} partitions" + (f", {made}" if made else "")
