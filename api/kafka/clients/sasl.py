"""Logging in by SASL: PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), OAUTHBEARER (RFC 7628,
KIP-255).

PLAIN brings what HTTP Basic does: the name and password of a user, or the id and secret of an API key.
OAUTHBEARER brings what HTTP Bearer does: a token of the OIDC provider, or an API key as it is written.
"""

import re
from typing import NamedTuple

from coordinator.access.access import Access
from coordinator.access.authentication.authenticator import OAUTHBEARER, PLAIN, Login, basic_header
from coordinator.access.authentication.scram_server import ScramServer
from coordinator.access.principal import USER
from log_tables.errors import AuthenticationFailed, QuotaReached

MESSAGE_MAX_BYTES = 16_384
"""Of a message. The first login has no larger frames; a later one would be read on the event loop."""

_WRONG = "the name or the password is not right; check them"
_NOT_RIGHT = "the token is not right, or no longer; get another one from the provider"

_REFUSED = b'{"status":"invalid_token"}'
"""The challenge after a token that is not right; the client answers it, and hears the error then."""

_BEARER = re.compile(
    r"[ny],(?:a=(?P<acted_for>(?:[^=,\x01]|=2C|=3D)+))?,\x01"
    r"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)
_AUTH = re.compile(r"(?i:bearer) +(?P<token>[-._~+/A-Za-z0-9]+=*)")


class _Bearer(NamedTuple):
    """A header of Bearer, and the name for which the client acts; empty is the token's own."""

    header: bytes
    acted_for: str


class SaslSession:
    """The messages of one login by SASL. `raw` says that each is a frame of its own (SaslHandshake 0)."""

    def __init__(self, access: Access, mechanism: str, host: str, raw: bool) -> None:
        """`mechanism` is one that `access` offers; the client is at `host`."""
        assert access.authenticator is not None
        self.raw = raw
        self._access, self._host, self._authenticator = access, host, access.authenticator
        self._mechanism, self._is_begun = mechanism, False
        self._scram: ScramServer | None = None
        if mechanism not in (PLAIN, OAUTHBEARER):
            self._scram = self._authenticator.scram_server(mechanism, host)

    async def answer(self, message: bytes) -> tuple[bytes, Login | None]:
        """The answer to a message, and the login after the last one.

        Raises AuthenticationFailed and QuotaReached, which are audited, and Retriable.
        """
        if len(message) > MESSAGE_MAX_BYTES:
            message = b""  # which is none of any mechanism
        if self._mechanism == OAUTHBEARER:
            return await self._bearer(message)
        if self._scram is None:
            return b"", await self._login(_basic(message), _WRONG)
        try:
            return self._proof(self._scram, message)
        except (AuthenticationFailed, QuotaReached) as error:
            self._access.note_refused_name(self._scram.name, self._host, error)
            raise

    async def _login(self, header: bytes | None, wrong: str, acted_for: str = "") -> Login:
        """The login by a header of HTTP. Nobody acts for somebody else."""
        try:
            if header is None:
                raise AuthenticationFailed(wrong)
            await self._access.verify(header, None, self._host)
            login = self._authenticator.login(header)
            if login is None or acted_for not in ("", login.principal.name.removeprefix(USER)):
                raise AuthenticationFailed(wrong)
        except (AuthenticationFailed, QuotaReached) as error:
            self._access.note_refusal(header, self._host, error)
            raise
        return login

    async def _bearer(self, message: bytes) -> tuple[bytes, Login | None]:
        if self._is_begun:
            raise AuthenticationFailed(_NOT_RIGHT)  # the client has taken the challenge
        self._is_begun, asked = True, _asked(message)
        if asked is None:
            return b"", await self._login(None, _NOT_RIGHT)
        try:
            return b"", await self._login(asked.header, _NOT_RIGHT, asked.acted_for)
        except AuthenticationFailed:
            return _REFUSED, None

    def _proof(self, scram: ScramServer, message: bytes) -> tuple[bytes, Login | None]:
        if not self._is_begun:
            self._is_begun = True
            return scram.first(message), None
        answer = scram.final(message)
        assert scram.user is not None
        return answer, self._authenticator.login_of(scram.user)


def _basic(message: bytes) -> bytes | None:
    """A message of PLAIN as a header of Basic: authorization id, name, password (RFC 4616).

    None for what is no such message; nobody acts for somebody else.
    """
    try:
        parts = bytes(message).decode().split("\0")
    except UnicodeDecodeError:
        return None
    if len(parts) != 3 or parts[0] not in ("", parts[1]):
        return None
    return basic_header(parts[1], parts[2])


def _asked(message: bytes) -> _Bearer | None:
    """A first message of OAUTHBEARER; None for what is no such message. Extensions are ignored (KIP-342)."""
    try:
        found = _BEARER.fullmatch(bytes(message).decode())
    except UnicodeDecodeError:
        return None
    if found is None:
        return None
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None:
        return None
    acted_for = (found["acted_for"] or "").replace("=2C", ",").replace("=3D", "=")
    return _Bearer(b"Bearer " + auth["token"].encode(), acted_for)
