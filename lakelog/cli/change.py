"""A change that a command makes past every gateway, as an event of the audit log."""

import os
import pwd
import socket
from typing import TYPE_CHECKING

import typer

from log_tables.errors import LakelogError

if TYPE_CHECKING:
    from log_tables.cluster.cluster import Cluster

_OS_USER = "os:"
"""Stands before the name of an account of the operating system, so that it is no principal of the cluster."""


def note_change(
    cluster: "Cluster", operation: str, name: str = "", resource_type: str = "CLUSTER", **facts: object
) -> None:
    """Add what was done to the audit log, if there is one; a failure is a warning, as it was done.

    `name` is that of a resource, by default the cluster; `facts` have no secrets.
    """
    from log_tables.cluster.acl import CLUSTER_NAME
    from log_tables.cluster.admin.audit_log import append_events
    from log_tables.cluster.audit_record import AuditKind, AuditRecord

    record = AuditRecord(
        uid=cluster.clock.unique_id(),
        kind=AuditKind.CHANGE,
        time_ms=cluster.clock.now_ms(),
        operation=operation,
        principal=_OS_USER + _account(),
        address=socket.gethostname(),
        resource_type=resource_type,
        resource_name=name or CLUSTER_NAME,
        facts=facts,
    )
    try:
        append_events(cluster, [record])
    except (LakelogError, OSError) as error:
        typer.echo(f"this change is made, and is not in the audit log: {error}", err=True)


def _account() -> str:
    """By the process, and not by variables such as LOGNAME, which everybody can set."""
    number = os.getuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # an account without a name, as in a container
        return str(number)
