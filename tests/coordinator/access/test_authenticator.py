"""From the credentials of a request to its principal."""

import base64
import traceback
from base64 import b64encode
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.authentication.api_key import new_api_key
from coordinator.access.authentication.authenticator import (
    HEADER_MAX_BYTES,
    LIFETIME_MAX_MS,
    Authenticator,
)
from coordinator.access.authentication.certificate import PrincipalMappingRules
from coordinator.access.authentication.jwt_verifier import REFRESH_S, RETRY_S, Jwks, JwtVerifier, OidcSettings
from coordinator.access.authentication.password_verifier import ADDRESS_BURST, NAME_BURST
from coordinator.access.authentication.scram import ITERATIONS_MIN, new_scram_user
from coordinator.access.principal import Principal
from log_tables.clock import ManualClock
from log_tables.cluster.credential import ApiKeyRecord, AuthenticationMethod, ScramUserRecord
from log_tables.errors import AuthenticationFailed, QuotaReached, Retriable
from tests.kit.oidc import AUDIENCE, ISSUER, Provider, key

HERE = "192.0.2.1"
SCRAM, API_KEY = AuthenticationMethod.SCRAM, AuthenticationMethod.API_KEY
ALL = (SCRAM, API_KEY, AuthenticationMethod.OIDC)
SUBJECT = "CN=Ann,O=Air"
RULES = "RULE:^CN=(.*?),O=Air$/$1/L"


def basic(name: str, password: str, scheme: str = "Basic") -> bytes:
    return f"{scheme} ".encode() + base64.b64encode(f"{name}:{password}".encode())


class Held:
    """A key of ann's, the user bob, and an authenticator that goes by both."""

    def __init__(self, clock: ManualClock, *methods: AuthenticationMethod) -> None:
        self.clock = clock
        self.text, self.key = new_api_key("User:ann", clock, clock.now_ms() + 1_000)
        self.id, self.secret = self.text.split(".")
        self.bob = new_scram_user("bob", "canary:π", clock, ITERATIONS_MIN)
        self.provider = Provider(clock)
        self.jwks = Jwks(self.provider.fetch, clock)
        oidc = OidcSettings(ISSUER, AUDIENCE)
        self.skew_ms = oidc.clock_skew_ms
        tokens = JwtVerifier(oidc, self.jwks, clock)
        self.by = Authenticator(methods or ALL, *self.held(), tokens, PrincipalMappingRules(RULES), clock)

    def held(self) -> tuple[dict[str, ApiKeyRecord], dict[str, ScramUserRecord]]:
        return {self.key.id: self.key}, {"bob": self.bob}

    def verify(self, header: bytes | None) -> Principal:
        return self.by.verify(header, None, HERE)

    def is_refused(self, header: bytes | None) -> bool:
        """Whether `header` is refused with the message of a wrong credential, and at the same cost."""
        assert self.by.known(header, None) is None
        with pytest.raises(AuthenticationFailed) as refused:
            self.verify(header)
        return "the credential is not right" in str(refused.value)


@pytest.fixture
def held(clock: ManualClock) -> Held:
    return Held(clock)


def test_a_key_is_taken_as_bearer_and_as_basic(held: Held) -> None:
    for header in (
        f"Bearer {held.text}".encode(),
        f"bearer  {held.text} ".encode(),
        basic(held.id, held.secret),
    ):
        assert held.by.known(header, None) == held.verify(header) == Principal("User:ann")


def test_a_user_is_taken_as_basic_and_then_known(held: Held) -> None:
    header = basic("bob", "canary:π", "BASIC")
    assert held.by.known(header, None) is None
    assert held.verify(header) == Principal("User:bob")
    assert held.by.known(header, None) == Principal("User:bob")
    assert held.by.known(basic("bob", "canary:π", "Basic  "), None) == Principal("User:bob")


def test_a_token_is_taken_as_bearer_and_then_known_until_it_ends(held: Held) -> None:
    header = b"Bearer " + held.provider.token(groups=["crew"], exp=held.clock.now_ms() // 1000 + 60)
    principal = Principal("User:ann", ("Group:crew",))
    assert held.by.known(header, None) is None
    assert held.verify(header) == principal
    assert held.by.known(header, None) == principal
    held.clock.advance(90_000)
    assert held.is_refused(header)


def test_a_login_by_a_token_holds_while_the_provider_adds_keys_and_until_it_ends(held: Held) -> None:
    begun_ms, exp_s = held.clock.now_ms(), held.clock.now_ms() // 1000 + 1_000
    header = b"Bearer " + held.provider.token(groups=["crew"], exp=exp_s)
    assert held.by.login(header) is None
    held.verify(header)
    login = held.by.login(header)
    assert login is not None
    assert login.principal == Principal("User:ann", ("Group:crew",))
    assert held.by.lifetime_ms(login) == exp_s * 1000 - begun_ms
    held.provider.keys = [*held.provider.keys, key("RSA", "third")]
    held.clock.advance(round(REFRESH_S * 1000))
    held.by.refresh_keys()
    assert held.by.holds(login)
    assert held.by.known(header, None) == login.principal
    held.clock.advance(exp_s * 1000 - held.clock.now_ms() + held.skew_ms - 1)
    assert held.by.holds(login)
    assert held.by.lifetime_ms(login) == 1  # the client is late
    held.clock.advance(1)
    assert not held.by.holds(login)


@pytest.mark.parametrize("exp_s", [1e300, 10**12])
def test_a_login_that_lasts_for_ages_lasts_as_long_as_clients_can_count(held: Held, exp_s: float) -> None:
    """Some providers give milliseconds; a client counts in nanoseconds, of 64 bits."""
    header = b"Bearer " + held.provider.token(exp=exp_s)
    held.verify(header)
    login = held.by.login(header)
    assert login is not None
    assert held.by.lifetime_ms(login) == LIFETIME_MAX_MS
    assert LIFETIME_MAX_MS * 1_000_000 < 2**63


def test_a_login_by_a_token_ends_with_the_key_that_signed_it(held: Held) -> None:
    header = b"Bearer " + held.provider.token(exp=held.clock.now_ms() // 1000 + 100_000)
    held.verify(header)
    login = held.by.login(header)
    assert login is not None
    held.provider.keys = [key("RSA", "third")]
    held.clock.advance(round(REFRESH_S * 1000))
    held.by.refresh_keys()
    assert not held.by.holds(login)
    assert held.by.login(header) is None


def test_a_token_ends_with_the_key_that_signed_it(held: Held) -> None:
    header = b"Bearer " + held.provider.token(exp=held.clock.now_ms() // 1000 + 100_000)
    held.verify(header)
    held.provider.keys = [key("RSA", "third")]
    held.clock.advance(round(REFRESH_S * 1000))
    held.by.refresh_keys()
    assert held.is_refused(header)


def test_a_token_that_nobody_can_check_may_be_sent_again(held: Held) -> None:
    header, held.provider.away = b"Bearer " + held.provider.token(), True
    with pytest.raises(Retriable, match="keys of the OIDC provider"):
        held.verify(header)
    held.provider.away = False
    held.clock.advance(round(RETRY_S * 1000))
    assert held.verify(header) == Principal("User:ann")


def test_a_token_is_none_as_basic_or_where_oidc_is_off(held: Held, clock: ManualClock) -> None:
    token = held.provider.token()
    assert held.is_refused(b"Basic " + token)
    assert held.is_refused(basic("ann", token.decode()))
    assert Held(clock, API_KEY, SCRAM).is_refused(b"Bearer " + token)


def test_a_request_without_a_credential_is_told_which_there_are(held: Held) -> None:
    with pytest.raises(AuthenticationFailed, match="no credential; send an API key or a token as Bearer"):
        held.verify(None)


WRONG = [
    b"",
    b"Bearer",
    b"Bearer ",
    b"Bearer canary",
    b"Bearer .",
    b"Bearer canary.canary",
    b"Bearer canary\xff.canary",
    b"Bearer a.b.c",
    b"Bearer canary.canary.canary",
    b"Bearer a.b.c.d.e",
    b"Basic",
    b"Basic canary",
    b"Basic Y2FuYXJ5",
    b"Basic /////w==",
    b"Basic \xff",
    b"Negotiate canary",
    b"Bearer " + b"canary." + b"x" * HEADER_MAX_BYTES,
    basic("bob", "canary"),
    basic("nobody", "canary"),
    basic("", ""),
    basic("bob", "x" * 10_000),
    basic("nobody\0", "canary\0"),
]


@pytest.mark.parametrize("header", WRONG)
def test_a_wrong_credential_is_refused_and_not_shown(held: Held, header: bytes) -> None:
    assert held.is_refused(header)
    with pytest.raises(AuthenticationFailed) as refused:
        held.verify(header)
    error = refused.value
    assert (error.__context__, error.__cause__, error.details) == (None, None, {})
    shown = "".join(traceback.format_exception(error)) + repr(error)
    assert "canary" not in shown


@given(
    st.binary(max_size=100),
    st.sampled_from([b"Basic ", b"Bearer ", b""]),
    st.sampled_from([bytes, b64encode]),
)
def test_any_other_header_is_refused(data: bytes, scheme: bytes, form: Callable[[bytes], bytes]) -> None:
    held = Held(ManualClock())
    assert held.is_refused(scheme + form(data))


def test_only_passwords_and_tokens_are_slow(held: Held) -> None:
    slow = [basic("bob", "x"), basic("", ""), b"bearer a.b.c"]
    fast = [None, b"Bearer a.b", basic(held.id, "A" * 43), b"Bearer a.b.c.d", b"Basic x", b"x" * 100_000]
    assert [held.by.is_slow(header) for header in slow + fast] == [True] * len(slow) + [False] * len(fast)


def test_the_secret_of_another_key_is_wrong(held: Held) -> None:
    assert held.is_refused(f"Bearer {held.id}.{'A' * 43}".encode())
    assert held.is_refused(f"Bearer {held.text}A".encode())
    assert held.is_refused(f"Bearer x{held.text}".encode())
    assert held.is_refused(basic(held.id, ""))


def test_a_key_ends_when_it_expires(held: Held) -> None:
    header = f"Bearer {held.text}".encode()
    held.clock.advance(999)
    held.verify(header)
    held.clock.advance(1)
    assert held.is_refused(header)


def test_a_key_ends_when_it_is_revoked(held: Held) -> None:
    header = f"Bearer {held.text}".encode()
    held.verify(header)
    held.by.update({}, {})
    assert held.is_refused(header)


def test_a_user_ends_when_dropped_and_others_stay_known(held: Held) -> None:
    cid = new_scram_user("cid", "a secret", held.clock, ITERATIONS_MIN)
    held.by.update({}, {"bob": held.bob, "cid": cid})
    bob, other = basic("bob", "canary:π"), basic("cid", "a secret")
    held.verify(bob)
    held.verify(other)
    held.by.update({}, {"cid": cid})
    assert held.is_refused(bob)
    assert held.by.known(other, None) == Principal("User:cid")


def test_an_old_password_ends_with_a_new_one(held: Held) -> None:
    old, new = basic("bob", "canary:π"), basic("bob", "another one")
    held.verify(old)
    held.by.update({}, {"bob": new_scram_user("bob", "another one", held.clock, ITERATIONS_MIN)})
    assert held.is_refused(old)
    assert held.verify(new) == Principal("User:bob")


def test_a_method_that_is_off_takes_nothing(clock: ManualClock) -> None:
    keys, users, none = Held(clock, API_KEY), Held(clock, SCRAM), Held(clock, AuthenticationMethod.MTLS)
    keys.verify(basic(keys.id, keys.secret))
    users.verify(basic("bob", "canary:π"))
    assert keys.is_refused(basic("bob", "canary:π"))
    assert users.is_refused(basic(users.id, users.secret))
    assert users.is_refused(f"Bearer {users.text}".encode())
    assert none.is_refused(basic("bob", "canary:π"))
    assert none.is_refused(f"Bearer {none.text}".encode())


def test_a_certificate_is_taken_where_there_is_no_header(clock: ManualClock) -> None:
    held = Held(clock, AuthenticationMethod.MTLS, API_KEY)
    assert held.by.known(None, SUBJECT) == held.by.verify(None, SUBJECT, HERE) == Principal("User:ann")
    with pytest.raises(
        AuthenticationFailed, match="not right, or no longer; this gateway takes api-key, mtls: "
    ):
        held.by.verify(None, "CN=Ann,O=Sea", HERE)
    with pytest.raises(AuthenticationFailed, match="not right"):
        held.by.verify(b"Bearer x.y", SUBJECT, HERE)
    assert held.by.known(b"Bearer x.y", SUBJECT) is None


def test_a_certificate_is_no_credential_where_mtls_is_off(held: Held) -> None:
    assert held.by.known(None, SUBJECT) is None
    with pytest.raises(AuthenticationFailed, match="no credential"):
        held.by.verify(None, SUBJECT, HERE)


def test_a_known_client_is_let_in_while_its_name_is_guessed_at(held: Held) -> None:
    right = basic("bob", "canary:π")
    held.verify(right)
    for _ in range(NAME_BURST):
        assert held.is_refused(basic("bob", "wrong"))
    with pytest.raises(QuotaReached):
        held.verify(basic("bob", "wrong"))
    held.verify(right)


def test_sasl_is_offered_where_scram_is_on(held: Held, clock: ManualClock) -> None:
    exchange = held.by.scram_server("SCRAM-SHA-512", HERE)
    salt = base64.b64encode(held.bob.mechanisms["SCRAM-SHA-512"].salt)
    assert exchange.first(b"n,,n=bob,r=client").endswith(b",s=" + salt + b",i=4096")
    for by, mechanism in ((held.by, "PLAIN"), (Held(clock, API_KEY).by, "SCRAM-SHA-256")):
        with pytest.raises(AuthenticationFailed, match="SASL offers SCRAM-SHA-256, SCRAM-SHA-512"):
            by.scram_server(mechanism, HERE)


def test_a_key_that_has_ended_is_no_guess_at_a_password(held: Held) -> None:
    header = basic(held.id, held.secret)
    held.by.update({}, {"bob": held.bob})
    for _ in range(2 * ADDRESS_BURST):
        assert held.is_refused(header)
    assert held.verify(basic("bob", "canary:π")) == Principal("User:bob")


def test_a_user_may_be_named_as_a_key_is(held: Held) -> None:
    user = new_scram_user(held.id, held.secret, held.clock, ITERATIONS_MIN)
    held.by.update({}, {held.id: user})
    assert held.verify(basic(held.id, held.secret)) == Principal(f"User:{held.id}")


def test_the_last_use_of_each_key_is_told_once(held: Held) -> None:
    held.verify(f"Bearer {held.text}".encode())
    held.clock.advance(10)
    held.verify(f"Bearer {held.text}".encode())
    assert held.by.take_used_keys() == {held.id: held.clock.now_ms()}
    assert held.is_refused(f"Bearer {held.id}.x".encode())
    assert held.by.take_used_keys() == {}


def test_nothing_is_shown_by_the_parts(held: Held) -> None:
    held.verify(basic("bob", "canary:π"))
    shown = f"{held.by!r} {held.bob!r} {held.key!r}"
    assert "canary" not in shown
    assert held.secret not in shown
