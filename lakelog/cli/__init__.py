"""The `lakelog` command: one file for each group of commands. Exit codes are in docs/operating.md."""

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lakelog.cli.commands import (
    acl,
    audit,
    bench,
    catalog,
    consume,
    context,
    demo,
    doctor,
    group,
    maintain,
    mirror,
    mirror_access,
    produce,
    quota,
    replicate,
    root,
    security,
    serve,
    sql,
    store,
    topic,
)
from lakelog.cli.common import FAILED, CommandGroup, exit_code
from lakelog.cli.contexts import applied
from log_tables.errors import AuthenticationFailed, LakelogError, Unreachable


class _Commands(CommandGroup):
    """All commands. An error ends a command with one line and an exit code, never with a traceback."""

    def invoke(self, ctx: Any) -> Any:
        words, name = [*ctx._protected_args, *ctx.args], ""
        try:
            with applied(words) as name:
                return super().invoke(ctx)
        except BrokenPipeError:
            # The reader of our output has closed it: write nothing more there, not even at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(FAILED) from None
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(exit_code(interrupt)) from None
        except (LakelogError, OSError) as error:
            sys.stdout.flush()
            if _asks_for_json(ctx.invoked_subcommand, words):
                code = error.code if isinstance(error, LakelogError) else "failed"
                print(json.dumps({"error": code, "message": _said(error)}), file=sys.stderr)
            else:
                within = f" (context {name})" if name and isinstance(error, Unreachable) else ""
                print(f"lakelog: {_said(error)}{within}", file=sys.stderr)
            raise typer.Exit(exit_code(error)) from None


def _said(error: LakelogError | OSError) -> str:
    said = str(error)
    if isinstance(error, AuthenticationFailed):
        said += "; set LAKELOG_API_KEY_FILE, or LAKELOG_API_KEY, or LAKELOG_USER and LAKELOG_PASSWORD"
    return said


def _asks_for_json(command: str | None, words: Sequence[str]) -> bool:
    """Whether a program reads the output, which of `sql` a --format says."""
    if command == "sql":
        return re.search("--format[ =](nd)?json", " ".join(words)) is not None
    return "--json" in words


app = typer.Typer(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("serve")(serve.serve)
app.add_typer(topic.app, name="topic", help="Create, list, describe, alter and delete topics.")
app.command("produce")(produce.produce)
app.command("consume")(consume.consume)
app.add_typer(group.app, name="group", help="List, describe, measure, delete and reset consumer groups.")
app.add_typer(serve.brokers, name="broker", help="The gateways on a root.")
app.add_typer(context.app, name="context", help="Name gateways, and choose the one that commands ask.")
mirror.app.command("acls")(mirror_access.acls)
app.add_typer(mirror.app, name="mirror", help="Copy topics of a running Kafka, at the same offsets.")
app.command("replicate")(replicate.replicate)
app.add_typer(root.app, name="root", help="Copy a root, and make a copied one its own.")
app.add_typer(catalog.app, name="catalog", help="The topics' tables in a catalog of tables.")
app.add_typer(store.app, name="store", help="Whether a directory or a bucket can hold a log.")
app.add_typer(security.app, name="security", help="Make the first key, and secure a cluster.")
app.add_typer(security.keys, name="key", help="Create, list and revoke API keys.")
app.add_typer(security.users, name="user", help="Create, list and remove SCRAM users.")
app.add_typer(quota.app, name="quota", help="Set, list and remove quotas.")
app.add_typer(acl.app, name="acl", help="Create, delete, list and export ACLs.")
app.add_typer(audit.app, name="audit", help="Who wrote a record, as the audit log says.")
app.command("sql")(sql.sql)
app.command("fsck")(root.fsck)
app.command("maintain")(maintain.maintain)
app.command("bench")(bench.bench)
app.command("demo")(demo.demo)
app.command("doctor")(doctor.doctor)


def _print_version(asked: bool) -> None:
    if asked:
        from lakelog import __version__

        print(f"lakelog {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """A streaming log whose storage is the lakehouse."""
