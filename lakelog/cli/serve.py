"""`lakelog serve`: run a gateway."""

from typing import Annotated

import typer

from lakelog.settings import load_settings
from log_tables.errors import InvalidConfig


def serve(
    data: Annotated[
        str | None, typer.Option(help="Root of the tables: a directory or an object-store URL.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
    config: Annotated[
        str | None, typer.Option(help="Settings file (TOML); lakelog.toml where it exists.")
    ] = None,
    set_: Annotated[
        list[str],
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting, such as --set linger_ms=0."),
    ] = [],  # noqa: B006 -- typer copies it
) -> None:
    """Run a gateway until SIGTERM or Ctrl-C. docs/operating.md lists every setting."""
    named = {"data": data, "host": host, "port": port}
    settings = load_settings(config, **{**_pairs(set_), **{k: v for k, v in named.items() if v is not None}})
    # Imported here, so that the other commands do not wait for the whole gateway.
    from api.server import run

    run(settings)


def _pairs(texts: list[str]) -> dict[str, str]:
    """`name=value` texts as a dictionary. Raises InvalidConfig."""
    pairs = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            raise InvalidConfig(f"--set {text!r} has no value; write --set name=value")
        pairs[name.strip().replace("-", "_")] = value
    return pairs
