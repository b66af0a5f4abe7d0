"""The cost of checking the credential of a request: once it is known, and the first time."""

import base64
import json

import msgspec
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from bench.cells import Figures
from bench.contest import OURS, Results, Scale
from bench.peers import Peers
from coordinator.access.authentication.api_key import new_api_key
from coordinator.access.authentication.authenticator import Authenticator
from coordinator.access.authentication.certificate import PrincipalMappingRules
from coordinator.access.authentication.jwt_verifier import Jwks, JwtVerifier, OidcSettings
from coordinator.access.authentication.scram import new_scram_user
from log_tables.clock import SystemClock, timer
from log_tables.cluster.credential import AuthenticationMethod

_KNOWN, _FIRST = 10_000, 20
_CREDENTIALS = 1_000
_ISSUER, _AUDIENCE = "https://login.example.com/", "lakelog"


def credentials(_peers: Peers | None, _scale: Scale) -> Results:
    """Among 1,000 keys and 1,000 users: an API key as Bearer, then other credentials, new and known."""
    clock = SystemClock()
    keys = [new_api_key(f"User:{number}", clock) for number in range(_CREDENTIALS)]
    # One password for all: a thousand would take as long to make as to check.
    user = new_scram_user("user", "a password", clock)
    users = {name: msgspec.structs.replace(user, name=name) for name in map(str, range(_CREDENTIALS))}
    signer = RSAKey.generate_key(2048, {"kid": "first"})
    document = json.dumps(KeySet([signer]).as_dict()).encode()
    tokens = JwtVerifier(OidcSettings(_ISSUER, _AUDIENCE), Jwks(lambda: document, clock), clock)
    by = Authenticator(
        list(AuthenticationMethod),
        {record.id: record for _, record in keys},
        users,
        tokens,
        PrincipalMappingRules(),
        clock,
    )
    claims = {"iss": _ISSUER, "aud": _AUDIENCE, "exp": clock.now_ms() // 1000 + 3_600}
    return {
        OURS: _measured(by, [f"Bearer {text}".encode() for text, _ in keys]),
        "API key as Basic": _measured(by, [_basic(text.replace(".", ":")) for text, _ in keys]),
        "password": _measured(by, [_basic(f"{name}:a password") for name in users][:_FIRST]),
        "token": _measured(
            by,
            [
                b"Bearer "
                + jwt.encode({"alg": "RS256", "kid": "first"}, claims | {"sub": name}, signer).encode()
                for name in list(users)[:_FIRST]
            ],
        ),
    }


def _measured(by: Authenticator, headers: list[bytes]) -> Figures:
    begin = timer()
    principals = [by.verify(header, None, "192.0.2.1") for header in headers]
    first = (timer() - begin) / len(headers)
    rounds = _KNOWN // len(headers)
    begin = timer()
    known = [by.known(header, None) for _ in range(rounds) for header in headers]
    each = (timer() - begin) / len(known)
    if known != principals * rounds:
        raise RuntimeError("a credential that was verified is not known")
    return {"first ms": first * 1e3, "known µs": each * 1e6}


def _basic(pair: str) -> bytes:
    return b"Basic " + base64.b64encode(pair.encode())
