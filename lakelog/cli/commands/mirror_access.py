"""`lakelog mirror acls`: the ACLs of a source that concern a mirror, made here too."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakelog.cli.common import (
    Data,
    Json,
    cluster_at,
    console,
    note_change,
    print_json,
    print_table,
    source_of,
)
from log_tables.counts import counted

if TYPE_CHECKING:
    from collections.abc import Collection

    from jobs.mirror.acls import AclDifference
    from log_tables.cluster.acl import Acl

_SHOWN = 3


def acls(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the difference.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Add the ACLs of the source that concern the mirror and are missing here. Deletes none."""
    from coordinator.access.acl_argument import checked
    from jobs.mirror.acls import acl_difference
    from log_tables.cluster.admin.mirror_admin import mirror_named
    from log_tables.cluster.admin.security_admin import add_acls

    cluster = cluster_at(data)
    found = acl_difference(cluster, name, source_of(mirror_named(cluster, name)), checked)
    added = [] if dry_run else add_acls(cluster.metadata_log, found.missing)
    if added:
        note_change(cluster, "CreateAcls", mirror=name, acls=[str(acl) for acl in added])
    if json:
        print_json(_facts(name, found, added))
    else:
        _show(name, found, "missing" if dry_run else "added", secured=cluster.metadata_log.access.secured)


def _facts(name: str, found: "AclDifference", added: "Collection[Acl]") -> dict[str, Any]:
    import msgspec

    def shown(rules: "Collection[Acl]") -> Any:
        return [msgspec.to_builtins(acl) for acl in rules]

    return {
        "mirror": name,
        "missing": shown(found.missing),
        "added": shown(added),
        "equal": found.equal,
        "only_here": shown(found.only_here),
        "left_out": [{"acl": each.acl, "reason": each.reason} for each in found.left_out],
        "not_copied": found.elsewhere,
        "wide": [{"acl": str(acl), "topics": topics} for acl, topics in found.wide.items()],
    }


def _show(name: str, found: "AclDifference", did: str, secured: bool) -> None:
    from log_tables.cluster.acl import Acl

    rows = [(did, acl) for acl in found.missing] + [("only here", acl) for acl in found.only_here]
    columns = Acl.__struct_fields__
    if rows:
        print_table(("", *columns), [(word, *(getattr(acl, each) for each in columns)) for word, acl in rows])
    say = console().print
    say(
        f"{counted(len(found.missing), 'ACL')} {did}, {found.equal} equal, {len(found.only_here)} only here, "
        "which stay"
    )
    for each in found.left_out:
        say(f"cannot be here: {each.acl}: {each.reason}")
    for acl, topics in found.wide.items():
        more = f" and {len(topics) - _SHOWN} more" if len(topics) > _SHOWN else ""
        say(f"covers topics here that are no copies of {name}: {acl}: {', '.join(topics[:_SHOWN])}{more}")
    for about, count in found.elsewhere.items():
        say(f"not copied: {counted(count, 'ACL')} on {about}")
    if not secured:
        say("this root is not secured: ACLs count from `lakelog security enable` on")
