"""READ ACLs of topics as readers need them that pass by the gateway: names of topics, by principal."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from log_tables.cluster.acl import ANY, ANY_USER, Acl, Operation, PatternType, Permission, ResourceType

_NAME_PART = re.compile(r"[A-Za-z0-9._-]*")
"""The beginning of a name of a topic. Other patterns match no topic, and would be more in a policy."""


@dataclass(frozen=True, order=True)
class Names:
    """The names of topics that are `text`, or that begin with it."""

    text: str
    prefixed: bool

    def cover(self, other: "Names") -> bool:
        """Whether all of `other` are among these."""
        if self.prefixed:
            return other.text.startswith(self.text)
        return self == other

    def __str__(self) -> str:
        return f"{self.text}*" if self.prefixed else self.text


INTERNAL = Names("__", prefixed=True)
"""The topics that gateways give to nobody, whatever ACLs say, and others that programs have: a policy has no
room for each name, and never allows more than the gateway."""


@dataclass
class ReadAccess:
    """The topics that a principal may read by ACLs of its own, and those that it may not."""

    allowed: list[Names] = field(default_factory=list)
    denied: list[Names] = field(default_factory=list)


def read_access(acls: Iterable[Acl]) -> tuple[dict[str, ReadAccess], list[str]]:
    """By principal, what ACLs for READ and ALL say; and a sentence for each that a store cannot keep.

    A store does not know the hosts of ACLs as gateways do. So a permission for one host is left out, and a
    denial for one host is one for all: never more is allowed than by the gateway.
    """
    found: dict[str, ReadAccess] = {}
    lost = []
    for acl in sorted(acls):
        names = _names(acl)
        if names is None:
            continue
        if acl.host != ANY:
            instead = "left out" if acl.permission is Permission.ALLOW else "for all hosts here"
            lost.append(f"{_shown(acl)} from host {acl.host} is {instead}: a store does not compare hosts")
        access = found.setdefault(acl.principal, ReadAccess())
        if acl.permission is Permission.DENY:
            access.denied.append(names)
        elif INTERNAL.cover(names):
            lost.append(f"{_shown(acl)} is left out: a policy gives nobody topics whose names begin with __")
        elif acl.host == ANY:
            access.allowed.append(names)
    return {principal: _smallest(access) for principal, access in found.items()}, lost


def _names(acl: Acl) -> Names | None:
    """The names that an ACL is about; None for one that is not about reading topics."""
    if acl.resource_type is not ResourceType.TOPIC or acl.operation not in (Operation.READ, Operation.ALL):
        return None
    if acl.resource_name == ANY and acl.pattern_type is PatternType.LITERAL:
        return Names("", prefixed=True)
    if not _NAME_PART.fullmatch(acl.resource_name):
        return None
    return Names(acl.resource_name, acl.pattern_type is PatternType.PREFIXED)


def _shown(acl: Acl) -> str:
    verb = "allows" if acl.permission is Permission.ALLOW else "denies"
    return f"the ACL that {verb} {acl.operation} on {acl.pattern_type} {acl.resource_name} to {acl.principal}"


def _smallest(access: ReadAccess) -> ReadAccess:
    denied = _uncovered(access.denied)
    allowed = [names for names in _uncovered(access.allowed) if not covered(names, denied)]
    return ReadAccess(allowed, denied)


def _uncovered(all_names: list[Names]) -> list[Names]:
    """`all_names` without those that others of them cover."""
    once = sorted(set(all_names))
    return [names for names in once if not covered(names, [other for other in once if other != names])]


def covered(names: Names, others: Iterable[Names]) -> bool:
    return any(other.cover(names) for other in others)


def denied_to(principal: str, access: dict[str, ReadAccess]) -> list[Names]:
    """The topics that are denied to `principal` itself or to everybody."""
    own = [access[each].denied for each in {principal, ANY_USER} if each in access]
    return _uncovered([names for denied in own for names in denied])
