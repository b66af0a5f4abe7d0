"""`lakelog topic infer`: propose the columns of a topic from a sample of its values."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import GATEWAY, WAIT_S, Json, Url, Wait, connect, console, print_json
from log_tables.counts import counted

if TYPE_CHECKING:
    from lakelog.client.client import Client

_SETTING = "value.columns"


def infer(
    name: Annotated[str, typer.Argument(metavar="TOPIC")],
    records: Annotated[int, typer.Option(help="How many of the newest records to look at.", min=1)] = 10_000,
    yes: Annotated[bool, typer.Option("--yes", help="Declare the columns without asking.")] = False,
    url: Url = GATEWAY,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Propose columns for a topic's JSON values, and declare them if you say so."""
    from log_tables.columns.declaration import parse
    from log_tables.columns.inference import inferred

    with connect(url, wait) as client:
        before = parse(client.topic_configs(name).get(_SETTING, ""))
        sample = [*_sample(client, name, records)]
        after = inferred(sample, before)
        new = len(after.columns) - len(before.columns)
        shown = {"topic": name, "sampled": len(sample), "value.columns": after.text, "new": new}
        if not json:
            _print(name, len(sample), [column.text for column in after.columns], new)
        asks = not (yes or json) and sys.stdin.isatty()
        if new and (yes or (asks and typer.confirm(f"Declare these columns of topic {name}?"))):
            client.alter_topic(name, {_SETTING: after.text})
            if not json:
                console().print(
                    f"topic {name} has {counted(len(after.columns), 'declared column')} from now on; "
                    "`lakelog maintain --once --job retype` makes those of older records"
                )
        elif new and not json and not asks:
            console().print("declare them with --yes, or the ones that you choose with")
            console().print(f"lakelog topic alter {name} --config '{_SETTING}=…'", soft_wrap=True)
    if json:
        print_json({**shown, "declared": bool(yes and new)})


def _print(name: str, sampled: int, columns: list[str], new: int) -> None:
    """The declaration, a column a line."""
    found = f"{counted(sampled, 'record')} of topic {name}"
    if not columns:
        console().print(f"{found}: no field of a JSON object that a column could have")
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
        ends = client.offsets(name, partition)
        left = each
        for table in client.read_tables(name, partition, max(ends.beginning, ends.end - each)):
            values = table.column(VALUE).to_pylist()[:left]
            yield from values
            left -= len(values)
            if left == 0:
                break
