"""Very many transactions that are open at once, through one gateway and two: what they cost, a death of their
coordinator amid them, and that all of them commit.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx
import pytest

from api.kafka.clients.errors import ErrorCode
from api.kafka.protocol.messages.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from coordinator.groups.producers.producer_view import State
from log_tables.clock import timer
from log_tables.cluster.admin.topic_admin import create_topic
from log_tables.cluster.cluster import Cluster
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.filling import resident
from tests.kit.gateway import LEADER_TIMEOUT_MS
from tests.kit.kafka import KafkaGateway, read_all
from tests.kit.kafka_asking import Asker, asker
from tests.kit.kafka_served import kafka_served
from tests.kit.kafka_transactions import Held, begin, end, produce
from tests.kit.loop_holds import HELD_MAX_S, Hold, loop_holds
from tests.kit.support import WAIT_S, free_port, wait_until

TOPIC, CLIENTS = "t", 16
LONG_MS = 900_000
OPENS_SINCE, MOVES_ON_SINCE = 12, 5
"""The versions of Produce and of EndTxn with KIP-890."""

T = TypeVar("T")


def by_clients(ports: Sequence[int], work: Sequence[Callable[[Asker], T]]) -> list[T]:
    """Do `work` by CLIENTS connections at once, to one of `ports` after the other; the outcomes in order."""

    def some(number: int) -> list[T]:
        with asker(ports[number % len(ports)]) as asking:
            return [each(asking) for each in work[number::CLIENTS]]

    with ThreadPoolExecutor(CLIENTS) as pool:
        found = [*pool.map(some, range(CLIENTS))]
    return [found[number % CLIENTS][number // CLIENTS] for number in range(len(work))]


def again(asked: Callable[[], int]) -> None:
    """Ask until the code of the answer is that of success, as a client does while a coordinator changes."""
    retried = (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    )

    def done() -> bool:
        code = asked()
        assert code in (ErrorCode.NONE, *retried), ErrorCode(code)
        return code == ErrorCode.NONE

    wait_until(done, "it is answered")


def opened(number: int, asking: Asker) -> Held:
    """A transaction with a record."""
    held = begin(asking, f"id-{number}", LONG_MS)
    write(held, 0, asking)
    return held


def write(held: Held, sequence: int, asking: Asker) -> None:
    value = f"{held.id} {sequence}".encode()
    again(lambda: produce(asking, held, TOPIC, value, sequence, OPENS_SINCE).error_code)


def commit(held: Held, asking: Asker) -> None:
    again(lambda: end(asking, held, MOVES_ON_SINCE).error_code)


def coordinates(port: int) -> int:
    """How many ids with an open transaction a gateway coordinates."""
    with asker(port) as asking:
        found = asking.ask(ListTransactionsRequest(state_filters=[State.ONGOING]), 1)
        assert found.error_code == ErrorCode.NONE
        return len(found.transaction_states)


def described(names: Sequence[str], asking: Asker) -> set[str]:
    """The states of ids."""
    found = asking.ask(DescribeTransactionsRequest(transactional_ids=[*names]), 0)
    return {each.transaction_state for each in found.transaction_states}


def timed(what: str, act: Callable[[], T]) -> T:
    """Do `act` and print how long it took."""
    began = timer()
    found = act()
    print(f"{what}: {timer() - began:.2f} s")  # noqa: T201 -- a figure
    return found


def survive(root: Path, count: int, gateways: int) -> None:
    """Open `count` transactions, let the coordinator die, write on, and commit all."""
    settings: dict[str, object] = {"linger_ms": 0, "leader_timeout_ms": LEADER_TIMEOUT_MS}
    with ExitStack() as open_:
        served = [
            open_.enter_context(closing(KafkaGateway(root, settings, http_port=free_port())))
            for _ in range(gateways)
        ]
        ports = [each.port for each in served]
        served[0].create_topic(TOPIC)
        by_clients(ports[:1], [partial(opened, -1)])
        leads = [coordinates(port) for port in ports].index(1)
        leader, before = served[leads], resident(served[leads].running)
        work = [partial(opened, number) for number in range(count)]
        helds = timed(f"open {count}", lambda: by_clients(ports, work))
        print(f"bytes of memory for each: {(resident(leader.running) - before) / count:.0f}")  # noqa: T201
        assert timed("ListTransactions", partial(coordinates, leader.port)) == count + 1
        names = [each.id for each in helds]
        with asker(ports[0]) as asking:
            assert timed("DescribeTransactions", partial(described, names, asking)) == {State.ONGOING}
        page = timed("the console", partial(leader.running.client.get, "/console/transactions"))
        assert page.status_code == 200
        leader.kill()
        if gateways == 1:
            leader.start()
        ports = [port for number, port in enumerate(ports) if gateways == 1 or number != leads]
        with asker(ports[0]) as asking:
            timed("takeover, until a record is staged", partial(write, helds[0], 1, asking))
        assert coordinates(ports[0]) == count + 1
        rest = [partial(write, held, 1) for held in helds[1:]]
        timed("write on", lambda: by_clients(ports, rest))
        timed("commit all", lambda: by_clients(ports, [partial(commit, held) for held in helds]))
        found = [each.value or b"" for each in read_all(f"127.0.0.1:{ports[0]}", TOPIC)]
        assert coordinates(ports[0]) == 1
    assert sorted(found) == sorted(f"id-{n} {s}".encode() for n in range(count) for s in range(2))
    assert check(open_store(root)).problems == []


@pytest.mark.parametrize("gateways", [1, 2])
def test_many_open_transactions_survive_their_coordinator(tmp_path: Path, gateways: int) -> None:
    survive(tmp_path / "root", 100, gateways)


@pytest.mark.torture
@pytest.mark.parametrize("count", [1_250, 5_000])
@pytest.mark.parametrize("gateways", [1, 2])
def test_very_many_open_transactions_survive_their_coordinator(
    tmp_path: Path, gateways: int, count: int
) -> None:
    survive(tmp_path / "root", count, gateways)


async def turn() -> None:
    """A turn of the event loop, which ends the one before."""


@pytest.mark.torture
def test_very_many_open_transactions_hold_nobody_up(tmp_path: Path) -> None:
    """Neither do they when they are looked at, or looked after."""
    count, root = 5_000, tmp_path / "root"
    create_topic(Cluster.open(open_store(root)), TOPIC, 1)
    with kafka_served(root) as here, loop_holds(here.loop) as holds:
        held: dict[str, Hold] = {}

        def hold(what: str, act: Callable[[], T]) -> T:
            found = act()
            asyncio.run_coroutine_threadsafe(turn(), here.loop).result(WAIT_S)
            held[what] = holds.take()
            return found

        pages = [here.gateway.cluster.url + path for path in ("/console/transactions", "/metrics")]
        hold("", lambda: [httpx.get(page, timeout=WAIT_S) for page in pages])  # which are compiled
        held.clear()
        helds = hold("open", lambda: by_clients([here.port], [partial(opened, n) for n in range(count)]))
        assert hold("list", partial(coordinates, here.port)) == count
        with asker(here.port) as asking:
            described_as = hold("describe", partial(described, [each.id for each in helds], asking))
        assert described_as == {State.ONGOING}
        for page in pages:
            assert hold(page, partial(httpx.get, page, timeout=WAIT_S)).status_code == 200
        hold("commit", lambda: by_clients([here.port], [partial(commit, each) for each in helds]))
    print({what: f"{each[0] * 1_000:.1f} ms" for what, each in held.items()})  # noqa: T201
    assert {what: each for what, each in held.items() if each[0] > HELD_MAX_S} == {}
