"""`lakelog broker`: which gateways there are, and what they lead."""

from datetime import UTC, datetime

import typer

from lakelog.cli.common import (
    GATEWAY,
    WAIT_S,
    CommandGroup,
    Json,
    Url,
    Wait,
    connect,
    print_json,
    print_table,
)

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _broker() -> None:
    """With a callback, one command stays a command of its own."""


@app.command("list")
def list_brokers(url: Url = GATEWAY, wait: Wait = WAIT_S, json: Json = False) -> None:
    """List the gateways: whether each is alive, and how many partitions it leads."""
    with connect(url, wait) as client:
        found = client.brokers()
    if json:
        print_json(found)
        return
    rows = [
        (
            each["broker"],
            each["url"],
            "alive" if each["alive"] else "silent",
            f"{datetime.fromtimestamp(each['since'] / 1000, UTC):%Y-%m-%d %H:%M:%S}Z",
            sum(map(len, each["leads"].values())),
        )
        for each in found
    ]
    print_table(("broker", "url", "state", "since", "leads"), rows)
