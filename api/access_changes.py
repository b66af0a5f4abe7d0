"""ACLs, quotas and users read and changed for a caller: done, audited and followed alike at every door.

A codec of a door makes the arguments of a request, and the answer of a result or an error, which the door
audits (`api/requests/changes.py`, `api/kafka/changes.py`). All of it blocks.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from api.gateway import Gateway
from coordinator.access.caller import Caller
from log_tables.cluster.access_record import AccessRules
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, ResourceType
from log_tables.cluster.admin import security_admin
from log_tables.cluster.credential import ScramCredential, ScramUserRecord
from log_tables.cluster.credential_log import create_credentials, open_credentials

_ACLS_OF_EVENT = 50


def access_rules(here: Gateway) -> AccessRules:
    """The newest rules of access. Raises CorruptLog, StoreUnavailable."""
    here.cluster.refresh()
    return here.cluster.metadata_log.access


def find_acls(here: Gateway, asked: Caller, matches: Callable[[Acl], bool]) -> list[Acl]:
    """The ACLs for which `matches` holds, in order. Raises AuthorizationFailed."""
    asked.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    return sorted(filter(matches, access_rules(here).acls))


def create_acls(here: Gateway, asked: Caller, acls: Sequence[Acl]) -> None:
    """Add `acls` in one commit. There is one of each: to add it again changes nothing.

    Raises AuthorizationFailed.
    """
    asked.check(Operation.ALTER, ResourceType.CLUSTER)
    security_admin.add_acls(here.cluster.metadata_log, acls)
    here.access.follow()
    _note_acls(asked, "CreateAcls", acls)


def delete_acls(here: Gateway, asked: Caller, matches: Callable[[Acl], bool]) -> list[Acl]:
    """Remove the ACLs for which `matches` holds in one commit; returns them, in order.

    Raises AuthorizationFailed.
    """
    asked.check(Operation.ALTER, ResourceType.CLUSTER)
    gone = security_admin.remove_acls(here.cluster.metadata_log, matches)
    here.access.follow()
    _note_acls(asked, "DeleteAcls", gone)
    return gone


def _note_acls(asked: Caller, operation: str, acls: Sequence[Acl]) -> None:
    """Let the audit log have all of them, so many in an event."""
    for first in range(0, len(acls), _ACLS_OF_EVENT):
        shown = [str(acl) for acl in acls[first : first + _ACLS_OF_EVENT]]
        asked.note_change(operation, ResourceType.CLUSTER, CLUSTER_NAME, acls=shown)


def alter_quotas(here: Gateway, asked: Caller, changes: Mapping[str, Mapping[str, float | None]]) -> None:
    """Set the rates of entities, and remove those that are None, in one commit; others stay.

    Raises AuthorizationFailed, InvalidArgument.
    """
    asked.check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
    security_admin.alter_quotas(here.cluster.metadata_log, changes)
    for entity, rates in changes.items():
        asked.note_change("AlterClientQuotas", "QUOTA", entity, rates=dict(rates))


def scram_users(here: Gateway, asked: Caller) -> Mapping[str, ScramUserRecord]:
    """The users with passwords, by name. Raises AuthorizationFailed, CorruptLog, StoreUnavailable."""
    asked.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    log = open_credentials(here.cluster.store, here.clock, here.cluster.url)
    return {} if log is None else log.credentials.users


def alter_users(
    here: Gateway, asked: Caller, changes: Mapping[str, Mapping[str, ScramCredential | None]]
) -> Collection[str]:
    """Set the credentials of users by mechanism, and remove those that are None, in one commit. A user that
    has none is gone. This gateway goes by it at once. Returns the users that lack what is to be removed, of
    which nothing is changed.

    Raises AuthorizationFailed.
    """
    asked.check(Operation.ALTER, ResourceType.CLUSTER)
    if not changes:
        return ()
    log = create_credentials(here.cluster.store, here.clock, here.cluster.url)
    missing = security_admin.alter_users(log, changes)
    here.access.know(log.credentials)
    for name, wanted in changes.items():
        if name not in missing:
            kept = sorted(mechanism for mechanism, found in wanted.items() if found is not None)
            removed = sorted(wanted.keys() - {*kept})
            asked.note_change("AlterUserScramCredentials", "USER", name, mechanisms=kept, removed=removed)
    return missing
