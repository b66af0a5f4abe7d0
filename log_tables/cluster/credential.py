"""Credentials as they are kept: enough to check one, and never one itself.

Plain data; who is let in by it is decided in `coordinator/access/`. No `repr` shows any of it: a
ScramCredential is enough to guess its password at leisure.
"""

from enum import StrEnum

import msgspec


class AuthenticationMethod(StrEnum):
    """A way for a client to say who it is."""

    API_KEY = "api-key"
    SCRAM = "scram"
    OIDC = "oidc"
    MTLS = "mtls"


class ApiKeyRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An API key `id.secret`, whose secret is known to its owner alone.

    `principal` is `User:<name>`, `sha256` are the 32 bytes of the hash of the secret, times are in
    milliseconds since 1970 UTC. A key without `expires_ms` is good until it is revoked.
    """

    id: str
    principal: str
    sha256: bytes
    created_ms: int
    expires_ms: int | None = None

    def __repr__(self) -> str:
        return f"ApiKeyRecord(id={self.id!r}, principal={self.principal!r})"


class ScramCredential(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A password as it is kept for one mechanism (RFC 5802, 3), by the names of Kafka's class."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class ScramUserRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user `User:<name>`. `mechanisms`: `SCRAM-SHA-256`, `SCRAM-SHA-512`, or both (KIP-84)."""

    name: str
    mechanisms: dict[str, ScramCredential]
