"""The keys of a provider: when they are fetched, and which of a document are used."""

import json
import threading

import pytest
from joserfc.jwk import OctKey, RSAKey

from coordinator.access.authentication.jwt_verifier import DOCUMENT_MAX_BYTES, REFRESH_S, RETRY_S, Jwks
from ingest.periodic_task import FailureLog
from log_tables.clock import ManualClock
from log_tables.errors import Retriable
from tests.kit.oidc import Provider, key
from tests.kit.support import WAIT_S

HOUR_S = 3_600


@pytest.fixture
def provider(clock: ManualClock) -> Provider:
    return Provider(clock)


@pytest.fixture
def jwks(provider: Provider) -> Jwks:
    return Jwks(provider.fetch, provider.clock)


def kids(jwks: Jwks, kid: str | None, algorithm: str = "RS256") -> list[object]:
    return [key.get("kid") for key in jwks.candidates(kid, algorithm)]


def test_keys_are_fetched_once_and_again_when_they_are_old(provider: Provider, jwks: Jwks) -> None:
    for _ in range(3):
        assert kids(jwks, "first") == ["first"]
    before = jwks.keys
    provider.clock.advance(int(REFRESH_S * 1000) - 1)
    jwks.refresh()
    assert provider.fetches == 1
    provider.clock.advance(1)
    assert kids(jwks, "first") == ["first"]
    assert provider.fetches == 1
    jwks.refresh()
    assert provider.fetches == 2
    assert jwks.keys is before
    provider.keys = [key("RSA", "third")]
    provider.clock.advance(int(REFRESH_S * 1000))
    jwks.refresh()
    assert kids(jwks, "first") == []
    assert jwks.keys is not before


def test_a_new_key_is_found_when_a_token_names_it(provider: Provider, jwks: Jwks) -> None:
    jwks.refresh()
    provider.clock.advance(int(RETRY_S * 1000))
    provider.keys = [key("RSA", "third")]
    assert kids(jwks, "third") == ["third"]
    assert provider.fetches == 2


def test_10_000_unknown_keys_are_one_fetch_per_interval(provider: Provider, jwks: Jwks) -> None:
    for number in range(10_000):
        assert kids(jwks, str(number)) == []
        provider.clock.advance(10)
    assert provider.fetches == 1 + 100 // RETRY_S


def test_keys_are_served_for_an_hour_without_the_provider(provider: Provider, jwks: Jwks) -> None:
    jwks.refresh()
    provider.away = True
    for _ in range(HOUR_S):
        provider.clock.advance(1_000)
        jwks.refresh()
        assert kids(jwks, "first") == ["first"]
    assert provider.fetches - 1 <= (HOUR_S - REFRESH_S) / RETRY_S + 1
    provider.away, provider.keys = False, [key("RSA", "third")]
    provider.clock.advance(int(RETRY_S * 1000))
    assert kids(jwks, "third") == ["third"]


def test_a_provider_that_is_away_is_a_failure_of_a_duty(provider: Provider) -> None:
    counted = list[str]()
    jwks, provider.away = Jwks(provider.fetch, provider.clock, FailureLog(counted.append)), True
    jwks.refresh()
    assert counted == ["keys"]


def test_without_keys_a_request_may_be_repeated(provider: Provider, jwks: Jwks) -> None:
    provider.away = True
    for _ in range(2):
        with pytest.raises(Retriable, match="have not come yet"):
            jwks.candidates("first", "RS256")
    assert provider.fetches == 1
    provider.away = False
    provider.clock.advance(int(RETRY_S * 1000))
    assert kids(jwks, "first") == ["first"]


def test_one_thread_waits_for_a_fetch_and_no_other(provider: Provider) -> None:
    asked, answer = threading.Event(), threading.Event()

    def fetch() -> bytes:
        asked.set()
        assert answer.wait(WAIT_S)
        return provider.fetch()

    jwks = Jwks(fetch, provider.clock)
    thread = threading.Thread(target=jwks.refresh)
    thread.start()
    assert asked.wait(WAIT_S)
    with pytest.raises(Retriable, match="are being fetched"):
        jwks.candidates("first", "RS256")
    jwks.refresh()
    answer.set()
    thread.join(WAIT_S)
    assert kids(jwks, "first") == ["first"]
    assert provider.fetches == 1


def test_a_key_is_for_its_kind_of_signature_only(provider: Provider, jwks: Jwks) -> None:
    provider.keys = [key("RSA", "first"), key("P-256", "second")]
    provider.extra = [key("RSA", "fourth").as_dict() | {"alg": "PS256"}]
    assert [kids(jwks, "first", algorithm) for algorithm in ("RS256", "PS256", "ES256", "HS256", "none")] == [
        ["first"],
        ["first"],
        [],
        [],
        [],
    ]
    assert kids(jwks, "second", "ES256") == ["second"]
    assert kids(jwks, "fourth", "PS256") == ["fourth"]
    assert kids(jwks, "fourth", "RS256") == []


def test_without_a_kid_the_only_key_of_the_kind_is_meant(provider: Provider, jwks: Jwks) -> None:
    assert kids(jwks, None) == ["first"]
    provider.keys.append(key("RSA", "third"))
    provider.clock.advance(int(REFRESH_S * 1000))
    jwks.refresh()
    assert kids(jwks, None) == []


@pytest.mark.filterwarnings("ignore:Key size should be")
def test_keys_that_sign_no_token_are_left_out(provider: Provider, jwks: Jwks) -> None:
    provider.extra = [
        OctKey.generate_key(256, {"kid": "secret"}).as_dict(private=True),
        RSAKey.generate_key(1024, {"kid": "short"}).as_dict(),
        key("RSA", "private").as_dict(private=True),
        key("RSA", "encrypting").as_dict() | {"use": "enc"},
        {"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA", "kid": "curve"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA", "kid": "point"},
        {"kty": "AKP", "kid": "unknown"},
        {"kty": "RSA", "kid": "torn"},
        {"kid": "nothing"},
        "text",
        None,
    ]
    jwks.refresh()
    assert {each.get("kid") for each in jwks.keys} == {"first", "second"}


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"<html>",
        b"\xff",
        b"[" * 100_000,
        b"null",
        b"{}",
        b'{"keys": 5}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "AA"}]}',
        json.dumps({"keys": ["x" * DOCUMENT_MAX_BYTES]}).encode(),
    ],
)
def test_a_document_that_is_none_leaves_the_keys_as_they_are(provider: Provider, document: bytes) -> None:
    documents = iter([provider.fetch(), document])
    jwks = Jwks(lambda: next(documents), provider.clock)
    assert kids(jwks, "first") == ["first"]
    provider.clock.advance(int(REFRESH_S * 1000))
    jwks.refresh()
    assert kids(jwks, "first") == ["first"]
    assert next(documents, None) is None
