"""`lakelog quota`: how much a principal may do each second. It needs the store alone."""

from typing import Annotated

import typer

from lakelog.cli.common import (
    CommandGroup,
    Data,
    Json,
    cluster_at,
    console,
    note_change,
    pairs,
    print_json,
    print_table,
)
from lakelog.cli.history import (
    DryRun,
    ToTime,
    ToVersion,
    access_history,
    access_versions,
    differences,
    print_history,
    print_revert,
    time_of,
)
from log_tables.errors import InvalidArgument
from log_tables.units import explained, plain

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

DEFAULT = "default"

Entity = Annotated[str, typer.Argument(metavar="ENTITY", help="User:NAME, Group:NAME, or default.")]
Rates = Annotated[
    list[str],
    typer.Argument(
        metavar="NAME=RATE...",
        help="producer_byte_rate, consumer_byte_rate (such as 10MiB), request_rate, "
        "controller_mutation_rate; each a second.",
    ),
]


@app.command("set")
def set_rates(entity: Entity, rates: Rates, data: Data = None, json: Json = False) -> None:
    """Set rates of a user, of a group, or of all who have none of their own. Others stay as they are."""
    from log_tables.cluster.admin.security_admin import alter_quotas

    given = {name: _number(name, text) for name, text in pairs(rates, "the rate").items()}
    cluster = cluster_at(data)
    alter_quotas(cluster.metadata_log, {_entity(entity): given})
    _tell(json, "set", entity)
    note_change(cluster, "AlterClientQuotas", entity, "QUOTA", rates=given)


@app.command("list")
def list_quotas(data: Data = None, json: Json = False) -> None:
    """List the quotas."""
    from log_tables.cluster.access_record import Quota

    found = cluster_at(data).metadata_log.access.quotas
    names = Quota.__struct_fields__
    rows = [
        {"entity": _shown(entity), **{name: getattr(quota, name) for name in names}}
        for entity, quota in sorted(found.items())
    ]
    if json:
        print_json(rows)
    else:
        print_table(
            ("entity", *(name.replace("_", " ") for name in names)),
            [[row["entity"], *(_rate(name, row[name]) for name in names)] for row in rows],
        )


@app.command()
def remove(
    entity: Entity,
    names: Annotated[
        list[str], typer.Argument(metavar="[NAME...]", help="Some of its rates; by default all.")
    ] = [],  # noqa: B006 -- typer copies it
    data: Data = None,
    json: Json = False,
) -> None:
    """Remove the quota of a user, of a group, or the default."""
    from log_tables.cluster.access_record import Quota, check_quota_name
    from log_tables.cluster.admin.security_admin import remove_quota

    for name in names:
        check_quota_name(name)
    cluster = cluster_at(data)
    remove_quota(cluster.metadata_log, _entity(entity), names or Quota.__struct_fields__)
    _tell(json, "removed", entity)
    note_change(cluster, "DeleteClientQuotas", entity, "QUOTA", names=names)


@app.command()
def history(data: Data = None, json: Json = False) -> None:
    """List the versions of quotas, ACLs and super users, the newest first."""
    cluster = cluster_at(data)
    print_history(access_versions(cluster, access_history(cluster)), json)


@app.command()
def revert(
    to: ToVersion = None,
    to_time: ToTime = None,
    dry_run: DryRun = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Go back to earlier quotas, all or none. ACLs stay."""
    from log_tables.cluster.admin.security_admin import quota_difference, replace_quotas
    from log_tables.cluster.metadata_history import quota_changes

    time_ms = time_of(to, to_time)
    cluster = cluster_at(data)
    found = access_history(cluster)
    version = found.find(to, time_ms)
    target = found.rules(version).quotas
    if dry_run:
        made = quota_difference(cluster.metadata_log.access, target)
    else:
        made = replace_quotas(cluster.metadata_log, target)
    changes = quota_changes({_shown(entity): pair for entity, pair in made.items()})
    shown = {"version": version.version, "time_ms": version.at_ms, "changes": differences(changes)}
    print_revert(shown, dry_run, json)
    if made and not dry_run:
        note_change(cluster, "RevertClientQuotas", quotas=[each.name for each in changes])


def _entity(name: str) -> str:
    from log_tables.cluster.access_record import DEFAULT_QUOTA

    return DEFAULT_QUOTA if name == DEFAULT else name


def _shown(entity: str) -> str:
    from log_tables.cluster.access_record import DEFAULT_QUOTA

    return DEFAULT if entity == DEFAULT_QUOTA else entity


def _rate(name: str, rate: float | None) -> str | None:
    return None if rate is None else explained(name, f"{rate:.15g}")


def _number(name: str, text: str) -> float:
    try:
        return float(plain(name, text))
    except ValueError:
        raise InvalidArgument(
            f"{name[:40]} = {text[:40]!r} is not a number; write units a second, or bytes such as 10MiB"
        ) from None


def _tell(json: bool, done: str, entity: str) -> None:
    if json:
        print_json({done: entity})
    else:
        console().print(f"{done} the quota of {entity}")
