"""Kafka's filters of ACLs, by which they are listed and deleted (KIP-140, KIP-290)."""

from enum import StrEnum

import msgspec

from coordinator.access.host import normal_host
from log_tables.cluster.acl import ANY, Acl, Operation, PatternType, Permission, ResourceType


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
