"""The server's side of SCRAM (RFC 5802, 5): a password is proven, and never sent."""

import base64
import binascii
import hashlib
import hmac
import re
from typing import NoReturn

from coordinator.access.authentication.password_verifier import PasswordVerifier
from coordinator.access.authentication.scram import MECHANISMS, ScramUsers
from log_tables.cluster.credential import ScramUserRecord
from log_tables.errors import AuthenticationFailed

MESSAGE_MAX_BYTES = 4_096

_FIRST = re.compile(
    r"(?P<gs2>[ny],(?:a=(?P<authzid>[^,]*))?,)"
    r"(?P<bare>n=(?P<name>(?:[^=,]|=2C|=3D)+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,]*)*)"
)
_FINAL = re.compile(
    r"(?P<unproven>c=(?P<gs2>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[A-Za-z]+=[^,]*)*),p=(?P<proof>[^,]+)"
)


class ScramServer:
    """One exchange: `first`, then `final`, then `user`. Channel binding is not offered.

    `nonce` is new for each exchange, of printable ASCII without a comma. `name` is that of the client's first
    message. A name that does not exist is found
    out at the end only, as a wrong password is.
    """

    def __init__(
        self, mechanism: str, users: ScramUsers, passwords: PasswordVerifier, address: str, nonce: str
    ) -> None:
        self._mechanism, self._digest, self._nonce = mechanism, MECHANISMS[mechanism], nonce
        self._users, self._passwords, self._address = users, passwords, address
        self.name = self._gs2 = self._said = ""
        self.user: ScramUserRecord | None = None

    def first(self, message: bytes) -> bytes:
        """The answer to the client's first message. Raises AuthenticationFailed."""
        asked = _FIRST.fullmatch(_text(message)) or _fail()
        self.name = asked["name"].replace("=2C", ",").replace("=3D", "=")
        if asked["authzid"] not in (None, "", asked["name"]):
            _fail()  # nobody acts for somebody else
        kept = self._users.credential(self.name, self._mechanism)
        salt = base64.b64encode(kept.salt).decode()
        self._gs2, self._nonce = asked["gs2"], asked["nonce"] + self._nonce
        answer = f"r={self._nonce},s={salt},i={kept.iterations}"
        self._said = f"{asked['bare']},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes:
        """The answer to the client's final message, which shows that we know the user, too.

        Raises AuthenticationFailed, and QuotaReached after too many wrong proofs.
        """
        proven = _FINAL.fullmatch(_text(message)) or _fail()
        said, self._said = self._said, ""
        if not said or proven["nonce"] != self._nonce or _decoded(proven["gs2"]) != self._gs2.encode():
            _fail()
        said = f"{said},{proven['unproven']}"
        kept = self._users.credential(self.name, self._mechanism)
        proof = _decoded(proven["proof"])
        with self._passwords.guess(self.name, self._address) as guess:
            guess.right = hmac.compare_digest(self._stored_key(kept.stored_key, said, proof), kept.stored_key)
        self.user = self._users.get(self.name) if guess.right else None
        if self.user is None:
            _fail()
        return b"v=" + base64.b64encode(hmac.digest(kept.server_key, said.encode(), self._digest))

    def _stored_key(self, stored_key: bytes, said: str, proof: bytes) -> bytes:
        """The StoredKey of a client with this proof."""
        signature = hmac.digest(stored_key, said.encode(), self._digest)
        if len(proof) != len(signature):
            return b"-"
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=True))
        return hashlib.new(self._digest, client_key).digest()


def _fail() -> NoReturn:
    raise AuthenticationFailed("the name or the password is not right; check them")


def _text(message: bytes) -> str:
    try:
        return message.decode() if len(message) <= MESSAGE_MAX_BYTES else ""
    except UnicodeDecodeError:
        return ""


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        return b""
