"""SCRAM: the examples of the RFCs, and what is kept of a password."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.access.authentication.scram import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    MECHANISMS,
    is_password,
    new_scram_user,
    prepared,
    scram_credential,
)
from log_tables.clock import ManualClock
from log_tables.errors import InvalidArgument


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    kept = scram_credential("SCRAM-SHA-256", "pencil", salt, 4096)
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    said = f"n=user,r=rOprNGfwEbeRWgbNEkqO,r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}"
    signature = hmac.digest(kept.server_key, said.encode(), "sha256")
    assert base64.b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", None),
        ("\u0627\u0031", None),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
        ("a\u0627", None),
        ("a\u00a0b", "a b"),
        ("\u0221", None),
        ("", ""),
    ],
)
def test_the_examples_of_rfc_4013(typed: str, kept: str | None) -> None:
    assert prepared(typed) == kept


@given(st.text(max_size=20))
def test_a_prepared_text_stays_as_it_is(text: str) -> None:
    first = prepared(text)
    assert first is None or prepared(first) == first


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_ascii_is_prepared_already(text: str) -> None:
    assert prepared(text) == text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_password_is_right_however_it_is_typed(clock: ManualClock, mechanism: str) -> None:
    kept = new_scram_user("ann", "Stra\u00dfe \u2168", clock, ITERATIONS_MIN).mechanisms[mechanism]
    assert is_password(mechanism, kept, "Stra\u00dfe IX")
    assert not is_password(mechanism, kept, "Strasse IX")
    assert not is_password(mechanism, kept, "")
    assert not is_password(mechanism, kept, "\u0007\ud800")


def test_every_mechanism_has_a_salt_of_its_own(clock: ManualClock) -> None:
    users = [new_scram_user("ann", "a secret", clock) for _ in range(2)]
    kept = [credential for user in users for credential in user.mechanisms.values()]
    assert len(kept) == len({credential.salt for credential in kept}) == 4
    assert {len(credential.salt) for credential in kept} == {32}
    assert {credential.iterations for credential in kept} == {ITERATIONS_MAX}


def test_a_user_may_have_one_mechanism(clock: ManualClock) -> None:
    only = ("SCRAM-SHA-512",)
    user = new_scram_user("ann", "a secret", clock, ITERATIONS_MIN, only)
    assert (*user.mechanisms,) == only
    with pytest.raises(InvalidArgument, match="'SCRAM-MD5': name one of SCRAM-SHA-256, SCRAM-SHA-512"):
        new_scram_user("ann", "a secret", clock, ITERATIONS_MIN, ("SCRAM-MD5",))


@pytest.mark.parametrize("name", ["", "*", "a:b", "a\nb", "a" * 201])
def test_a_name_that_nobody_can_have_is_refused(clock: ManualClock, name: str) -> None:
    with pytest.raises(InvalidArgument, match=r"the principal 'User:|has a colon"):
        new_scram_user(name, "a secret", clock)


@pytest.mark.parametrize("iterations", [0, ITERATIONS_MIN - 1, ITERATIONS_MAX + 1])
def test_iterations_have_kafkas_bounds(clock: ManualClock, iterations: int) -> None:
    with pytest.raises(InvalidArgument, match=f"iterations = {iterations}: SCRAM takes 4096 to 16384"):
        new_scram_user("ann", "a secret", clock, iterations)


@pytest.mark.parametrize(
    "password", ["", "\u00ad", "canary", "canary\u00ad\u00ad", "canary\u0007", "canary\ud800", "canary" * 50]
)
def test_a_password_that_cannot_be_one_is_refused_unseen(clock: ManualClock, password: str) -> None:
    with pytest.raises(InvalidArgument, match="take another one") as refused:
        new_scram_user("ann", password, clock)
    assert "canary" not in str(refused.value)
