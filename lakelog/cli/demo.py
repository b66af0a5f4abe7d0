"""`lakelog demo`: the main job, end to end, on real flights."""

from pathlib import Path
from typing import Annotated

import typer

from lakelog.cli.common import console


def demo(
    data: Annotated[
        Path, typer.Option(help="Where the demo's tables go; a former demo there is replaced.")
    ] = Path("lakelog-data/demo"),
) -> None:
    """Stream 336,776 flights through a gateway, read them back, check them, and ask SQL about them."""
    from lakelog.demo import run

    if not run(data, console):
        raise typer.Exit(1)
