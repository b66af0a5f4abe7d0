"""`lakelog key`: API keys. It needs the store alone."""

from datetime import UTC, datetime
from typing import Annotated

import typer

from lakelog.cli.change import note_change
from lakelog.cli.common import CommandGroup, Data, Json, cluster_at, console, print_json, print_table
from log_tables.errors import InvalidArgument

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

_DAY_MS = 24 * 60 * 60 * 1000
_DAYS_MAX = 36_500


@app.command()
def create(
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


@app.command("list")
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


@app.command()
def revoke(
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
