"""The credentials of the cluster, followed by a gateway that authenticates its clients."""

from api.process.oidc import jwt_verifier_of
from coordinator.access.authenticator import Authenticator
from coordinator.access.mapping_rules import PrincipalMappingRules
from ingest.failure_log import FailureLog
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import CredentialLog, Credentials, open_credentials
from log_tables.cluster.security_admin import note_uses
from log_tables.errors import StoreUnavailable


def authenticator_of(
    settings: Settings, clock: Clock, failures: FailureLog | None = None
) -> Authenticator | None:
    """The authenticator that the settings ask for, without credentials yet; None for an open gateway."""
    methods = settings.authentication_methods
    return (
        Authenticator(
            methods,
            {},
            {},
            jwt_verifier_of(settings, clock, failures),
            PrincipalMappingRules(settings.ssl_principal_mapping_rules),
            clock,
        )
        if methods
        else None
    )


class CredentialDuty:
    """Keeps an authenticator at the newest credentials."""

    def __init__(self, cluster: Cluster, authenticator: Authenticator) -> None:
        self._cluster, self._authenticator = cluster, authenticator
        self._log: CredentialLog | None = None
        self._known: Credentials | None = None

    def run(self) -> None:
        """Raises StoreUnavailable, CorruptLog: the last known credentials stay."""
        self._log = self._log or _opened(self._cluster)
        if self._log is None:
            return
        self._log.refresh()
        newest = self._log.credentials
        if newest is not self._known:
            self._authenticator.update(newest.api_keys, newest.users)
            self._known = newest
        self._log.check_exists(self._cluster.store)

    def clean(self) -> None:
        """Drop the hashes of keys and users that were removed. Raises as `run` does."""
        if self._log is not None:
            self._log.clean()


class KeyReportDuty:
    """Notes the last use of keys. It has a log of its own: while it waits for a put, and for other gateways
    that note something, revoked keys are still followed.
    """

    def __init__(self, cluster: Cluster, authenticator: Authenticator) -> None:
        self._cluster, self._authenticator = cluster, authenticator
        self._log: CredentialLog | None = None
        self._used: dict[str, int] = {}

    def run(self) -> None:
        """Raises StoreUnavailable, CorruptLog, NotLeader: what was used is noted later."""
        self._used |= self._authenticator.take_used_keys()
        if not self._used:
            return
        self._log = self._log or _opened(self._cluster)
        if self._log is None:
            raise StoreUnavailable(
                f"{self._cluster.store.url} has no credentials, and some are used; bring the root back"
            )
        self._log.refresh()
        note_uses(self._log, self._used)
        self._used.clear()


def _opened(cluster: Cluster) -> CredentialLog | None:
    return open_credentials(cluster.store, cluster.clock, cluster.url)
