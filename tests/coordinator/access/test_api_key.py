"""API keys: their text, what is kept of them, and which are right."""

import base64
import hashlib

import pytest

from coordinator.access.authentication.api_key import new_api_key, right_key
from log_tables.clock import ManualClock, SystemClock


def test_a_key_has_a_short_id_and_256_random_bits() -> None:
    made = [new_api_key("User:ann", SystemClock())[0] for _ in range(100)]
    secrets = [base64.urlsafe_b64decode(text.split(".")[1] + "=") for text in made]
    assert {len(secret) for secret in secrets} == {32}
    assert len(set(secrets)) == len({text.split(".")[0] for text in made}) == 100


def test_of_a_key_its_hash_is_kept(clock: ManualClock) -> None:
    text, record = new_api_key("User:ann", clock, expires_ms=5)
    key_id, secret = text.split(".")
    assert (record.id, record.principal, record.expires_ms) == (key_id, "User:ann", 5)
    assert record.sha256 == hashlib.sha256(secret.encode()).digest()
    assert record.created_ms == clock.now_ms()
    assert secret not in repr(record)


def test_the_right_secret_is_right_until_the_key_expires(clock: ManualClock) -> None:
    text, record = new_api_key("User:ann", clock, expires_ms=clock.now_ms() + 1)
    keys, secret = {record.id: record}, text.split(".")[1].encode()
    assert right_key(keys, record.id, secret, clock.now_ms()) is record
    assert right_key(keys, record.id, secret, clock.now_ms() + 1) is None


@pytest.mark.parametrize("secret", [b"", b"x", bytes(32), b"\xff" * 500])
def test_another_secret_is_wrong_and_so_is_another_id(clock: ManualClock, secret: bytes) -> None:
    text, record = new_api_key("User:ann", clock)
    right = text.split(".")[1].encode()
    assert right_key({record.id: record}, record.id, secret, 0) is None
    assert right_key({record.id: record}, record.id, right + secret[:1], 0) is (None if secret else record)
    assert right_key({record.id: record}, "other", right, 0) is None
    assert right_key({}, record.id, right, 0) is None
