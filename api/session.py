"""The session of a browser: its credential in a cookie that only the gateways of the cluster can open.

No gateway keeps a list of sessions. Each request has the credential with it and is authenticated by it, so a
key that is revoked or a password that is changed ends its sessions, and any gateway answers. The cookie is a
Fernet token (AES-128-CBC, HMAC-SHA256), under keys that are derived from the peer secrets (HKDF, RFC 5869).
"""

import base64
import hmac
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from starlette.responses import Response

from log_tables.clock import Clock
from log_tables.errors import AuthenticationFailed, InvalidArgument

SESSION_MS = 12 * 60 * 60 * 1000
"""A browser logs in again after this time."""

COOKIE_MAX_CHARS = 4_000
"""Browsers take 4,096 bytes, with the name and the attributes."""

_OPENED_MAX = 1_000
_TOKEN_DIGITS = 32
_ID_CHARS = 8
"""Of the cluster's id in the name of its cookie: on one host the ports share all cookies."""
_READS = ("GET", "HEAD")
_BASE64URL = re.compile(r"[A-Za-z0-9_-]+")

Sealed = TypeVar("Sealed", bound=msgspec.Struct)


class Session(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The value of the header Authorization that a cookie stands for, until `expires_ms` (1970 UTC)."""

    header: str
    expires_ms: int


class LoginState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A login at the provider that is under way: its secrets, by their names in OpenID Connect Core 1.0 and
    RFC 7636, and where it leads.
    """

    state: str
    nonce: str
    verifier: str
    following: str
    expires_ms: int


class SessionCipher:
    """Makes and opens the cookies of one cluster. Thread-safe."""

    def __init__(self, secrets: Sequence[str], cluster_id: str, clock: Clock, secure: bool = False) -> None:
        """Cookies are made under the first of the peer secrets, and opened under any.

        If they are `secure`, browsers reach the gateways by https, also where a proxy ends it.
        """
        self._clock, self.is_secure = clock, secure
        # Browsers take one with the prefix from this very host alone, and by https.
        self.cookie_name = ("__Host-" if secure else "") + f"lakelog_{cluster_id[:_ID_CHARS]}"
        keys = [_derived(each, cluster_id) for each in secrets]
        self._fernet = MultiFernet([Fernet(base64.urlsafe_b64encode(key)) for key in keys])
        self._csrf_key = hmac.digest(keys[0], b"csrf", "sha256")
        self._opened = lru_cache(_OPENED_MAX)(self._decrypted)

    def seal(self, header: bytes, expires_ms: int | None = None) -> str:
        """The cookie of a browser that has shown the credential `header`; it ends at `expires_ms` at the
        latest. Raises InvalidArgument for a credential that does not fit into a cookie.
        """
        end_ms = self._clock.now_ms() + SESSION_MS
        session = Session(header.decode("latin-1"), end_ms if expires_ms is None else min(end_ms, expires_ms))
        made = self._sealed(session)
        if len(made) > COOKIE_MAX_CHARS:
            raise InvalidArgument(
                f"the credential has {len(header)} bytes, too many for a cookie; let the provider put fewer "
                "groups into its tokens, or log in with an API key"
            )
        return made

    def open(self, cookie: str) -> Session | None:
        """The session of a cookie; None for one that is over, or was not made here."""
        session = self._opened(cookie) if len(cookie) <= COOKIE_MAX_CHARS else None
        return session if session is not None and self._clock.now_ms() < session.expires_ms else None

    def give(self, response: Response, cookie: str) -> None:
        """Let a browser have this session."""
        end_s = SESSION_MS // 1000
        response.set_cookie(
            self.cookie_name, cookie, end_s, secure=self.is_secure, httponly=True, samesite="strict"
        )

    def end(self, response: Response) -> None:
        """Let a browser forget its session."""
        response.delete_cookie(self.cookie_name, secure=self.is_secure, httponly=True, samesite="strict")

    def seal_login(self, login: "LoginState") -> str:
        """The cookie of a login that is under way at the provider."""
        return self._sealed(login)

    def open_login(self, cookie: str) -> "LoginState | None":
        """The login of a cookie; None for one that took too long, or was not begun here."""
        login = self._unsealed(cookie, LoginState)
        return login if login is not None and self._clock.now_ms() < login.expires_ms else None

    def csrf_token(self, cookie: str) -> str:
        """The token that a page sends with each change, so that no page of another origin makes one."""
        return hmac.digest(self._csrf_key, cookie.encode(), "sha256").hex()[:_TOKEN_DIGITS]

    def check_csrf(self, cookie: str, method: str, sent: Sequence[bytes]) -> None:
        """Raise AuthenticationFailed for a change without the token of its session."""
        if method in _READS:
            return
        token = self.csrf_token(cookie).encode()
        if not any(hmac.compare_digest(token, each) for each in sent):
            raise AuthenticationFailed(
                "a request with a session cookie that changes something needs the header X-CSRF-Token; "
                "programs send an API key as Bearer instead"
            )

    def _decrypted(self, cookie: str) -> Session | None:
        return self._unsealed(cookie, Session)

    def _sealed(self, value: msgspec.Struct) -> str:
        """Without the padding, which would have to be quoted in a cookie."""
        return self._fernet.encrypt(msgspec.json.encode(value)).decode().rstrip("=")

    def _unsealed(self, cookie: str, kind: type[Sealed]) -> Sealed | None:
        if not _BASE64URL.fullmatch(cookie):
            return None
        try:
            padded = cookie + "=" * (-len(cookie) % 4)
            return msgspec.json.decode(self._fernet.decrypt(padded.encode()), type=kind)
        except (InvalidToken, msgspec.MsgspecError):
            return None


def _derived(secret: str, cluster_id: str) -> bytes:
    made: bytes = HKDF(SHA256(), 32, cluster_id.encode(), b"lakelog console session").derive(secret.encode())
    return made
