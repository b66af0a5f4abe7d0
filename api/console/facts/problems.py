"""The problems of a cluster now, and what to do about each."""

import asyncio
import shutil
from collections.abc import Sequence
from typing import Literal, NamedTuple

from api.console.cluster_index import ClusterState
from api.console.drawing.page import duration, number, size
from api.console.facts.gateways import GatewayView
from api.gateway import Gateway
from log_tables.cluster.admin.run_log import JobRun, recent_runs
from log_tables.cluster.topic import is_internal
from log_tables.errors import LakelogError
from log_tables.store.local import LocalStore

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
        "Shorten retention or delete topics as long as there is room: a full disk loses nothing, and refuses "
        "appends and every other change. Once it is full, make room on it outside of lakelog, or enlarge it."
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
