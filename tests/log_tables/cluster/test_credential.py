"""Credentials as they are kept: through JSON and back, and never shown."""

import msgspec
import pytest

from log_tables.cluster.credential import ApiKeyRecord, ScramCredential, ScramUserRecord

KEY = ApiKeyRecord("a1", "User:ann", b"canary-canary-canary-canary-cana", 1_000, 2_000)
CREDENTIAL = ScramCredential(b"canary-salt", 4096, b"canary-stored", b"canary-server")
USER = ScramUserRecord("ann", {"SCRAM-SHA-256": CREDENTIAL})


@pytest.mark.parametrize("record", [KEY, USER])
def test_a_record_is_the_same_after_json(record: ApiKeyRecord | ScramUserRecord) -> None:
    assert msgspec.json.decode(msgspec.json.encode(record), type=type(record)) == record


@pytest.mark.parametrize("record", [KEY, CREDENTIAL, USER])
def test_a_record_shows_nothing_to_guess_by(record: object) -> None:
    assert "canary" not in repr(record)
    assert "canary" not in f"{record!s} {[record]}"
