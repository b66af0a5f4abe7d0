"""The credentials of the cluster, followed by a gateway that authenticates its clients, and the tokens of
the OIDC provider that the settings name.
"""

import urllib.request
from functools import partial
from typing import TYPE_CHECKING

from coordinator.access.host import check_https
from ingest.periodic_task import FailureLog
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.credential import AuthenticationMethod

if TYPE_CHECKING:
    from coordinator.access.authentication.jwt_verifier import JwtVerifier

from coordinator.access.authentication.authenticator import Authenticator
from coordinator.access.authentication.certificate import PrincipalMappingRules
from log_tables.cluster.admin.security_admin import note_uses
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.credential_log import CredentialLog, open_credentials
from log_tables.errors import StoreUnavailable

FETCH_S = 5.0
"""The longest wait for the provider: a thread of a request waits for it, never the event loop."""


class _RedirectHandler(urllib.request.HTTPRedirectHandler):
    """A provider's keys are where the setting says: whoever could redirect would choose who gets in."""

    def redirect_request(self, *_: object) -> None:
        return None


_opener = urllib.request.build_opener(_RedirectHandler)


def jwt_verifier_of(
    settings: Settings, clock: Clock, failures: FailureLog | None = None
) -> "JwtVerifier | None":
    """The verifier of tokens; None where `authentication_methods` has no oidc. Raises InvalidConfig.

    The provider's keys come over HTTP. `failures` has those of the provider.
    """
    if AuthenticationMethod.OIDC not in settings.authentication_methods:
        return None
    # Imported here: the libraries of tokens take a tenth of a second to load.
    from coordinator.access.authentication.jwt_verifier import Jwks, JwtVerifier, OidcSettings

    url = settings.oidc_jwks_url
    check_https("oidc_jwks_url", url, "on the way anybody could put in keys of their own")
    if settings.oidc_client_id:
        check_https("oidc_token_url", settings.oidc_token_url, "on the way anybody could read the tokens")
    oidc = OidcSettings(
        settings.oidc_issuer,
        settings.oidc_audience,
        settings.oidc_principal_claim,
        settings.oidc_groups_claim,
        settings.oidc_algorithms,
        settings.oidc_clock_skew_ms,
    )
    return JwtVerifier(oidc, Jwks(partial(_fetch, url), clock, failures), clock)


def _fetch(url: str) -> bytes:
    """The document at `url`. Raises OSError."""
    from coordinator.access.authentication.jwt_verifier import DOCUMENT_MAX_BYTES

    with _opener.open(url, timeout=FETCH_S) as answer:
        document: bytes = answer.read(DOCUMENT_MAX_BYTES + 1)
        return document


def authenticator_of(
    settings: Settings, clock: Clock, failures: FailureLog | None = None, salt_key: bytes | None = None
) -> Authenticator | None:
    """The authenticator that the settings ask for, without credentials yet; None for an open gateway.
    `salt_key` is that of Authenticator.
    """
    methods = settings.authentication_methods
    return (
        Authenticator(
            methods,
            {},
            {},
            jwt_verifier_of(settings, clock, failures),
            PrincipalMappingRules(settings.ssl_principal_mapping_rules),
            clock,
            salt_key,
        )
        if methods
        else None
    )


class CredentialDuty:
    """Keeps an authenticator at the newest credentials."""

    def __init__(self, cluster: Cluster, authenticator: Authenticator) -> None:
        self._cluster, self._authenticator = cluster, authenticator
        self._log: CredentialLog | None = None

    def run(self) -> None:
        """Raises StoreUnavailable, CorruptLog: the last known credentials stay.

        Requests that change users tell the authenticator, too, and one may be late: so it is told each time.
        """
        self._log = self._log or _opened(self._cluster)
        if self._log is None:
            return
        self._log.refresh()
        newest = self._log.credentials
        self._authenticator.update(newest.api_keys, newest.users)
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
