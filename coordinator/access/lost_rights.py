"""The rights that a caller would lose by other ACLs: nobody is to lock themselves out without being told."""

from collections.abc import Collection

from coordinator.access.acl_argument import SUPPORTED_OPERATIONS
from coordinator.access.authorizer import Authorizer
from coordinator.access.principal import RequestContext
from log_tables.cluster.access_record import AccessRules
from log_tables.cluster.acl import Acl


def lost_rights(context: RequestContext | None, rules: AccessRules, target: Collection[Acl]) -> list[str]:
    """The rights that the caller of `context` has by `rules`, and not with the ACLs `target` in place of
    theirs, as texts such as `READ on TOPIC flights`; none where nobody is authenticated. Super users stay.

    It looks at all operations on the names that the ACLs which come or go name: a prefix stands for itself.
    """
    if context is None:
        return []
    before, after = Authorizer(rules.acls, rules.super_users), Authorizer(target, rules.super_users)
    lost = set()
    for acl in rules.acls ^ {*target}:
        for operation in SUPPORTED_OPERATIONS[acl.resource_type]:
            about = context, operation, acl.resource_type, acl.resource_name
            if before.authorize(*about) and not after.authorize(*about):
                lost.add(f"{operation} on {acl.resource_type} {acl.resource_name}")
    return sorted(lost)
