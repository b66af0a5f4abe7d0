"""One login of a connection by SASL: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512.

PLAIN brings what HTTP Basic does: the name and password of a user, or the id and secret of an API key.
"""

from coordinator.access.access import Access
from coordinator.access.authentication.authenticator import PLAIN, Login, basic_header
from coordinator.access.authentication.scram_server import ScramServer
from log_tables.errors import AuthenticationFailed, QuotaReached

_WRONG = "the name or the password is not right; check them"


class SaslSession:
    """The messages of one login. `raw` says that each is a frame of its own (SaslHandshake 0)."""

    def __init__(self, access: Access, mechanism: str, host: str, raw: bool) -> None:
        """`mechanism` is one that `access` offers; the client is at `host`."""
        assert access.authenticator is not None
        self.raw = raw
        self._access, self._host, self._authenticator = access, host, access.authenticator
        self._scram: ScramServer | None = None
        if mechanism != PLAIN:
            self._scram = self._authenticator.scram_server(mechanism, host)
        self._proven: Login | None = None
        self._is_begun = False

    async def answer(self, message: bytes) -> tuple[bytes, Login | None]:
        """The answer to a message, and the login after the last one.

        Raises AuthenticationFailed and QuotaReached, which are audited, and Retriable.
        """
        if self._scram is None:
            return b"", await self._plain(message)
        try:
            return self._proof(self._scram, message)
        except (AuthenticationFailed, QuotaReached) as error:
            self._access.note_refused_name(self._scram.name, self._host, error)
            raise

    async def _plain(self, message: bytes) -> Login:
        header = _basic(message)
        try:
            if header is None:
                raise AuthenticationFailed(_WRONG)
            await self._access.verify(header, None, self._host)
            login = self._authenticator.login(header)
            if login is None:
                raise AuthenticationFailed(_WRONG)
        except (AuthenticationFailed, QuotaReached) as error:
            self._access.note_refusal(header, self._host, error)
            raise
        return login

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
