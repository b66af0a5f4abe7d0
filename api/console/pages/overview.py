"""The first page: the gateways, what goes through them, and what is wrong now, with what to do about each."""

import asyncio
import shutil
from collections.abc import Sequence
from typing import Literal, NamedTuple

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from api.console.cluster_index import ClusterState
from api.console.gateways import GatewayView, all_gateways, own_figures, summed
from api.console.page import curve, duration, number, render, size
from api.console.page_route import PageRoute
from api.console.state import console
from api.gateway import Gateway
from api.requests.access import Asked
from api.requests.route_gateway import Here
from api.requests.strict import StrictRoute
from api.samples import Sample
from coordinator.access.caller import Caller
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.admin.run_log import JobRun, recent_runs
from log_tables.cluster.topic import is_internal
from log_tables.errors import LakelogError
from log_tables.store.local import LocalStore

router = APIRouter(prefix="/console", include_in_schema=False, route_class=PageRoute)
figures = APIRouter(prefix="/console/figures", include_in_schema=False, route_class=StrictRoute)

TOPICS_SHOWN = 50
"""Topics that the list of what a gateway leads names."""


class _Shown(NamedTuple):
    """A curve: the field of a sample, how its values are written, and what of them is one unit of that."""

    label: str
    name: str
    kind: Literal["number", "size", "duration"]
    unit: float = 1


_SHOWN = (
    _Shown("Records in, per second", "produced", "number"),
    _Shown("Bytes in, per second", "produced_bytes", "size"),
    _Shown("Records out, per second", "fetched", "number"),
    _Shown("Commits, p99", "commit_p99_ms", "duration", 0.001),
)

FREE_MIN = 0.1
"""The part of a disk below which it is called nearly full."""

FILES_MANY = 2_000
"""Files of a partition that nothing has merged: 2,000 commits."""

RUN_OLD_S = 24 * 60 * 60
"""The age of the last maintenance run at which it is called missing."""

SHOWN_MAX = 5
"""Topics and groups that one line names."""

_ABANDONED_S = 60
_ROWS_READ = 1_000
_RUNS = "/console/maintenance"


@figures.get("")
async def figures_of_here(request: Request, here: Here) -> Response:
    """The figures of this gateway, which others ask for."""
    return Response(msgspec.json.encode(own_figures(request, here)), media_type="application/json")


@router.get("")
async def overview(request: Request, here: Here, asked: Asked) -> Response:
    """The page."""
    look = _visible(await console(request).index.look(), asked)
    topics = look.topics.values()
    is_operator = asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)
    gateways = await all_gateways(request, here, asked.context) if is_operator else []
    found = await problems(here, look, gateways) if is_operator else []
    samples = summed(each.figures.samples for each in gateways if each.figures is not None)
    values = {
        "topics": topics,
        "records": sum(each.records for each in topics),
        "bytes": sum(each.size_bytes for each in topics),
        "rate": sum(each.rate for each in topics),
        "partitions": sum(each.partition_count for each in topics),
        "groups": look.groups,
        "gateways": gateways,
        "led": {each.broker.id: _led(each, asked) for each in gateways},
        "topics_shown": TOPICS_SHOWN,
        "is_internal": is_internal,
        "problems": found,
        "standbys": here.standbys.seen() if is_operator else [],
        "is_operator": is_operator,
        "curves": [(each.label, _curve(samples, each)) for each in _SHOWN],
        "span": duration((samples[-1].at_ms - samples[0].at_ms) / 1000) if len(samples) > 1 else "",
    }
    return render(request, "overview.html", values, asked)


def _visible(look: ClusterState, asked: Caller) -> ClusterState:
    """The topics and the groups that the reader may know of, and the lags in them."""
    topics = {name: each for name, each in look.topics.items() if asked.describes(name)}
    groups = {
        name: each
        for name, each in look.groups.items()
        if asked.allows(Operation.DESCRIBE, ResourceType.GROUP, name)
    }
    lags = {name: [each for each in look.of_group.get(name, ()) if each.topic in topics] for name in groups}
    return look._replace(topics=topics, groups=groups, of_group=lags)


def _led(gateway: GatewayView, asked: Caller) -> list[tuple[str, list[int]]]:
    """The topics of which a gateway leads partitions, and which: those that the reader may know of."""
    return sorted(pair for pair in gateway.broker.leads.items() if asked.describes(pair[0]))


def _curve(samples: Sequence[Sample], shown: _Shown) -> str:
    points = [(each.at_ms, getattr(each, shown.name) * shown.unit) for each in samples]
    return curve(points, shown.label, shown.kind)


class Problem(NamedTuple):
    """Something that is wrong: `what` it is, what `todo`, and the page or document with more."""

    level: Literal["bad", "warn"]
    what: str
    todo: str
    link: str = ""


async def problems(here: Gateway, look: ClusterState, gateways: Sequence[GatewayView]) -> list[Problem]:
    """All that is wrong, the worst first: of topics and groups, with those of `look` alone."""
    found = [
        *_of_access(here),
        *of_gateways(gateways),
        *of_topics(look),
        *of_groups(look),
        *await asyncio.to_thread(_of_disk, here),
        *await asyncio.to_thread(_of_maintenance, here, look),
    ]
    return sorted(found, key=lambda each: each.level)


def _of_access(here: Gateway) -> list[Problem]:
    if not here.access.ignores_rules:
        return []
    what = "This gateway authenticates nobody, although the cluster has ACLs or super users."
    todo = (
        "All who reach it may do everything. Set authentication_methods, and run `lakelog security enable`."
    )
    return [Problem("bad", what, todo, "/console/access")]


def of_gateways(gateways: Sequence[GatewayView]) -> list[Problem]:
    """The problems of gateways."""
    found = [
        Problem(
            "bad",
            f"Gateway {each.broker.id} at {each.broker.url} gives no sign of life.",
            "Others lead its partitions. Look whether its process runs; an hour later it is off the list.",
        )
        for each in gateways
        if not (each.is_living or each.broker.leaving)
    ]
    found += [
        Problem(
            "bad",
            f"Gateway {each.broker.id} fails at {work}, and tries again.",
            "Its log says why, once, and says when it works again.",
        )
        for each in gateways
        if each.figures is not None
        for work in each.figures.failing
    ]
    found += [
        Problem(
            "bad",
            f"The buffer of gateway {each.broker.id} is nearly full: producers hear 429.",
            "The store may be slow. Raise buffer_memory, or start another gateway.",
        )
        for each in gateways
        if each.is_full
    ]
    return found


def of_topics(look: ClusterState) -> list[Problem]:
    """The problems of topics."""
    found = [
        Problem("bad", f"Topic {topic.name} cannot be read.", "Run `lakelog fsck`: it says what to restore.")
        for topic in look.topics.values()
        if topic.failed
    ]
    many = [
        topic.name
        for topic in look.topics.values()
        if any(len(state.segments) > FILES_MANY for state in topic.partitions.values())
    ]
    if many:
        found.append(
            Problem(
                "warn",
                f"{_named('topic', many)} stored in partitions of more than {FILES_MANY:,} files.",
                "Run `lakelog maintain`, or a gateway with `--maintain`, which merges them.",
                "/console/maintenance",
            )
        )
    return found


def of_groups(look: ClusterState) -> list[Problem]:
    """Groups that nobody works for."""
    left = [
        group.id
        for group in look.groups.values()
        if not group.size and any(each.lag.seconds > _ABANDONED_S for each in look.of_group.get(group.id, ()))
    ]
    if not left:
        return []
    what = f"{_named('group', left)} behind, without members."
    return [Problem("warn", what, "Start its consumers, or delete the group.", "/console/groups?order=lag")]


def _of_disk(here: Gateway) -> list[Problem]:
    store = here.cluster.store
    if not isinstance(store, LocalStore):
        return []
    try:
        usage = shutil.disk_usage(store.root)
    except OSError as error:
        what = f"The directory of the root cannot be looked at: {error.strerror or type(error).__name__}."
        todo = "Appends fail as long as it is away. Look whether its disk is mounted, and who may read it."
        return [Problem("bad", what, todo)]
    if usage.free >= FREE_MIN * usage.total:
        return []
    what = f"The disk of the root has {size(usage.free)} left of {size(usage.total)}."
    todo = (
        "Shorten retention or delete topics, and run lakelog maintain --once: records are refused below "
        "disk_free_min_bytes, and all else goes on as long as the reserve of the root lasts. Or enlarge it."
    )
    return [Problem("bad", what, todo)]


def _of_maintenance(here: Gateway, look: ClusterState) -> list[Problem]:
    """Whether the jobs run, and end without errors."""
    try:
        rows, _ = recent_runs(here.cluster, None, _ROWS_READ)
    except LakelogError:
        return [Problem("bad", "The log of maintenance runs cannot be read.", "Run `lakelog fsck`.")]
    return of_maintenance([row for _, row in reversed(rows)], look)


def of_maintenance(rows: Sequence[JobRun], look: ClusterState) -> list[Problem]:
    """The problems of the jobs, by their newest `rows`, the newest first.

    A topic that `look` does not have is deleted, or not for the reader.
    """
    files = sum(len(state.segments) for topic in look.topics.values() for state in topic.partitions.values())
    if not rows:
        if files < FILES_MANY:
            return []
        what = f"Maintenance has not run yet, and there are {number(files)} files."
        return [Problem("warn", what, "Run `lakelog maintain`, or a gateway with `--maintain`.", _RUNS)]
    failed = [
        each
        for each in rows
        if each.run == rows[0].run and each.error and (each.topic in look.topics or is_internal(each.topic))
    ]
    found = [
        Problem(
            "bad",
            f"Maintenance failed at {each.topic}-{each.partition}: {each.job}.",
            "Its run says why; the next one tries again.",
            _RUNS,
        )
        for each in failed[:SHOWN_MAX]
    ]
    age_s = (look.at_ms - rows[0].started_ms) / 1000
    if age_s > RUN_OLD_S and files > FILES_MANY:
        what = f"The last maintenance run that changed anything was {duration(age_s)} ago."
        found.append(Problem("warn", what, "Look whether `lakelog maintain` still runs.", _RUNS))
    return found


def _named(kind: str, names: Sequence[str]) -> str:
    """Some names with a verb: "Topic a is", "Groups a, b and 3 more are"."""
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    listed = ", ".join(names[:SHOWN_MAX]) + more
    return f"{kind.capitalize()} {listed} is" if len(names) == 1 else f"{kind.capitalize()}s {listed} are"
