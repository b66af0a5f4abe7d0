"""An OIDC provider without a network: its keys, its JWKS document, and tokens, forged ones too."""

import base64
import json
from functools import cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, OKPKey, RSAKey

from log_tables.clock import ManualClock

Key = RSAKey | ECKey | OKPKey
ISSUER, AUDIENCE = "https://login.example.com/", "lakelog"


@cache
def key(kind: str, kid: str) -> Key:
    """A private key, made once for all tests."""
    match kind:
        case "RSA":
            return RSAKey.generate_key(2048, {"kid": kid})
        case "Ed25519":
            return OKPKey.generate_key(kind, {"kid": kid})
    return ECKey.generate_key(kind, {"kid": kid})


class Provider:
    """`fetch` is what a gateway calls; `fetches` counts that. While `away`, it fails."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock, self.fetches, self.away = clock, 0, False
        self.keys = [key("RSA", "first"), key("P-256", "second")]
        self.extra: list[object] = []

    def fetch(self) -> bytes:
        self.fetches += 1
        if self.away:
            raise ConnectionRefusedError("the provider is away")
        return json.dumps({"keys": [*(each.as_dict() for each in self.keys), *self.extra]}).encode()

    def claims(self, **changes: object) -> dict[str, Any]:
        """The claims of a right token; None leaves one out."""
        now = self.clock.now_ms() // 1000
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "iat": now, "nbf": now, "exp": now + 600}
        return {name: value for name, value in (claims | changes).items() if value is not None}

    def token(self, header: dict[str, Any] | None = None, by: Key | None = None, **changes: object) -> bytes:
        """A token that `by` signs, with changes to its head and to its claims."""
        signer = by or self.keys[0]
        head = {"alg": "RS256", "kid": signer.kid} | (header or {})
        kept = {name: value for name, value in head.items() if value is not None}
        return jwt.encode(kept, self.claims(**changes), signer, [kept["alg"]]).encode()


def base64url(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def unsigned(head: dict[str, Any], claims: object) -> bytes:
    """The part of a token that is signed."""
    return base64url(json.dumps(head).encode()) + b"." + base64url(json.dumps(claims).encode())
