"""The options of `lakelog acl`, which are those of Kafka's kafka-acls, as ACLs and as filters of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from coordinator.access.acl_argument import AclFilter, PatternTypeFilter, checked
from log_tables.cluster.acl import ANY, CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.errors import InvalidArgument

_PRODUCER = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUMER = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
_OPTIONS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.CLUSTER: "--cluster",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
}
_ANY = (None,)


@dataclass(frozen=True)
class Resources:
    """The resources that options name, and how their names are meant."""

    topics: Sequence[str]
    groups: Sequence[str]
    cluster: bool
    transactional_ids: Sequence[str]
    pattern_type: str | None

    def named(self) -> list[tuple[ResourceType, str]]:
        return [
            *((ResourceType.TOPIC, name) for name in self.topics),
            *((ResourceType.GROUP, name) for name in self.groups),
            *((ResourceType.CLUSTER, CLUSTER_NAME) for _ in range(self.cluster)),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_ids),
        ]

    def filters(self) -> Iterator[AclFilter]:
        """Filters by the resources alone. Names are literal where no option says how they are meant.

        Raises InvalidArgument.
        """
        named: list[tuple[ResourceType | None, str | None]] = [*self.named()]
        text = self.pattern_type or ("literal" if named else "any")
        pattern_type = PatternTypeFilter(_one_of([*PatternTypeFilter], text, "--resource-pattern-type"))
        for kind, name in named or [(None, None)]:
            yield AclFilter(kind, name, pattern_type)


@dataclass(frozen=True)
class Operations:
    """The operations that options name, one by one or by what a client is."""

    names: Sequence[str]
    producer: bool
    consumer: bool

    def kinds(self) -> list[ResourceType]:
        """The types of resources that a client needs which the options name; none where they name none."""
        return [*dict.fromkeys(kind for each in self._meant() for kind in each)]

    def _meant(self) -> list[Mapping[ResourceType, Sequence[Operation]]]:
        return [*([_PRODUCER] if self.producer else []), *([_CONSUMER] if self.consumer else [])]

    def of(self, kind: ResourceType | None) -> list[Operation]:
        """Operations on resources of type `kind` (None: any type); empty where no option names one.

        Raises InvalidArgument.
        """
        if self.names and (self.producer or self.consumer):
            raise InvalidArgument(
                "--producer and --consumer stand for their operations; leave out --operation"
            )
        if self.names:
            return [Operation(_one_of([*Operation], name, "--operation")) for name in self.names]
        meant = self._meant()
        found = dict.fromkeys(
            operation for each in meant if kind is not None for operation in each.get(kind, ())
        )
        if meant and kind is not None and not found:
            client = "--producer" if self.producer else "--consumer"
            raise InvalidArgument(f"{client} says nothing about {_OPTIONS[kind]}; name an --operation for it")
        return list(found)


@dataclass(frozen=True)
class Principals:
    """The principals that options allow or deny something, and their hosts."""

    allowed: Sequence[str]
    allowed_hosts: Sequence[str]
    denied: Sequence[str]
    denied_hosts: Sequence[str]

    def named(self) -> list[tuple[Permission, str, str | None]]:
        """Permission, principal and host, None for a host that no option names. Raises InvalidArgument."""
        found: list[tuple[Permission, str, str | None]] = []
        for permission, principals, hosts in (
            (Permission.ALLOW, self.allowed, self.allowed_hosts),
            (Permission.DENY, self.denied, self.denied_hosts),
        ):
            if hosts and not principals:
                word = permission.value.lower()
                raise InvalidArgument(f"--{word}-host is for --{word}-principal; add one, as User:* for all")
            anywhere: list[str | None] = [*hosts] or [None]
            found += [(permission, *each) for each in product(principals, anywhere)]
        return found


def acls_of(resources: Resources, operations: Operations, principals: Principals) -> list[Acl]:
    """The ACLs that the options say: ALL where they name no operation, any host where they name none.

    Raises InvalidArgument.
    """
    named, who = resources.named(), principals.named()
    if not named:
        raise InvalidArgument(f"an ACL is about a resource; add one of {', '.join(_OPTIONS.values())}")
    if not who:
        raise InvalidArgument("an ACL is for a principal; add --allow-principal or --deny-principal")
    pattern_type = PatternType(
        _one_of([*PatternType], resources.pattern_type or "literal", "--resource-pattern-type")
    )
    return [
        checked(Acl(kind, name, pattern_type, principal, host or ANY, operation, permission))
        for kind, name in named
        for permission, principal, host in who
        for operation in operations.of(kind) or [Operation.ALL]
    ]


def filters_of(resources: Resources, operations: Operations, principals: Principals) -> list[AclFilter]:
    """Filters for the ACLs with what the options name; what they do not name is any.

    Raises InvalidArgument.
    """
    who: list[tuple[Permission | None, str | None, str | None]] = [*principals.named()]
    return [
        AclFilter(kind, each.resource_name, each.pattern_type, principal, host, operation, permission)
        for each in resources.filters()
        for kind in ([each.resource_type] if each.resource_type else operations.kinds() or _ANY)
        for permission, principal, host in who or [(None, None, None)]
        for operation in operations.of(kind) or _ANY
    ]


def _one_of(known: Sequence[str], text: str, option: str) -> str:
    """The one of `known` that `text` means: `describe_configs` and `DescribeConfigs` are DESCRIBE_CONFIGS.

    Raises InvalidArgument.
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|-", "_", text).upper()
    if name not in known:
        raise InvalidArgument(f"{option} {text[:40]!r} is not known; use one of {', '.join(known)}")
    return name
