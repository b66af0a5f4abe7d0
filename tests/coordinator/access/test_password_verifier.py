"""Checking passwords: right ones, and how often one may guess."""

import threading

import pytest

from coordinator.access.authentication.password_verifier import (
    ADDRESS_BURST,
    NAME_BURST,
    NAME_PERIOD_S,
    PasswordVerifier,
)
from coordinator.access.authentication.scram import ITERATIONS_MIN, ScramUsers, new_scram_user
from coordinator.access.principal import USER_MAX_CHARS
from log_tables.clock import ManualClock
from log_tables.errors import QuotaReached
from log_tables.limits import PASSWORD_MAX_CHARS
from tests.kit.support import WAIT_S

HERE, THERE = "192.0.2.1", "192.0.2.2"


@pytest.fixture
def users(clock: ManualClock) -> ScramUsers:
    names = ("ann", "bob")
    return ScramUsers(
        {name: new_scram_user(name, f"{name}-password", clock, ITERATIONS_MIN) for name in names}, b"k"
    )


@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_guessing_is_bounded_for_a_name_and_an_address(
    clock: ManualClock, users: ScramUsers, name: str
) -> None:
    verifier = PasswordVerifier(clock)
    for _ in range(NAME_BURST):
        assert verifier.verified(users, name, "wrong", HERE) is None
    for password in ("wrong", "ann-password"):
        with pytest.raises(QuotaReached, match="too many wrong passwords; wait 10 seconds") as refused:
            verifier.verified(users, name, password, HERE)
        assert refused.value.details == {"retry_after_s": NAME_PERIOD_S}
    assert verifier.verified(users, "bob", "bob-password", HERE) is users.get("bob")
    assert verifier.verified(users, name, "ann-password", THERE) is users.get(name)
    clock.advance(round(NAME_PERIOD_S * 1000))
    assert verifier.verified(users, name, "ann-password", HERE) is users.get(name)


@pytest.mark.parametrize(
    ("first", "other"), [(HERE, HERE), (f"::ffff:{HERE}", HERE), ("2001:db8::1", "2001:db8::2:3"), ("", "")]
)
def test_guessing_is_bounded_for_an_address(
    clock: ManualClock, users: ScramUsers, first: str, other: str
) -> None:
    verifier = PasswordVerifier(clock)
    for number in range(ADDRESS_BURST):
        assert verifier.verified(users, str(number), "wrong", first) is None
    with pytest.raises(QuotaReached):
        verifier.verified(users, "ann", "ann-password", other)
    assert verifier.verified(users, "ann", "ann-password", "2001:db8:0:1::1") is users.get("ann")


def test_right_passwords_are_not_bounded(clock: ManualClock, users: ScramUsers) -> None:
    verifier = PasswordVerifier(clock)
    assert verifier.verified(users, "ann", "wrong", HERE) is None
    for _ in range(ADDRESS_BURST + 1):
        assert verifier.verified(users, "ann", "ann-password", HERE)


def test_names_and_passwords_that_nobody_has_are_refused_at_once(
    clock: ManualClock, users: ScramUsers
) -> None:
    verifier = PasswordVerifier(clock, at_once=0)
    assert verifier.verified(users, "a" * (USER_MAX_CHARS + 1), "x", HERE) is None
    assert verifier.verified(users, "ann", "a" * (PASSWORD_MAX_CHARS + 1), HERE) is None


def test_guesses_at_once_are_no_more_than_guesses_one_by_one(clock: ManualClock, users: ScramUsers) -> None:
    verifier, answers = PasswordVerifier(clock), list[str]()

    def guess() -> None:
        try:
            answers.append(str(verifier.verified(users, "ann", "wrong", HERE)))
        except QuotaReached:
            answers.append("refused")

    threads = [threading.Thread(target=guess) for _ in range(3 * NAME_BURST)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(answers) == ["None"] * NAME_BURST + ["refused"] * 2 * NAME_BURST
