"""`lakelog acl`: who may do what, by the options of Kafka's kafka-acls. It needs the store, or a gateway."""

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from lakelog.cli import completion
from lakelog.cli.common import (
    WAIT_S,
    CommandGroup,
    Data,
    Json,
    Wait,
    cluster_at,
    connect,
    console,
    note_change,
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
from log_tables.counts import counted
from log_tables.errors import InvalidArgument, NotFound

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from lakelog.client.client import Client
    from log_tables.cluster.acl import Acl
    from log_tables.cluster.cluster import Cluster

app = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode=None)

_COLUMNS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission")

_PRINCIPAL = "User:<name>, Group:<name>, or User:* for everybody; may be repeated."
_HOST = "An IP address or a network, 10.0.0.0/8; may be repeated (default: any)."

AllowPrincipal = Annotated[list[str], typer.Option(metavar="PRINCIPAL", help=f"Allow: {_PRINCIPAL}")]
AllowHost = Annotated[list[str], typer.Option(metavar="ADDRESS", help=f"From where: {_HOST}")]
DenyPrincipal = Annotated[list[str], typer.Option(metavar="PRINCIPAL", help=f"Deny: {_PRINCIPAL}")]
DenyHost = Annotated[list[str], typer.Option(metavar="ADDRESS", help=f"From where: {_HOST}")]
OperationNames = Annotated[
    list[str], typer.Option("--operation", metavar="OPERATION", help="READ, WRITE, …; may be repeated.")
]
Topics = Annotated[
    list[str],
    typer.Option("--topic", metavar="TOPIC", help="A topic, * for any.", autocompletion=completion.topics),
]
Groups = Annotated[
    list[str],
    typer.Option(
        "--group", metavar="GROUP", help="A consumer group, * for any.", autocompletion=completion.groups
    ),
]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster.")]
TransactionalIds = Annotated[
    list[str], typer.Option("--transactional-id", metavar="ID", help="A transactional id, * for any.")
]
Producer = Annotated[
    bool, typer.Option("--producer", help="WRITE, DESCRIBE and CREATE on topics, WRITE and DESCRIBE on ids.")
]
Consumer = Annotated[bool, typer.Option("--consumer", help="READ and DESCRIBE on topics, READ on groups.")]
NewPattern = Annotated[
    str, typer.Option(metavar="literal|prefixed", help="Whether names are prefixes (default: literal).")
]
Pattern = Annotated[
    str | None,
    typer.Option(
        metavar="literal|prefixed|any|match",
        help="any: of either type; match: all that match the name (default: literal for names).",
    ),
]


Gateway = Annotated[str | None, typer.Option("--url", help="A gateway to ask instead of the store.")]


@app.command()
def create(  # noqa: PLR0913, PLR0917 -- each is an option
    allow_principal: AllowPrincipal = [],  # noqa: B006 -- typer copies it
    allow_host: AllowHost = [],  # noqa: B006
    deny_principal: DenyPrincipal = [],  # noqa: B006
    deny_host: DenyHost = [],  # noqa: B006
    operation: OperationNames = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = [],  # noqa: B006
    resource_pattern_type: NewPattern = "literal",
    producer: Producer = False,
    consumer: Consumer = False,
    data: Data = None,
    url: Gateway = None,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Create ACLs: each principal, host, operation and resource with each other. ALL without an operation."""
    import msgspec

    from lakelog.cli.acl_options import Operations, Principals, Resources, acls_of
    from log_tables.cluster.admin.security_admin import add_acls

    acls = acls_of(
        Resources(topic, group, cluster, transactional_id, resource_pattern_type),
        Operations(operation, producer, consumer),
        Principals(allow_principal, allow_host, deny_principal, deny_host),
    )
    if url is not None:
        with _asked(url, data, wait) as client:
            client.create_acls([msgspec.to_builtins(acl) for acl in acls])
    else:
        root = cluster_at(data)
        add_acls(root.metadata_log, acls)
        note_change(root, "CreateAcls", acls=[str(acl) for acl in acls])
    _show(acls, json)


@app.command()
def delete(  # noqa: PLR0913, PLR0917 -- each is an option
    allow_principal: AllowPrincipal = [],  # noqa: B006
    allow_host: AllowHost = [],  # noqa: B006
    deny_principal: DenyPrincipal = [],  # noqa: B006
    deny_host: DenyHost = [],  # noqa: B006
    operation: OperationNames = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = [],  # noqa: B006
    resource_pattern_type: Pattern = None,
    producer: Producer = False,
    consumer: Consumer = False,
    data: Data = None,
    url: Gateway = None,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Delete the ACLs that have all that is named; what is not named is any. Prints them."""
    from lakelog.cli.acl_options import Operations, Principals, Resources, filters_of
    from log_tables.cluster.admin.security_admin import remove_acls

    resources = Resources(topic, group, cluster, transactional_id, resource_pattern_type)
    principals = Principals(allow_principal, allow_host, deny_principal, deny_host)
    filters = filters_of(resources, Operations(operation, producer, consumer), principals)
    if not resources.named() and not principals.named():
        raise InvalidArgument("these would be ACLs of all kinds; name a resource or a principal")
    if url is not None:
        with _asked(url, data, wait) as client:
            found = _acls(each for wanted in filters for each in client.delete_acls(**wanted.named()))
    else:
        root = cluster_at(data)
        found = remove_acls(root.metadata_log, lambda acl: any(each.matches(acl) for each in filters))
        if found:
            note_change(root, "DeleteAcls", acls=[str(acl) for acl in found])
    if not found:
        raise NotFound("there is no such ACL; see `lakelog acl list`")
    _show(found, json)


@app.command("list")
def list_acls(  # noqa: PLR0913, PLR0917 -- each is an option
    principal: Annotated[
        list[str], typer.Option(metavar="PRINCIPAL", help="Only ACLs of this one; may be repeated.")
    ] = [],  # noqa: B006
    topic: Topics = [],  # noqa: B006
    group: Groups = [],  # noqa: B006
    cluster: OfCluster = False,
    transactional_id: TransactionalIds = [],  # noqa: B006
    resource_pattern_type: Pattern = None,
    data: Data = None,
    url: Gateway = None,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """List ACLs: all of them, or those about the resources that are named."""
    from lakelog.cli.acl_options import Resources

    filters = [*Resources(topic, group, cluster, transactional_id, resource_pattern_type).filters()]
    if url is not None:
        with _asked(url, data, wait) as client:
            every = _acls(each for wanted in filters for each in client.acls(**wanted.named()))
    else:
        every = [*cluster_at(data).metadata_log.access.acls]
    found = [
        acl
        for acl in every
        if any(each.matches(acl) for each in filters) and (not principal or acl.principal in principal)
    ]
    _show(found, json)


@app.command()
def history(data: Data = None, url: Gateway = None, wait: Wait = WAIT_S, json: Json = False) -> None:
    """List the versions of ACLs, super users and quotas, the newest first, and who made them if known."""
    if url is not None:
        with _asked(url, data, wait) as client:
            print_history(client.access_history(), json)
        return
    cluster = cluster_at(data)
    print_history(access_versions(cluster, access_history(cluster)), json)


@app.command()
def revert(
    to: ToVersion = None,
    to_time: ToTime = None,
    dry_run: DryRun = False,
    force: Annotated[bool, typer.Option("--force", help="Do it even if you lose rights.")] = False,
    data: Data = None,
    url: Gateway = None,
    wait: Wait = WAIT_S,
    json: Json = False,
) -> None:
    """Go back to earlier ACLs, all or none. Super users and quotas stay."""
    time_ms = time_of(to, to_time)
    if url is not None:
        with _asked(url, data, wait) as client:
            print_revert(client.revert_acls(to, time_ms, dry_run, force), dry_run, json)
        return
    print_revert(_reverted(cluster_at(data), to, time_ms, dry_run), dry_run, json)


def _reverted(root: "Cluster", to: int | None, time_ms: int | None, dry_run: bool) -> dict[str, object]:
    from log_tables.cluster.admin.security_admin import acl_difference, replace_acls
    from log_tables.cluster.metadata_history import acl_changes

    found = access_history(root)
    version = found.find(to, time_ms)
    target = found.rules(version).acls
    if dry_run:
        added, removed = acl_difference(root.metadata_log.access, target)
    else:
        added, removed = replace_acls(root.metadata_log, target)
    if (added or removed) and not dry_run:
        note_change(root, "RevertAcls", acls=[str(acl) for acl in (*added, *removed)])
    changes = differences(acl_changes(added, removed))
    return {"version": version.version, "time_ms": version.at_ms, "changes": changes, "lost": []}


@app.command()
def export(
    form: Annotated[
        str,
        typer.Option("--format", metavar="aws-iam|gcs|posix", help="The language of the store of the root."),
    ],
    data: Data = None,
) -> None:
    """Print the policy of the store that READ ACLs on topics amount to, for readers of the tables."""
    from coordinator.access.acl_export import exported

    cluster = cluster_at(data)
    roots = [cluster.store.url, *filter(None, [cluster.remote_root])]
    directories = {topic.name: [topic.directory] for topic in cluster.topics()}
    sys.stdout.write(exported(form, cluster.metadata_log.access.acls, roots, directories))


def _asked(url: str, data: str | None, wait_s: float) -> "AbstractContextManager[Client]":
    """A client of the gateway. Raises InvalidArgument if a root is named, too."""
    if data is not None:
        raise InvalidArgument("--url asks a gateway, and --data the store of a root; name one of them")
    return connect(url, wait_s)


def _acls(found: "Iterable[Mapping[str, str]]") -> "list[Acl]":
    """Each once."""
    import msgspec

    from log_tables.cluster.acl import Acl

    return [*dict.fromkeys(msgspec.convert(each, Acl) for each in found)]


def _show(acls: "Iterable[Acl]", json: bool) -> None:
    import msgspec

    rows: list[dict[str, str]] = [msgspec.to_builtins(acl) for acl in sorted(acls)]
    if json:
        print_json(rows)
        return
    print_table(_COLUMNS, [[row[name] for name in _COLUMNS] for row in rows])
    console().print(f"\n{counted(len(rows), 'ACL')}")
