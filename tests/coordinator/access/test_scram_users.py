"""A name that does not exist looks like one that does."""

import pytest

from coordinator.access.authentication.scram import ITERATIONS_MAX, MECHANISMS, ScramUsers, new_scram_user
from log_tables.clock import ManualClock
from log_tables.cluster.credential import ScramCredential, ScramUserRecord

SHA_256, SHA_512 = MECHANISMS


def test_an_unknown_name_costs_what_some_user_costs_and_always_the_same(clock: ManualClock) -> None:
    records = [
        new_scram_user("ann", "a secret", clock, 5_000, (SHA_512,)),
        new_scram_user("bob", "a secret", clock, 6_000),
    ]
    users = ScramUsers({record.name: record for record in records}, b"key")
    found = {name: users.for_password(name) for name in map(str, range(50))}
    assert {(mechanism, kept.iterations) for mechanism, kept in found.values()} <= {
        (SHA_512, 5_000),
        (SHA_512, 6_000),
        (SHA_256, 6_000),
    }
    assert {mechanism for mechanism, _ in found.values()} == set(MECHANISMS)
    assert len({kept.salt for _, kept in found.values()}) == 50
    assert {name: users.for_password(name) for name in found} == found
    assert ScramUsers({}, b"key").for_password("1")[1].salt in {
        kept.salt for kept in (users.credential("1", mechanism) for mechanism in MECHANISMS)
    }


@pytest.mark.parametrize("salts", [[b"1q%024d" % at for at in range(9)], [bytes(range(12))], [b"z1y2x3w4"]])
def test_the_salt_of_an_unknown_name_has_the_shape_of_some_users(salts: list[bytes]) -> None:
    """Kafka's tools salt by some 25 letters and digits, of which the first is mostly a small one."""
    made = [(str(at), ScramCredential(salt, 5_000, b"a", b"b")) for at, salt in enumerate(salts)]
    users = ScramUsers({name: ScramUserRecord(name, {SHA_256: kept}) for name, kept in made}, b"key")
    found = [users.credential(f"x{each}", SHA_256).salt for each in range(50)]
    assert len({*found}) == len(found)
    assert {len(salt) for salt in found} == {len(salt) for salt in salts}
    if salts[0].isalnum():
        assert {salt[:1] for salt in found} == {salt[:1] for salt in salts}
        assert all(salt.isalnum() and salt == salt.lower() for salt in found)
    assert not {*found}.intersection(salts)


def test_a_known_name_has_its_own_credential(clock: ManualClock) -> None:
    user = new_scram_user("ann", "a secret", clock)
    users = ScramUsers({"ann": user}, b"key")
    assert users.for_password("ann") == (SHA_256, user.mechanisms[SHA_256])
    assert users.credential("ann", SHA_512) is user.mechanisms[SHA_512]


def test_without_users_the_default_is_what_a_name_costs() -> None:
    mechanism, kept = ScramUsers({}, b"key").for_password("ann")
    assert (mechanism, kept.iterations, kept.stored_key) == (SHA_256, ITERATIONS_MAX, b"")
