"""`lakelog demo`: the main job, end to end, on real flights."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lakelog.cli.common import Json, console, print_json, progress_console


def demo(
    data: Annotated[
        Path, typer.Option(help="Where the demo's tables go; the topic of an earlier demo is replaced.")
    ] = Path("lakelog-data/demo"),
    json: Json = False,
) -> None:
    """Stream 336,776 flights through a gateway, read them back, check them, and ask SQL about them."""
    from lakelog.cli.flights import load_flights, run

    report = run(load_flights(), data, progress_console() if json else console())
    if json:
        print_json(asdict(report))
    if report.problems:
        raise typer.Exit(1)
