"""A session of Kafka's transactional clients while each single call of the store fails, takes effect without
an answer, or is where the gateways die; on a full disk, and where an fsync fails and then the power. What a
client was told holds, nothing is doubled or torn, and no version of any table has a record that was aborted.
"""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from log_tables.clock import ManualClock
from log_tables.root.fsck import check
from log_tables.store.local import LocalStore
from log_tables.store.store import Store
from log_tables.testing import WRITES, Fault, FaultyStore, crash_after, crash_before
from tests.kit.disk import Disk, Fails, death, once
from tests.kit.failures import FAILURES as CALL_FAILURES
from tests.kit.failures import READS, before
from tests.kit.kafka_versions import values_of_all_versions
from tests.kit.producers_checks import check_outcomes
from tests.kit.producers_session import Session
from tests.kit.producers_world import OUT
from tests.kit.small_disk import fill, small_disk

FAILURES = {
    **CALL_FAILURES,
    "death-before": (crash_before, WRITES),
    "death-after": (crash_after, WRITES),
}
HERE = "here"
DISK_BYTES, FULL_FOR = 24 << 20, 80


def directory(root: Path) -> Store:
    """A store of files, whose fsyncs cost nothing."""
    root.mkdir(parents=True)
    return LocalStore(root, ManualClock(seed=5), sync=lambda _: None)


def hold(session: Session, calm: Callable[[], None] = lambda: None) -> None:
    """Run a session, and judge it; after `calm` nothing fails any more."""
    try:
        session.run()
        calm()
        session.finish()
        store = session.world.store
        check_outcomes(session.world, session.shared.transactions)
        assert [*store.list("staging/")] == []
        assert check(store).problems == []
        values = {
            value
            for transaction in session.shared.transactions
            if transaction.committed is False or not transaction.asked
            for some in transaction.written.values()
            for value in some
        }
        assert not values & {*values_of_all_versions(Path(urlsplit(store.url).path), OUT)}
    finally:
        session.world.end()


def fails_at(root: Path, kind: str, nth: int) -> bool:
    """A session whose `nth` call of a kind fails; whether it had so many."""
    failure, operations = FAILURES[kind]
    faulty: list[FaultyStore] = []

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, [Fault(nth, failure, operations)]))
        return faulty[0]

    store = directory(root)
    hold(Session(lambda: store, wrap))
    return faulty[0].faults[0].nth < 1


def test_transactions_hold_when_the_store_fails(tmp_path: Path) -> None:
    for place, kind in enumerate(FAILURES):
        assert fails_at(tmp_path / kind, kind, 9 + 7 * place)


@pytest.mark.torture
@pytest.mark.parametrize("kind", FAILURES)
def test_transactions_hold_whichever_call_of_the_store_fails(tmp_path: Path, kind: str) -> None:
    assert next(nth for nth in count(1) if not fails_at(tmp_path / f"{nth}", kind, nth)) > 20


def power_fails_at(root: Path, number: int, fails: Callable[[int], Fails]) -> bool:
    """A session in which fsync `number` fails, and the power when something was answered after that: what was
    fsynced is left. Returns whether there were so many.
    """
    disk, left = Disk(root, HERE), list[Store]()

    def opened() -> Store:
        own = LocalStore(root / HERE, ManualClock(seed=5), sync=disk.process())
        return left[0] if left else own

    def cut() -> bool:
        if not disk.failed or left:
            return False
        found = disk.cut(HERE)
        left.append(directory(root / "left"))
        for each in found.list(""):
            left[0].put(each.path, found.get(each.path))
        return True

    def calm() -> None:
        disk.fails = lambda _: None

    try:
        session = Session(opened, cut=cut)
        disk.fails = fails(disk.syncs + number)
        hold(session, calm)
        return disk.failed
    except BaseException as error:
        error.add_note(f"fsync {number}")
        raise
    finally:
        disk.close()


def test_transactions_hold_when_fsyncs_fail_and_then_the_power(tmp_path: Path) -> None:
    for place in range(8):
        fails = (once, death)[place % 2]
        assert power_fails_at(tmp_path / f"{place}", 9 + 13 * place, fails)


@pytest.mark.torture
@pytest.mark.parametrize("fails", [once, death])
def test_transactions_hold_whichever_fsync_fails_and_then_the_power(
    tmp_path: Path, fails: Callable[[int], Fails]
) -> None:
    assert next(n for n in count(1) if not power_fails_at(tmp_path / f"{n}", n, fails)) > 100


def full_at(root: Path, number: int) -> bool:
    """A session whose disk is full from write `number` on, for FULL_FOR calls of the store; whether there
    were so many writes.
    """
    filling, faulty = root / "filling", list[FaultyStore]()

    def wrap(store: Store) -> Store:
        faulty.append(FaultyStore(store, [Fault(number, before(full))]))
        return faulty[0]

    def full() -> None:
        fill(filling)
        faulty[0].faults.append(Fault(FULL_FOR, before(empty), WRITES | READS))

    def empty() -> None:
        filling.unlink(missing_ok=True)

    with small_disk(root, DISK_BYTES):
        store = directory(root / HERE)
        hold(Session(lambda: store, wrap), empty)
    return faulty[0].faults[0].nth < 1


def test_transactions_hold_when_the_disk_is_full(tmp_path: Path) -> None:
    for place in range(4):
        assert full_at(tmp_path / f"{place}", 15 + 25 * place)


@pytest.mark.torture
def test_transactions_hold_whenever_the_disk_is_full(tmp_path: Path) -> None:
    assert next(n for n in count(1) if not full_at(tmp_path / f"{n}", n)) > 100
