"""How the commands of `lakelog mirror` show mirrors: how far behind each is, and which processes copy it."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.cli.common import console, print_json, print_table
from log_tables.counts import counted
from log_tables.errors import LakelogError

if TYPE_CHECKING:
    from jobs.mirror.source import Source
    from log_tables.cluster.admin.mirror_gaps import MirrorGap
    from log_tables.cluster.admin.mirror_progress import Progress
    from log_tables.cluster.admin.mirror_view import MirrorView
    from log_tables.cluster.cluster import Cluster
    from log_tables.cluster.metadata_log import MirrorRecord


def list_them(cluster: "Cluster", json: bool) -> None:
    """Print all mirrors."""
    from log_tables.cluster.admin.mirror_view import await_mirrors, state_of, view_of

    cluster.refresh()
    mirrors = dict(sorted(cluster.metadata_log.mirrors.items()))
    living = await_mirrors(cluster, mirrors)
    rows: list[tuple[Any, ...]] = []
    for name, each in mirrors.items():
        view = view_of(cluster, each, living[name])
        counts = len(view.copies), len(view.stopped), len(view.processes)
        lag = view.lag or (None, None, None)
        rows.append((name, each.source, " ".join(each.topics), *counts, *lag, state_of("", each.paused)))
    columns = ("mirror", "source", "of", "topics", "stopped", "processes", "lag", "lag_seconds", "lag_bytes")
    if json:
        print_json([dict(zip((*columns, "state"), row, strict=True)) for row in rows])
    else:
        print_table([each.replace("_", " ") for each in (*columns, "state")], rows)


def describe_one(
    cluster: "Cluster", name: str, source: "Callable[[MirrorRecord], Source]", json: bool
) -> None:
    """Print a mirror; `source` says what its source has."""
    from log_tables.cluster.admin.mirror_admin import copies_of, mirror_named
    from log_tables.cluster.admin.mirror_gaps import mirror_gaps
    from log_tables.cluster.admin.mirror_progress import places_of
    from log_tables.cluster.admin.mirror_view import await_mirrors, view_of

    cluster.refresh()
    mirror, unknown = mirror_named(cluster, name), ""
    living = await_mirrors(cluster, [name])[name]
    try:
        ranges = source(mirror).ranges(places_of(copies_of(cluster, name)))
    except LakelogError as error:
        unknown, ranges = str(error), {}
    view = view_of(cluster, mirror, living, ranges)
    gaps = mirror_gaps(cluster, name)
    if json:
        print_json(_described(view, gaps, unknown))
    else:
        _show(view, gaps, unknown)


def _described(view: "MirrorView", gaps: "Sequence[MirrorGap]", unknown: str) -> dict[str, Any]:
    from msgspec.structs import asdict

    mirror = view.mirror
    return {
        "mirror": mirror.name,
        "source": mirror.source,
        "cluster_id": mirror.cluster_id,
        "topics": mirror.topics,
        "groups": mirror.groups,
        "on_gap": "record" if mirror.records_gaps else "stop",
        "paused": mirror.paused,
        "unknown": unknown,
        "processes": [
            {
                "process": each.process,
                "host": each.host,
                "pid": each.pid,
                "partitions": sum(map(len, each.topics.values())),
                "trouble": each.trouble,
                "offsets_behind": each.offsets_behind,
            }
            for each in view.processes
        ],
        "partitions": [_facts(each, mirror.paused) for each in view.partitions],
        "gaps": [asdict(gap) for gap in gaps],
    }


def _show(view: "MirrorView", gaps: "Sequence[MirrorGap]", unknown: str) -> None:
    mirror, say = view.mirror, console().print
    say(f"{mirror.name}: {' '.join(mirror.topics)} of {mirror.source}, cluster {mirror.cluster_id}")
    rows = [tuple(_facts(each, mirror.paused).values())[:-1] for each in view.partitions]
    columns = ("topic", "partition", "log start", "position", "source start", "source end", "lag", "seconds")
    print_table((*columns, "bytes", "state"), rows)
    for topic, why in view.stopped.items():
        say(f"{topic} has stopped: {why}")
    for gap in gaps:
        lost = f"{gap.first_offset} to {gap.last_offset}"
        say(f"{gap.topic}-{gap.partition} lacks the offsets {lost}: {gap.reason}")
    for each in view.processes:
        count = counted(sum(map(len, each.topics.values())), "partition")
        trouble = f", and copies nothing now: {each.trouble}" if each.trouble else ""
        say(f"the process {each.pid} at {each.host} has {count}{trouble}")
    if not view.processes:
        say(f"no process was seen to copy; run `lakelog mirror run {mirror.name}`")
    if unknown:
        say(f"the source does not say where it is: {unknown}")


def _facts(each: "Progress", paused: bool) -> dict[str, Any]:
    from log_tables.cluster.admin.mirror_view import state_of

    start, end = (None, None) if each.source is None else each.source[:2]
    return {
        "topic": each.topic,
        "partition": each.partition,
        "log_start": each.log_start,
        "position": each.position,
        "source_start": start,
        "source_end": end,
        "lag": each.lag,
        "lag_seconds": each.lag_seconds,
        "lag_bytes": each.lag_bytes,
        "state": state_of(each.stopped, paused),
        "reason": each.stopped,
    }
