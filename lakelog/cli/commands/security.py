"""`lakelog security`: the first admin key, and whether a cluster is secured. It needs the store alone."""

from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli.change import note_change
from lakelog.cli.common import CommandGroup, Data, Json, cluster_at, console, print_json

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
