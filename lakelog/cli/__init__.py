"""The `lakelog` command: one file for each group of commands."""

import typer

from lakelog.cli.serve import serve

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(serve)


@app.callback()
def _root() -> None:
    """A streaming log whose storage is the lakehouse."""
