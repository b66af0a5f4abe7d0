"""`lakelog topic`: create, list, describe, alter, history, revert, infer, check-columns, delete, undelete,
purge, restore.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli import completion
from lakelog.cli.common import (
    GATEWAY,
    WAIT_S,
    CommandGroup,
    Json,
    Url,
    Wait,
    confirm,
    connect,
    console,
    pairs,
    print_json,
    print_table,
)
from lakelog.cli.history import DryRun, ToTime, ToVersion, print_history, print_revert, time_of
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, NotFound, UnknownTopic
from log_tables.units import MILLISECONDS, explained, with_unit

if TYPE_CHECKING:
    from lakelog.client.calls import TopicSchema
    from lakelog.client.client import Client

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=completion.topics)]
Names = Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=completion.topics)]
_COLUMNS, _FORMAT, _SCHEMAS = "value.columns", "value.columns.format", "value.columns.schemas"
Config = Annotated[
    list[str],
    typer.Option("--config", metavar="NAME=VALUE", help="A setting, such as retention.ms=7d; repeat it."),
]


@app.command()
def create(
    names: Names,
    partitions: Annotated[int | None, typer.Option(help="How many.", show_default="as the gateway")] = None,
    config: Config = [],  # noqa: B006 -- typer copies it
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Create topics, all with the same partitions and settings."""
    configs = pairs(config, "--config")
    with connect(url, wait) as client:
        for name in names:
            count = client.create_topic(name, partitions, configs)
            if json:
                print_json({"topic": name, "partitions": count})
            else:
                console().print(f"created topic {name} with {counted(count, 'partition')}")


@app.command("list")
def list_topics(
    deleted: Annotated[
        bool, typer.Option("--deleted", help="List the deleted topics that can be brought back.")
    ] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """List the names of all topics."""
    with connect(url, wait) as client:
        if deleted:
            _list_deleted(client.deleted_topics(), json)
            return
        names = client.topics()
    if json:
        print_json(names)
    else:
        for name in names:
            console().print(name)


def _list_deleted(found: Sequence[Mapping[str, Any]], json: bool) -> None:
    if json:
        print_json(found)
        return
    if not found:
        console().print("no deleted topic can be brought back")
        return
    rows = [
        (
            each["topic"],
            each["id"],
            each["partitions"],
            each["records"],
            each["bytes"],
            _time(each["deleted_ms"]),
            _time(each["until_ms"]),
        )
        for each in found
    ]
    print_table(("topic", "id", "partitions", "records", "bytes", "deleted (UTC)", "its files go"), rows)


def _time(ms: int) -> str:
    """A time in milliseconds since 1970 in UTC; `never` for one beyond all years."""
    try:
        made = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return "never"
    return made.isoformat(sep=" ", timespec="seconds").removesuffix("+00:00")


@app.command()
def describe(
    names: Names,
    every: Annotated[bool, typer.Option("--all", help="Show settings at their defaults, too.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Show the partitions and offsets of topics, and the settings that are not at their defaults."""
    with connect(url, wait) as client:
        for number, name in enumerate(names):
            if len(names) > 1 and not json:
                console().print(f"{chr(10) if number else ''}topic {name}\n")
            _describe(client, name, every, json)


def _describe(client: "Client", name: str, every: bool, json: bool) -> None:
    found = client.topic(name)
    offsets = [client.offsets(name, partition) for partition in range(len(found["partitions"]))]
    rows = [
        (partition, each.beginning, each.end, each.end - each.beginning)
        for partition, each in enumerate(offsets)
    ]
    columns = ("partition", "log_start_offset", "high_watermark", "offsets")
    if json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json(
            {
                "topic": name,
                "mirror": found.get("mirror"),
                "location": found["location"],
                "remote_location": found["remote_location"],
                "partitions": partitions,
                "configs": found["configs"],
            }
        )
        return
    if found.get("mirror"):
        console().print(f"a copy, which the mirror {found['mirror']} makes: read-only until it is promoted")
    if found["location"] is not None:
        console().print(f"one Delta table: {found['location']}", soft_wrap=True)
        if found["remote_location"] is not None:
            console().print(f"what has moved: {found['remote_location']}", soft_wrap=True)
        console().print()
    print_table(columns, rows)
    console().print()
    _print_settings(name, found["configs"], every)
    if found["configs"].get(_SCHEMAS) and found["configs"].get(_COLUMNS):
        with suppress(NotFound):  # nothing is registered yet, or under another subject
            _print_without_column(client.topic_schema(name))


def _print_settings(name: str, configs: Mapping[str, str], every: bool) -> None:
    from log_tables.cluster.config import TopicConfig

    defaults = TopicConfig().as_dict()
    rows = [
        (setting, explained(setting, value), explained(setting, defaults.get(setting, "")))
        for setting, value in sorted(configs.items())
        if every or value != defaults.get(setting)
    ]
    if rows:
        print_table(("setting", "value", "default"), rows)
    elif configs:
        console().print("All settings have their defaults; --all shows them.")
    else:
        console().print(f"Its settings are shown to those who may DESCRIBE_CONFIGS on topic {name}.")


@app.command()
def alter(
    name: Name,
    config: Config = [],  # noqa: B006 -- typer copies it
    unset: Annotated[list[str], typer.Option(metavar="NAME", help="Put a setting back to its default.")] = [],  # noqa: B006
    partitions: Annotated[int | None, typer.Option(help="Grow to this number of partitions.")] = None,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Change a topic's settings, or add partitions; print what has changed, and from what."""
    changes: dict[str, str | None] = {**pairs(config, "--config"), **dict.fromkeys(unset)}
    if not changes and partitions is None:
        raise InvalidArgument(f"nothing to change of topic {name}; use --config, --unset or --partitions")
    with connect(url, wait) as client:
        before = client.topic(name)
        if changes:
            client.alter_topic(name, changes)
        if partitions is not None:
            client.add_partitions(name, partitions)
        after = client.topic(name)
    then, now = ({"partitions": str(len(each["partitions"])), **each["configs"]} for each in (before, after))
    changed = {
        key: {"from": then[key], "to": value}
        for key, value in now.items()
        if key in then and then[key] != value
    }
    if json:
        count, configs = len(after["partitions"]), after["configs"]
        print_json({"topic": name, "partitions": count, "configs": configs, "changed": changed})
        return
    hidden = not after["configs"]
    console().print(f"altered topic {name}" if changed or hidden else f"topic {name} is as it was")
    for key, change in changed.items():
        old, new = (explained(key, text) or '""' for text in change.values())
        console().print(f"{key}: {old} -> {new}", soft_wrap=True)
    if hidden:
        console().print(f"Its settings are shown to those who may DESCRIBE_CONFIGS on topic {name}.")


@app.command()
def history(name: Name, url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False) -> None:
    """List the versions of a topic's settings, the newest first, and who made them if that is known."""
    with connect(url, wait) as client:
        print_history(client.topic_history(name), json)


@app.command()
def revert(
    name: Name,
    to: ToVersion = None,
    to_time: ToTime = None,
    dry_run: DryRun = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Go back to earlier settings of a topic, all or none. Its partitions stay."""
    time_ms = time_of(to, to_time)
    with connect(url, wait) as client:
        print_revert(client.revert_topic(name, to, time_ms, dry_run), dry_run, json)


@app.command()
def infer(
    name: Name,
    records: Annotated[int, typer.Option(help="How many of the newest records to look at.", min=1)] = 10_000,
    from_registry: Annotated[
        bool, typer.Option("--from-registry", help="Look at the newest schema instead of records.")
    ] = False,
    subject: Annotated[
        str | None, typer.Option(help="The subject in the registry. Default: TOPIC-value.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Declare the columns without asking.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Propose columns by a topic's records, or by their schema, and declare them if you say so."""
    from log_tables.columns.declaration import parse
    from log_tables.columns.inference import inferred

    with connect(url, wait) as client:
        configs = client.topic_configs(name)
        before, form = parse(configs.get(_COLUMNS, "")), configs.get(_FORMAT, "")
        shown: dict[str, object] = {"topic": name}
        if from_registry or subject is not None:
            found = client.topic_schema(name, subject)
            after, form = parse(found.value_columns), form if form == "auto" else found.format
            what = f"version {found.version} of {found.subject}, schema {found.id}"
            shown |= {"subject": found.subject, "version": found.version, "schema": found.id}
        else:
            sample = [*_sample(client, name, records)]
            after, what = inferred(sample, before), f"{counted(len(sample), 'record')} of topic {name}"
            shown["sampled"] = len(sample)
        new = len(after.columns) - len(before.columns)
        changes: dict[str, str | None] = {_COLUMNS: after.text} if new else {}
        if form != configs.get(_FORMAT, ""):
            changes[_FORMAT] = form
        shown |= {_COLUMNS: after.text, "new": new}
        if not json:
            _print_columns(what, [column.text for column in after.columns], new)
            if _FORMAT in changes:
                console().print(f"{_FORMAT}: {configs[_FORMAT]} -> {form}\n")
        asks = not (yes or json) and sys.stdin.isatty()
        if changes and (yes or (asks and typer.confirm(f"Declare these columns of topic {name}?"))):
            client.alter_topic(name, changes)
            if not json:
                console().print(
                    f"topic {name} has {counted(len(after.columns), 'declared column')} from now on; "
                    "`lakelog maintain --once --job retype` makes those of older records"
                )
        elif changes and not json and not asks:
            console().print("declare them with --yes, or the ones that you choose with")
            console().print(f"lakelog topic alter {name} --config '{_COLUMNS}=…'", soft_wrap=True)
    if json:
        print_json({**shown, "declared": bool(yes and changes)})


@app.command()
def check_columns(
    name: Name,
    subject: Annotated[
        str | None, typer.Option(help="The subject in the registry. Default: TOPIC-value.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="Default: the latest.", min=1)] = None,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Say how values of a registered schema would fit the declared columns; end with 1 if some would not."""
    with connect(url, wait) as client:
        found = client.topic_schema(name, subject, version)
    fits = all(each.reason is None for each in found.columns)
    if json:
        columns = [
            {"column": each.column, "in_schema": each.in_schema, "reason": each.reason}
            for each in found.columns
        ]
        print_json(
            {
                "topic": name,
                "subject": found.subject,
                "version": found.version,
                "schema": found.id,
                "fits": fits,
                "columns": columns,
                "fields_without_column": [*found.fields_without_column],
            }
        )
    else:
        rows = [
            (each.column, each.reason or ("fits" if each.in_schema else "NULL: the schema has no such field"))
            for each in found.columns
        ]
        console().print(f"version {found.version} of {found.subject}, schema {found.id}\n")
        if rows:
            print_table(("column", "values of the schema"), rows)
        _print_without_column(found)
    if not fits:
        raise typer.Exit(1)


def _print_without_column(found: "TopicSchema") -> None:
    names = found.fields_without_column
    if names:
        console().print(
            f"schema {found.id} has {counted(len(names), 'field')} that no column has: {', '.join(names)}",
            soft_wrap=True,
            markup=False,
            highlight=False,
        )


@app.command()
def delete(
    names: Names,
    yes: Annotated[bool, typer.Option("--yes", help="Delete them without asking.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Delete topics, which `topic undelete` brings back as long as topic.delete.delay.ms says."""
    with connect(url, wait) as client:
        shown = {}  # the topics by name; another one may be made of it before the answer
        if not yes:
            for name in names:
                found = client.deletion(name)
                shown[name] = found["id"]
                _print_doomed(found)
            confirm(f"Delete {', '.join(names)}?", f"lakelog topic delete --yes {' '.join(names)}")
        for name in names:
            client.delete_topic(name, topic_id=shown.get(name))
            if json:
                print_json({"deleted": name})
            else:
                console().print(f"deleted topic {name}")


def _print_doomed(found: Mapping[str, Any]) -> None:
    name, groups, kept_ms = found["topic"], found["groups"], found["kept_ms"]
    parts = f"{counted(found['partitions'], 'partition')}, {counted(found['records'], 'record')}"
    named = f", offsets of {counted(len(groups), 'group')} ({', '.join(groups[:10])})" if groups else ""
    back = (
        f"can be brought back for {with_unit(str(kept_ms), MILLISECONDS) or f'{kept_ms} ms'}"
        if kept_ms
        else "CANNOT be brought back"
    )
    shown = f"topic {name}: {parts}, {found['bytes']:,} bytes{named}; it {back}"
    print(shown, file=sys.stderr)


TopicId = Annotated[
    str | None, typer.Option("--id", metavar="ID", help="Which one, if several of the name were deleted.")
]


@app.command()
def undelete(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    topic_id: TopicId = None,
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Its name from now on, if its own is taken.")
    ] = None,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Bring a deleted topic back, with its records, settings, id, and the offsets of groups."""
    with connect(url, wait) as client:
        found = client.undelete_topic(name, topic_id=topic_id, new_name=new_name)
    if json:
        print_json(found)
        return
    console().print(f"topic {found['topic']} is back, with {counted(found['partitions'], 'partition')}")
    if found["topic"] != name:
        console().print(
            f"{found['topic']} has the ACLs that {name} had when it was deleted, if they are still there; "
            "those with a prefix go by the name; see `lakelog acl list`",
            soft_wrap=True,
        )


@app.command()
def purge(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    topic_id: TopicId = None,
    yes: Annotated[bool, typer.Option("--yes", help="Remove its files without asking.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Free the space of a deleted topic at once: it cannot be brought back any more."""
    with connect(url, wait) as client:
        if not yes:
            found = [each for each in client.deleted_topics() if each["topic"] == name]
            found = [each for each in found if topic_id in (None, each["id"])][-1:]
            if not found:
                raise UnknownTopic(
                    f"there is no deleted topic {name!r} that can be brought back; `lakelog topic list "
                    "--deleted` lists those there are"
                )
            topic_id = found[0]["id"]  # whatever is deleted under this name before the answer
            held = f"{counted(found[0]['records'], 'record')}, {found[0]['bytes']:,} bytes"
            print(f"deleted topic {name}, id {topic_id}: {held}", file=sys.stderr)
            confirm(f"Remove {name} for good?", f"lakelog topic purge --yes {name} --id {topic_id}")
        gone = client.purge_topic(name, topic_id=topic_id)
    if json:
        print_json(gone)
    else:
        console().print(f"freed {gone['bytes']:,} bytes of the deleted topic {name}")


@app.command()
def restore(
    name: Name,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="As of this time, ISO 8601 (UTC).")
    ] = None,
    to_version: Annotated[
        int | None,
        typer.Option("--to-version", metavar="V", help="As of this version of a partition's table.", min=0),
    ] = None,
    partition: Annotated[int | None, typer.Option(help="Only this partition.", min=0)] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would come back.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Bring back records that DeleteRecords or retention has deleted, as long as their files are there."""
    with connect(url, wait) as client:
        found = client.restore_topic(
            name, version=to_version, time=to_time, partition=partition, dry_run=dry_run
        )
    if json:
        print_json(found)
        return
    rows = [
        (
            each["partition"],
            each["log_start_before"],
            each["log_start"],
            each["records"],
            each["bytes"],
            each["oldest_version"],
            _time(each["oldest_ms"]),
        )
        for each in found
    ]
    told = "would begin" if dry_run else "begins"
    columns = (
        "partition",
        "log start was",
        f"log {told} at",
        "records",
        "bytes",
        "oldest version",
        "of (UTC)",
    )
    print_table(columns, rows)
    if not any(each["records"] for each in found):
        print(_NOTHING_BACK if to_version is None else "there is nothing to bring back", file=sys.stderr)


_NOTHING_BACK = (
    "there is nothing to bring back since that time, by the clocks of the gateways that deleted; where one "
    "of them was wrong, name its version with --to-version V --partition P"
)


def _print_columns(found: str, columns: list[str], new: int) -> None:
    """The declaration of what was `found`, a column a line."""
    if not columns:
        console().print(f"{found}: no field of an object that a column could have")
        return
    console().print(f"{found}: {counted(len(columns), 'column')}, {new} of them new\n")
    for number, column in enumerate(columns, 1):
        comma = "," if number < len(columns) else ""
        console().print(f"  {column}{comma}", soft_wrap=True, markup=False, highlight=False)
    console().print()


def _sample(client: "Client", name: str, records: int) -> Iterator[bytes | None]:
    """The values of the newest records of each partition, the same number of each."""
    from log_tables.layout import VALUE

    partitions = client.partition_count(name)
    each = -(-records // partitions)
    for partition in range(partitions):
        left = each
        found = client.offsets(name, partition, newest=each)
        for table in client.read_tables(name, partition, found.end if found.at is None else found.at):
            values = table.column(VALUE).to_pylist()[:left]
            yield from values
            left -= len(values)
            if left == 0:
                break
