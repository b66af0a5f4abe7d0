"""`lakelog root` and `lakelog fsck`: check a root, copy it, make a copy independent, repeat its folds."""

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lakelog.cli.common import (
    CommandGroup,
    Data,
    Json,
    console,
    existing_root,
    moment_ms,
    pairs,
    print_json,
    print_table,
    progress_console,
    standby_options,
)
from log_tables.counts import counted
from log_tables.errors import InvalidArgument

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

_Options = Annotated[
    list[str], typer.Option("--store-option", metavar="NAME=VALUE", help="An object store option of TO.")
]


@app.command()
def create(
    data: Data = None,
    once: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Only if this file is not there. It gets the cluster id, and from then on the root must be.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make a cluster in an empty root, and say its id; of a root that has one only say its id.

    The file of --once is outside of the root: if its mount is missing at the next start, this command fails.
    """
    from ingest.settings import load_settings
    from log_tables.clock import SystemClock
    from log_tables.root.opening import open_cluster, open_root

    settings, clock = load_settings(None, data=data), SystemClock()
    noted = _noted(once)
    store = open_root(settings.data, settings.store_options, clock, cluster_id=noted or settings.cluster_id)
    cluster = open_cluster(store, clock, cluster_id=noted or settings.cluster_id)
    if once is not None and not noted:
        _note(once, cluster.cluster_id)
    if json:
        print_json({"cluster_id": cluster.cluster_id})
    else:
        console().print(f"the cluster id is {cluster.cluster_id}")


def _noted(once: Path | None) -> str:
    """The cluster id in the file of --once; empty without one. Raises InvalidArgument."""
    if once is None:
        return ""
    try:
        found = once.read_text().strip()
    except FileNotFoundError:
        return ""
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"{once} cannot be read ({error}); name another file") from None
    if not found:
        raise InvalidArgument(
            f"{once} is empty, and has to hold a cluster id; remove it before a first start"
        )
    return found


def _note(once: Path, cluster_id: str) -> None:
    """Let the file of --once hold the id: whole, or not there. Raises InvalidArgument."""
    made = once.with_name(f"{once.name}.new")
    try:
        with made.open("w") as file:
            file.write(f"{cluster_id}\n")
            file.flush()
            os.fsync(file.fileno())
        made.replace(once)
    except OSError as error:
        raise InvalidArgument(f"{once} cannot be written ({error.strerror}); name another file") from None


@app.command()
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="A root: a directory or a URL.")],
    target: Annotated[str, typer.Argument(metavar="TO", help="An empty place: a directory or a URL.")],
    keep_id: Annotated[
        bool,
        typer.Option("--keep-id", help="Keep the cluster id: for a backup that will replace the original."),
    ] = False,
    with_credentials: Annotated[
        bool, typer.Option("--with-credentials", help="Copy API keys and users, too.")
    ] = False,
    as_of: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="As it was then, from what is still there: 2026-01-31T10:00:00Z, or 30m for as long ago.",
        ),
    ] = None,
    store_option: _Options = [],  # noqa: B006 -- typer copies it
    json: Json = False,
) -> None:
    """Copy a whole root, also while gateways use it. If it is interrupted, the same command resumes it."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    from ingest.settings import load_settings
    from log_tables.clock import SystemClock
    from log_tables.root.copy import copy_root, open_target
    from log_tables.store.store import open_store

    settings, clock = load_settings(None), SystemClock()
    as_of_ms = None if as_of is None else moment_ms(as_of, clock.now_ms())
    original = open_store(source, settings.store_options, create=False, clock=clock)
    options = {**settings.store_options, **pairs(store_option, "--store-option")}
    place = open_target(original, target, options, clock)
    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=progress_console(), disable=json or not progress_console().is_terminal
    ) as bar:
        task = bar.add_task("copy", total=None)
        copied = copy_root(
            original,
            place,
            clock,
            keep_id,
            lambda done, total: bar.update(task, completed=done, total=total),
            with_credentials,
            as_of_ms,
        )
    if json:
        print_json(
            {
                "cluster_id": copied.cluster_id,
                "topics": copied.topics,
                "tables": copied.tables,
                "segments": copied.segments,
                "records": copied.records,
                "bytes": copied.bytes,
                "as_of_ms": copied.as_of_ms,
            }
        )
    else:
        console().print(
            f"copied {_as_of(copied.as_of_ms)}{counted(copied.topics, 'topic')}, "
            f"{counted(copied.records, 'record')} in {counted(copied.segments, 'segment')}, "
            f"{counted(copied.bytes, 'byte')}; the cluster id is {copied.cluster_id}"
        )


def _as_of(time_ms: int | None) -> str:
    return "" if time_ms is None else f"as of {_time(time_ms)}: "


def _time(time_ms: int) -> str:
    from log_tables.record import timestamp_text

    return timestamp_text(time_ms * 1_000)


@app.command()
def history(data: Data = None, json: Json = False) -> None:
    """Show how far back `lakelog root copy --as-of` reaches, for each topic. Reads the logs of all tables."""
    from log_tables.clock import SystemClock
    from log_tables.root.reach import reaches

    found = reaches(existing_root(data), SystemClock())
    if json:
        print_json([asdict(each) for each in found])
        return
    times = [
        (
            each.topic,
            each.partitions,
            "gone" if each.since_ms is None else _time(each.since_ms),
            "" if each.deleted_ms is None else _time(each.deleted_ms),
        )
        for each in found
    ]
    print_table(("topic", "partitions", "back to", "deleted"), times)
    live = [each.since_ms for each in found if each.deleted_ms is None]
    whole = None if None in live else max(each for each in live if each is not None)
    said = "no earlier moment" if whole is None else f"any moment since {_time(whole)}"
    console().print(f"the topics that are there can be copied as of {said}")


@app.command()
def adopt(
    data: Data = None,
    keep_id: Annotated[
        bool, typer.Option("--keep-id", help="Keep the cluster id: the original is gone.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Do it even if the root is not whole, or seems to be in use.")
    ] = False,
    json: Json = False,
) -> None:
    """Make a copied or moved root independent: with a cluster id of its own, and no gateways."""
    from ingest.settings import load_settings
    from log_tables.clock import SystemClock
    from log_tables.root.adopt import adopt as adopted
    from log_tables.store.store import open_store

    settings, clock = load_settings(None, data=data), SystemClock()
    store = open_store(settings.data, settings.store_options, create=False, clock=clock)
    cluster_id = adopted(store, clock, settings.leader_timeout_ms / 1_000, keep_id, force)
    if json:
        print_json({"cluster_id": cluster_id})
    else:
        console().print(f"the cluster id is {cluster_id}")


@app.command()
def promote(
    data: Data = None,
    keep_id: Annotated[
        bool, typer.Option("--keep-id", help="Keep the cluster id: the original is gone for good.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Do it even if the standby is not whole.")] = False,
    json: Json = False,
) -> None:
    """Make a standby, which `lakelog replicate` writes to, a root of its own, which gateways serve."""
    from ingest.settings import load_settings
    from log_tables.clock import SystemClock
    from log_tables.root.promote import promote as promoted
    from log_tables.store.store import open_store

    settings, clock = load_settings(None, data=data), SystemClock()
    store = open_store(settings.data, settings.store_options, create=False, clock=clock)
    made = promoted(store, clock, keep_id, force)
    if json:
        print_json(
            {
                "cluster_id": made.cluster_id,
                "source": made.source,
                "topics": made.topics,
                "records": made.records,
            }
        )
    else:
        console().print(
            f"{counted(made.topics, 'topic')} with {counted(made.records, 'record')} follow {made.source} no "
            f"longer; the cluster id is {made.cluster_id}"
        )


@app.command()
def failback(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The old root: a directory or a URL.")],
    data: Data = None,
    store_option: Annotated[
        list[str],
        typer.Option("--store-option", metavar="NAME=VALUE", help="An object store option of OLD."),
    ] = [],  # noqa: B006 -- typer copies it
    discard: Annotated[
        bool, typer.Option("--discard", help="Give up the records that only OLD has.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what only OLD has.")] = False,
    json: Json = False,
) -> None:
    """Make OLD a standby of this root, which was promoted in its place. What both have is not copied again;
    `lakelog replicate OLD` goes on.
    """
    from ingest.settings import load_settings
    from log_tables.clock import SystemClock
    from log_tables.root.failback import fail_back
    from log_tables.store.store import open_store

    settings, clock = load_settings(None, data=data), SystemClock()
    here = open_store(settings.data, settings.store_options, create=False, clock=clock)
    there = open_store(old, standby_options(settings, store_option), create=False, clock=clock)
    branches = fail_back(there, here, clock, settings.leader_timeout_ms / 1_000, discard, dry_run)
    if json:
        rows = [{"table": b.directory, "version": b.version, "records": b.records} for b in branches]
        print_json({"tables": rows})
        return
    for branch in branches:
        console().print(f"only in the old root: {branch}")
    if not dry_run:
        console().print(f"{old} is a standby now; `lakelog replicate {old}` goes on")


@app.command()
def refold(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Begin the one table over each topic again, from its partitions, also in the remote root: another tool
    has written to it, or its log was lost. Records are neither read nor changed. Streams of other engines
    over it have to begin again.
    """
    from lakelog.cli.common import existing_root
    from log_tables.cluster.cluster import Cluster
    from log_tables.cluster.topic import check_public
    from log_tables.cluster.topic_fold import begin_again

    cluster = Cluster.open(existing_root(data), create=False)
    for name in topics:
        check_public(name)
        topic = cluster.topic(name)
        begin_again(cluster, topic)
        version = topic.table().snapshot.version
        if json:
            print_json({"topic": name, "version": version})
        else:
            console().print(f"the table over topic {name} is level again, at version {version}")


def fsck(
    data: Data = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Derive all declared columns once more, and compare.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="Only the tables of this topic.")] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition of --topic.")] = None,
    json: Json = False,
) -> None:
    """Check the whole root, also while gateways use it. Exit code 1 when something is broken."""
    from log_tables.root.fsck import check, check_topic

    if topic is None and partition is not None:
        raise InvalidArgument("--partition is one of a topic; name it with --topic")
    store = existing_root(data)
    report = check(store, deep) if topic is None else check_topic(store, topic, partition, deep)
    if json:
        print_json(report.as_dict())
    else:
        print_table(
            (
                "table",
                "version",
                "segments",
                "records",
                "log start",
                "high watermark",
                "epoch",
                "unreferenced",
                "problems",
            ),
            [
                (
                    p.directory,
                    p.version,
                    p.segments,
                    p.records,
                    p.log_start,
                    p.high_watermark,
                    p.leader_epoch,
                    p.unreferenced,
                    len(p.problems),
                )
                for p in report.partitions
            ],
        )
        for problem in report.problems:
            console().print(f"BROKEN: {problem}")
        for doubt in report.doubts:
            console().print(f"PERHAPS: {doubt}")
        console().print(
            "every invariant holds" if not report.problems else counted(len(report.problems), "problem")
        )
    if report.problems:
        raise typer.Exit(1)
