"""`lakelog user`: SCRAM users, who have a name and a password. It needs the store alone."""

from pathlib import Path
from typing import Annotated

import typer

from lakelog.cli.change import note_change
from lakelog.cli.common import CommandGroup, Data, Json, cluster_at, console, print_json, print_table

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The principal is User:NAME.")]
PASSWORD_VARIABLE = "LAKELOG_NEW_PASSWORD"  # noqa: S105 -- the name of a variable


@app.command()
def create(
    name: Name,
    password_file: Annotated[
        Path | None,
        typer.Option(help=f"A file with the password; else ${PASSWORD_VARIABLE}, or a prompt."),
    ] = None,
    iterations: Annotated[int, typer.Option(help="How slow guessing is, 4096 to 16384.")] = 16_384,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make a SCRAM user, or give one another password."""
    from coordinator.access.authentication.scram import new_scram_user
    from coordinator.access.principal import USER, check_user
    from log_tables.cluster.admin.security_admin import put_user
    from log_tables.cluster.credential_log import create_credentials

    check_user(USER + name)
    cluster = cluster_at(data)
    made = new_scram_user(name, _password(password_file), cluster.clock, iterations)
    log = create_credentials(cluster.store, cluster.clock, "")
    put_user(log, made)
    _tell(json, "created", name)
    note_change(cluster, "AlterUserScramCredentials", name, "USER", mechanisms=sorted(made.mechanisms))
    log.clean()


@app.command("list")
def list_users(data: Data = None, json: Json = False) -> None:
    """List the SCRAM users."""
    from log_tables.cluster.credential_log import Credentials, open_credentials

    cluster = cluster_at(data)
    log = open_credentials(cluster.store, cluster.clock, "")
    found = Credentials() if log is None else log.credentials
    rows = [
        {"user": user.name, "mechanisms": sorted(user.mechanisms)}
        for user in sorted(found.users.values(), key=lambda user: user.name)
    ]
    if json:
        print_json(rows)
    else:
        listed = [(row["user"], ", ".join(row["mechanisms"])) for row in rows]
        print_table(("user", "mechanisms"), listed)


@app.command()
def remove(name: Name, data: Data = None, json: Json = False) -> None:
    """Remove a SCRAM user: every gateway refuses its password within two seconds."""
    from log_tables.cluster.admin.security_admin import remove_user
    from log_tables.cluster.credential_log import create_credentials

    cluster = cluster_at(data)
    log = create_credentials(cluster.store, cluster.clock, "")
    remove_user(log, name)
    _tell(json, "removed", name)
    note_change(cluster, "DeleteUserScramCredentials", name, "USER")
    log.clean()


def _tell(json: bool, done: str, name: str) -> None:
    if json:
        print_json({done: name})
    else:
        console().print(f"{done} user {name}")


def _password(file: Path | None) -> str:
    """The password, from a file, the environment or a prompt: never from a flag, which others can see."""
    import os

    if file is not None:
        return file.read_text(encoding="utf-8").removesuffix("\n")
    found = os.environ.get(PASSWORD_VARIABLE)
    if found is None:
        found = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    return found
