"""The one place where every door asks whose a request is, and whether it may do what it asks for.

A gateway is open, or it authenticates its clients. Authorisation runs one list of checks for all doors.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext

from coordinator.access.audit import Audit
from coordinator.access.authentication.authenticator import Authenticator, Login
from coordinator.access.authorizer import Authorizer
from coordinator.access.pending_requests import PendingRequests, requests_of
from coordinator.access.principal import ANONYMOUS, Principal, RequestContext, author_of
from coordinator.access.quota_manager import QuotaKind, QuotaManager
from log_tables.clock import Clock
from log_tables.cluster.access_record import AccessRules
from log_tables.cluster.acl import CLUSTER_NAME, Operation, ResourceType
from log_tables.cluster.credential_log import Credentials
from log_tables.errors import AuthorizationFailed, LakelogError, QuotaReached
from log_tables.layout import AUDIT
from log_tables.partition.partition import Author

Check = Callable[[RequestContext, Operation, ResourceType, str], None]
"""Raises LakelogError for what is refused: an operation on a resource of a type, by its name."""


UNCHECKED = RequestContext(ANONYMOUS, "")
"""The context of a request that a gateway forwards which authenticates nobody: until the cluster is secured,
who gets in there may do everything.
"""

_AS_ONE = nullcontext()


CREDENTIAL_THREADS = 4
"""A password takes milliseconds; a fetch of the provider's keys may take seconds, and one thread."""

CREDENTIALS_WAITING_MAX = 256
"""About a second of passwords."""


class CredentialQueue:
    """Credentials that wait to be verified: in threads of their own, so that wrong ones delay nobody else.
    For one event loop.
    """

    def __init__(self, authenticator: Authenticator, waiting_max: int = CREDENTIALS_WAITING_MAX) -> None:
        self._authenticator, self._waiting_max = authenticator, waiting_max
        self._threads, self._waiting = ThreadPoolExecutor(CREDENTIAL_THREADS, "lakelog-credential"), 0

    async def verify(self, header: bytes | None, subject: str | None, address: str) -> Principal:
        """As `Authenticator.verify`, at once if that is fast. Raises QuotaReached if too many wait, too."""
        if not self._authenticator.is_slow(header):
            return self._authenticator.verify(header, subject, address)
        if self._waiting >= self._waiting_max:
            raise QuotaReached("too many credentials wait to be checked; repeat the request")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._authenticator.verify, header, subject, address
            )
        finally:
            self._waiting -= 1


class Access:
    """The decisions of one gateway. Thread-safe."""

    def __init__(
        self,
        rules: Callable[[], AccessRules],
        clock: Clock,
        authenticator: Authenticator | None = None,
        audit: Audit | None = None,
        principal_requests_max: int = 0,
    ) -> None:
        """`rules` returns what holds now, another object once it has changed. Without an `authenticator` the
        gateway is open. `audit` learns of denials, of accesses to records and of refused credentials.
        `principal_requests_max` are under way at once; 0 is no bound.
        """
        self.audit = audit
        self._rules, self.authenticator = rules, authenticator
        self._queue = None if authenticator is None else CredentialQueue(authenticator)
        self._followed = rules()
        self._follow_lock = threading.Lock()
        self.authorizer = Authorizer(self._followed.acls, self._followed.super_users)
        self.quotas = QuotaManager(lambda: self._rules().quotas, clock)
        self.pending = PendingRequests(principal_requests_max)
        self.checks: list[Check] = [] if authenticator is None else [self._check_acls]

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in as User:ANONYMOUS, and may do everything."""
        return self.authenticator is None

    @property
    def is_shut(self) -> bool:
        """Whether the cluster is secured and this gateway is open: then it serves nobody."""
        return self.authenticator is None and self._rules().secured

    @property
    def ignores_rules(self) -> bool:
        """Whether this gateway is open although the cluster has ACLs or super users."""
        rules = self._rules()
        return self.authenticator is None and bool(rules.acls or rules.super_users)

    def follow(self) -> None:
        """Decide by the rules that hold now. It may take tens of milliseconds, so only requests that change
        them do it, and none on the event loop.
        """
        # Without the lock the rules that were followed first could be what stays.
        with self._follow_lock:
            rules = self._rules()
            if rules is not self._followed:
                self.authorizer = Authorizer(rules.acls, rules.super_users)
                self._followed = rules

    def know(self, credentials: Credentials) -> None:
        """Authenticate by these from now on."""
        if self.authenticator is not None:
            self.authenticator.update(credentials.api_keys, credentials.users)

    def known(self, header: bytes | None, subject: str | None) -> Principal | None:
        """The principal of a credential that was right before; None if it has to be verified."""
        return ANONYMOUS if self.authenticator is None else self.authenticator.known(header, subject)

    async def verify(self, header: bytes | None, subject: str | None, host: str) -> Principal:
        """The principal of a credential. Raises AuthenticationFailed, QuotaReached, Retriable."""
        return ANONYMOUS if self._queue is None else await self._queue.verify(header, subject, host)

    @property
    def sasl_mechanisms(self) -> tuple[str, ...]:
        """By which connections can log in; none at an open gateway."""
        return () if self.authenticator is None else self.authenticator.sasl_mechanisms

    def certified(self, certificate: bytes | None) -> Login | None:
        """The login of a connection by its client's certificate (DER); None where that lets nobody in."""
        return None if self.authenticator is None else self.authenticator.certified(certificate)

    def holds(self, login: Login | None) -> bool:
        """Whether what has let in a connection still does: its login, or that nobody needs one."""
        if self.authenticator is None or login is None:
            return not self.is_shut
        return self.authenticator.holds(login)

    def note_refused_name(self, name: str, host: str, error: LakelogError) -> None:
        """A login from `host` by this name was refused with this error."""
        if self.audit is not None and self.authenticator is not None:
            self.audit.refused(self.authenticator.owner(name), host, error)

    def note_refusal(self, header: bytes | None, host: str, error: LakelogError) -> None:
        """A credential from `host` was refused with this error."""
        if self.audit is not None and self.authenticator is not None:
            self.audit.refused(self.authenticator.claimed(header), host, error)

    def check(
        self,
        context: RequestContext,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
    ) -> None:
        """Raise AuthorizationFailed unless `context` may do this, and what the other checks raise.

        Denials are audited, and accesses to records.
        """
        if context is UNCHECKED:
            return
        try:
            for check in self.checks:
                check(context, operation, resource_type, name)
        except AuthorizationFailed as error:
            if self.audit is not None:
                self.audit.denied(context, operation, resource_type, name, error)
            raise
        if self.audit is not None:
            self.audit.allowed(context, operation, resource_type, name)

    def named(
        self, context: RequestContext | None, names: int, elements: int
    ) -> AbstractContextManager[None]:
        """Count what a request names, which was counted as one already, while it is worked at. Of a client
        that nobody knows nothing is counted. Raises QuotaReached where too much is under way.
        """
        more = requests_of(names, elements) - 1
        if more == 0 or self.is_open or context is None or context is UNCHECKED:
            return _AS_ONE
        return self._counted(context.principal, more)

    def author(self, context: RequestContext | None) -> Author | None:
        """Who writes the records of a request; None where nobody was authenticated."""
        return None if self.is_open or context is UNCHECKED else author_of(context)

    @contextmanager
    def _counted(self, principal: Principal, more: int) -> Iterator[None]:
        self.quotas.charge(principal, QuotaKind.REQUESTS, more)
        places = self.pending.enter(principal, more, besides=1)
        try:
            yield
        finally:
            self.pending.leave(places)

    def allows(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether `context` may do this, for lists of what it may see: nothing is charged, nothing noted."""
        return (
            self.is_open or context is UNCHECKED or self._authorizes(context, operation, resource_type, name)
        )

    def allows_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether `context` may do this with at least one resource of the type, which need not exist
        (KIP-679). Nothing is noted.
        """
        return (
            self.is_open
            or context is UNCHECKED
            or self.authorizer.authorize_by_resource_type(context, operation, resource_type)
        )

    def note_access(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        """It does what `allows` has said that it may do."""
        if self.audit is not None and context is not UNCHECKED:
            self.audit.allowed(context, operation, resource_type, name)

    def _check_acls(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        if not self._authorizes(context, operation, resource_type, name):
            raise denied(context, operation, [(resource_type, name)])

    def _authorizes(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if operation is Operation.READ and name == AUDIT and resource_type is ResourceType.TOPIC:
            # READ on all topics is given to many, and this one says what all of them do.
            operation, resource_type, name = Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        return self.authorizer.authorize(context, operation, resource_type, name)


def denied(
    context: RequestContext, operation: Operation, resources: Sequence[tuple[ResourceType, str]]
) -> AuthorizationFailed:
    """The error for an operation on these resources, which says nothing about whether they exist."""
    named = ", ".join(f"{kind} {name[:249]!r}" for kind, name in resources[:10])
    return AuthorizationFailed(
        f"{context.principal.name[:200]} may not {operation} {named} from {context.host}; ask an "
        "administrator for an ACL that allows it"
    )
