"""`python -m lakelog` is the `lakelog` command."""

from lakelog.cli import app

app(prog_name="lakelog")
