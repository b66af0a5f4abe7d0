"""ACLs, quotas and users read and changed for a caller: done, audited and followed alike at every door.

A codec of a door makes the arguments of a request, and the answer of a result or an error, which the door
audits (`api/requests/changes.py`, `api/kafka/changes.py`). All of it blocks.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from api.gateway import Gateway
from coordinator.access.caller import Caller
from coordinator.access.lost_rights import lost_rights
from log_tables.cluster import metadata_history
from log_tables.cluster.access_record import AccessRules
from log_tables.cluster.acl import CLUSTER_NAME, Acl, Operation, ResourceType
from log_tables.cluster.admin import security_admin
from log_tables.cluster.admin.changed_by import ACCESS_CHANGES, TOPIC_CHANGES, changed_by
from log_tables.cluster.credential import ScramCredential, ScramUserRecord
from log_tables.cluster.credential_log import create_credentials, open_credentials
from log_tables.cluster.metadata_history import (
    AccessHistory,
    AccessVersion,
    Difference,
    acl_changes,
    quota_changes,
)
from log_tables.errors import Conflict

_ACLS_OF_EVENT = 50

LOST_NAMED = 5
"""Rights that an error names."""


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


@dataclass(frozen=True, slots=True)
class AclRevert:
    """A revert of the ACLs to those of `version`: which come, which go, and the rights that the caller loses,
    a text each.
    """

    version: AccessVersion
    added: Sequence[Acl]
    removed: Sequence[Acl]
    lost: Sequence[str]

    @property
    def changes(self) -> list[Difference]:
        """The ACLs that come and go, as a history shows them."""
        return acl_changes(self.added, self.removed)


def access_history(here: Gateway, asked: Caller) -> AccessHistory:
    """The versions of the rules of access. Raises AuthorizationFailed, CorruptLog."""
    asked.check(Operation.DESCRIBE, ResourceType.CLUSTER)
    return _history(here)


def _history(here: Gateway) -> AccessHistory:
    here.cluster.refresh()
    return metadata_history.access_history(here.cluster.metadata_log.partition)


def topic_changed_by(here: Gateway, asked: Caller, name: str, times_ms: Sequence[int]) -> Mapping[int, str]:
    """By times of changes of a topic the principals that made them, as far as the audit log says it, to a
    caller that may DESCRIBE the cluster.
    """
    if not asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        return {}
    return changed_by(here.cluster, times_ms, TOPIC_CHANGES, name)


def access_changed_by(here: Gateway, asked: Caller, times_ms: Sequence[int]) -> Mapping[int, str]:
    """By times of changes of the rules of access the principals that made them, as `topic_changed_by`."""
    if not asked.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        return {}
    return changed_by(here.cluster, times_ms, ACCESS_CHANGES)


def plan_acl_revert(here: Gateway, asked: Caller, version: int | None, time_ms: int | None) -> AclRevert:
    """The revert that `revert_acls` would make. Raises AuthorizationFailed, NotFound, OffsetOutOfRange."""
    history = access_history(here, asked)
    wanted = history.find(version, time_ms)
    target, rules = history.rules(wanted).acls, here.cluster.metadata_log.access
    added, removed = security_admin.acl_difference(rules, target)
    return AclRevert(wanted, added, removed, lost_rights(asked.identified, rules, target))


def revert_acls(
    here: Gateway, asked: Caller, version: int | None, time_ms: int | None, force: bool = False
) -> AclRevert:
    """Have the ACLs of an earlier version, or of a time (milliseconds since 1970), and no others, by one
    commit. Super users and quotas stay.

    Raises AuthorizationFailed, NotFound, OffsetOutOfRange for a time before the history; Conflict if the
    caller would lose rights, unless `force`.
    """
    asked.check(Operation.ALTER, ResourceType.CLUSTER)
    history = access_history(here, asked)
    wanted = history.find(version, time_ms)
    target, lost = history.rules(wanted).acls, list[str]()

    def check(rules: AccessRules) -> None:
        lost[:] = lost_rights(asked.identified, rules, target)
        if lost and not force:
            more = " and more" if len(lost) > LOST_NAMED else ""
            raise Conflict(
                f"you would lose {', '.join(lost[:LOST_NAMED])}{more}; look at the dry run, and force it if "
                "that is meant"
            )

    added, removed = security_admin.replace_acls(here.cluster.metadata_log, target, check)
    here.access.follow()
    _note_acls(asked, "RevertAcls", [*added, *removed])
    return AclRevert(wanted, added, removed, lost)


@dataclass(frozen=True, slots=True)
class QuotaRevert:
    """A revert of the quotas to those of `version`."""

    version: AccessVersion
    changes: Sequence[Difference]


def plan_quota_revert(here: Gateway, asked: Caller, version: int | None, time_ms: int | None) -> QuotaRevert:
    """The revert that `revert_quotas` would make. Raises AuthorizationFailed, NotFound, OffsetOutOfRange."""
    history = access_history(here, asked)
    wanted = history.find(version, time_ms)
    rules = here.cluster.metadata_log.access
    changed = security_admin.quota_difference(rules, history.rules(wanted).quotas)
    return QuotaRevert(wanted, quota_changes(changed))


def revert_quotas(here: Gateway, asked: Caller, version: int | None, time_ms: int | None) -> QuotaRevert:
    """Have the quotas of an earlier version, or of a time (milliseconds since 1970), and no others, by one
    commit. ACLs and super users stay.

    Raises AuthorizationFailed, NotFound, OffsetOutOfRange for a time before the history.
    """
    asked.check(Operation.ALTER_CONFIGS, ResourceType.CLUSTER)
    history = _history(here)
    wanted = history.find(version, time_ms)
    changed = security_admin.replace_quotas(here.cluster.metadata_log, history.rules(wanted).quotas)
    here.access.follow()
    asked.note_change("RevertClientQuotas", ResourceType.CLUSTER, CLUSTER_NAME, quotas=[*changed])
    return QuotaRevert(wanted, quota_changes(changed))


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
