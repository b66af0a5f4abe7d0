"""How long a refused login takes says nothing about whether there is such a user, or such a key.

Requests of both kinds come in turn, in an order by chance, so that whatever else the machine does is the same
for both. The measure is how often one of the first kind takes longer than one of the second: half of the
times if nothing tells them apart, always where one is left out what the other has to compute.
"""

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from statistics import median

import httpx
import pytest

from log_tables.clock import ManualClock, timer
from tests.kit.gateway import RunningGateway, running_gateway
from tests.kit.secured import Secured, bearer
from tests.kit.support import wait_until

USERS, ADDRESSES = 10, 40
"""Each name is tried once from each address: fewer wrong passwords than are bounded."""

OFF_MAX = 0.12
"""From a half. By chance, with 400 of each kind, it is 0.02 (the standard deviation)."""

_log = logging.getLogger(__name__)

Ask = Callable[[httpx.Client, int], int]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, Secured]]:
    data = tmp_path_factory.mktemp("timed")
    root = Secured(data)
    for number in range(USERS):
        root.user(f"user-{number}", "the right one")
    with running_gateway(data, authentication_methods="api-key,scram") as running:
        key = root.key()
        wait_until(lambda: running.client.get("/", headers=bearer(key)).is_success, "the keys are known")
        yield running, root


def superiority(first: list[float], second: list[float]) -> float:
    """How often one of `first` is larger than one of `second`, equal ones counted half."""
    ordered = sorted(second)
    wins = sum((bisect_left(ordered, each) + bisect_right(ordered, each)) / 2 for each in first)
    return wins / len(first) / len(second)


def test_the_measure_is_half_for_equals_and_one_for_the_slower() -> None:
    assert superiority([1, 2, 3], [1, 2, 3]) == 0.5
    assert superiority([4, 5], [1, 2]) == 1
    assert superiority([1, 2], [4, 5]) == 0


def compared(url: str, chance: ManualClock, first: Ask, second: Ask) -> tuple[float, str]:
    """The superiority of `first` over `second`, and all figures. Each is tried USERS times by an address."""
    times: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        for address in range(ADDRESSES):
            transport = httpx.HTTPTransport(local_address=f"127.0.0.{address + 2}")
            client = stack.enter_context(httpx.Client(base_url=url, transport=transport, timeout=60))
            client.get("/health")
            turns = [(kind, number) for kind in (0, 1) for number in range(USERS)]
            for kind, number in sorted(turns, key=lambda _: chance.random()):
                begin = timer()
                status = (first, second)[kind](client, number)
                times[kind].append(timer() - begin)
                assert status == 401
    found = superiority(*times)
    first_ms, second_ms = (median(each) * 1_000 for each in times)
    return found, f"{found:.3f} of {len(times[0])}; medians {first_ms:.2f} and {second_ms:.2f} ms"


def with_password(name: str) -> Ask:
    return lambda client, number: client.get("/topics", auth=(f"{name}-{number}", "wrong")).status_code


def with_key(texts: list[str]) -> Ask:
    return lambda client, number: client.get("/topics", headers=bearer(texts[number])).status_code


@pytest.mark.torture
def test_a_refusal_takes_as_long_for_who_is_there_as_for_who_is_not(
    gateway: tuple[RunningGateway, Secured], seed: int
) -> None:
    running, root = gateway
    url, chance = running.url, ManualClock(seed=seed)
    found, figures = compared(url, chance, with_password("user"), with_password("ghost"))
    _log.info("a password of a user and of nobody: %s", figures)
    assert abs(found - 0.5) < OFF_MAX, figures
    keys = [root.key(f"User:{number}") for number in range(USERS)]
    admin = bearer(keys[-1])
    wait_until(lambda: running.client.get("/", headers=admin).is_success, "the keys are known")
    wrong = [f"{key[:-3]}AAA" for key in keys]
    unknown = [f"{number:012x}{key[12:]}" for number, key in enumerate(keys)]
    found, figures = compared(url, chance, with_key(wrong), with_key(unknown))
    _log.info("a wrong secret of a key and of none: %s", figures)
    assert abs(found - 0.5) < OFF_MAX, figures
