"""API keys `id.secret`: 256 random bits, of which only a SHA-256 is kept.

Nobody can guess such a secret, so its hash needs no salt and no slow function, and a check takes
microseconds.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from string import hexdigits

from log_tables.clock import Clock
from log_tables.cluster.credential import ApiKeyRecord

_ID_DIGITS = 12
_SECRET_DIGITS, _SECRET_CHARS = 64, 43

_NO_HASH = bytes(hashlib.sha256().digest_size)
"""Compared in place of the hash of a key that does not exist, so that both refusals are the same work."""


def new_api_key(principal: str, clock: Clock, expires_ms: int | None = None) -> tuple[str, ApiKeyRecord]:
    """The text of a new key, to be shown once, and what is kept of it.

    `principal` is `User:<name>`, `expires_ms` milliseconds since 1970 UTC.
    """
    secret = base64.urlsafe_b64encode(bytes.fromhex(clock.random_hex(_SECRET_DIGITS))).rstrip(b"=")
    key_id = clock.random_hex(_ID_DIGITS)
    record = ApiKeyRecord(key_id, principal, hashlib.sha256(secret).digest(), clock.now_ms(), expires_ms)
    return f"{key_id}.{secret.decode()}", record


def is_like_key(key_id: str, secret: str) -> bool:
    """Whether an id and a secret have the form of a key, good or not."""
    return len(key_id) == _ID_DIGITS and len(secret) == _SECRET_CHARS and set(key_id) <= set(hexdigits)


def right_key(
    keys: Mapping[str, ApiKeyRecord], key_id: str, secret: bytes, now_ms: int
) -> ApiKeyRecord | None:
    """The record of the key `key_id`, if this is its secret and the key is good at `now_ms`."""
    record = keys.get(key_id)
    kept = _NO_HASH if record is None else record.sha256
    right = hmac.compare_digest(hashlib.sha256(secret).digest(), kept)
    if record is None or not right or (record.expires_ms is not None and record.expires_ms <= now_ms):
        return None
    return record
