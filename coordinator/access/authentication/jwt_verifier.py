"""Tokens of an OIDC provider as bearer tokens: JWTs that it signs (RFC 7519, RFC 8725, RFC 9068)."""

import json
from math import ceil
from typing import Any

import msgspec
from joserfc.errors import JoseError
from joserfc.jwk import Key
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact
from joserfc.jwt import JWTClaimsRegistry

from coordinator.access.authentication.jwks import Jwks
from coordinator.access.principal import GROUP, USER, Principal, is_name
from log_tables.clock import Clock
from log_tables.errors import InvalidConfig

ALGORITHMS = frozenset(f"{family}{bits}" for family in ("RS", "PS", "ES") for bits in (256, 384, 512)) | {
    "Ed25519"
}
"""Signatures with a private key. With a shared one (HS256) a key that everybody can read would sign, too."""

CLOCK_SKEW_MAX_MS = 300_000

HEAD_MAX_BYTES, CLAIMS_MAX_BYTES = 4_096, 16_384

_TYPES = {"jwt", "at+jwt", "application/jwt", "application/at+jwt"}
"""Of `typ`, which is not required. Other kinds, such as that of a logout token, let nobody in."""


class OidcSettings(msgspec.Struct, frozen=True):
    """The provider's `issuer`, our `audience`, and how tokens are read."""

    issuer: str
    audience: str
    principal_claim: str = "sub"
    groups_claim: str = "groups"
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    clock_skew_ms: int = 30_000


class VerifiedToken(msgspec.Struct, frozen=True):
    """The principal of a token, the end of its validity in milliseconds since 1970 UTC, and the keys of the
    provider among which the right one was.
    """

    principal: Principal
    expires_ms: int
    keys: tuple[Key, ...]


class JwtVerifier:
    """Checks tokens of one provider. For many threads. Raises InvalidConfig."""

    def __init__(self, settings: OidcSettings, jwks: Jwks, clock: Clock) -> None:
        if not settings.issuer or not settings.audience:
            raise InvalidConfig(
                "oidc_issuer and oidc_audience are both needed; without one any token would do"
            )
        if not settings.algorithms or not ALGORITHMS.issuperset(settings.algorithms):
            raise InvalidConfig(
                f"oidc_algorithms = {', '.join(settings.algorithms)}: name some of "
                f"{', '.join(sorted(ALGORITHMS))}"
            )
        if not 0 <= settings.clock_skew_ms <= CLOCK_SKEW_MAX_MS:
            raise InvalidConfig(
                f"oidc_clock_skew_ms = {settings.clock_skew_ms}: take 0 to {CLOCK_SKEW_MAX_MS}"
            )
        self.jwks = jwks
        self._settings, self._clock = settings, clock
        # Names in a head that nobody knows are ignored (RFC 7515, 4); `crit` is refused below.
        self._registry = JWSRegistry(algorithms=settings.algorithms, strict_check_header=False)
        self._registry.max_header_length, self._registry.max_payload_length = HEAD_MAX_BYTES, CLAIMS_MAX_BYTES

    def verified(self, token: bytes) -> VerifiedToken | None:
        """The principal of `token`, or None for one that is not right.

        It may fetch keys. Raises Retriable while there are none.
        """
        signature = self._extracted(token)
        if signature is None:
            return None
        head = signature.headers()
        found, keys = self.jwks.candidates(head.get("kid"), head["alg"]), self.jwks.keys
        for key in found:
            try:
                if key in keys and validate_compact(signature, key, registry=self._registry):
                    return self._read(json.loads(signature.payload or b""), keys)
            except (JoseError, ValueError, TypeError, OverflowError, RecursionError):
                continue
        return None

    def _extracted(self, token: bytes) -> CompactSignature | None:
        """The parts of `token`, if its head is one that we take."""
        try:
            signature = extract_compact(token, registry=self._registry)
            head = signature.headers()
            self._registry.check_header(head)
            self._registry.get_alg(head["alg"])
        except (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        kind, kid = head.get("typ", "JWT"), head.get("kid")
        right = isinstance(kind, str) and kind.lower() in _TYPES and isinstance(kid, str | None)
        return signature if right and "crit" not in head else None

    def _read(self, claims: Any, keys: tuple[Key, ...]) -> VerifiedToken | None:
        """Raises JoseError or an error of Python for claims that are not right."""
        if not isinstance(claims, dict) or "cnf" in claims:
            return None  # one for a client with a key of its own (RFC 7800), which a bearer does not show
        settings, skew_s = self._settings, ceil(self._settings.clock_skew_ms / 1000)
        JWTClaimsRegistry(
            now=self._clock.now_ms() // 1000,
            leeway=skew_s,
            iss={"essential": True, "value": settings.issuer},
            aud={"essential": True, "value": settings.audience},
            exp={"essential": True},
        ).validate(claims)
        name = claims.get(settings.principal_claim)
        groups = claims.get(settings.groups_claim, [])
        listed = [groups] if isinstance(groups, str) else groups
        if not is_name(name) or not isinstance(listed, list) or not all(map(is_name, listed)):
            return None
        principal = Principal(USER + name, tuple(GROUP + group for group in listed))
        return VerifiedToken(principal, int((claims["exp"] + skew_s) * 1000), keys)
