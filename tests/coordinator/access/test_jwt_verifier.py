"""Tokens of a provider: right ones, and those that an attacker makes."""

import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.hashes import SHA256
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.authentication.jwt_verifier import CLOCK_SKEW_MAX_MS, Jwks, JwtVerifier, OidcSettings
from coordinator.access.principal import Principal
from log_tables.clock import ManualClock
from log_tables.errors import InvalidConfig
from tests.kit.oidc import AUDIENCE, ISSUER, Provider, base64url, key, unsigned

ANN = Principal("User:ann")
SKEW_S = 30
HEAD: dict[str, Any] = {"alg": "RS256", "kid": "first"}


@pytest.fixture
def provider(clock: ManualClock) -> Provider:
    return Provider(clock)


def verifier(provider: Provider, **settings: Any) -> JwtVerifier:
    return JwtVerifier(
        OidcSettings(ISSUER, AUDIENCE, **settings), Jwks(provider.fetch, provider.clock), provider.clock
    )


def principal(provider: Provider, token: bytes, **settings: Any) -> Principal | None:
    verified = verifier(provider, **settings).verified(token)
    return None if verified is None else verified.principal


@pytest.mark.parametrize(
    ("algorithm", "kind"),
    [
        ("RS256", "RSA"),
        ("RS512", "RSA"),
        ("PS256", "RSA"),
        ("ES256", "P-256"),
        ("ES384", "P-384"),
        ("Ed25519", "Ed25519"),
    ],
)
def test_a_right_token_is_taken(provider: Provider, algorithm: str, kind: str) -> None:
    provider.keys = [key(kind, "signer")]
    token = provider.token({"alg": algorithm})
    assert principal(provider, token, algorithms=(algorithm,)) == ANN
    assert principal(provider, token, algorithms=("RS384",)) is None


@pytest.mark.parametrize("kind", [None, "JWT", "jwt", "at+jwt", "application/at+jwt"])
def test_a_right_token_is_one_of_a_kind_for_access(provider: Provider, kind: str | None) -> None:
    assert principal(provider, provider.token({"typ": kind})) == ANN


@pytest.mark.parametrize("kind", ["logout+jwt", "secevent+jwt", "dpop+jwt", "JOSE", "", 5, ["JWT"]])
def test_a_token_of_another_kind_is_refused(provider: Provider, kind: object) -> None:
    head = HEAD | {"typ": kind}
    assert principal(provider, signed(head, provider.claims())) is None


def signed(head: dict[str, Any], claims: object) -> bytes:
    """A token that is signed correctly by the provider's first key, whatever its head says."""
    said = unsigned(head, claims)
    private: Any = key("RSA", "first").private_key
    return said + b"." + base64url(private.sign(said, PKCS1v15(), SHA256()))


def test_the_hand_of_this_test_signs_rightly(provider: Provider) -> None:
    assert principal(provider, signed(HEAD, provider.claims())) == ANN


@pytest.mark.parametrize("name", ["none", "None", "NONE", "nOnE", "", "HS256", "RS1", None, 5, ["RS256"]])
def test_an_algorithm_that_is_not_listed_is_refused(provider: Provider, name: object) -> None:
    said = unsigned({"alg": name, "kid": "first"}, provider.claims())
    assert principal(provider, said + b".") is None
    assert principal(provider, said + b"." + provider.token().rpartition(b".")[2]) is None
    assert principal(provider, signed({"alg": name, "kid": "first"}, provider.claims())) is None


@pytest.mark.parametrize("algorithm", ["HS256", "HS384", "HS512"])
@pytest.mark.parametrize(
    "secret",
    [
        lambda: key("RSA", "first").as_bytes("PEM", private=False),
        lambda: key("RSA", "first").as_bytes("DER", private=False),
        lambda: json.dumps(key("RSA", "first").as_dict()).encode(),
        lambda: b"",
    ],
)
def test_hs_with_the_public_key_is_refused(
    provider: Provider, algorithm: str, secret: Callable[[], bytes]
) -> None:
    said = unsigned({"alg": algorithm, "kid": "first"}, provider.claims())
    mac = hmac.digest(secret(), said, f"sha{algorithm[2:]}")
    assert principal(provider, said + b"." + base64url(mac)) is None


def test_a_key_that_the_token_brings_is_not_used(provider: Provider) -> None:
    evil = key("RSA", "evil")
    for head in (
        {"jwk": evil.as_dict(), "kid": "first"},
        {"jku": "https://evil.example.com/jwks", "kid": "first"},
        {"x5u": "https://evil.example.com/x5u", "kid": "first"},
        {"kid": "first"},
        {"kid": "evil"},
        {"kid": "../../dev/null"},
        {"kid": None},
    ):
        assert principal(provider, provider.token(head, by=evil)) is None
    assert provider.fetches == 7  # each by a verifier of its own


def test_keys_of_one_kind_are_not_used_for_another(provider: Provider) -> None:
    elliptic = key("P-256", "second")
    assert principal(provider, provider.token({"alg": "ES256"}, by=elliptic)) == ANN
    assert principal(provider, provider.token({"alg": "ES256", "kid": "first"}, by=elliptic)) is None
    assert principal(provider, provider.token({"kid": "second"})) is None
    provider.keys = [key("P-384", "third")]
    assert principal(provider, provider.token({"alg": "ES256", "kid": "third"}, by=elliptic)) is None


@pytest.mark.parametrize(
    "head",
    [
        {"crit": ["exp"], "exp": 1},
        {"crit": []},
        {"crit": ["b64"], "b64": False},
        {"crit": "x"},
        {"kid": 5},
        {"kid": {"a": 1}},
    ],
)
def test_a_head_that_demands_what_nobody_knows_is_refused(provider: Provider, head: dict[str, Any]) -> None:
    assert principal(provider, signed(HEAD | head, provider.claims())) is None


def test_a_head_may_say_what_nobody_knows(provider: Provider) -> None:
    assert principal(provider, signed(HEAD | {"x": 1}, provider.claims())) == ANN


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": None},
        {"iss": "https://evil.example.com/"},
        {"iss": ISSUER.rstrip("/")},
        {"iss": [ISSUER]},
        {"iss": ""},
        {"aud": None},
        {"aud": "other"},
        {"aud": []},
        {"aud": ["other"]},
        {"aud": {AUDIENCE: 1}},
        {"aud": [AUDIENCE, 5]},
        {"exp": None},
        {"exp": 0},
        {"exp": "9999999999"},
        {"exp": True},
        {"exp": float("nan")},
        {"exp": float("inf")},
        {"nbf": "0"},
        {"iat": [0]},
        {"sub": None},
        {"sub": ""},
        {"sub": 5},
        {"sub": "a\nb"},
        {"sub": "a" * 201},
        {"sub": "*"},
        {"groups": 5},
        {"groups": [5]},
        {"groups": ["a", ""]},
        {"groups": {"a": 1}},
        {"cnf": {"jkt": "x"}},
    ],
)
def test_claims_that_are_not_right_are_refused(provider: Provider, changes: dict[str, Any]) -> None:
    assert principal(provider, provider.token(**changes)) is None


@pytest.mark.parametrize("claims", [[], 5, None, "text"])
def test_claims_are_an_object(provider: Provider, claims: object) -> None:
    assert principal(provider, signed(HEAD, claims)) is None


def test_one_audience_of_several_is_enough(provider: Provider) -> None:
    assert principal(provider, provider.token(aud=["other", AUDIENCE])) == ANN


def test_claims_name_the_principal_and_its_groups(provider: Provider) -> None:
    token = provider.token(email="ann@example.com", roles=["pilots", "crew"], groups="one")
    chosen = principal(provider, token, principal_claim="email", groups_claim="roles")
    assert chosen == Principal("User:ann@example.com", ("Group:pilots", "Group:crew"))
    assert principal(provider, token) == Principal("User:ann", ("Group:one",))


def test_times_are_taken_within_the_skew(provider: Provider) -> None:
    now = provider.clock.now_ms() // 1000
    for claim, right, wrong in (
        ("exp", now - SKEW_S + 1, now - SKEW_S),
        ("nbf", now + SKEW_S, now + SKEW_S + 1),
        ("iat", now + SKEW_S, now + SKEW_S + 1),
    ):
        taken, refused = ({claim: value} for value in (right, wrong))
        assert principal(provider, signed(HEAD, provider.claims(**taken))) == ANN
        assert principal(provider, signed(HEAD, provider.claims(**refused))) is None
        assert principal(provider, signed(HEAD, provider.claims(**taken)), clock_skew_ms=0) is None


def test_a_token_ends_at_its_end(provider: Provider) -> None:
    by, token = verifier(provider), provider.token()
    verified = by.verified(token)
    assert verified is not None
    assert verified.exp_ms == provider.claims()["exp"] * 1000
    assert verified.expires_ms == verified.exp_ms + SKEW_S * 1000
    provider.clock.advance(verified.expires_ms - provider.clock.now_ms() - 1)
    assert by.verified(token) == verified
    assert by.holds(verified)
    provider.clock.advance(1)
    assert not by.holds(verified)
    assert by.verified(token) is None


def test_any_change_of_a_token_is_seen(provider: Provider) -> None:
    by, token = verifier(provider), provider.token()
    for place in range(0, len(token) - 1, 7):
        other = b"A" if token[place : place + 1] != b"A" else b"B"
        assert by.verified(token[:place] + other + token[place + 1 :]) is None


@given(st.binary(max_size=200) | st.lists(st.binary(max_size=50).map(base64url), max_size=5).map(b".".join))
def test_what_is_no_token_is_refused(data: bytes) -> None:
    assert principal(Provider(ManualClock()), data) is None


@pytest.mark.parametrize(
    "text", [b"[" * 3_000, b'{"alg":' * 400, b"{}", b'{"alg":"RS256"}x', b"\xff", b" " * 9_000]
)
def test_a_head_that_is_none_is_refused(provider: Provider, text: bytes) -> None:
    assert principal(provider, base64url(text) + b"." + base64url(b"{}") + b".AAAA") is None
    assert provider.fetches == 0


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"issuer": ""}, "oidc_issuer and oidc_audience"),
        ({"audience": ""}, "oidc_issuer and oidc_audience"),
        ({"algorithms": ()}, "oidc_algorithms"),
        ({"algorithms": ("RS256", "none")}, "oidc_algorithms = RS256, none: name some of ES256"),
        ({"algorithms": ("HS256",)}, "oidc_algorithms = HS256"),
        ({"clock_skew_ms": -1}, "oidc_clock_skew_ms = -1: take 0 to 300000"),
        ({"clock_skew_ms": CLOCK_SKEW_MAX_MS + 1}, "oidc_clock_skew_ms"),
    ],
)
def test_settings_that_let_in_anybody_are_refused(
    provider: Provider, settings: dict[str, Any], said: str
) -> None:
    chosen = OidcSettings(**{"issuer": ISSUER, "audience": AUDIENCE} | settings)
    with pytest.raises(InvalidConfig, match=said):
        JwtVerifier(chosen, Jwks(provider.fetch, provider.clock), provider.clock)
