"""The secret of the gateways: its proofs are good for one gateway, and rotation needs no order."""

import itertools

import pytest

from coordinator.brokers.peer_secret import PeerSecrets, seal
from log_tables.errors import InvalidConfig

OLD, NEW = "o" * 32, "n" * 32


def test_a_target_is_found_by_those_who_share_a_secret() -> None:
    one, other = PeerSecrets([NEW, OLD], "c"), PeerSecrets([OLD], "c")
    target = one.target("inc", other.fingerprints)
    assert target is not None
    assert other.find(target.name, "inc") == target
    assert PeerSecrets([NEW], "c").find(target.name, "inc") is None
    assert PeerSecrets([OLD], "another").find(target.name, "inc") is None
    assert other.find(target.name, "another") is None
    assert seal(target, "asker") not in (target.name, target.proof)


def test_no_secret_is_in_anything_that_goes_over_the_wire_or_into_the_root() -> None:
    secrets = PeerSecrets([OLD], "c")
    target = secrets.target("inc", secrets.fingerprints)
    assert target is not None
    for shown in (*secrets.fingerprints, target.name, target.proof, seal(target, "asker"), repr(secrets)):
        assert OLD not in shown
    assert OLD not in repr(target)
    assert len({*secrets.fingerprints, target.name, target.proof, seal(target, "inc")}) == 4


def test_a_rotation_works_in_any_order() -> None:
    """Old, then both in either order, then new: each pair of neighbours shares a secret."""
    steps = ([OLD], [OLD, NEW], [NEW, OLD], [NEW])
    for before, after in itertools.pairwise(steps):
        for one, other in ((before, after), (after, before)):
            mine, theirs = PeerSecrets(one, "c"), PeerSecrets(other, "c")
            target = mine.target("inc", theirs.fingerprints)
            assert target is not None
            assert theirs.find(target.name, "inc") == target
            assert mine.shares(theirs.fingerprints)
    assert not PeerSecrets([OLD], "c").shares(PeerSecrets([NEW], "c").fingerprints)


@pytest.mark.parametrize("secrets", [[], [""], ["short"], [OLD, "x" * 31]])
def test_a_secret_that_could_be_guessed_is_refused(secrets: list[str]) -> None:
    with pytest.raises(InvalidConfig, match="at least 32 characters") as refused:
        PeerSecrets(secrets, "c")
    assert "xxx" not in refused.value.message
