"""The client of one connection: who it is, and what it may do."""

from dataclasses import dataclass
from math import ceil

from api.kafka.clients.errors import error_code
from api.kafka.clients.read_ahead import ReadAhead
from api.kafka.clients.sasl_session import SaslSession
from coordinator.access.access import Access
from coordinator.access.authentication.authenticator import Login
from coordinator.access.pending_requests import PendingCount
from coordinator.access.principal import ANONYMOUS, RequestContext
from coordinator.access.quota_manager import DELAY_MAX_S, QuotaKind
from ingest.buffer import Room
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.errors import (
    AccessDenied,
    AuthenticationFailed,
    AuthorizationFailed,
    LakelogError,
)
from log_tables.limits import KAFKA_ANSWER_MAX_BYTES, PARTITIONS_MAX

FETCH_QUOTA_S = 10
"""An answer makes its client silent for so long at most, or for as long as its first record does."""


@dataclass(slots=True, eq=False)
class Client:
    """`id` is what the client calls itself; `context` is None until it is authenticated.

    `room` is what its answers hold until the connection has taken them, `ahead` are records that it may ask
    for next. `sasl` is a login that is under way, `login` the last one. The connection of a client that
    `is_ending` closes after its next answer.
    """

    access: Access
    host: str
    room: Room
    ahead: ReadAhead
    id: str = ""
    context: RequestContext | None = None
    sasl: SaslSession | None = None
    login: Login | None = None
    is_ending: bool = False

    def __post_init__(self) -> None:
        if self.access.is_open:
            self.context = RequestContext(ANONYMOUS, self.host)

    @property
    def known(self) -> RequestContext:
        """The context of a client that is authenticated."""
        assert self.context is not None
        return self.context

    async def authenticate(self, session: SaslSession, message: bytes) -> bytes:
        """The answer to a message of a login; with the last one the client is authenticated.

        Raises AuthenticationFailed, also for another principal than before; QuotaReached, Retriable.
        """
        answer, login = await session.answer(message)
        if login is not None:
            self.sasl = None
            if self.login is not None and self.login.principal != login.principal:
                raise AuthenticationFailed("a connection keeps its principal; make another connection")
            self.login, self.context = login, RequestContext(login.principal, self.host)
        return answer

    @property
    def is_let_in(self) -> bool:
        """Whether what has let it in is still right: nobody has revoked it, and it has not expired."""
        return self.context is None or self.access.holds(self.login)

    @property
    def lifetime_ms(self) -> int:
        """Until its login expires by itself; 0 if it does not (KIP-368)."""
        authenticator = self.access.authenticator
        if authenticator is None or self.login is None:
            return 0
        return authenticator.lifetime_ms(self.login) or 0

    async def enter(self, count: int) -> PendingCount | None:
        """Wait until a request that counts as so many may be under way. Returns what `leave` takes."""
        return None if self.login is None else await self.access.pending.wait(self.login.principal, count)

    def leave(self, entered: PendingCount | None) -> None:
        """A request is answered, or over."""
        if entered is not None:
            self.access.pending.leave(entered)

    def charge(self, kind: QuotaKind, amount: float) -> None:
        """Count what it uses."""
        if self.login is not None:
            self.access.quotas.charge(self.login.principal, kind, amount)

    def debt_s(self, *kinds: QuotaKind) -> float:
        """How long it has to be silent for what it has used of these quotas."""
        if self.login is None:
            return 0.0
        return max(self.access.quotas.debt_s(self.login.principal, kind) for kind in kinds)

    def is_in_debt(self, kind: QuotaKind) -> bool:
        """Whether it has used so much that nothing large is done for it."""
        return self.debt_s(kind) > DELAY_MAX_S

    @property
    def fetch_max_bytes(self) -> int:
        """Bytes of records in one answer at most: what its quota allows in FETCH_QUOTA_S."""
        if self.login is None:
            return KAFKA_ANSWER_MAX_BYTES
        rate = self.access.quotas.rate(self.login.principal, QuotaKind.CONSUMER_BYTES)
        return KAFKA_ANSWER_MAX_BYTES if rate is None else int(rate * FETCH_QUOTA_S)

    @property
    def identified(self) -> RequestContext | None:
        """Its context, to be kept; None where nobody is authenticated."""
        return None if self.access.is_open else self.known

    def check(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise AuthorizationFailed unless it may do this."""
        self.access.check(self.known, operation, kind, name)

    def check_create(self, topic: str) -> None:
        """Raise AuthorizationFailed unless it may create `topic`: CREATE on the cluster is enough."""
        if self.access.allows(self.known, Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME):
            self.check(Operation.CREATE, ResourceType.CLUSTER)
        else:
            self.check(Operation.CREATE, ResourceType.TOPIC, topic)

    def charge_changes(self, partitions: int) -> None:
        """Count the creation or deletion of so many partitions. Raises QuotaReached, before, for a debt."""
        quotas, principal = self.access.quotas, self.known.principal
        quotas.delay_s(principal, QuotaKind.MUTATIONS)
        quotas.charge(principal, QuotaKind.MUTATIONS, min(max(partitions, 0), PARTITIONS_MAX))

    @property
    def changes_wait_ms(self) -> int:
        """How long it should wait before its next change, in milliseconds."""
        return ceil(self.debt_s(QuotaKind.MUTATIONS) * 1_000)

    def note_change(self, operation: str, kind: ResourceType, name: str, **facts: object) -> None:
        """It has changed this: an operation by Kafka's name, on a resource."""
        if self.access.audit is not None:
            self.access.audit.changed(self.known, operation, (kind, name), facts)

    def note_failure(self, operation: str, kind: ResourceType, name: str, error: LakelogError) -> None:
        """It was allowed to change this, and could not. A denial is audited already."""
        if self.access.audit is not None and not isinstance(error, AccessDenied):
            self.access.audit.failed(self.known, operation, (kind, name), error_code(error))

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it may do this: a request that is refused is audited, one that is not, too."""
        try:
            self.check(operation, kind, name)
        except AuthorizationFailed:
            return False
        return True

    def may_write_any(self) -> bool:
        """Whether it may be an idempotent producer: WRITE on any topic is enough (KIP-679)."""
        if self.access.allows_any(self.known, Operation.WRITE, ResourceType.TOPIC):
            return True
        return self.may(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)

    def sees(self, kind: ResourceType, name: str) -> bool:
        """Whether a list that it asks for has `name`: nothing is noted."""
        return self.is_open_to(Operation.DESCRIBE, kind, name)

    def is_open_to(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether it could do this, for an answer that says so, or says more then: nothing is noted."""
        return self.access.allows(self.known, operation, kind, name)
