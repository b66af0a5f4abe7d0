"""`lakelog group`: list, describe, lag, delete, reset-offsets, undo."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli import completion
from lakelog.cli.common import (
    GATEWAY,
    WAIT_S,
    CommandGroup,
    Json,
    Url,
    Wait,
    connect,
    console,
    iso_ms,
    iso_text,
    print_json,
    print_table,
)
from log_tables.errors import InvalidArgument, UnknownGroup
from log_tables.topic_partition import TopicPartition

if TYPE_CHECKING:
    from lakelog.client.client import Client

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

GroupId = Annotated[str, typer.Argument(metavar="GROUP", autocompletion=completion.groups)]
Force = Annotated[bool, typer.Option("--force", help="Do it even while the group has members.")]
ForceDelete = Annotated[
    bool,
    typer.Option(
        "--force", help="Do it even while the group has members; drop records whose staged file is lost."
    ),
]


@app.command("list")
def list_groups(url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False) -> None:
    """List the groups with their states."""
    with connect(url, wait) as client:
        found = client.groups()
    if json:
        print_json(found)
    else:
        columns = ("group", "state", "strategy", "protocol_type")
        print_table(columns, [[each[name] for name in columns] for each in found])


@app.command()
def describe(group_id: GroupId, url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False) -> None:
    """Show a group's state, its members, and the partitions that each owns."""
    with connect(url, wait) as client:
        found = client.group(group_id)
    if json:
        members = [
            {**each, "partitions": [at._asdict() for at in each["partitions"]]} for each in found["members"]
        ]
        print_json({**found, "members": members})
        return
    print_table(
        ("setting", "value"), [(key, found[key]) for key in ("group", "state", "strategy", "protocol_type")]
    )
    console().print()
    rows = [
        (
            each["member"],
            each["client_id"],
            each["host"],
            ", ".join(f"{topic}:{p}" for topic, p in each["partitions"]),
        )
        for each in found["members"]
    ]
    print_table(("member", "client_id", "host", "partitions"), rows)


@app.command()
def lag(group_id: GroupId, url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False) -> None:
    """Show how far a group is behind, for each partition of which it has committed an offset."""
    with connect(url, wait) as client:
        found = [asdict(each) for each in client.lags(group_id)]
    if json:
        print_json(found)
        return
    columns = (
        "topic",
        "partition",
        "committed",
        "log_end_offset",
        "lag",
        "lag_seconds",
        "lag_bytes",
        "owner",
    )
    print_table(columns, [list(each.values()) for each in found])


@app.command()
def delete(
    group_id: GroupId, force: ForceDelete = False, url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False
) -> None:
    """Delete a group and its offsets. `lakelog group undo` brings them back."""
    with connect(url, wait) as client:
        client.delete_group(group_id, force)
    if json:
        print_json({"deleted": group_id})
    else:
        console().print(f"deleted group {group_id}")


@app.command("reset-offsets")
def reset_offsets(  # noqa: PLR0913, PLR0917 -- each is an option
    group_id: GroupId,
    topic: Annotated[
        list[str],
        typer.Option(
            metavar="TOPIC[:P,…]",
            help="All partitions of it, or these. Default: those with a committed offset.",
        ),
    ] = [],  # noqa: B006 -- typer copies it
    to: Annotated[str | None, typer.Option(help="earliest, latest, an offset, or an ISO-8601 time.")] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="N", help="N records after the committed offset; before it if negative."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    force: Force = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Set the offsets that a group continues from. An offset outside of the log becomes its nearest end."""
    if (to is None) == (shift_by is None):
        raise InvalidArgument("--to and --shift-by exclude each other; use one of them")
    with connect(url, wait) as client:
        old = _committed(client, group_id, must_exist=not topic)
        chosen = _chosen(client, topic) or sorted(old)
        new = {at: _target(client, at, to, shift_by, old.get(at)) for at in chosen}
        if new and not dry_run:
            client.set_offsets(group_id, new, force, keep=True)
    rows = [(at.topic, at.partition, old.get(at), offset) for at, offset in new.items()]
    columns = ("topic", "partition", "old", "new")
    if json:
        plan = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"group": group_id, "dry_run": dry_run, "offsets": plan})
    else:
        print_table(columns, rows)


@app.command()
def undo(
    group_id: GroupId,
    acts: Annotated[int, typer.Option(metavar="N", min=1, help="The newest N deletions and resets.")] = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, and change nothing.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Bring back the offsets from before a deletion or a reset; --dry-run also lists what can be undone."""
    with connect(url, wait) as client:
        found = client.undo_group(group_id, acts, dry_run)
    if json:
        print_json({**found, "dry_run": dry_run})
        return
    undone = found["acts"] if dry_run else found["acts"][:acts]
    rows = [(each["done"], iso_text(each["at_ms"]), each["principal"], each["offsets"]) for each in undone]
    print_table(("done", "at", "principal", "partitions"), rows)
    console().print()
    columns = ("topic", "partition", "old", "new")
    print_table(columns, [[each[name] for name in columns] for each in found["offsets"]])
    for each in found["left"]:
        console().print(f"{each['topic']}-{each['partition']} stays as it is: {each['reason']}")


def _committed(client: "Client", group_id: str, *, must_exist: bool) -> dict[TopicPartition, int]:
    """The committed offsets of a group; none for an unknown one. Raises UnknownGroup if it `must_exist`."""
    try:
        return client.group_offsets(group_id)
    except UnknownGroup:
        if must_exist:
            raise
        return {}


def _chosen(client: "Client", texts: list[str]) -> list[TopicPartition]:
    """The partitions that `TOPIC` and `TOPIC:0,1` name. Raises InvalidArgument, UnknownTopic."""
    found: dict[TopicPartition, None] = {}
    for text in texts:
        name, separator, listed = text.partition(":")
        if not separator:
            partitions = list(range(client.partition_count(name)))
        elif all(number.isdecimal() for number in listed.split(",")):
            partitions = [int(number) for number in listed.split(",")]
        else:
            raise InvalidArgument(f"--topic {text!r} is not TOPIC or TOPIC:0,1; write it so")
        found |= {TopicPartition(name, partition): None for partition in partitions}
    return list(found)


def _target(
    client: "Client", at: TopicPartition, to: str | None, shift_by: int | None, committed: int | None
) -> int:
    """Where a group goes on in a partition, within what that holds. Raises InvalidArgument."""
    time_ms = None if to is None or to in ("earliest", "latest") or to.isdecimal() else _time_ms(to)
    held = client.offsets(*at, time_ms)
    if shift_by is not None:
        if committed is None:
            raise InvalidArgument(
                f"the group has committed nothing of {at.topic}:{at.partition} to shift; use --to"
            )
        wanted = committed + shift_by
    elif time_ms is not None:
        wanted = held.end if held.at is None else held.at
    else:
        assert to is not None
        named = {"earliest": held.beginning, "latest": held.end}
        wanted = named[to] if to in named else int(to)
    return min(max(wanted, held.beginning), held.end)


def _time_ms(text: str) -> int:
    try:
        return iso_ms(text)
    except ValueError:
        raise InvalidArgument(
            f"--to {text!r} is not earliest, latest, an offset or an ISO-8601 time; use one of them"
        ) from None
