"""ACLs, and Kafka's filters of them (KIP-140, KIP-290, KIP-1276), from the fields that clients name."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

import msgspec

from coordinator.access.host import is_host, normal_host
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


class PatternTypeFilter(StrEnum):
    """How a filter means the name of a resource."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"
    ANY = "ANY"
    """Patterns with this name, of either type."""
    MATCH = "MATCH"
    """Patterns that match a resource with this name."""


class AclFilter(msgspec.Struct, frozen=True):
    """Kafka's AclBindingFilter. None is any: any type, name, principal, host, operation, permission.

    The operation ALL is that of ACLs for ALL, and not of every ACL.
    """

    resource_type: ResourceType | None = None
    resource_name: str | None = None
    pattern_type: PatternTypeFilter = PatternTypeFilter.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (None, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and (self.host is None or normal_host(self.host) == normal_host(acl.host))
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
        )

    def named(self) -> dict[str, str]:
        """Its fields as the parameters of version 3 of the REST Proxy, which a gateway takes."""
        kinds = {
            "resource_type": self.resource_type,
            "operation": self.operation,
            "permission": self.permission,
        }
        names = {"resource_name": self.resource_name, "principal": self.principal, "host": self.host}
        said = {name: value for name, value in names.items() if value is not None}
        found = {name: "ANY" if kind is None else kind.value for name, kind in kinds.items()}
        return {**found, **said, "pattern_type": self.pattern_type.value}

    def _matches_pattern(self, acl: Acl) -> bool:
        match self.pattern_type:
            case PatternTypeFilter.ANY:
                return self.resource_name in (None, acl.resource_name)
            case PatternTypeFilter.MATCH:
                return self.resource_name is None or _covers(acl, self.resource_name)
            case _:
                same = self.pattern_type.value == acl.pattern_type.value
                return same and self.resource_name in (None, acl.resource_name)


def _covers(acl: Acl, name: str) -> bool:
    if acl.pattern_type is PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, ANY)


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
    if host != ANY and not is_host(host):
        raise InvalidArgument(
            f"the host {host[:_SHOWN_CHARS]!r} is neither an IP address nor a network such as 10.0.0.0/8; "
            "write one, or * for any"
        )
    return normal_host(host)
