"""Gateways of one root that must not ask one another: without a secret of both, or one that is open."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from log_tables.cluster.admin.security_admin import add_super_user, enable_security
from log_tables.errors import Unreachable
from tests.coordinator.brokers.test_brokers import Seat, run, until

OTHER = "o" * 32


def test_of_two_that_start_at_once_with_two_secrets_one_is_refused(tmp_path: Path) -> None:
    """Neither was listed when the other one looked."""

    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two", secret=OTHER)
        for seat in (one, two):
            await seat.brokers.start()
        assert (one.brokers.is_refused, one.replaced) == (False, [])
        assert (two.brokers.is_refused, two.replaced) == (True, ["http://two"])
        assert one.listed() == {1: "http://one"}
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


def test_the_listed_and_dead_refuse_nobody(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        Seat(root, "http://dead").cluster.metadata_log.register_broker("http://dead")
        one = Seat(root, "http://one")
        one.cluster.metadata_log.register_broker("visitor", leaving=True)
        await one.brokers.start()
        assert not one.brokers.is_refused
        assert one.listed() == {1: "http://dead", 2: "visitor", 3: "http://one"}
        await one.brokers.close()

    run(scenario, tmp_path)


def test_a_running_gateway_says_once_that_it_cannot_ask_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(root: Path) -> None:
        one = Seat(root, "http://one")
        await one.brokers.start()
        two = Seat(root, "http://two", secret=OTHER)  # it has looked, and takes the first one for dead
        await two.brokers.start()

        def said() -> list[str]:
            one.cluster.refresh(wait=True)
            return [message for message in caplog.messages if "another peer secret" in message]

        await until(lambda: len(said()) == 2, "each has said so")
        record = one.brokers.other(2)
        assert record is not None
        with pytest.raises(Unreachable, match="no peer secret of this one"):
            one.brokers.target_of(record)
        await one.fall_silent()
        assert len(said()) == 2
        assert not [message for message in said() if OTHER in message or "s" * 32 in message]
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


def test_in_a_secured_cluster_who_authenticates_nobody_is_not_asked_nor_let_in(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        for seat in (one, two):
            seat.cluster.refresh(wait=True)
        record = one.brokers.other(2)
        assert record is not None
        assert not record.secured
        name = one.brokers.target_of(record).name
        target = two.brokers.find_target(name)
        assert target is not None
        asker = one.brokers.asker(target)
        assert await two.brokers.admitted(asker, target) is not None

        add_super_user(one.cluster.metadata_log, "User:ann")
        enable_security(one.cluster.metadata_log)
        two.cluster.refresh(wait=True)
        with pytest.raises(Unreachable, match="no authentication of clients"):
            one.brokers.target_of(record)
        assert await two.brokers.admitted(asker, target) is None
        assert one.brokers.target_of(replace(record, secured=True)).name == name
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


def test_who_writes_signs_of_life_alone_is_no_gateway(tmp_path: Path) -> None:
    """Signs of life can keep a dead gateway on the list of live ones, and no more."""

    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        one.cluster.refresh(wait=True)
        record = one.brokers.other(2)
        assert record is not None
        target = one.brokers.find_target(two.brokers.target_of(one.brokers.all()[1]).name)
        assert target is not None
        await two.brokers.close()

        stranger = Seat(root, "http://one", secret=OTHER)  # it has read the root, and knows no secret
        forged = stranger.brokers._secrets.target("any", stranger.brokers._secrets.fingerprints)
        assert forged is not None
        for number in (1, 2, 3):
            for beat in range(2):
                sign = f"{record.incarnation} {beat}"
                one.store.put(f"brokers/{number}", sign.encode())
            for sealed in (record.incarnation, *record.peer_keys, forged.name, target.name, target.proof, ""):
                assert await one.brokers.admitted(f"{number}.{sealed}", target) is None
        assert one.brokers.find_target(forged.name) is None
        assert one.listed() == {1: "http://one"}
        await one.brokers.close()

    run(scenario, tmp_path)
