"""Kafka's authorizer: whether a principal may do an operation on a resource (KIP-11, KIP-290, KIP-679)."""

from bisect import bisect_right, insort
from collections.abc import Iterable
from functools import lru_cache, partial

from coordinator.access.host import networks_with, normal_host
from coordinator.access.principal import RequestContext
from log_tables.cluster.acl import ANY, ANY_USER, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.limits import DECISIONS_KEPT_MAX, TOPIC_NAME_MAX_CHARS

BITS = {operation: 1 << number for number, operation in enumerate(Operation)}
"""A set of operations is a number with these bits."""

Operations = tuple[int, int]
"""The operations that are allowed, and those that are denied."""

_DESCRIBED_BY = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_IMPLIED_BY = {Operation.DESCRIBE: _DESCRIBED_BY, Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,)}

_NAMED = {operation: BITS[operation] | BITS[Operation.ALL] for operation in Operation}
"""The operations of an ACL that name this one: itself and ALL. A denial is about these alone."""

_ALLOWING = {
    operation: bits | sum(BITS[other] for other in _IMPLIED_BY.get(operation, ()))
    for operation, bits in _NAMED.items()
}
"""The operations of an ACL that allow this one. A reader or a writer of a topic may describe it."""

_ANY_NAME = "hardcode"
"""The name that Kafka tries first for "at least one resource": it finds ACLs for any name."""

_GROUPS_MAX = 256
"""Groups of a principal whose decisions are kept."""


class ResourcePatterns:
    """The ACLs of one principal and host about the resources of one type, by their patterns of names.

    A look-up takes as many steps as prefixes have different lengths, however many patterns there are.
    """

    __slots__ = ("_lengths", "literals", "prefixes")

    def __init__(self) -> None:
        self.literals: dict[str, Operations] = {}
        self.prefixes: dict[str, Operations] = {}
        self._lengths: list[int] = []

    def add(self, acl: Acl) -> None:
        """Used until the first look-up, by one thread."""
        name, by_name = acl.resource_name, self.literals
        if acl.pattern_type is PatternType.PREFIXED:
            by_name = self.prefixes
            if len(name) not in self._lengths:
                insort(self._lengths, len(name))
        allowed, denied = by_name.get(name, (0, 0))
        bit = BITS[acl.operation]
        by_name[name] = (
            (allowed | bit, denied) if acl.permission is Permission.ALLOW else (allowed, denied | bit)
        )

    def operations(self, name: str) -> Operations:
        """The operations on the resource `name` that are allowed, and those that are denied."""
        prefixes, lengths = self.prefixes, self._lengths[: bisect_right(self._lengths, len(name))]
        found = [each for pattern in (name, ANY) if (each := self.literals.get(pattern))]
        found += [each for length in lengths if (each := prefixes.get(name[:length]))]
        allowed = denied = 0
        for more, less in found:
            allowed |= more
            denied |= less
        return allowed, denied


class Authorizer:
    """Decides by a set of ACLs that never changes; other ACLs are another Authorizer. Threads may share it.

    Super users may do all. For others a denial that matches is stronger than all permissions, and what no ACL
    matches is denied. Decisions are kept: the last `DECISIONS_KEPT_MAX`.
    """

    def __init__(self, acls: Iterable[Acl] = (), super_users: Iterable[str] = ()) -> None:
        self._acls = _Acls(acls, frozenset(super_users))
        # A wrapped method of self would be a cycle, and old rules would wait for the garbage collector.
        self._kept = lru_cache(DECISIONS_KEPT_MAX)(partial(_Acls.decide, self._acls))

    def authorize(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether the principal may do `operation` on the resource `name` from its host."""
        if len(name) > TOPIC_NAME_MAX_CHARS or len(context.principal.groups) > _GROUPS_MAX:
            return self._acls.decide(context, operation, resource_type, name)  # clients choose these lengths
        return self._kept(context, operation, resource_type, name)

    def authorize_by_resource_type(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Whether the principal may do `operation` on at least one resource of the type, which need not
        exist. As in Kafka, an operation that implies another counts for it only where an ACL is for any name.
        """
        if len(context.principal.groups) > _GROUPS_MAX:
            return self._acls.decide(context, operation, resource_type, None)
        return self._kept(context, operation, resource_type, None)


class _Acls:
    """The ACLs, by principal, host and resource type."""

    def __init__(self, acls: Iterable[Acl], super_users: frozenset[str]) -> None:
        self._super_users = super_users
        self._patterns: dict[tuple[str, str, ResourceType], ResourcePatterns] = {}
        lengths = set()
        for acl in acls:
            host = normal_host(acl.host)
            if "/" in host:
                lengths.add(int(host.partition("/")[2]))
            key = (acl.principal, host, acl.resource_type)
            patterns = self._patterns.get(key)
            if patterns is None:
                patterns = self._patterns[key] = ResourcePatterns()
            patterns.add(acl)
        self._lengths = sorted(lengths)
        """Of the prefixes of networks, in bits: a look-up takes as many steps, however many networks there
        are."""

    def decide(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        """The decision about the resource `name`; without a name, about at least one of the type."""
        if context.principal.name in self._super_users:
            return True
        found = self._of(context, resource_type)
        if name is not None:
            return _allows(found, operation, name)
        return _allows(found, operation, _ANY_NAME) or _allows_some(found, _NAMED[operation])

    def _of(self, context: RequestContext, resource_type: ResourceType) -> list[ResourcePatterns]:
        """The patterns that are about this caller."""
        principal, patterns = context.principal, self._patterns
        return [
            found
            for host in (normal_host(context.host), ANY, *networks_with(context.host, self._lengths))
            for name in (principal.name, ANY_USER, *principal.groups)
            if (found := patterns.get((name, host, resource_type))) is not None
        ]


def _allows(found: list[ResourcePatterns], operation: Operation, name: str) -> bool:
    """Whether an ACL allows the operation on the resource `name`, and none denies it."""
    allowed = denied = 0
    for patterns in found:
        more, less = patterns.operations(name)
        allowed |= more
        denied |= less
    return bool(allowed & _ALLOWING[operation]) and not denied & _NAMED[operation]


def _allows_some(found: list[ResourcePatterns], named: int) -> bool:
    """Whether an ACL allows one of the operations `named` on a pattern of names that none denies wholly."""
    literals, denied_literals = _named_in([patterns.literals for patterns in found], named)
    prefixes, denied_prefixes = _named_in([patterns.prefixes for patterns in found], named)
    if ANY in denied_literals:
        return False
    if ANY in literals:
        return True
    lengths = sorted({len(prefix) for prefix in denied_prefixes})
    return any(
        all(name[:length] not in denied_prefixes for length in lengths)
        for name in (literals - denied_literals) | prefixes
    )


def _named_in(found: list[dict[str, Operations]], named: int) -> tuple[set[str], set[str]]:
    """The names of patterns that allow one of the operations `named`, and of those that deny one."""
    allowed = {name for by_name in found for name, (bits, _) in by_name.items() if bits & named}
    denied = {name for by_name in found for name, (_, bits) in by_name.items() if bits & named}
    return allowed, denied
