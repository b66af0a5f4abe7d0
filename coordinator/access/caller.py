"""One who asks a gateway for something, at whichever door."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.access.access import UNCHECKED, Access
from coordinator.access.audit import Audit
from coordinator.access.principal import RequestContext
from coordinator.access.quota_manager import QuotaKind
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.errors import AccessDenied, AuthorizationFailed, LakelogError, QuotaReached
from log_tables.limits import PARTITIONS_MAX


@dataclass(slots=True, eq=False)
class Caller:
    """A principal at an address: its rights, its quotas, and the audit of its changes. Thread-safe.

    `code_of` returns the code by which its door names an error. `is_audited` is False for a request that
    another gateway forwards, which audits it. `has_noted` says whether a change of it was audited.
    """

    access: Access
    context: RequestContext
    code_of: Callable[[LakelogError], int]
    is_audited: bool = True
    has_noted: bool = False
    _failures: set[tuple[str, str]] | None = None

    @property
    def identified(self) -> RequestContext | None:
        """Its context, to be kept; None where nobody was authenticated."""
        return None if self.access.is_open or self.context is UNCHECKED else self.context

    # Rights.

    def check(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise AuthorizationFailed unless it may do this."""
        self.access.check(self.context, operation, resource_type, name)

    def check_all(self, operation: Operation, resource_type: ResourceType, names: Iterable[str]) -> None:
        """Raise AuthorizationFailed unless it may do this with each of the resources."""
        for name in names:
            self.access.check(self.context, operation, resource_type, name)

    def check_create(self, topic: str) -> None:
        """Raise AuthorizationFailed unless it may create `topic`: CREATE on the cluster is enough."""
        if self.allows(Operation.CREATE, ResourceType.CLUSTER):
            self.check(Operation.CREATE, ResourceType.CLUSTER)
        else:
            self.check(Operation.CREATE, ResourceType.TOPIC, topic)

    def may(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it may do this, audited as by `check`."""
        try:
            self.check(operation, resource_type, name)
        except AuthorizationFailed:
            return False
        return True

    def may_write_any(self) -> bool:
        """Whether it may be an idempotent producer: WRITE on any topic is enough (KIP-679)."""
        if self.access.allows_any(self.context, Operation.WRITE, ResourceType.TOPIC):
            return True
        return self.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)

    def allows(self, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it could do this, for an answer that says so, or says more then: nothing is audited."""
        return self.access.allows(self.context, operation, resource_type, name)

    def describes(self, topic: str) -> bool:
        """Whether it may know that there is such a topic: nothing is audited."""
        return self.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def reads(self, topic: str) -> bool:
        """Whether it may read records of `topic`, which it does if so."""
        may = self.allows(Operation.READ, ResourceType.TOPIC, topic)
        if may:
            self.access.note_access(self.context, Operation.READ, ResourceType.TOPIC, topic)
        return may

    # Quotas.

    def charge_changes(self, partitions: int) -> None:
        """Count the creation or deletion of so many partitions. Raises QuotaReached, before, for a debt.

        A number that no topic can have counts as the nearest one: a negative one would pay a debt.
        """
        quotas, principal = self.access.quotas, self.context.principal
        quotas.delay_s(principal, QuotaKind.MUTATIONS)
        quotas.charge(principal, QuotaKind.MUTATIONS, min(max(partitions, 0), PARTITIONS_MAX))

    def consumer_delay_s(self) -> float:
        """How long records may not be sent, as those that were have used up a quota."""
        try:
            return self.access.quotas.delay_s(self.context.principal, QuotaKind.CONSUMER_BYTES)
        except QuotaReached as reached:
            return float(reached.details["retry_after_s"])

    # Audit. Facts have no secrets, no records, and nothing of a body but what was picked.

    @property
    def audit(self) -> Audit | None:
        """Where its changes are noted; None where nobody does, or another gateway."""
        return self.access.audit if self.is_audited else None

    @contextmanager
    def changing(self, operation: str, resource_type: str, name: str, **facts: object) -> Iterator[None]:
        """Audit the change that is made within, or that it was allowed and failed."""
        try:
            yield
        except LakelogError as error:
            self.note_failure(operation, resource_type, name, error)
            raise
        self.note_change(operation, resource_type, name, **facts)

    @contextmanager
    def noting_failures(self) -> Iterator[set[tuple[str, str]]]:
        """The types and names of resources for which a failure is noted within. One request at a time."""
        self._failures = found = set[tuple[str, str]]()
        try:
            yield found
        finally:
            self._failures = None

    def note_change(self, operation: str, resource_type: str, name: str, **facts: object) -> None:
        """It has changed this: an operation by Kafka's name, on a resource, a USER or a QUOTA."""
        if self.audit is not None:
            self.audit.changed(self.context, operation, (resource_type, name), facts)
            self.has_noted = True

    def note_failure(self, operation: str, resource_type: str, name: str, error: LakelogError) -> None:
        """It was allowed to change this, and could not. A denial is audited already."""
        if not isinstance(error, AccessDenied):
            self.note_failed(operation, resource_type, name, self.code_of(error))

    def note_failed(self, operation: str, resource_type: str, name: str, code: int) -> None:
        """As `note_failure`, of an answer that has only the code of an error."""
        if self.audit is not None:
            self.audit.failed(self.context, operation, (resource_type, name), code)
            self.has_noted = True
            if (failures := self._failures) is not None:
                failures.add((resource_type, name))
