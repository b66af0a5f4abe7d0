"""Leaders of one partition that race, in threads and in processes."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from log_tables.clock import SystemClock
from log_tables.errors import NotLeader
from log_tables.partition.partition import Partition
from log_tables.store.store import open_store
from tests.kit.partitions import TABLE, another, append, held, new_partition, sound


def race(partition: Partition, name: str, count: int) -> dict[int, bytes]:
    """Append `count` numbered values, claiming as often as it takes; what was acknowledged, by offset."""
    acknowledged: dict[int, bytes] = {}
    for number in range(count):
        value = f"{name}-{number}".encode()
        while True:
            try:
                base = append(partition, value)
                break
            except NotLeader:
                partition.claim(f"http://{name}")
        assert base is not None
        assert base not in acknowledged
        acknowledged[base] = value
    return acknowledged


def race_in_a_process(
    root: str, name: str, count: int, results: "multiprocessing.Queue[dict[int, bytes]]"
) -> None:
    results.put(race(Partition(open_store(root), TABLE, SystemClock()), name, count))


def check_race(partition: Partition, acknowledged: list[dict[int, bytes]], count: int) -> None:
    """Assert that each record was acknowledged once, and that offsets have no gap and no double."""
    together = {offset: value for found in acknowledged for offset, value in found.items()}
    assert sum(map(len, acknowledged)) == len(together) == count * len(acknowledged)
    assert held(another(partition)) == dict(sorted(together.items()))
    assert sorted(together) == list(range(len(together)))
    assert sound(partition)


@pytest.mark.parametrize("kind", ["local", "memory"])
def test_leaders_that_race_in_threads_never_double_or_lose(store_root: Path, kind: str) -> None:
    store = open_store(store_root if kind == "local" else "memory://")
    partition = new_partition(store, SystemClock())
    racers = [another(partition) for _ in range(3)]
    start = threading.Barrier(3)

    def run(number: int) -> dict[int, bytes]:
        start.wait()
        return race(racers[number], str(number), 20)

    with ThreadPoolExecutor(3) as pool:
        check_race(partition, list(pool.map(run, range(3))), 20)


def test_leaders_that_race_in_processes_never_double_or_lose(store_root: Path) -> None:
    partition = new_partition(open_store(store_root), SystemClock())
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[dict[int, bytes]] = context.Queue()
    racers = [
        context.Process(target=race_in_a_process, args=(str(store_root), str(number), 40, results))
        for number in range(2)
    ]
    for racer in racers:
        racer.start()
    acknowledged = [results.get(timeout=120) for _ in racers]
    for racer in racers:
        racer.join()
    check_race(partition, acknowledged, 40)


def test_one_leader_may_be_used_by_many_threads(store_root: Path) -> None:
    """Sequencing and committing from threads of one process: each commits what it alone has sequenced."""
    partition = new_partition(open_store(store_root), SystemClock())
    turn = threading.Lock()

    def run(number: int) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        for value in (f"{number}-{n}".encode() for n in range(10)):
            with turn:
                base = append(partition, value)
            assert base is not None
            found[base] = value
            reader = another(partition)
            assert reader.high_watermark > base
            assert reader.fetch(base, 1).column("value")[0].as_py() == value
        return found

    with ThreadPoolExecutor(4) as pool:
        check_race(partition, list(pool.map(run, range(4))), 10)
