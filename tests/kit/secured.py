"""Clusters that authenticate their clients: keys and ACLs written as an administrator writes them."""

from collections.abc import Iterable
from pathlib import Path

import httpx

from coordinator.access.authentication.api_key import new_api_key
from coordinator.access.authentication.scram import new_scram_user
from log_tables.cluster.access_record import acl_record, security_record, super_user_record
from log_tables.cluster.acl import ANY, CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import api_key_record, create_credentials, revocations, user_record
from log_tables.store.store import open_store

ADMIN = "User:admin"


class Secured:
    """The root at `data`, as one who can write it sees it."""

    def __init__(self, data: str | Path) -> None:
        self.cluster = Cluster.open(open_store(str(data)))
        self._log = create_credentials(self.cluster.store, self.cluster.clock, "")
        self.cluster.metadata_log.change_access(lambda _: [super_user_record(ADMIN)])

    def key(self, principal: str = ADMIN, expires_ms: int | None = None) -> str:
        """A new key of `principal`; by default a super user's."""
        text, key = new_api_key(principal, self.cluster.clock, expires_ms)
        self._log.change(lambda _: [api_key_record(key)])
        return text

    def user(self, name: str, password: str) -> None:
        """A SCRAM user, or another password for one."""
        made = new_scram_user(name, password, self.cluster.clock)
        self._log.change(lambda _: [user_record(name, made)])

    def revoke(self, key: str) -> None:
        self._log.change(lambda _: revocations(key.partition(".")[0]))

    def secure(self, secured: bool = True) -> None:
        self.cluster.metadata_log.change_access(lambda _: [security_record(secured)])

    def allow(self, *acls: Acl) -> None:
        self.cluster.metadata_log.change_access(lambda _: [acl_record(acl) for acl in acls])

    def disallow(self, *acls: Acl) -> None:
        self.cluster.metadata_log.change_access(lambda _: [acl_record(acl, removed=True) for acl in acls])


def acl(
    principal: str,
    operation: Operation,
    kind: ResourceType,
    name: str = CLUSTER_NAME,
    permission: Permission = Permission.ALLOW,
) -> Acl:
    """An ACL on one resource, from any host; the name ends with `*` where it is a prefix."""
    prefixed = len(name) > 1 and name.endswith(ANY)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    return Acl(kind, name[:-1] if prefixed else name, pattern, principal, ANY, operation, permission)


def everything(principal: str, kinds: Iterable[ResourceType] = tuple(ResourceType)) -> list[Acl]:
    """ACLs for all operations on all resources of these types."""
    names = {kind: CLUSTER_NAME if kind is ResourceType.CLUSTER else ANY for kind in kinds}
    return [acl(principal, Operation.ALL, kind, name) for kind, name in names.items()]


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def error_code(answer: httpx.Response) -> int:
    """The code of an error, 0 of a success."""
    return 0 if answer.is_success else int(answer.json()["error_code"])
