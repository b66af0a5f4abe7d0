"""The OIDC provider that the settings name: its keys come over HTTP."""

import urllib.request
from functools import partial
from typing import TYPE_CHECKING

from api.loopback import check_https
from ingest.failure_log import FailureLog
from ingest.settings import Settings
from log_tables.clock import Clock
from log_tables.cluster.credential import AuthenticationMethod

if TYPE_CHECKING:
    from coordinator.access.jwt_verifier import JwtVerifier

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

    `failures` has those of the provider.
    """
    if AuthenticationMethod.OIDC not in settings.authentication_methods:
        return None
    # Imported here: the libraries of tokens take a tenth of a second to load.
    from coordinator.access.jwks import Jwks
    from coordinator.access.jwt_verifier import JwtVerifier, OidcSettings

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
    from coordinator.access.jwks import DOCUMENT_MAX_BYTES

    with _opener.open(url, timeout=FETCH_S) as answer:
        document: bytes = answer.read(DOCUMENT_MAX_BYTES + 1)
        return document
