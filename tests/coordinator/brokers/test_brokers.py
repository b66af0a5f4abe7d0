"""Which gateways there are, as each sees it: who comes, is silent, is forgotten, leaves, is replaced."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from coordinator.brokers.brokers import FORGOTTEN_S, Brokers
from coordinator.brokers.peer_secret import PeerSecrets
from ingest.periodic_task import FailureLog
from ingest.settings import Settings
from log_tables.clock import Clock, ManualClock, SystemClock
from log_tables.cluster.cluster import Cluster
from log_tables.cluster.metadata_log import BrokerRecord, decode
from log_tables.errors import ObjectMissing
from log_tables.layout import METADATA_DIRECTORY, broker_path
from log_tables.partition.reader import PartitionReader
from log_tables.store.store import Store, open_store
from log_tables.testing import Fault, FaultyStore, HoldingStore, refused
from tests.kit.partitions import records
from tests.kit.support import WAIT_S, wait_until

TIMEOUT_MS = 100
"""Signs of life come after a quarter of it. Silence is measured by a clock that only the test moves."""


class Seat:
    """A gateway's view of the others, without the gateway."""

    def __init__(
        self,
        root: Path,
        url: str,
        faults: Sequence[Fault] = (),
        secret: str = "s" * 32,
        wrap: Callable[[Store], Store] = lambda store: store,
        clock: Clock | None = None,
    ) -> None:
        settings = Settings(data=str(root), peer_url=url, leader_timeout_ms=TIMEOUT_MS)
        self.clock = ManualClock()
        self.cluster = Cluster.open(wrap(FaultyStore(open_store(root), faults)), clock or SystemClock(), url)
        self.replaced: list[str] = []
        self.failed: list[str] = []
        failures = FailureLog(self.failed.append)
        secrets = PeerSecrets([secret], self.cluster.cluster_id)
        self.brokers = Brokers(
            self.cluster, settings, self.clock, failures, secrets, lambda: self.replaced.append(url)
        )

    @property
    def store(self) -> Store:
        return self.cluster.store

    def listed(self) -> dict[int, str]:
        """The gateways on the list as it is now, by number."""
        self.cluster.refresh(wait=True)
        return {number: record.url for number, record in self.brokers.all().items()}

    def sees(self, *living: int) -> bool:
        self.cluster.refresh(wait=True)
        return self.brokers.living() == living

    def gives_signs(self, broker: int) -> bool:
        """Whether the store holds a sign of life of `broker`, however old."""
        try:
            return bool(self.store.get(broker_path(broker)))
        except ObjectMissing:
            return False

    async def fall_silent(self, ms: int = TIMEOUT_MS) -> None:
        """Let as much time pass that all that gave no sign of life since are silent; it looks meanwhile."""
        while ms:
            step = min(ms, TIMEOUT_MS // 4)
            self.clock.advance(step)
            await until(lambda: self.brokers._looked == self.clock.monotonic(), "it has looked")
            ms -= step


async def until(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(wait_until, condition, what)


def run(scenario: Callable[[Path], Coroutine[None, None, None]], root: Path) -> None:
    asyncio.run(scenario(root))


def dead(seat: Seat, url: str) -> BrokerRecord:
    """A gateway that registers, gives one sign of life, and never another."""
    record = seat.cluster.metadata_log.register_broker(url)
    seat.store.put(broker_path(record.id), b"once")
    return record


def test_gateways_number_themselves_and_see_one_another(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        assert one.brokers.id == 0
        for seat in (one, two):
            await seat.brokers.start()
        assert (one.brokers.id, two.brokers.id) == (1, 2)
        for seat in (one, two):
            assert seat.listed() == {1: "http://one", 2: "http://two"}
            assert seat.sees(1, 2)
        other = one.brokers.other(2)
        assert other is not None
        assert other.url == "http://two"
        assert one.brokers.other(1) is None
        assert one.brokers.other(3) is None
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


def test_who_gives_no_sign_of_life_is_silent_until_there_is_one(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one = Seat(root, "http://one")
        await one.brokers.start()
        gone = dead(one, "http://gone")
        await until(lambda: one.brokers._seen.keys() == {2}, "its sign of life is seen")
        await one.fall_silent(TIMEOUT_MS - 1)
        assert not one.brokers.is_silent(gone.id)
        await one.fall_silent(1)
        assert one.brokers.is_silent(gone.id)
        assert one.sees(1)
        assert one.listed() == {1: "http://one", 2: "http://gone"}
        one.store.put(broker_path(gone.id), b"again")
        await until(lambda: one.sees(1, 2), "it lives")
        await one.brokers.close()

    run(scenario, tmp_path)


def test_who_stood_still_believes_nobody_silent_before_it_has_looked_again(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one = Seat(root, "http://one")
        await one.brokers.start()
        gone = dead(one, "http://gone")
        await until(lambda: one.brokers._seen.keys() == {2}, "its sign of life is seen")
        one.clock.advance(10 * TIMEOUT_MS)
        assert not one.brokers.is_silent(gone.id)
        await until(lambda: one.brokers._looked == one.clock.monotonic(), "it has looked")
        assert not one.brokers.is_silent(gone.id)
        await one.fall_silent()
        assert one.brokers.is_silent(gone.id)
        await one.brokers.close()

    run(scenario, tmp_path)


def test_who_was_never_seen_is_not_silent(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one = Seat(root, "http://one")
        await one.brokers.start()
        await one.fall_silent()
        assert not one.brokers.is_silent(7)
        await one.brokers.close()

    run(scenario, tmp_path)


def test_who_lives_is_not_silent_however_time_passes(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        for _ in range(3):
            one.cluster.refresh(wait=True)
            await one.fall_silent()
            await until(lambda: one.sees(1, 2), "the other has given a new sign of life")
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


def test_who_was_silent_for_very_long_is_taken_off_the_list(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one = Seat(root, "http://one")
        await one.brokers.start()
        dead(one, "http://gone")
        await until(lambda: one.brokers._seen.keys() == {2}, "its sign of life is seen")
        one.clock.advance(1_000 * FORGOTTEN_S)
        await one.fall_silent(2 * TIMEOUT_MS)
        await until(lambda: one.listed() == {1: "http://one"}, "it is forgotten")
        assert (dead(one, "http://next")).id == 2
        await one.brokers.close()

    run(scenario, tmp_path)


def test_who_was_forgotten_and_lives_comes_again(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        one.cluster.refresh(wait=True)
        one.cluster.metadata_log.remove_broker(one.cluster.metadata_log.brokers[2])
        two.cluster.refresh(wait=True)
        await until(lambda: len(one.listed()) == 2, "it is on the list again")
        assert one.listed() == two.listed()
        assert two.replaced == []
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


def test_who_leaves_in_order_is_gone_at_once_with_its_sign_of_life(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        await until(lambda: two.gives_signs(2), "it has given a sign of life")
        await two.brokers.close()
        assert two.brokers.id == 0
        assert one.listed() == {1: "http://one"}
        assert not one.gives_signs(2)
        await one.brokers.close()
        assert one.listed() == {}

    run(scenario, tmp_path)


class Paused(SystemClock):
    """A clock whose first pause before a retry lasts until the test goes on."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def pause(self, seconds: float) -> None:  # noqa: ARG002 -- the test says how long
        self.has_begun.set()
        assert self.may_end.wait(WAIT_S)


def test_who_has_said_that_it_leaves_does_not_come_back(tmp_path: Path) -> None:
    """The gateway publishes its partitions, meets another writer, leaves, and must not publish again."""
    holding, clock = HoldingStore(open_store(tmp_path), f"{METADATA_DIRECTORY}/_delta_log"), Paused()

    async def scenario(root: Path) -> None:
        seat = Seat(root, "http://a", wrap=lambda _: holding, clock=clock)
        await seat.brokers.start()
        holding.hold()
        seat.brokers.announce_led({"t": [0]})
        await until(lambda: holding.held == 1, "it publishes what it leads")
        other = Cluster.open(open_store(root), SystemClock(), "http://b")
        await asyncio.to_thread(other.metadata_log.register_broker, "http://b")
        holding.let_go()
        await until(clock.has_begun.is_set, "it has met the other writer")
        leaving = asyncio.create_task(seat.brokers.leave())
        await asyncio.wait([leaving], timeout=0.2)  # overtakes nothing
        clock.may_end.set()
        await leaving
        log = other.metadata_log.partition
        await until(lambda: len(_said(log, 1)) == 3, "it has published all")
        assert [record.leaving for record in _said(log, 1)] == [False, False, True]
        await seat.brokers.close()

    run(scenario, tmp_path)


def _said(log: PartitionReader, number: int) -> list[BrokerRecord]:
    """The records that gateway `number` has written about itself, in order."""
    log.refresh()
    found = [decode(record) for record in records(log)]
    return [each for each in found if isinstance(each, BrokerRecord) and each.id == number]


def test_a_gateway_whose_store_was_away_gives_signs_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(root: Path) -> None:
        away = [Fault(nth, refused, {"put"}, broker_path(1)) for nth in range(2, 6)]
        one, two = Seat(root, "http://one", away), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        await until(lambda: bool(one.listed()) and one.failed == ["heartbeat"] * 4, "its signs failed")
        await two.fall_silent()
        await until(lambda: two.sees(1, 2), "it gives signs again")
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)
    [failed, works] = [message for message in caplog.messages if "heartbeat" in message]
    assert failed.startswith("duty heartbeat failed; it is tried again: ")
    assert works == "duty heartbeat works again"


def test_what_one_leads_is_told_to_the_others(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one, two = Seat(root, "http://one"), Seat(root, "http://two")
        for seat in (one, two):
            await seat.brokers.start()
        for leads in ({"t": [0, 2]}, {"t": [2], "u": [0]}, {}):
            two.brokers.announce_led(leads)
            assert two.brokers.all()[2].leads == leads
            await until(lambda: bool(one.listed()) and one.brokers.all()[2].leads == leads, "it is told")  # noqa: B023
        for seat in (two, one):
            await seat.brokers.close()

    run(scenario, tmp_path)


@pytest.mark.parametrize("leads", [{}, {"t": [0]}], ids=["idle", "leading"])
def test_who_is_replaced_at_its_url_hears_of_it(tmp_path: Path, leads: dict[str, list[int]]) -> None:
    async def scenario(root: Path) -> None:
        old, new = Seat(root, "http://same"), Seat(root, "http://same")
        for seat in (old, new):
            await seat.brokers.start()
        assert (old.brokers.id, new.brokers.id) == (1, 1)
        old.cluster.refresh(wait=True)
        old.brokers.announce_led(leads)
        await until(lambda: old.replaced == ["http://same"], "the old one has heard of it")
        await old.brokers.close()
        assert new.listed() == {1: "http://same"}
        assert new.replaced == []
        await new.brokers.close()

    run(scenario, tmp_path)


def test_a_gateway_lives_while_all_other_threads_hang(tmp_path: Path) -> None:
    async def scenario(root: Path) -> None:
        one = Seat(root, "http://one")
        await one.brokers.start()
        dead(one, "http://other")  # who is alone gives no signs
        held = HoldingStore(one.store, "topic", {"get"})
        held.hold()

        threads = ThreadPoolExecutor(32)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(threads)
        reads = [asyncio.create_task(asyncio.to_thread(_read, held)) for _ in range(32)]
        signs: set[bytes] = set()

        def lives() -> bool:
            with suppress(ObjectMissing):
                signs.add(one.store.get(broker_path(1)))
            return held.held == 32 and len(signs) >= 3

        with ThreadPoolExecutor(1) as apart:
            await loop.run_in_executor(apart, wait_until, lives, "all threads hang, and signs are given")
        assert not any(read.done() for read in reads)
        held.let_go()
        await asyncio.gather(*reads)
        await one.brokers.close()

    run(scenario, tmp_path)


def _read(store: Store) -> None:
    with suppress(ObjectMissing):
        store.get("topic")
