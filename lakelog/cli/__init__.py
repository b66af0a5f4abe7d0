"""The `lakelog` command: one file for each group of commands. Exit codes are in docs/operating.md."""

import json
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from lakelog.cli import bench, broker, consume, demo, fsck, group, maintain, produce, root, serve, sql, topic
from lakelog.cli.exit_code import FAILED, exit_code
from log_tables.errors import LakelogError


class _Commands(TyperGroup):
    """The commands, whose errors are one line and an exit code, never a traceback."""

    def invoke(self, ctx: Any) -> Any:
        json_asked = "--json" in ctx.args
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Whoever read our output has had enough. Nothing more can be said there, not even at the end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(exit_code(interrupt)) from None
        except (LakelogError, OSError) as error:
            sys.stdout.flush()
            if json_asked:
                code = error.code if isinstance(error, LakelogError) else "failed"
                print(json.dumps({"error": code, "message": str(error)}), file=sys.stderr)
            else:
                print(f"lakelog: {error}", file=sys.stderr)
            raise typer.Exit(exit_code(error)) from None


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve.serve)
app.add_typer(topic.app, name="topic", help="Create, list, describe, alter and delete topics.")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group", help="List, describe, measure, delete and reset consumer groups.")
app.add_typer(broker.app, name="broker", help="The gateways on a root.")
app.add_typer(root.app, name="root", help="Copy a root, and make a copied one its own.")
app.command("sql")(sql.sql)
app.command("fsck")(fsck.fsck)
app.command("maintain")(maintain.maintain)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)


@app.callback()
def _root() -> None:
    """A streaming log whose storage is the lakehouse."""
