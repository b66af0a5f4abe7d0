"""From the credentials of a request to its principal.

Nothing of a credential gets into a message, a log or the context of an exception: functions here return None
for a wrong one, and one place raises.
"""

import base64
import binascii
import functools
import hmac
import threading
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import msgspec

from coordinator.access.authentication.api_key import is_like_key, right_key
from coordinator.access.authentication.certificate import PrincipalMappingRules, subject
from coordinator.access.authentication.password_verifier import PasswordVerifier
from coordinator.access.authentication.scram import MECHANISMS, ScramUsers
from coordinator.access.authentication.scram_server import ScramServer
from coordinator.access.principal import USER, Principal
from log_tables.clock import Clock
from log_tables.cluster.credential import ApiKeyRecord, AuthenticationMethod, ScramUserRecord
from log_tables.errors import AuthenticationFailed

if TYPE_CHECKING:  # it loads the libraries of tokens, which most gateways do not need
    from coordinator.access.authentication.jwt_verifier import JwtVerifier, VerifiedToken

HEADER_MAX_BYTES = 16_384
"""Of `Authorization`: tokens with very many groups have some kilobytes."""

SUBJECTS_MAX = 1_000

NONCE_DIGITS = 48

PLAIN = "PLAIN"
"""The mechanism of SASL that sends the password itself (RFC 4616)."""

OAUTHBEARER = "OAUTHBEARER"
"""The mechanism of SASL that sends a token (RFC 7628, KIP-255)."""

LIFETIME_MAX_MS = 366 * 24 * 60 * 60 * 1000
"""Of a login, as clients hear it: they log in again by then. Java's counts its nanoseconds in 64 bits."""

CACHED_MAX = 10_000
"""Right answers that are kept: a few megabytes."""

_NONE = "the request has no credential; send an API key or a token as Bearer, or a name and password as Basic"
_WRONG = (
    "the credential is not right, or no longer; this gateway takes {}: check it, or ask an administrator for "
    "another one"
)


class _CacheEntry(msgspec.Struct, frozen=True):
    """A right answer, which holds while its user is the same, or its token is right."""

    principal: Principal
    record: "ScramUserRecord | VerifiedToken"


class Login(msgspec.Struct, frozen=True):
    """The principal of a connection, and the record that it is let in by for as long as that holds. None is a
    certificate, which the handshake has verified.
    """

    principal: Principal
    record: "ApiKeyRecord | ScramUserRecord | VerifiedToken | None"


class _Snapshot(msgspec.Struct, frozen=True):
    keys: Mapping[str, ApiKeyRecord]
    records: Mapping[str, ScramUserRecord]
    users: ScramUsers


class Authenticator:
    """Checks credentials by `methods`. For an event loop (`known`) and many threads (`verify`)."""

    def __init__(
        self,
        methods: Collection[AuthenticationMethod],
        keys: Mapping[str, ApiKeyRecord],
        users: Mapping[str, ScramUserRecord],
        jwt_verifier: "JwtVerifier | None",
        rules: PrincipalMappingRules,
        clock: Clock,
        salt_key: bytes | None = None,
    ) -> None:
        """`jwt_verifier` is that of OIDC, `rules` are those of mTLS. `salt_key` is a secret of the cluster: a
        name that does not exist has the same salt at all its gateways. Without one, in this process.
        """
        self._methods, self._jwt, self._clock = frozenset(methods), jwt_verifier, clock
        self._secret = bytes.fromhex(clock.random_hex(64))
        self._salt_key = self._secret if salt_key is None else salt_key
        self._passwords = PasswordVerifier(clock)
        self._right: dict[bytes, _CacheEntry] = {}
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        self.counts = dict.fromkeys(map(str, methods), 0)
        """How often a credential was right, by method."""
        self._user_of_subject = functools.lru_cache(SUBJECTS_MAX)(rules.user)
        self._snapshot = _Snapshot(keys, users, ScramUsers(users, self._salt_key))

    def update(self, keys: Mapping[str, ApiKeyRecord], users: Mapping[str, ScramUserRecord]) -> None:
        """Go by these from now on; nobody changes them later. A key or user that is the same stays known.
        To say the same objects again costs nothing.
        """
        known = self._snapshot
        if keys is not known.keys or users is not known.records:
            self._snapshot = _Snapshot(keys, users, ScramUsers(users, self._salt_key))

    def known(self, header: bytes | None, subject: str | None) -> Principal | None:
        """The principal of a request, if that takes microseconds; else None, and `verify` says.

        `header` is the value of `Authorization`, and `subject` is that of the client's certificate
        (`certificate.subject`), each if there is one. The header goes first.
        """
        if header is None:
            return self._of_certificate(subject)
        if (key := self._key_of(header)) is not None:
            self.counts[AuthenticationMethod.API_KEY] += 1
            return Principal(key.principal)
        right = self._right.get(self._digest(header))
        return self._counted(right) if right is not None and self._holds(right.record) else None

    def _counted(self, right: _CacheEntry) -> Principal:
        by_password = isinstance(right.record, ScramUserRecord)
        self.counts[AuthenticationMethod.SCRAM if by_password else AuthenticationMethod.OIDC] += 1
        return right.principal

    def is_slow(self, header: bytes | None) -> bool:
        """Whether `verify` takes longer than `known` for this header: for a password, a token."""
        return header is not None and (self._token(header) or self._password(header)) is not None

    def verify(self, header: bytes | None, subject: str | None, address: str) -> Principal:
        """The principal of a request from `address`. If it `is_slow`, that may take milliseconds, or wait.

        Raises AuthenticationFailed without a right credential, QuotaReached after many wrong passwords, and
        Retriable while there are no keys to check a token with.
        """
        if (known := self.known(header, subject)) is not None:
            return known
        if header is None and (subject is None or AuthenticationMethod.MTLS not in self._methods):
            raise AuthenticationFailed(_NONE)
        principal = None if header is None else self._verified(header, address)
        if principal is None:
            raise AuthenticationFailed(_WRONG.format(", ".join(sorted(map(str, self._methods)))))
        return principal

    @property
    def sasl_mechanisms(self) -> tuple[str, ...]:
        """By which a connection can log in: PLAIN brings what Basic does, OAUTHBEARER what Bearer does."""
        with_secret = {AuthenticationMethod.API_KEY, AuthenticationMethod.SCRAM} & self._methods
        scram = tuple(MECHANISMS) if AuthenticationMethod.SCRAM in self._methods else ()
        bearer = (OAUTHBEARER,) if AuthenticationMethod.OIDC in self._methods else ()
        return (*((PLAIN,) if with_secret else ()), *scram, *bearer)

    def login(self, header: bytes) -> Login | None:
        """The login by a header that is right; None if it has to be verified."""
        key = self._key_of(header)
        if key is not None:
            return Login(Principal(key.principal), key)
        right = self._right.get(self._digest(header))
        return (
            None if right is None or not self._holds(right.record) else Login(right.principal, right.record)
        )

    def certified(self, certificate: bytes | None) -> Login | None:
        """The login of a connection whose client has shown this certificate (DER); None if it is nobody's."""
        if certificate is None or AuthenticationMethod.MTLS not in self._methods:
            return None
        principal = self._of_certificate(subject(certificate))
        return None if principal is None else Login(principal, None)

    def login_of(self, user: ScramUserRecord) -> Login:
        """The login of a user who has proven by SCRAM that it knows its password."""
        self.counts[AuthenticationMethod.SCRAM] += 1
        return Login(Principal(USER + user.name), user)

    def holds(self, login: Login) -> bool:
        """Whether nobody has revoked or changed the record of `login`, and it has not expired."""
        record = login.record
        if record is None:
            return True
        if not isinstance(record, ApiKeyRecord):
            return self._holds(record)
        now_ms = self._clock.now_ms()
        if self._snapshot.keys.get(record.id) != record or _left_ms(record, now_ms) == 0:
            return False
        self._used[record.id] = now_ms
        return True

    def lifetime_ms(self, login: Login) -> int | None:
        """Until `login` expires by itself, LIFETIME_MAX_MS at most; None if it does not. Of a token until its
        `exp`: it is taken for a little longer, as clocks differ, but a client should have logged in again by
        then.
        """
        record, now_ms = login.record, self._clock.now_ms()
        if record is None or isinstance(record, ScramUserRecord):
            return None
        if isinstance(record, ApiKeyRecord):
            left_ms = _left_ms(record, now_ms)
        else:
            left_ms = max(1, record.exp_ms - now_ms)
        return None if left_ms is None else min(left_ms, LIFETIME_MAX_MS)

    def scram_server(self, mechanism: str, address: str) -> ScramServer:
        """The server's side of SASL with a client at `address`. Raises AuthenticationFailed."""
        if AuthenticationMethod.SCRAM not in self._methods or mechanism not in MECHANISMS:
            raise AuthenticationFailed(f"SASL offers {', '.join(MECHANISMS)} where the method scram is on")
        nonce = self._clock.random_hex(NONCE_DIGITS)
        return ScramServer(mechanism, self._snapshot.users, self._passwords, address, nonce)

    def refresh_keys(self) -> None:
        """Fetch the keys of the OIDC provider where they are old; it may take seconds."""
        if self._jwt is not None:
            self._jwt.jwks.refresh()

    def claimed(self, header: bytes | None) -> str | None:
        """Whose credential was refused: the owner of a key with this id, the user of this name.

        None for all else: it may be a password in the place of a name.
        """
        pair = None if header is None else _bearer_key(header) or _basic(header)
        return None if pair is None else self.owner(pair[0])

    def owner(self, name: str) -> str | None:
        """The owner of the key with this id, or the user of this name."""
        key, user = self._snapshot.keys.get(name), self._snapshot.users.get(name)
        return key.principal if key is not None else None if user is None else USER + user.name

    def take_used_keys(self) -> dict[str, int]:
        """When each key was used last, in milliseconds since 1970 UTC, of those used since the last call."""
        used, self._used = self._used, {}
        return dict(used)

    def _of_certificate(self, subject: str | None) -> Principal | None:
        if subject is None or AuthenticationMethod.MTLS not in self._methods:
            return None
        name = self._user_of_subject(subject)
        if not name:
            return None
        self.counts[AuthenticationMethod.MTLS] += 1
        return Principal(USER + name)

    def _holds(self, record: "ScramUserRecord | VerifiedToken") -> bool:
        if isinstance(record, ScramUserRecord):
            return self._snapshot.users.get(record.name) == record
        assert self._jwt is not None
        return self._jwt.holds(record)

    def _verified(self, header: bytes, address: str) -> Principal | None:
        token, pair = self._token(header), self._password(header)
        right = self._of_token(token) if token else self._of_password(*pair, address) if pair else None
        if right is None:
            return None
        with self._lock:
            self._right[self._digest(header)] = right
            if len(self._right) > CACHED_MAX:
                del self._right[next(iter(self._right))]
        return self._counted(right)

    def _token(self, header: bytes) -> bytes | None:
        """The part of `header` that may be a token: a JWT has two dots."""
        if self._jwt is None or AuthenticationMethod.OIDC not in self._methods:
            return None
        token = _credentials(header, b"bearer")
        return token if token is not None and token.count(b".") == 2 else None

    def _password(self, header: bytes) -> tuple[str, str] | None:
        """A name and a password, if there may be some.

        A key that has ended is no guess at a password: it takes no time, and counts for nothing.
        """
        pair = _basic(header) if AuthenticationMethod.SCRAM in self._methods else None
        if pair is None or (is_like_key(*pair) and self._snapshot.users.get(pair[0]) is None):
            return None
        return pair

    def _of_token(self, token: bytes) -> _CacheEntry | None:
        assert self._jwt is not None
        verified = self._jwt.verified(token)
        return None if verified is None else _CacheEntry(verified.principal, verified)

    def _of_password(self, name: str, password: str, address: str) -> _CacheEntry | None:
        user = self._passwords.verified(self._snapshot.users, name, password, address)
        return None if user is None else _CacheEntry(Principal(USER + user.name), user)

    def _key_of(self, header: bytes) -> ApiKeyRecord | None:
        if AuthenticationMethod.API_KEY not in self._methods:
            return None
        pair = _bearer_key(header) or _basic(header)
        if pair is None:
            return None
        now_ms = self._clock.now_ms()
        key = right_key(self._snapshot.keys, pair[0], pair[1].encode(), now_ms)
        if key is not None:
            self._used[key.id] = now_ms
        return key

    def _digest(self, header: bytes) -> bytes:
        scheme, _, rest = header.partition(b" ")
        return hmac.digest(self._secret, scheme.lower() + b" " + rest.strip(), "sha256")


def basic_header(name: str, password: str) -> bytes | None:
    """A name and a password as HTTP Basic has them; None where a name has a colon, as nobody's has."""
    if ":" in name:
        return None
    return b"Basic " + base64.b64encode(f"{name}:{password}".encode())


def _left_ms(key: ApiKeyRecord, now_ms: int) -> int | None:
    return None if key.expires_ms is None else max(0, key.expires_ms - now_ms)


def _credentials(header: bytes, scheme: bytes) -> bytes | None:
    """The part of `header` after its scheme, if it has this scheme, in any case (RFC 9110, 11.4)."""
    named, _, rest = header.partition(b" ")
    return rest.strip() if named.lower() == scheme and len(header) <= HEADER_MAX_BYTES else None


def _bearer_key(header: bytes) -> tuple[str, str] | None:
    """The id and the secret of an API key."""
    token = _credentials(header, b"bearer")
    if token is None or token.count(b".") != 1 or not token.isascii():
        return None
    key_id, _, secret = token.decode().partition(".")
    return key_id, secret


def _basic(header: bytes) -> tuple[str, str] | None:
    """The name and the password of Basic (RFC 7617): UTF-8, as the challenge says."""
    encoded = _credentials(header, b"basic")
    if encoded is None:
        return None
    try:
        name, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (name, password) if colon else None
