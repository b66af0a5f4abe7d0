"""`lakelog topic`: create, list, describe, alter, delete."""

from typing import Annotated

import typer

from lakelog.cli.common import (
    GATEWAY,
    CommandGroup,
    Json,
    Url,
    connect,
    console,
    pairs,
    print_json,
    print_table,
)
from log_tables.errors import InvalidArgument

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="TOPIC")]
Config = Annotated[list[str], typer.Option("--config", metavar="NAME=VALUE", help="A topic setting.")]


@app.command()
def create(
    name: Name,
    partitions: Annotated[int | None, typer.Option(help="How many (default: the gateway's).")] = None,
    config: Config = [],  # noqa: B006 -- typer copies it
    url: Url = GATEWAY,
    json: Json = False,
) -> None:
    """Create a topic."""
    with connect(url) as client:
        client.create_topic(name, partitions, pairs(config, "--config"))
        count = client.partition_count(name)
    if json:
        print_json({"topic": name, "partitions": count})
    else:
        console().print(f"created topic {name} with {count} partitions")


@app.command("list")
def list_topics(url: Url = GATEWAY, json: Json = False) -> None:
    """The names of all topics."""
    with connect(url) as client:
        names = client.topics()
    if json:
        print_json(names)
    else:
        for name in names:
            console().print(name)


@app.command()
def describe(name: Name, url: Url = GATEWAY, json: Json = False) -> None:
    """A topic's partitions, offsets and settings."""
    with connect(url) as client:
        found = client.topic(name)
        offsets = [client.offsets(name, index) for index in range(len(found["partitions"]))]
    rows = [
        (index, each.beginning, each.end, each.end - each.beginning) for index, each in enumerate(offsets)
    ]
    columns = ("partition", "log_start_offset", "high_watermark", "records")
    if json:
        partitions = [dict(zip(columns, row, strict=True)) for row in rows]
        print_json({"topic": name, "partitions": partitions, "configs": found["configs"]})
        return
    print_table(columns, rows)
    console().print()
    print_table(("setting", "value"), sorted(found["configs"].items()))


@app.command()
def alter(
    name: Name,
    config: Config = [],  # noqa: B006 -- typer copies it
    unset: Annotated[list[str], typer.Option(metavar="NAME", help="Back to its default.")] = [],  # noqa: B006
    partitions: Annotated[int | None, typer.Option(help="Grow to so many in all.")] = None,
    url: Url = GATEWAY,
    json: Json = False,
) -> None:
    """Change a topic's settings, or add partitions."""
    changes: dict[str, str | None] = {**pairs(config, "--config"), **dict.fromkeys(unset)}
    if not changes and partitions is None:
        raise InvalidArgument(f"nothing to change of topic {name}; use --config, --unset or --partitions")
    with connect(url) as client:
        if changes:
            client.alter_topic(name, changes)
        if partitions is not None:
            client.add_partitions(name, partitions)
        configs = client.topic(name)["configs"]
        count = client.partition_count(name)
    if json:
        print_json({"topic": name, "partitions": count, "configs": configs})
    else:
        console().print(f"topic {name} has {count} partitions, settings {configs}")


@app.command()
def delete(name: Name, url: Url = GATEWAY, json: Json = False) -> None:
    """Delete a topic and, after file.delete.delay.ms, its files."""
    with connect(url) as client:
        client.delete_topic(name)
    if json:
        print_json({"deleted": name})
    else:
        console().print(f"deleted topic {name}")
