"""`lakelog security`, `lakelog key` and `lakelog user`: whether a cluster is secured, and its credentials.

Super users, API keys, and SCRAM users with a name and a password. All of it needs the store alone.
"""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.common import (
    CommandGroup,
    Data,
    Json,
    cluster_at,
    console,
    note_change,
    print_json,
    print_table,
)
from log_tables.errors import InvalidArgument

if TYPE_CHECKING:
    from log_tables.cluster.cluster import Cluster

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

ADMIN = "User:admin"

SuperUser = Annotated[str, typer.Argument(metavar="USER:NAME")]


@app.command()
def init(data: Data = None, json: Json = False) -> None:
    """Make an API key for the super user User:admin, and print it once.

    Run it again when every key is lost. Gateways that run take the key within two seconds.
    """
    from coordinator.access.authentication.api_key import new_api_key
    from log_tables.cluster.admin import security_admin
    from log_tables.cluster.credential_log import create_credentials

    cluster = cluster_at(data, create=True)
    credentials = create_credentials(cluster.store, cluster.clock, "")
    text, key = new_api_key(ADMIN, cluster.clock)
    security_admin.add_super_user(cluster.metadata_log, ADMIN)
    security_admin.add_api_key(credentials, key)
    if json:
        print_json({"principal": ADMIN, "key": text})
    else:
        console().print(f"{text}\n\nThis is the key of {ADMIN}, a super user. It is not shown again.")
    note_change(cluster, "CreateApiKey", key.id, "API_KEY", principal=ADMIN, super_user=True)


@app.command()
def enable(data: Data = None, json: Json = False) -> None:
    """Secure the cluster: gateways that authenticate nobody stop, and no such gateway starts."""
    from log_tables.cluster.admin.security_admin import enable_security

    cluster = cluster_at(data)
    enable_security(cluster.metadata_log)
    _show(cluster, json)
    note_change(cluster, "EnableSecurity")


@app.command()
def disable(data: Data = None, json: Json = False) -> None:
    """Let gateways serve again that authenticate nobody. Others go on as before."""
    from log_tables.cluster.admin.security_admin import disable_security

    cluster = cluster_at(data)
    disable_security(cluster.metadata_log)
    _show(cluster, json)
    note_change(cluster, "DisableSecurity")


@app.command()
def status(data: Data = None, json: Json = False) -> None:
    """Show whether the cluster is secured, and who its super users are."""
    _show(cluster_at(data), json)


@app.command()
def add_super_user(principal: SuperUser, data: Data = None, json: Json = False) -> None:
    """Let a user do everything, without any ACL."""
    from log_tables.cluster.admin import security_admin

    cluster = cluster_at(data)
    security_admin.add_super_user(cluster.metadata_log, principal)
    _show(cluster, json)
    note_change(cluster, "CreateSuperUser", principal, "USER")


@app.command()
def remove_super_user(principal: SuperUser, data: Data = None, json: Json = False) -> None:
    """Leave a super user to the ACLs. A secured cluster keeps one."""
    from log_tables.cluster.admin import security_admin

    cluster = cluster_at(data)
    security_admin.remove_super_user(cluster.metadata_log, principal)
    _show(cluster, json)
    note_change(cluster, "RemoveSuperUser", principal, "USER")


def _show(cluster: "Cluster", json: bool) -> None:
    rules = cluster.metadata_log.access
    users = sorted(rules.super_users)
    if json:
        print_json({"secured": rules.secured, "super_users": users, "acls": len(rules.acls)})
        return
    console().print("The cluster is secured." if rules.secured else "The cluster is not secured.")
    console().print(f"Super users: {', '.join(users) or 'none'}. ACLs: {len(rules.acls)}.")


keys = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

_DAY_MS = 24 * 60 * 60 * 1000
_DAYS_MAX = 36_500


@keys.command("create")
def create_key(
    principal: Annotated[str, typer.Argument(metavar="USER:NAME", help="Whose key it is.")],
    expires: Annotated[
        float | None,
        typer.Option(
            "--expires-days", min=0, max=_DAYS_MAX, help="Days until it ends; by default it does not."
        ),
    ] = None,
    data: Data = None,
    json: Json = False,
) -> None:
    """Make an API key, and print it once."""
    from coordinator.access.authentication.api_key import new_api_key
    from coordinator.access.principal import check_user
    from log_tables.cluster.admin.security_admin import add_api_key
    from log_tables.cluster.credential_log import create_credentials

    check_user(principal)
    cluster = cluster_at(data)
    expires_ms = None if expires is None else cluster.clock.now_ms() + round(expires * _DAY_MS)
    text, key = new_api_key(principal, cluster.clock, expires_ms)
    add_api_key(create_credentials(cluster.store, cluster.clock, ""), key)
    if json:
        print_json({"id": key.id, "principal": principal, "key": text})
    else:
        console().print(f"{text}\n\nThis is a key of {principal}. It is not shown again.")
    note_change(cluster, "CreateApiKey", key.id, "API_KEY", principal=principal, expires_ms=expires_ms)


@keys.command("list")
def list_keys(data: Data = None, json: Json = False) -> None:
    """List the API keys, without their secrets."""
    from log_tables.cluster.credential_log import Credentials, open_credentials

    cluster = cluster_at(data)
    log = open_credentials(cluster.store, cluster.clock, "")
    found = Credentials() if log is None else log.credentials
    rows = [
        {
            "id": key.id,
            "principal": key.principal,
            "created": _time(key.created_ms),
            "expires": _time(key.expires_ms),
            "last_used": _time(found.used_ms.get(key.id)),
        }
        for key in sorted(found.api_keys.values(), key=lambda key: (key.principal, key.created_ms))
    ]
    if json:
        print_json(rows)
    else:
        print_table(("id", "principal", "created", "expires", "last used"), [[*row.values()] for row in rows])


@keys.command("revoke")
def revoke_keys(
    ids: Annotated[list[str], typer.Argument(metavar="ID...", help="The part of a key before its dot.")],
    data: Data = None,
    json: Json = False,
) -> None:
    """Revoke API keys: every gateway refuses them within two seconds."""
    from log_tables.cluster.admin.security_admin import revoke_api_keys
    from log_tables.cluster.credential_log import create_credentials

    for key_id in ids:
        if "." in key_id:
            raise InvalidArgument("the id of a key ends before its dot; name only that part")
    cluster = cluster_at(data)
    log = create_credentials(cluster.store, cluster.clock, "")
    revoke_api_keys(log, ids)
    if json:
        print_json({"revoked": ids})
    else:
        console().print(f"revoked {', '.join(ids)}")
    for key_id in ids:
        note_change(cluster, "RevokeApiKey", key_id, "API_KEY")
    log.clean()


def _time(at_ms: int | None) -> str | None:
    """ISO 8601 in UTC, in seconds."""
    return None if at_ms is None else f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


users = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The principal is User:NAME.")]
PASSWORD_VARIABLE = "LAKELOG_NEW_PASSWORD"  # noqa: S105 -- the name of a variable


@users.command("create")
def create_user(
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


@users.command("list")
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


@users.command("remove")
def remove_user(name: Name, data: Data = None, json: Json = False) -> None:
    """Remove a SCRAM user: every gateway refuses its password within two seconds."""
    from log_tables.cluster.admin import security_admin
    from log_tables.cluster.credential_log import create_credentials

    cluster = cluster_at(data)
    log = create_credentials(cluster.store, cluster.clock, "")
    security_admin.remove_user(log, name)
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
    if file is not None:
        return file.read_text(encoding="utf-8").removesuffix("\n")
    found = os.environ.get(PASSWORD_VARIABLE)
    if found is None:
        found = str(typer.prompt("Password", hide_input=True, confirmation_prompt=True))
    return found
