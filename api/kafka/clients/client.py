"""The client of one connection: how it logs in, who it is, and what it may do."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from api.kafka.clients.errors import error_code
from api.kafka.clients.read_ahead import ReadAhead
from api.kafka.clients.sasl import SaslSession
from api.kafka.clients.seldom import Seldom
from coordinator.access.access import Access
from coordinator.access.acl_argument import SUPPORTED_OPERATIONS
from coordinator.access.authentication.authenticator import Login
from coordinator.access.caller import Caller
from coordinator.access.pending_requests import PendingCount
from coordinator.access.principal import ANONYMOUS, Principal, RequestContext
from coordinator.access.quota_manager import DELAY_MAX_S, QuotaKind
from ingest.buffer import Room
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.errors import AuthenticationFailed
from log_tables.limits import KAFKA_ANSWER_MAX_BYTES, KAFKA_NAMES_MAX

FETCH_QUOTA_S = 10
"""An answer makes its client silent for so long at most, or for as long as its first record does."""

SENT_ON_AGAIN_S = 5.0
"""A client that is sent to its own rack, and comes back within that time, cannot go there: it is served."""

NOT_ASKED = -(2**31)
"""Nobody has asked for them."""

OPERATION_CODES: Mapping[Operation, int] = {
    Operation.ALL: 2,
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
}
"""Kafka's (org.apache.kafka.common.acl.AclOperation)."""


@dataclass(slots=True, eq=False)
class Client:
    """`id` is what the client calls itself; `known` is None until it is authenticated.

    `room` is what its answers hold until the connection has taken them, `ahead` are records that it may ask
    for next. `sasl` is a login that is under way, `login` the last one, which at first may be that of a
    certificate. The connection of a client that `is_ending` closes after its next answer. `sent_on` has the
    partitions, by the id of their topic, for which it was sent to a gateway of its own rack.
    """

    access: Access
    host: str
    room: Room
    ahead: ReadAhead
    id: str = ""
    known: Caller | None = None
    sasl: SaslSession | None = None
    login: Login | None = None
    is_ending: bool = False
    sent_on: Seldom[tuple[str, int]] = field(default_factory=lambda: Seldom(SENT_ON_AGAIN_S, KAFKA_NAMES_MAX))

    def __post_init__(self) -> None:
        if self.access.is_open:
            self.known = self._caller(ANONYMOUS)
        elif self.login is not None:
            self.known = self._caller(self.login.principal)

    @property
    def caller(self) -> Caller:
        """Who it is and what it may do, of a client that is authenticated."""
        assert self.known is not None
        return self.known

    @property
    def context(self) -> RequestContext | None:
        """Whose its requests are; None until it is authenticated."""
        return None if self.known is None else self.known.context

    async def authenticate(self, session: SaslSession, message: bytes) -> bytes:
        """The answer to a message of a login; with the last one the client is authenticated.

        Raises AuthenticationFailed, also for another principal than before; QuotaReached, Retriable. A
        certificate is no login before: as over HTTP, another credential goes first.
        """
        answer, login = await session.answer(message)
        if login is not None:
            self.sasl = None
            if self.login is not None and self.by_sasl and self.login.principal.name != login.principal.name:
                raise AuthenticationFailed("a connection keeps its principal; make another connection")
            self.login, self.known = login, self._caller(login.principal)
        return answer

    @property
    def by_sasl(self) -> bool:
        """Whether it has logged in by SASL."""
        return self.login is not None and self.login.record is not None

    def _caller(self, principal: Principal) -> Caller:
        return Caller(self.access, RequestContext(principal, self.host), error_code)

    @property
    def is_let_in(self) -> bool:
        """Whether what has let it in is still right: nobody has revoked it, and it has not expired."""
        return self.known is None or self.access.holds(self.login)

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
        if rate is None:
            return KAFKA_ANSWER_MAX_BYTES
        return int(min(rate * FETCH_QUOTA_S, KAFKA_ANSWER_MAX_BYTES))  # a rate may be the largest float

    @property
    def changes_wait_ms(self) -> int:
        """How long it should wait before its next change, in milliseconds."""
        return ceil(self.debt_s(QuotaKind.MUTATIONS) * 1_000)


def authorized_operations(
    client: Client, kind: ResourceType, name: str = CLUSTER_NAME, *, asked: bool = True
) -> int:
    """The operations that `client` may do on a resource, as the bits of a number (KIP-430), or NOT_ASKED."""
    if not asked:
        return NOT_ASKED
    return sum(
        1 << OPERATION_CODES[each]
        for each in SUPPORTED_OPERATIONS[kind]
        if client.caller.allows(each, kind, name)
    )
