"""ACLs, and filters of them, from the fields that a client names them by: parsed and checked."""

from collections.abc import Mapping
from enum import StrEnum
from ipaddress import ip_address
from typing import TypeVar

import msgspec

from coordinator.access.acl_filter import AclFilter, PatternTypeFilter
from coordinator.access.host import normal_host
from coordinator.access.principal import GROUP, USER, USER_MAX_CHARS
from log_tables.cluster.acl import (
    ANY,
    CLUSTER_NAME,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from log_tables.errors import InvalidArgument
from log_tables.limits import ACL_NAME_MAX_CHARS

_CONFIGS = frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS})

SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: _CONFIGS
    | {Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE}
    | {Operation.ALTER, Operation.DESCRIBE},
    ResourceType.GROUP: _CONFIGS | {Operation.READ, Operation.DELETE, Operation.DESCRIBE},
    ResourceType.CLUSTER: _CONFIGS
    | {Operation.CREATE, Operation.ALTER, Operation.DESCRIBE}
    | {Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE},
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE}),
}
"""The operations that ACLs of each type may name besides ALL, as in Kafka."""

_SHOWN_CHARS = 100

Name = TypeVar("Name", bound=StrEnum)


def acl_from(fields: Mapping[str, str | None]) -> Acl:
    """An ACL from the fields of `Acl`: all of them, but that `pattern_type` is LITERAL and `host` is `*`
    where they are absent. Raises InvalidArgument.
    """
    for name in ("resource_type", "resource_name", "principal", "operation", "permission"):
        if fields.get(name) is None:
            raise InvalidArgument(f"an ACL needs {name}; add it")
    return checked(
        Acl(
            _one_of(ResourceType, "resource_type", fields),
            fields["resource_name"] or "",
            _one_of(PatternType, "pattern_type", {"pattern_type": PatternType.LITERAL, **_given(fields)}),
            fields["principal"] or "",
            _given(fields).get("host", ANY),
            _one_of(Operation, "operation", fields),
            _one_of(Permission, "permission", fields),
        )
    )


def filter_from(fields: Mapping[str, str | None]) -> AclFilter:
    """A filter from its fields: absent ones are any, and so are enumerations that are ANY.

    Raises InvalidArgument.
    """
    given = {name: text for name, text in _given(fields).items() if text != "ANY" or name in _TEXTS}
    pattern_type = PatternTypeFilter.ANY
    if "pattern_type" in given:
        pattern_type = _one_of(PatternTypeFilter, "pattern_type", given)
    return AclFilter(
        _one_of(ResourceType, "resource_type", given) if "resource_type" in given else None,
        given.get("resource_name"),
        pattern_type,
        given.get("principal"),
        given.get("host"),
        _one_of(Operation, "operation", given) if "operation" in given else None,
        _one_of(Permission, "permission", given) if "permission" in given else None,
    )


_TEXTS = {"resource_name", "principal", "host"}


def _given(fields: Mapping[str, str | None]) -> dict[str, str]:
    return {name: text for name, text in fields.items() if text is not None}


def _one_of(kind: type[Name], field: str, fields: Mapping[str, str | None]) -> Name:
    text = fields[field] or ""
    try:
        return kind(text)
    except ValueError:
        shown = text[:_SHOWN_CHARS]
        raise InvalidArgument(f"{field} {shown!r} is not known; use one of {', '.join(kind)}") from None


def checked(acl: Acl) -> Acl:
    """`acl` with its host in the one form of that address. Raises InvalidArgument for one that could never
    match.
    """
    check_principal(acl.principal)
    _check_resource(acl)
    return msgspec.structs.replace(acl, host=_checked_host(acl.host))


def check_principal(principal: str) -> None:
    """Raises InvalidArgument unless `principal` is `User:<name>`, `User:*` or `Group:<name>`."""
    name = principal.partition(":")[2]
    if not principal.startswith((USER, GROUP)) or not name:
        raise InvalidArgument(
            f"the principal {principal[:_SHOWN_CHARS]!r} is neither User:<name> nor Group:<name>; write it so"
        )
    if len(name) > USER_MAX_CHARS or not name.isprintable():
        raise InvalidArgument(
            f"the principal {principal[:_SHOWN_CHARS]!r} has more than {USER_MAX_CHARS} characters, or "
            "some that cannot be shown; use another name"
        )
    if principal == f"{GROUP}{ANY}":
        raise InvalidArgument(f"{GROUP}{ANY} is no group; name one, or use {USER}{ANY} for everybody")


def _check_resource(acl: Acl) -> None:
    kind, name = acl.resource_type, acl.resource_name
    if not 1 <= len(name) <= ACL_NAME_MAX_CHARS or not name.isprintable():
        raise InvalidArgument(
            f"the resource name {name[:_SHOWN_CHARS]!r} is not one of 1 to {ACL_NAME_MAX_CHARS} characters "
            "that can be shown; name a resource, a prefix, or *"
        )
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise InvalidArgument(f"the cluster is {CLUSTER_NAME!r}, not {name[:_SHOWN_CHARS]!r}; name it so")
    supported = SUPPORTED_OPERATIONS[kind]
    if acl.operation is not Operation.ALL and acl.operation not in supported:
        known = ", ".join(each for each in Operation if each is Operation.ALL or each in supported)
        raise InvalidArgument(f"{kind} has no operation {acl.operation}; use one of {known}")


def _checked_host(host: str) -> str:
    if host != ANY:
        try:
            if not host.isprintable():  # a zone of IPv6 may be any text
                raise ValueError
            ip_address(host)
        except ValueError:
            shown = host[:_SHOWN_CHARS]
            raise InvalidArgument(f"the host {shown!r} is no IP address; write one, or * for any") from None
    return normal_host(host)
