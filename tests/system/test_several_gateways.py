"""Several gateways on one root: whoever is asked, killed, paused or cut off, each record is there once."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from log_tables.clock import ManualClock, timer
from log_tables.root.fsck import check
from log_tables.store.store import open_store
from tests.kit.gateway import NEVER_MS, RunningGateway
from tests.kit.history import Write
from tests.kit.several import (
    LONG_S,
    PARTITIONS,
    TOPIC,
    Load,
    Several,
    brokers,
    leaders,
    loaded,
    part,
    time_to_serve,
)
from tests.kit.support import S3Server, wait_until

BUSY = "429"
"""The only refusal that a client may meet while all is well."""

CALM_MS = 2_000
"""Nobody who is busy is silent for so long."""


def faults(several: Several, load: Load) -> list[object]:
    """The findings about the clients' operations, and the problems of the tables."""
    return [*load.findings(), *check(open_store(several.root, several.options)).problems]


def errors(load: Load) -> Counter[str]:
    refused = load.work.refused()
    del refused[BUSY]
    return refused


def agree(several: Several, load: Load, rounds: int, more: int = 1) -> None:
    for _ in range(rounds):
        load.wait_for_all(more)
    assert faults(several, load) == []
    assert errors(load) == Counter()
    assert {directory: times for directory, times in several.claims().items() if times > 1} == {}


def test_two_gateways_behind_alternating_requests_are_one(tmp_path: Path) -> None:
    several = Several(tmp_path, 2, leader_timeout_ms=NEVER_MS)
    with loaded(several, tmp_path, alternating=True) as load:
        agree(several, load, rounds=1)


@pytest.mark.torture
def test_two_gateways_behind_alternating_requests_are_one_for_a_minute(tmp_path: Path) -> None:
    several = Several(tmp_path, 2, leader_timeout_ms=NEVER_MS)
    with loaded(several, tmp_path, alternating=True) as load:
        end = timer() + 60
        while timer() < end:
            load.wait_for_all(5)
        agree(several, load, rounds=1)


def test_two_gateways_on_a_bucket_are_one(tmp_path: Path, s3: S3Server) -> None:
    several = Several(
        tmp_path, 2, root=s3.bucket("two-are-one"), options=s3.options, leader_timeout_ms=NEVER_MS
    )
    with loaded(several, tmp_path, alternating=True) as load:
        agree(several, load, rounds=1)


def report(what: str, values: Sequence[float]) -> None:
    """Show what is not asserted, with `-rA` or `-s`."""
    sys.stdout.write(f"{what}: {' '.join(f'{each:.1f}' for each in sorted(values))}\n")


def survive(several: Several, load: Load, seed: int, kills: int) -> None:
    """Kill one after the other, and start it again, now at once, now when others have its place."""
    draw = ManualClock(seed=seed)
    taken_s: list[float] = []
    load.wait_for_all()
    for _ in range(kills):
        load.work.wait_for(10 + int(draw.random() * 100))
        number = int(draw.random() * len(several.gateways))
        several.gateways[number].kill()
        others = [gateway.url for gateway in several.running()]
        again = partial(several.start, number) if draw.random() < 0.5 else lambda: None
        taken_s.append(time_to_serve(others, again))
        for index in range(PARTITIONS):
            load.work.wait_for(1, Write, f"idempotent{index}")
        if several.gateways[number].process.poll() is not None:
            several.start(number)
    report("all is served again after a kill [s]", taken_s)
    load.wait_for_all(2)
    assert faults(several, load) == []


def test_one_of_three_is_killed_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    several = Several(tmp_path, 3)
    with loaded(several, tmp_path) as load:
        survive(several, load, seed, kills=1)


@pytest.mark.torture
def test_one_of_three_is_killed_often_and_nothing_is_lost(tmp_path: Path, seed: int) -> None:
    several = Several(tmp_path, 3, leader_timeout_ms=5_000)
    with loaded(several, tmp_path) as load:
        survive(several, load, seed, kills=20)


@pytest.mark.torture
def test_one_of_three_on_a_bucket_is_killed_and_nothing_is_lost(
    tmp_path: Path, s3: S3Server, seed: int
) -> None:
    several = Several(tmp_path, 3, root=s3.bucket("one-of-three"), options=s3.options)
    with loaded(several, tmp_path) as load:
        survive(several, load, seed, kills=1)


def doze(several: Several, load: Load, times: int) -> None:
    for number in range(times):
        load.wait_for_all()
        asleep = several.broker(number % 2)
        led = {index for index, leader in enumerate(leaders(several.urls[0], TOPIC)) if leader == asleep}
        assert led
        several.pause(number % 2)
        for index in range(PARTITIONS):
            load.work.wait_for(2, Write, f"idempotent{index}")
        assert asleep not in leaders(several.urls[1 - number % 2], TOPIC)
        several.go_on(number % 2)
        load.wait_for_all(2)
        several.wait_until_alive(2)
        wait_until(lambda: len(set(leaders(several.urls[0], TOPIC))) == 2, "both lead", LONG_S)
    assert faults(several, load) == []


def test_a_gateway_that_sleeps_past_every_timeout_is_fenced(tmp_path: Path) -> None:
    several = Several(tmp_path, 2)
    with loaded(several, tmp_path) as load:
        doze(several, load, times=1)


@pytest.mark.torture
def test_gateways_that_sleep_again_and_again_are_fenced(tmp_path: Path) -> None:
    several = Several(tmp_path, 2)
    with loaded(several, tmp_path) as load:
        doze(several, load, times=10)


def lose_one_another(several: Several, load: Load, times: int) -> None:
    def cut() -> None:
        for proxy in several.proxies:
            proxy.block()

    def join() -> None:
        for proxy in several.proxies:
            proxy.open()

    for _ in range(times):
        part(several, load, cut, join)
    assert faults(several, load) == []


@pytest.mark.torture  # test_cut_network.py has one of it, with packets that are lost
def test_gateways_that_cannot_reach_one_another_leave_each_its_partitions(tmp_path: Path) -> None:
    several = Several(tmp_path, 2, proxied=True, leader_timeout_ms=CALM_MS)
    with loaded(several, tmp_path) as load:
        lose_one_another(several, load, times=1)


@pytest.mark.torture
def test_gateways_that_lose_one_another_again_and_again_leave_each_its_partitions(tmp_path: Path) -> None:
    several = Several(tmp_path, 2, proxied=True, leader_timeout_ms=CALM_MS)
    with loaded(several, tmp_path) as load:
        lose_one_another(several, load, times=5)


def leave(several: Several, directory: Path, times: int) -> None:
    """Stop and start one gateway while clients ask only the other. Nobody waits for a timeout."""
    with closing(several):
        load = Load(directory, several.urls[:1])
        load.start()
        try:
            for _ in range(times):
                load.wait_for_all()
                wait_until(lambda: len(set(leaders(several.urls[0], TOPIC))) == 2, "both lead", LONG_S)
                assert several.gateways[1].stop() == 0
                assert [each["url"] for each in brokers(several.urls[0])] == several.urls[:1]
                assert len(set(leaders(several.urls[0], TOPIC))) == 1
                load.wait_for_all(2)
                several.start(1)
            assert faults(several, load) == []
            assert errors(load) == Counter()
        finally:
            load.work.end()


def test_a_gateway_that_stops_in_order_is_missed_by_nobody(tmp_path: Path) -> None:
    leave(Several(tmp_path, 2, leader_timeout_ms=NEVER_MS), tmp_path, times=1)


@pytest.mark.torture
def test_gateways_that_stop_in_order_are_missed_by_nobody(tmp_path: Path) -> None:
    leave(Several(tmp_path, 2, leader_timeout_ms=NEVER_MS), tmp_path, times=10)


def wait_for_shares(several: Several, *shares: int) -> None:
    """Return when so many partitions of "six" are led by one gateway, so many by the next."""
    for gateway in several.running():
        wait_until(
            lambda: sorted(Counter(leaders(gateway.url, "six")).values()) == sorted(shares),  # noqa: B023
            f"{gateway.url} says that gateways lead {shares} partitions",
            LONG_S,
        )


def told(url: str) -> dict[int, list[int]]:
    return {each["broker"]: each["leads"].get("six", []) for each in brokers(url)}


def is_told(gateway: RunningGateway) -> bool:
    """Whether a gateway's list of brokers and its metrics say who leads `six`."""
    led = leaders(gateway.url, "six")
    by_broker = {broker: [index for index, each in enumerate(led) if each == broker] for broker in (1, 2, 3)}
    text = gateway.client.get("/metrics").text
    names = (r'lakelog_leading\{topic="six"\}', "lakelog_brokers")
    counts = [each for name in names for each in re.findall(rf"^{name} (.*)$", text, re.MULTILINE)]
    return told(gateway.url) == by_broker and counts == ["2.0", "3.0"]


def test_gateways_that_come_lead_their_share_and_all_can_see_it(tmp_path: Path) -> None:
    with closing(Several(tmp_path, 1)) as several:
        first = several.gateways[0]
        first.create_topic("six", 6)
        for index in range(6):
            assert first.produce("six", index, partition=index).status_code == 200
        wait_for_shares(several, 6)
        several.add()
        wait_for_shares(several, 3, 3)
        several.add()
        wait_for_shares(several, 2, 2, 2)
        for gateway in several.running():
            # On a busy machine one may be silent for a moment, and its partitions move.
            wait_until(lambda: is_told(gateway), "its list of brokers and its metrics tell it", LONG_S)  # noqa: B023
        command = [sys.executable, "-m", "lakelog", "broker", "list", "--json", "--url", first.url]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        assert sorted(index for each in json.loads(listed) for index in each["leads"]["six"]) == [*range(6)]
        assert several.gateways[2].stop() == 0
        wait_for_shares(several, 3, 3)
        for index in range(6):
            records = first.client.get(f"/topics/six/partitions/{index}/records", params={"offset": 0}).json()
            assert [record["value"] for record in records] == [index]
