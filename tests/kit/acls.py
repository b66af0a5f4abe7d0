"""ACLs for tests, and a plain scan that decides as Kafka says, which the authorizer is compared with."""

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from coordinator.access.principal import Principal, RequestContext
from log_tables.cluster.acl import Acl, Operation, PatternType, Permission, ResourceType

HOST = "10.0.0.1"

DESCRIBES = {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
DESCRIBES_CONFIGS = {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}


def acl(
    name: str,
    principal: str = "User:ann",
    operation: Operation = Operation.READ,
    *,
    deny: bool = False,
    prefixed: bool = False,
    host: str = "*",
    resource_type: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(
        resource_type,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        Permission.DENY if deny else Permission.ALLOW,
    )


def asks(user: str = "ann", *groups: str, host: str = HOST) -> RequestContext:
    """The context of a request of `User:<user>`, who is in these groups."""
    return RequestContext(Principal(f"User:{user}", tuple(f"Group:{group}" for group in groups)), host)


def scanned(
    acls: Iterable[Acl], context: RequestContext, operation: Operation, resource: ResourceType, name: str
) -> bool:
    """Whether `acls` allow an operation, decided by a plain scan of all of them."""
    matching = [each for each in acls if each.resource_type == resource and _matches(each, context, name)]
    denied = any(each.permission == Permission.DENY and _names(each, operation) for each in matching)
    return not denied and any(
        each.permission == Permission.ALLOW and (_names(each, operation) or _implies(each, operation))
        for each in matching
    )


def _matches(each: Acl, context: RequestContext, name: str) -> bool:
    prefixed = each.pattern_type == PatternType.PREFIXED
    named = name.startswith(each.resource_name) if prefixed else each.resource_name in {name, "*"}
    principals = {context.principal.name, "User:*", *context.principal.groups}
    return named and each.principal in principals and _is_from(each, context.host)


def _is_from(each: Acl, host: str) -> bool:
    if "/" in each.host:
        return ip_address(host) in ip_network(each.host)
    return each.host in {host, "*"}


def _names(each: Acl, operation: Operation) -> bool:
    return each.operation in {operation, Operation.ALL}


def _implies(each: Acl, operation: Operation) -> bool:
    match operation:
        case Operation.DESCRIBE:
            return each.operation in DESCRIBES
        case Operation.DESCRIBE_CONFIGS:
            return each.operation in DESCRIBES_CONFIGS
        case _:
            return False
