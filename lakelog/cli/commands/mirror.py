"""`lakelog mirror`: a running Kafka's topics as topics of a root, at the same offsets."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.common import (
    FAILED,
    CommandGroup,
    Data,
    Json,
    check_mirror_installed,
    cluster_at,
    console,
    note_change,
    pairs,
    print_json,
    print_table,
    progress_console,
    source_of,
)
from log_tables.counts import counted
from log_tables.errors import AuthorizationFailed, InvalidArgument, RootMissing

if TYPE_CHECKING:
    from jobs.mirror.groups import GroupProgress, GroupSync
    from jobs.mirror.source import Source
    from jobs.mirror.verify import Sample, Verdict
    from log_tables.cluster.cluster import Cluster
    from log_tables.cluster.metadata_log import MirrorRecord

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME")]
Topics = Annotated[list[str], typer.Option("--topic", metavar="TOPIC")]
Gateway = Annotated[
    str | None,
    typer.Option(
        "--url",
        envvar="LAKELOG_URL",
        help="The gateway that sets offsets of groups.",
        show_default="one that is on this root's list",
    ),
]

_GAPS = {"stop": False, "record": True}


@app.command()
def create(  # noqa: PLR0913, PLR0917 -- each is an option
    name: Name,
    source: Annotated[str, typer.Option(metavar="HOST:PORT", help="Brokers of the Kafka, with commas.")],
    topic: Annotated[
        list[str],
        typer.Option(metavar="TOPIC", help="A topic, or ^ and a pattern of whole names; may be repeated."),
    ],
    config: Annotated[
        str, typer.Option(metavar="FILE", help="Settings of librdkafka, name=value, where `run` runs.")
    ] = "",
    group: Annotated[
        list[str],
        typer.Option(
            metavar="GROUP",
            help="A group whose offsets are copied, or ^ and a pattern; may be repeated. Default: all.",
        ),
    ] = [],  # noqa: B006 -- typer copies it
    on_gap: Annotated[
        str,
        typer.Option(
            metavar="stop|record",
            help="If the source has deleted what was not copied: stop, or leave a gap.",
        ),
    ] = "stop",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be copied.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Note what to copy; `lakelog mirror run` copies it. The topics must not be here yet."""
    import os.path

    from log_tables.cluster.admin.mirror_admin import EVERY_GROUP, check_mirror, create_mirror, matching
    from log_tables.cluster.metadata_log import MirrorRecord

    if on_gap not in _GAPS:
        raise InvalidArgument(f"--on-gap {on_gap!r} is not known; use stop or record")
    cluster = _existing_or_empty(data)
    mirror = MirrorRecord(
        name,
        source,
        tuple(topic),
        tuple(group) or (EVERY_GROUP,),
        config=os.path.abspath(config) if config else "",
        records_gaps=_GAPS[on_gap],
        created_ms=cluster.clock.now_ms(),
    )
    check_mirror(cluster, mirror)
    brokers = source_of(mirror)
    there = brokers.topics()
    mirror = _with_cluster(mirror, brokers)
    names = matching(mirror, there)
    create_mirror(cluster, mirror, names, dry_run=True)
    missing = [each for each in topic if not each.startswith("^") and each not in there]
    rows = _settings_of(brokers, {each: there[each] for each in names})
    if not dry_run:
        cluster = cluster_at(data, create=True)
        create_mirror(cluster, mirror, names)
    if json:
        topics = [{"topic": name, "partitions": count, "configs": made} for name, count, made in rows]
        found = {"mirror": name, "cluster_id": mirror.cluster_id, "topics": topics, "missing": missing}
        print_json(found)
    else:
        said = [(*each, " ".join(f"{key}={value}" for key, value in made.items())) for *each, made in rows]
        print_table(("topic", "partitions", "settings"), said)
        if missing:
            console().print(f"not there yet, and copied from when it is: {', '.join(missing)}")
    if not dry_run:
        note_change(cluster, "CreateMirror", name, "MIRROR", source=source, topics=topic)
        progress_console().print(f"the mirror {name} is noted; `lakelog mirror run {name}` copies")


def _existing_or_empty(data: str | None) -> "Cluster":
    """The cluster that is there, or an empty one in memory: what is only shown, or refused, makes no root."""
    from log_tables.cluster.cluster import Cluster
    from log_tables.store.store import open_store

    try:
        return cluster_at(data)
    except RootMissing:
        return Cluster.open(open_store("memory://"))


def _with_cluster(mirror: "MirrorRecord", brokers: "Source") -> "MirrorRecord":
    from msgspec.structs import replace

    return replace(mirror, cluster_id=brokers.cluster_id())


def _settings_of(brokers: "Source", topics: dict[str, int]) -> list[tuple[str, int, dict[str, str]]]:
    """Topics of the source with their partitions, and the settings that their copies get."""
    from log_tables.cluster.admin.mirror_admin import copied_settings

    found = brokers.settings(topics)
    for refused in found.values():
        if isinstance(refused, AuthorizationFailed):
            raise refused
    known = {name: each for name, each in found.items() if not isinstance(each, AuthorizationFailed)}
    return [(name, count, copied_settings(known.get(name, {}))) for name, count in topics.items()]


@app.command("list")
def list_mirrors(data: Data = None, json: Json = False) -> None:
    """List the mirrors, how many processes copy them, and how far behind they are."""
    from lakelog.cli.mirrors import list_them

    list_them(cluster_at(data), json)


@app.command()
def describe(name: Name, data: Data = None, json: Json = False) -> None:
    """Show how far each partition is, by the source if it answers, and which processes copy."""
    from lakelog.cli.mirrors import describe_one

    describe_one(cluster_at(data), name, source_of, json)


@app.command()
def run(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]...")] = None,
    url: Gateway = None,
    data: Data = None,
    with_stdin: Annotated[
        bool,
        typer.Option(
            "--with-stdin", help="Stop when standard input ends: for a program that starts this one."
        ),
    ] = False,
    config: Annotated[
        str | None, typer.Option(help="Settings file (TOML); lakelog.toml where it exists.")
    ] = None,
    set_: Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Any other setting.")] = [],  # noqa: B006
) -> None:
    """Copy, until SIGTERM or Ctrl-C, what these mirrors name, or all. Several share a mirror's partitions."""
    from api.log_format import log_to_stderr
    from ingest.opening import cluster_of, disk_bounds
    from ingest.settings import load_settings
    from lakelog.cli.beside import stopping_event
    from lakelog.cli.mirror_gateway import GatewayOffsets

    check_mirror_installed()
    from jobs.mirror.runner import Runner

    settings = load_settings(config, data=data, **pairs(set_, "--set"))
    log_to_stderr(settings.log_level, settings.log_format)
    cluster = cluster_of(settings)
    with GatewayOffsets(cluster, url) as set_offsets, stopping_event(with_stdin) as stopping:
        Runner(cluster, names or [], set_offsets, disk_bounds(settings)).run(stopping)


@app.command()
def pause(name: Name, data: Data = None) -> None:
    """Copy nothing until `lakelog mirror resume`."""
    from log_tables.cluster.admin import mirror_admin

    cluster = cluster_at(data)
    mirror_admin.pause(cluster, name)
    note_change(cluster, "PauseMirror", name, "MIRROR")
    console().print(f"the mirror {name} is paused")


@app.command()
def resume(name: Name, data: Data = None) -> None:
    """Go on after `pause`, and with topics that have stopped."""
    from log_tables.cluster.admin import mirror_admin

    cluster = cluster_at(data)
    again = mirror_admin.resume(cluster, name)
    note_change(cluster, "ResumeMirror", name, "MIRROR", topics=again)
    console().print(f"the mirror {name} goes on" + (f", again with {', '.join(again)}" if again else ""))


@app.command()
def verify(
    name: Name,
    topic: Topics = [],  # noqa: B006 -- typer copies it
    sample: Annotated[
        int, typer.Option(metavar="N", min=0, help="Only N ranges of each partition, at random; 0 is all.")
    ] = 0,
    seed: Annotated[
        str, typer.Option(metavar="TEXT", help="What decides which ranges; another one each time.")
    ] = "",
    width: Annotated[
        int, typer.Option("--range", metavar="OFFSETS", min=1, help="How many offsets have one digest.")
    ] = 100_000,
    sql: Annotated[
        str,
        typer.Option(
            "--sql",
            metavar="lakelog|spark|duckdb",
            help="Only print the SQL by which that gives the digests of this side.",
        ),
    ] = "",
    data: Data = None,
    json: Json = False,
) -> None:
    """Compare what is here with the source, record by record; exit code 1 if something differs.

    Compared is what both sides have at the start: from the later of the log starts on, up to the position of
    the copy. The mirror may run meanwhile.
    """
    from jobs.mirror.verify import Sample

    cluster = cluster_at(data)
    if sql:
        _print_sql(cluster, name, topic, width, sql)
        return
    drawn = Sample(sample, seed or cluster.clock.random_hex(8)) if sample else None
    _verify(cluster, name, topic, drawn, width, json)


def _verify(
    cluster: "Cluster", name: str, topics: list[str], sample: "Sample | None", width: int, json: bool
) -> None:
    from jobs.mirror.verify import verify as compare
    from log_tables.cluster.admin.mirror_admin import mirror_named

    def note(verdict: "Verdict") -> None:
        if not json:
            progress_console().print(f"{verdict.topic}-{verdict.partition}: {_found(verdict)}", markup=False)

    cluster.refresh()
    source = source_of(mirror_named(cluster, name))
    verdicts = compare(cluster, name, source, topics, sample, width, note)
    if json:
        print_json(
            {
                "mirror": name,
                "equal": all(each.is_equal for each in verdicts),
                "seed": sample.seed if sample else None,
                "partitions": [_verdict_facts(each) for each in verdicts],
            }
        )
    else:
        _show_verdicts(verdicts, sample)
    if not all(each.is_equal for each in verdicts):
        raise typer.Exit(FAILED)


def _found(verdict: "Verdict") -> str:
    if verdict.failed:
        return "not verified"
    return "equal" if verdict.difference is None else f"differs at offset {verdict.difference.offset}"


def _show_verdicts(verdicts: "Sequence[Verdict]", sample: "Sample | None") -> None:
    rows = [
        (
            each.topic,
            each.partition,
            each.start,
            each.end,
            len(each.ranges),
            each.records,
            each.removed,
            round(each.seconds, 1),
            _found(each),
        )
        for each in verdicts
    ]
    columns = ("topic", "partition", "from", "to", "ranges", "records", "compacted", "seconds", "digests")
    print_table(columns, rows)
    if sample:
        console().print(
            f"a sample of {counted(sample.ranges, 'range')} of each partition, by --seed {sample.seed}"
        )
    for each in verdicts:
        place = f"{each.topic}-{each.partition}"
        if each.failed:
            console().print(f"{place} is not verified: {each.failed}")
        if each.difference:
            at, field, here, there = each.difference
            console().print(f"{place} differs at offset {at}, {field}\n  here:   {here}\n  source: {there}")


def _verdict_facts(verdict: "Verdict") -> dict[str, Any]:
    return {
        "topic": verdict.topic,
        "partition": verdict.partition,
        "start": verdict.start,
        "end": verdict.end,
        "records": verdict.records,
        "compacted": verdict.removed,
        "equal": verdict.is_equal,
        "failed": verdict.failed,
        "difference": verdict.difference and verdict.difference._asdict(),
        "seconds": round(verdict.seconds, 3),
        "ranges": [each._asdict() for each in verdict.ranges],
    }


def _print_sql(cluster: "Cluster", name: str, topics: list[str], width: int, engine: str) -> None:
    from jobs.mirror.verify import chosen
    from log_tables.sql.record_digest import DigestPart, Engine, digest_sql

    if engine not in [*Engine]:
        raise InvalidArgument(f"--sql {engine!r} is not known; use {', '.join(Engine)}")
    parts = []
    for copy in chosen(cluster, name, topics):
        for number, log in enumerate(cluster.topic(copy.name).partitions()):
            here = log.refresh()
            location, _ = cluster.store.delta_location(log.directory)
            parts.append(DigestPart(copy.name, number, location, here.log_start, here.high_watermark))
    if not parts:
        raise InvalidArgument(
            f"the mirror {name} has made no topic yet; see that its `lakelog mirror run` runs"
        )
    print(digest_sql(parts, width, Engine(engine)))


@app.command()
def promote(
    name: Name,
    topic: Topics = [],  # noqa: B006 -- typer copies it
    now: Annotated[
        bool, typer.Option("--now", help="Do not wait for the source's end, nor ask the source.")
    ] = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0, help="How long the copy may take to get there.")
    ] = 30.0,
    prepare: Annotated[
        bool,
        typer.Option(
            "--prepare", help="Only wait for the source's end, and bring groups over; promote nothing."
        ),
    ] = False,
    url: Gateway = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make the mirror's topics, or one, topics of this root: written here from now on, copied no more.

    Stop the producers of the source first. The next record here stands at the offset where the source ends.
    """
    from jobs.mirror import promotion
    from log_tables.cluster.admin.mirror_admin import mirror_named

    cluster = cluster_at(data)
    source = None if now else source_of(mirror_named(cluster, name))
    others: list[GroupProgress] = []

    def bring_groups(topics: Collection[str]) -> None:
        from jobs.mirror.groups_moved import bring_over

        assert source is not None
        with _group_sync(cluster, name, source, url) as sync:
            others.extend(bring_over(sync, topics, wait, cluster.clock))

    promoted = promotion.promote(cluster, name, topic, source, wait, bring_groups, prepare)
    if not prepare:
        note_change(cluster, "PromoteMirror", name, "MIRROR", topics=promoted)
    for each in others if not json or not prepare else ():
        progress_console().print(_said(each))
    if prepare:
        names = ("group", "topic", "partition", "source", "here", "state", "reason")
        groups = [dict(zip(names, each[: len(names)], strict=True)) for each in others]
        done = {"mirror": name, "prepared": promoted, "groups": groups}
        print_json(done) if json else console().print(f"at the source's end: {', '.join(promoted)}")
        return
    if json:
        print_json({"mirror": name, "promoted": promoted})
    else:
        console().print(f"{counted(len(promoted), 'topic')} promoted: {', '.join(promoted)}")


@app.command()
def groups(
    name: Name,
    group: Annotated[list[str], typer.Option(metavar="GROUP", help="Only this group; may be repeated.")] = [],  # noqa: B006 -- typer copies it
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0,
            help="Bring offsets over and wait until they are here. Those of --group must have stopped at the "
            "source.",
        ),
    ] = None,
    url: Gateway = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show the offsets of groups at the source and here; with --wait, wait until they are the same.

    To move a consumer: stop it, run this with --group and --wait, and start it here.
    """
    from jobs.mirror.groups_moved import await_groups, chosen_groups
    from log_tables.cluster.admin.mirror_admin import mirror_named

    cluster = cluster_at(data)
    cluster.refresh()
    source = source_of(mirror_named(cluster, name))
    with _group_sync(cluster, name, source, url, sets=wait is not None) as sync:
        if wait is None:
            found = sync.look(chosen_groups(sync, group))
        else:
            found = await_groups(sync, group, wait, cluster.clock)
    columns = ("group", "topic", "partition", "source", "here", "state", "reason")
    rows = [each[: len(columns)] for each in found]
    if json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    print_table(columns[:-1], [row[:-1] if row[1] else (row[0], "", None, *row[3:-1]) for row in rows])
    for each in found:
        if each.reason:
            progress_console().print(_said(each))


def _said(each: "GroupProgress") -> str:
    where = f" in {each.place}" if each.topic else ""
    return f"the group {each.group}{where}: {each.state}" + (f", {each.reason}" if each.reason else "")


@contextmanager
def _group_sync(
    cluster: "Cluster", name: str, source: "Source", url: str | None, sets: bool = True
) -> "Iterator[GroupSync]":
    from jobs.mirror.groups import GroupSync
    from lakelog.cli.mirror_gateway import GatewayOffsets

    with GatewayOffsets(cluster, url) as set_offsets:
        yield GroupSync(cluster, name, source, set_offsets if sets else None)


@app.command()
def delete(name: Name, data: Data = None) -> None:
    """Forget a mirror without topics: promote them first."""
    from log_tables.cluster.admin.mirror_admin import delete_mirror

    cluster = cluster_at(data)
    delete_mirror(cluster, name)
    note_change(cluster, "DeleteMirror", name, "MIRROR")
    console().print(f"the mirror {name} is deleted")
