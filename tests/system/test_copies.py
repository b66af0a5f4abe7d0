"""Gateways on a root and on a copy of it, both running: nothing of the one gets into the other."""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from log_tables.cluster.cluster import Cluster
from log_tables.cluster.root_location import note_location
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.consumers import JSON
from tests.kit.gateway import RunningGateway, start_gateway
from tests.kit.support import free_port, wait_until

GROUP = "live"


@dataclass
class Pair:
    """A gateway on a root, and one on its copy."""

    original: RunningGateway
    copy: RunningGateway

    def both(self) -> tuple[RunningGateway, RunningGateway]:
        return self.original, self.copy


def values(gateway: RunningGateway, partition: int = 0) -> list[str]:
    """The values in a partition, by the files alone."""
    cluster = Cluster.open(open_store(gateway.data), create=False)
    found = cluster.topic("t").partition(partition)
    plan = found.plan_read(0, 1 << 20)
    return [
        value.as_py().decode().strip('"') for batch in found.read(plan) for value in batch.column("value")
    ]


def committed(gateway: RunningGateway) -> int:
    answer = gateway.client.get(f"/consumers/{GROUP}/offsets")
    assert answer.status_code == 200, answer.text
    return int(answer.json()["offsets"][0]["offset"])


def commit(gateway: RunningGateway, offset: int) -> None:
    body = {"offsets": [{"topic": "t", "partition": 0, "offset": offset}]}
    answer = gateway.client.put(f"/consumers/{GROUP}/offsets", json=body)
    assert answer.status_code == 204, answer.text


def transact(gateway: RunningGateway, value: str) -> None:
    body = {"records": [{"topic": "t", "partition": 1, "value": value}]}
    answer = gateway.client.post(
        f"/consumers/{GROUP}/transactions", json=body, headers={"Content-Type": JSON}
    )
    assert answer.status_code == 200, answer.text


def fill(gateway: RunningGateway) -> None:
    gateway.create_topic("t", 2)
    for number in range(5):
        assert gateway.produce("t", f"p{number}", partition=0).status_code == 200
    commit(gateway, 2)
    transact(gateway, "first")


@contextmanager
def copied(directory: Path, flag: str = "", workers: bool = False) -> Iterator[Pair]:
    """A filled root and its gateway; a copy, made file by file while that runs, with a gateway of its own."""
    flags = ("--workers", "2") if workers else ()
    with ExitStack() as open_ones:
        port = str(free_port())
        original = start_gateway(directory / "original", "--port", port, *flags)
        open_ones.callback(original.stop)
        fill(original)
        shutil.copytree(directory / "original", directory / "copy")
        note_location(open_store(directory / "copy"))  # as on a clone of the volume, which is refused nowhere
        settings = {flag: original.url} if flag else {}
        copy = start_gateway(directory / "copy", *flags, **settings)
        open_ones.callback(copy.stop)
        yield Pair(original, copy)


def check_nothing_crosses(pair: Pair) -> None:
    original, copy = pair.both()
    for number in range(3):  # before the one on the copy knows that the other is silent there, and after
        for gateway, name in ((copy, "copy"), (original, "original")):
            said = gateway.produce("t", f"{name}{number}", partition=0)
            assert said.status_code == 200, said.text
            assert said.json()["offsets"][0]["offset"] == 5 + number
            transact(gateway, f"{name}{number}")
    commit(copy, 5)
    assert committed(original) == 2
    commit(original, 3)
    assert committed(copy) == 5
    for gateway, name in ((original, "original"), (copy, "copy")):
        own = [f"{name}{number}" for number in range(3)]
        assert values(gateway) == [f"p{number}" for number in range(5)] + own
        assert values(gateway, 1) == ["first", *own]
        assert check(open_store(gateway.data)).problems == []


@pytest.mark.parametrize("flag", ["", "peer_url"], ids=["a url of its own", "the original's url"])
def test_nothing_crosses_between_a_root_and_its_copy(tmp_path: Path, flag: str) -> None:
    with copied(tmp_path, flag) as pair:
        before = claims(pair.original)
        check_nothing_crosses(pair)
        assert claims(pair.original) == before  # nobody had to claim anything again


@pytest.mark.torture
def test_nothing_crosses_between_workers_of_a_root_and_of_its_copy(tmp_path: Path) -> None:
    with copied(tmp_path, workers=True) as pair:
        check_nothing_crosses(pair)


def claims(gateway: RunningGateway) -> dict[str, int]:
    cluster = Cluster.open(open_store(gateway.data), create=False)
    found = cluster.topics(include_internal=True)
    return {each.directory: each.snapshot.leader_epoch for topic in found for each in topic.partitions()}


def test_gateways_of_the_original_are_not_alive_on_a_copy(tmp_path: Path) -> None:
    with copied(tmp_path) as pair:

        def alive(gateway: RunningGateway) -> dict[str, bool]:
            found = gateway.client.get(f"{gateway.cluster}/brokers").json()["data"]
            return {each["url"]: each["alive"] for each in found}

        wait_until(lambda: alive(pair.copy).get(pair.original.url) is False, "it is silent there")
        assert alive(pair.copy) == {pair.original.url: False, pair.copy.url: True}
        assert alive(pair.original) == {pair.original.url: True}
