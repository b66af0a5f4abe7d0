"""ACLs as Kafka has them: who may do what from where, on which resources (KIP-11, KIP-290, KIP-1276).

Plain data; who is let in by them is decided in `coordinator/access/`.
"""

from enum import StrEnum

import msgspec

CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of type CLUSTER, as in Kafka."""

ANY = "*"
"""As the name of a resource any name, as a host any host."""

ANY_USER = "User:*"
"""The principal of an ACL that holds for everybody."""


class ResourceType(StrEnum):
    """The kinds of things that an ACL is about."""

    TOPIC = "TOPIC"
    GROUP = "GROUP"
    CLUSTER = "CLUSTER"
    TRANSACTIONAL_ID = "TRANSACTIONAL_ID"


class PatternType(StrEnum):
    """How the name of a resource in an ACL is meant (KIP-290)."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Operation(StrEnum):
    """An act that an ACL is about."""

    ALL = "ALL"
    READ = "READ"
    WRITE = "WRITE"
    CREATE = "CREATE"
    DELETE = "DELETE"
    ALTER = "ALTER"
    DESCRIBE = "DESCRIBE"
    CLUSTER_ACTION = "CLUSTER_ACTION"
    DESCRIBE_CONFIGS = "DESCRIBE_CONFIGS"
    ALTER_CONFIGS = "ALTER_CONFIGS"
    IDEMPOTENT_WRITE = "IDEMPOTENT_WRITE"


TOPIC_OPERATIONS = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
"""Those on topics."""


class Permission(StrEnum):
    """Whether an ACL lets somebody in, or keeps somebody out."""

    ALLOW = "ALLOW"
    DENY = "DENY"


class Acl(msgspec.Struct, frozen=True, order=True, forbid_unknown_fields=True):
    """One ACL, which Kafka calls an ACL binding. Its fields have the names of the REST Proxy's version 3.

    `principal` is `User:<name>`, `Group:<name>` or `User:*`; `host` is an IP address, a network in CIDR
    notation, or `*`.
    """

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """`ALLOW READ on PREFIXED TOPIC orders to User:ann from *`."""
        pattern = f"{self.pattern_type} {self.resource_type} {self.resource_name}"
        return f"{self.permission} {self.operation} on {pattern} to {self.principal} from {self.host}"
