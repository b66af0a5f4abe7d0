"""Tokens of an OIDC provider as bearer tokens: JWTs that it signs (RFC 7519, RFC 8725, RFC 9068).

The keys of the provider (RFC 7517) are kept, and served stale while the provider is away.
"""

import json
import threading
from collections.abc import Callable
from math import ceil
from typing import Any

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet
from joserfc.jws import CompactSignature, JWSRegistry, extract_compact, validate_compact
from joserfc.jwt import JWTClaimsRegistry

from coordinator.access.principal import GROUP, USER, Principal, is_name
from ingest.periodic_task import FailureLog
from log_tables.clock import Clock
from log_tables.errors import Damaged, InvalidConfig, Retriable, Unreachable

REFRESH_S = 600.0
"""The age at which keys are fetched again: a key that the provider has withdrawn is good until then."""

RETRY_S = 30.0
"""At least that long passes from one fetch to the next, however many unknown keys tokens name."""

DOCUMENT_MAX_BYTES = 1_048_576

_RSA_MIN_BITS = 2048


class Jwks:
    """Follows a JWKS document. For many threads.

    `fetch` blocks, gives the document, has a timeout of its own, and raises OSError. A failure is one of the
    duty `keys` in `failures`, and the keys stay as they are.
    """

    def __init__(self, fetch: Callable[[], bytes], clock: Clock, failures: FailureLog | None = None) -> None:
        self._fetch, self._clock = fetch, clock
        self._document: Any = None
        self._keys: tuple[Key, ...] = ()
        self._tried: float | None = None
        self._fetched: float | None = None
        self._fetching, self._failures = threading.Lock(), failures or FailureLog()

    @property
    def keys(self) -> tuple[Key, ...]:
        """The keys as of the last fetch: a key stays the same object in all documents that have it."""
        return self._keys

    def refresh(self) -> None:
        """Fetch the document if it is old, unless that was tried a moment ago or is under way.

        A duty calls this again and again, so that no request waits for a fetch of keys that are only old.
        """
        if self._is_due(self._fetched, REFRESH_S) and self._fetching.acquire(blocking=False):
            try:
                self._try()
            finally:
                self._fetching.release()

    def candidates(self, kid: str | None, algorithm: str) -> list[Key]:
        """The keys that a token of this `kid` and `algorithm` may be signed with.

        A `kid` that is unknown fetches the document again, at most once in RETRY_S: one thread waits for it.
        Raises Retriable while that is under way, and while there has never been a document.
        """
        if (found := self._named(kid, algorithm)) or (self._keys and not self._is_due(self._tried, RETRY_S)):
            return found
        if not self._fetching.acquire(blocking=False):
            raise Retriable("the keys of the OIDC provider are being fetched; repeat the request")
        try:
            self._try()
        finally:
            self._fetching.release()
        if self._fetched is None:
            raise Retriable("the keys of the OIDC provider have not come yet; repeat the request")
        return self._named(kid, algorithm)

    def _named(self, kid: str | None, algorithm: str) -> list[Key]:
        fit = [key for key in self._keys if _fits(key, algorithm)]
        if kid is None:
            return fit if len(fit) == 1 else []
        return [key for key in fit if key.get("kid") == kid]

    def _is_due(self, last: float | None, period_s: float) -> bool:
        return last is None or self._clock.monotonic() - last >= period_s

    def _try(self) -> None:
        """Fetch the document, unless that was tried a moment ago."""
        if not self._is_due(self._tried, RETRY_S):
            return
        with self._failures.catch("keys"):
            try:
                self._take(self._document_now())
                self._fetched = self._clock.monotonic()
            finally:
                self._tried = self._clock.monotonic()

    def _document_now(self) -> bytes:
        """Raises Unreachable."""
        try:
            return self._fetch()
        except OSError as error:
            raise Unreachable(f"the OIDC provider does not give its keys ({error})") from None

    def _take(self, document: bytes) -> None:
        """Raises Damaged for a document without a key that can be used."""
        if len(document) > DOCUMENT_MAX_BYTES:
            raise Damaged(f"the JWKS document has more than {DOCUMENT_MAX_BYTES} bytes")
        parsed = _parsed(document)
        if parsed == self._document:
            return
        listed = parsed.get("keys") if isinstance(parsed, dict) else None
        keys = map(_imported, listed) if isinstance(listed, list) else ()
        usable = tuple(self._known(key) for key in keys if key is not None)
        if not usable:
            raise Damaged("the JWKS document has no key that can be used; check oidc_jwks_url")
        self._document, self._keys = parsed, usable

    def _known(self, key: Key) -> Key:
        """The object of this key that there is already, or `key`."""
        return next((known for known in self._keys if known.as_dict() == key.as_dict()), key)


def _parsed(document: bytes) -> object:
    try:
        return json.loads(document)
    except (ValueError, RecursionError):
        return None


def _imported(data: object) -> Key | None:
    """One key of a document, or None for one that signs no token: of a kind that is not known, or secret."""
    if not isinstance(data, dict) or data.get("kty") not in ("RSA", "EC", "OKP") or "d" in data:
        return None
    if data.get("use", "sig") != "sig":
        return None
    try:
        key = JWKRegistry.import_key(data)
        public = key.public_key  # which a key of a curve that nobody knows does not have
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return None if isinstance(public, RSAPublicKey) and public.key_size < _RSA_MIN_BITS else key


def _fits(key: Key, algorithm: str) -> bool:
    """Whether `key` is for `algorithm`: of its type, and for no other one."""
    return key.key_type in KeySet.algorithm_keys.get(algorithm, ()) and key.get("alg", algorithm) == algorithm


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
    """The principal of a token, its `exp`, the later time until which it is taken, both in milliseconds since
    1970 UTC, and the key of the provider that has signed it.
    """

    principal: Principal
    exp_ms: int
    expires_ms: int
    key: Key


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
                    return self._read(json.loads(signature.payload or b""), key)
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

    def holds(self, token: VerifiedToken) -> bool:
        """Whether a token is right still: until it expires, or the provider withdraws its key."""
        return self._clock.now_ms() < token.expires_ms and token.key in self.jwks.keys

    def _read(self, claims: Any, key: Key) -> VerifiedToken | None:
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
        exp_ms = int(claims["exp"] * 1000)
        return VerifiedToken(principal, exp_ms, exp_ms + skew_s * 1000, key)
